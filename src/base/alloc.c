/* The library's only allocator. Large blocks come from mmap (through malloc's own threshold) and are zeroed lazily by
 * the kernel, so memory that is planned but never touched costs nothing. */
#define _GNU_SOURCE 1 /* mremap */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, MAP_FROM = 1 << 20 };

typedef struct header {
    size_t mapped; /* bytes of the mapping, 0 for malloc */
    void *block;   /* what malloc gave */
} header;

static atomic_uint_fast64_t calls;
static atomic_uint_fast64_t fail_at;
static atomic_size_t fail_above;

void tn_alloc_fail_at(uint64_t nth)
{
    atomic_store(&calls, 0);
    atomic_store(&fail_at, nth);
}

void tn_alloc_fail_above(size_t bytes) { atomic_store(&fail_above, bytes); }

static bool too_large(size_t bytes)
{
    const size_t most = atomic_load(&fail_above);
    return bytes > SIZE_MAX / 2 || (most && bytes > most);
}

uint64_t tn_alloc_count(void) { return atomic_load(&calls); }

static void *raw_alloc(size_t total, header *h)
{
    if (total >= MAP_FROM) {
        void *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return NULL;
        *h = (header){ .mapped = total, .block = p };
        return p;
    }
    void *p = calloc(1, total);
    *h = (header){ .block = p };
    return p;
}

static void *no_memory(size_t bytes)
{
    (void)tn_error(TN_MEMORY, "out of memory: %zu bytes were asked for; use a smaller batch or model", bytes);
    return NULL;
}

static bool refused(size_t bytes)
{
    const uint64_t n = atomic_fetch_add(&calls, 1) + 1;
    return n == atomic_load(&fail_at) || too_large(bytes);
}

void *tn_alloc(size_t bytes)
{
    header h;
    unsigned char *p = refused(bytes) ? NULL : raw_alloc(bytes + 2 * ALIGN, &h);
    if (!p) return no_memory(bytes);
    uintptr_t user = ((uintptr_t)p + sizeof h + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    memcpy((void *)(user - sizeof h), &h, sizeof h);
    return (void *)user;
}

void tn_free(void *p)
{
    header h;
    if (!p) return;
    memcpy(&h, (unsigned char *)p - sizeof h, sizeof h);
    if (h.mapped) munmap(h.block, h.mapped);
    else free(h.block);
}

static bool is_mapped(const void *p)
{
    header h = { 0 };
    if (p) memcpy(&h, (const unsigned char *)p - sizeof h, sizeof h);
    return h.mapped != 0;
}

/* A mapping grows by its page table: what it holds is never there twice, which would be half of what a hostile file may cost
 * (SECURITY.md, P6). */
static void *grow_mapped(void *p, size_t bytes)
{
    header h;
    memcpy(&h, (unsigned char *)p - sizeof h, sizeof h);
    const size_t at = (size_t)((unsigned char *)p - (unsigned char *)h.block), total = bytes + 2 * ALIGN;
    unsigned char *q = refused(bytes) ? MAP_FAILED : mremap(h.block, h.mapped, total, MREMAP_MAYMOVE);
    if (q == MAP_FAILED) return no_memory(bytes);
    h = (header){ .mapped = total, .block = q };
    memcpy(q + at - sizeof h, &h, sizeof h);
    return q + at;
}

tn_status tn_grow(void **p, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count <= *capacity) return TN_OK;
    size_t want = *capacity ? *capacity : 8, bytes;
    while (want < count) want *= 2;
    if (!tn_mul_ok(want, item_bytes, &bytes)) return tn_error(TN_MEMORY, "%zu items are too many", count);
    const bool mapped = is_mapped(*p);
    void *q = mapped ? grow_mapped(*p, bytes) : tn_alloc(bytes);
    if (!q) return TN_MEMORY;
    if (*p && !mapped) {
        memcpy(q, *p, *capacity * item_bytes);
        tn_free(*p);
    }
    *p = q;
    *capacity = want;
    return TN_OK;
}

bool tn_mul_ok(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

bool tn_add_ok(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

struct tn_arena_block {
    struct tn_arena_block *next;
    size_t used, size; /* bytes of data[] */
    _Alignas(16) unsigned char data[];
};

void *tn_arena_alloc(tn_arena *a, size_t bytes)
{
    enum { BLOCK = 16 << 10 };
    const size_t need = (bytes + 15) & ~(size_t)15;
    if (!a->head || a->head->size - a->head->used < need) {
        const size_t size = need > BLOCK ? need : BLOCK;
        struct tn_arena_block *b = tn_alloc(sizeof *b + size);
        if (!b) return NULL;
        b->next = a->head;
        b->size = size;
        a->head = b;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += need;
    return p;
}

char *tn_arena_strdup(tn_arena *a, const char *s)
{
    const size_t n = strlen(s) + 1;
    char *p = tn_arena_alloc(a, n);
    if (p) memcpy(p, s, n);
    return p;
}

char *tn_arena_printf(tn_arena *a, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tn_arena_strdup(a, text);
}

void tn_arena_free(tn_arena *a)
{
    for (struct tn_arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        tn_free(b);
    }
    a->head = NULL;
}
