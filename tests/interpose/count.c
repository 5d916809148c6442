/* Preloaded: counts allocations, mappings and file opens of the whole process, the C library's own included.
 * tn_count_reset and tn_count_total are found by the program through dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_long allocations, mappings, opens;

void tn_count_reset(void);
void tn_count_total(long out[3]);

void tn_count_reset(void)
{
    atomic_store(&allocations, 0);
    atomic_store(&mappings, 0);
    atomic_store(&opens, 0);
}

void tn_count_total(long out[3])
{
    out[0] = atomic_load(&allocations);
    out[1] = atomic_load(&mappings);
    out[2] = atomic_load(&opens);
}

/* glibc's own entry points, so that the counters need no dlsym (which allocates). */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t a, size_t n);

void *malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t m)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, m);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}

void *memalign(size_t a, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(a, n);
}

void *aligned_alloc(size_t a, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(a, n);
}

int posix_memalign(void **p, size_t a, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    *p = __libc_memalign(a, n);
    return *p ? 0 : 12;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    atomic_fetch_add(&mappings, 1);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    return real(at, n, prot, flags, fd, off);
}

int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list ap;
    va_start(ap, flags);
    const int mode = va_arg(ap, int);
    va_end(ap);
    atomic_fetch_add(&opens, 1);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "open");
    return real(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    atomic_fetch_add(&opens, 1);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(path, mode);
}
