/* Tiles that need scratch memory: the pool runs a few slots, each with its own share of the workspace, and a slot
 * takes tiles until none is left. Results may depend on the tile's number alone, never on the slot. */
#ifndef TN_OPS_SLOTS_H
#define TN_OPS_SLOTS_H

#include "backend/cpu/pool.h"

#include <stdatomic.h>

typedef struct tn_slots {
    void (*fn)(void *arg, void *scratch, int64_t tile);
    void *arg;
    unsigned char *work; /* (threads, bytes) */
    size_t bytes;        /* of one slot, a multiple of 64 */
    int64_t tiles;
    _Atomic int64_t next;
} tn_slots;

static inline size_t tn_align64(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* The next part of a workspace, 64-byte aligned; base NULL only measures. */
static inline void *tn_carve(void *base, size_t *used, size_t bytes)
{
    void *p = base ? (char *)base + *used : NULL;
    *used += tn_align64(bytes);
    return p;
}

static inline void tn_slots_take(void *arg, int64_t slot)
{
    tn_slots *s = arg;
    for (int64_t t; (t = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed)) < s->tiles;)
        s->fn(s->arg, s->work + (size_t)slot * s->bytes, t);
}

/* work holds tn_pool_threads(pool) slots of `bytes`. */
static inline void tn_slots_run(tn_pool *pool, int64_t tiles, void (*fn)(void *arg, void *scratch, int64_t tile),
                                void *arg, void *work, size_t bytes)
{
    const int64_t threads = tn_pool_threads(pool);
    tn_slots s = { .fn = fn, .arg = arg, .work = work, .bytes = bytes, .tiles = tiles };
    if (tiles > 0) tn_pool_run(pool, tiles < threads ? tiles : threads, tn_slots_take, &s);
}

#endif
