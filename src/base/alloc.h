/* Memory: one entry point for every allocation of the library, so that a test can count them or make the n-th fail,
 * and arenas for things that live as long as their owner. Nothing here is called inside a training step. */
#ifndef TN_BASE_ALLOC_H
#define TN_BASE_ALLOC_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory, 64-byte aligned; NULL when there is none (the error text is set). tn_free takes NULL. */
void *tn_alloc(size_t bytes);
void tn_free(void *p);
/* Grows *p (from tn_alloc, or NULL) to hold `count` items; the new part is zero. */
tn_status tn_grow(void **p, size_t *capacity, size_t count, size_t item_bytes);

/* Test hooks: a counter of calls, a call number that fails, and a size above which all do (0 = never). Process-wide, for
 * tests only. */
void tn_alloc_fail_at(uint64_t nth);
void tn_alloc_fail_above(size_t bytes);
uint64_t tn_alloc_count(void);

/* Checked arithmetic for sizes that come from files and settings. */
bool tn_mul_ok(size_t a, size_t b, size_t *out);
bool tn_add_ok(size_t a, size_t b, size_t *out);

/* An arena: blocks freed all at once. Pointers stay valid until tn_arena_free. */
typedef struct tn_arena {
    struct tn_arena_block *head;
} tn_arena;

void *tn_arena_alloc(tn_arena *a, size_t bytes); /* zeroed, 16-byte aligned; NULL when out of memory */
char *tn_arena_strdup(tn_arena *a, const char *s);
char *tn_arena_printf(tn_arena *a, const char *fmt, ...) TN_PRINTF(2, 3);
void tn_arena_free(tn_arena *a);

#endif
