/* The thread pool of one CPU context: hands out the tiles of one loop at a time.
 *
 * Tiles go to whichever thread is free, so a tile must not care who runs it: results may depend on the tile's number
 * alone, never on the thread or on the order. A tile that needs scratch memory of its own takes the number of tiles as
 * the number of scratch slots and shares the real work out inside (see tn_gemm_run). */
#ifndef TN_BACKEND_CPU_POOL_H
#define TN_BACKEND_CPU_POOL_H

#include "base/status.h"

#include <stdint.h>

enum { TN_POOL_MAX_THREADS = 1024 };

typedef struct tn_pool tn_pool;
struct tn_tracer;

/* `threads` counts the caller: 1 creates no thread at all. Workers block every signal. */
tn_status tn_pool_new(int threads, tn_pool **out);
void tn_pool_free(tn_pool *p);         /* takes NULL; no run may be under way */
int tn_pool_threads(const tn_pool *p); /* 1 for NULL */
/* What its workers compute, and how long the caller waits for them, goes to this tracer (NULL: no longer). Between runs. */
void tn_pool_trace(tn_pool *p, struct tn_tracer *to);

/* Runs fn(arg, 0 .. tiles-1), each once, and returns when all are done; the caller works too. Allocates nothing and
 * cannot fail. A call that finds the pool at work (from inside a tile, or from another thread) runs its tiles itself,
 * in order; so does a NULL pool. What tiles wrote is visible to the caller afterwards. */
void tn_pool_run(tn_pool *p, int64_t tiles, void (*fn)(void *arg, int64_t tile), void *arg);

#endif
