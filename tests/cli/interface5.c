/* An object as it was compiled for model interface 5: the fields of its tn_model, in memory that ends where they end. Whoever reads the
 * struct as that of a later version reads behind it, and is killed. ABI and BYTES make others of it. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct old_model {
    size_t size;
    int abi;
    const char *name, *summary;
    const void *settings;
    size_t n_settings;
    const void *presets;
    size_t n_presets;
    void (*build)(void);
    void (*instruments)(void);
    bool features;
    const char *const *exact, *const *defaults, *const *scalars;
} old_model;

#ifndef ABI
#define ABI 5
#endif
#ifndef BYTES
#define BYTES sizeof(old_model)
#endif

static void build(void) {}

const void *tenon_model(void);
const void *tenon_model(void)
{
    const old_model m = { .size = sizeof m, .abi = ABI, .name = "old", .build = build };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, page, PROT_NONE) != 0) return NULL;
    return memcpy(at + page - BYTES, &m, BYTES);
}
