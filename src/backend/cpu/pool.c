/* Workers wait for a loop, join it, and take tiles from one atomic counter until none is left.
 *
 * Nobody waits for a thread that has not joined: a worker whose core was taken by another process costs its help and
 * no more. `gate` is the one word that says so: the number of the loop, whether it is open for joining, and how many
 * workers are inside. The caller closes the gate before it waits, so the fields of the loop never change under a worker.
 * Waiting spins for about 30 us, then sleeps. */
#include "backend/cpu/pool.h"

#include "base/alloc.h"
#include "base/tracer.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define GATE_INSIDE UINT64_C(0xffff) /* workers that joined and have not left */
#define GATE_OPEN (UINT64_C(1) << 16)
#define GATE_EPOCH_SHIFT 32

#if defined(__aarch64__)
enum { SPINS = 2500 }; /* isb is about 13 ns on Neoverse-N1; `yield` is a no-op there */
static inline void pause_cpu(void) { __asm__ volatile("isb" ::: "memory"); }
#elif defined(__x86_64__)
enum { SPINS = 1000 }; /* pause: 10 to 45 ns */
static inline void pause_cpu(void) { __builtin_ia32_pause(); }
#else
enum { SPINS = 10000 };
static inline void pause_cpu(void) { __asm__ volatile("" ::: "memory"); }
#endif

typedef struct worker {
    tn_pool *pool;
    int number; /* from 1 */
    pthread_t thread;
} worker;

struct tn_pool {
    int threads;    /* with the caller */
    int started;    /* workers that exist */
    worker *worker; /* (threads - 1) */
    pthread_mutex_t lock;
    pthread_cond_t work, left; /* a loop opened or the pool ends; the last worker left a closed loop */

    void (*fn)(void *, int64_t);
    void *arg;
    int64_t tiles;
    tn_tracer *tracer; /* or NULL */

    _Alignas(64) _Atomic int64_t next; /* the first tile not taken */
    _Alignas(64) _Atomic uint64_t gate;
    _Alignas(64) atomic_int sleepers; /* workers asleep or about to be */
    atomic_bool busy, stop, caller_asleep;
};

static uint32_t epoch_of(uint64_t gate) { return (uint32_t)(gate >> GATE_EPOCH_SHIFT); }

static bool news(tn_pool *p, uint32_t seen) { return epoch_of(atomic_load(&p->gate)) != seen || atomic_load(&p->stop); }

/* Returns when a loop other than `seen` was opened, or the pool ends. The order "count oneself as a sleeper, then look
 * again" against the caller's "open the gate, then look for sleepers" loses no wake-up; both need seq_cst. */
static void wait_for_news(tn_pool *p, uint32_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (news(p, seen)) return;
        pause_cpu();
    }
    atomic_fetch_add(&p->sleepers, 1);
    pthread_mutex_lock(&p->lock);
    while (!news(p, seen)) pthread_cond_wait(&p->work, &p->lock);
    pthread_mutex_unlock(&p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
}

static bool join(tn_pool *p, uint32_t *seen)
{
    uint64_t g = atomic_load(&p->gate);
    *seen = epoch_of(g);
    while (epoch_of(g) == *seen && (g & GATE_OPEN))
        if (atomic_compare_exchange_weak(&p->gate, &g, g + 1)) return true;
    return false;
}

static void leave(tn_pool *p)
{
    const uint64_t before = atomic_fetch_sub(&p->gate, 1);
    if ((before & GATE_INSIDE) != 1 || (before & GATE_OPEN) || !atomic_load(&p->caller_asleep)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->left);
    pthread_mutex_unlock(&p->lock);
}

/* How many. */
static int64_t take_tiles(tn_pool *p)
{
    const int64_t tiles = p->tiles;
    int64_t n = 0;
    for (int64_t t; (t = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < tiles; n++) p->fn(p->arg, t);
    return n;
}

static void work(tn_pool *p, int number)
{
    const uint64_t begun = p->tracer ? tn_tracer_clock(p->tracer) : 0;
    const int64_t n = take_tiles(p);
    if (begun) tn_tracer_add_pieces(p->tracer, number, begun, n);
}

static void *worker_main(void *arg)
{
    const worker *w = arg;
    tn_pool *p = w->pool;
    for (uint32_t seen = 0;;) {
        wait_for_news(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        if (!join(p, &seen)) continue;
        work(p, w->number);
        leave(p);
    }
}

static void wake_workers(tn_pool *p, int64_t wanted)
{
    int64_t n = atomic_load(&p->sleepers);
    if (n == 0) return;
    /* Passing through the lock: a worker that counted itself is now either asleep or will see the open gate. */
    pthread_mutex_lock(&p->lock);
    pthread_mutex_unlock(&p->lock);
    for (n = n < wanted ? n : wanted; n > 0; n--) pthread_cond_signal(&p->work);
}

static bool is_empty(tn_pool *p) { return (atomic_load(&p->gate) & GATE_INSIDE) == 0; }

static void wait_until_empty(tn_pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (is_empty(p)) return;
        pause_cpu();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_asleep, true);
    while (!is_empty(p)) pthread_cond_wait(&p->left, &p->lock);
    atomic_store(&p->caller_asleep, false);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_workers(tn_pool *p)
{
    const uint64_t begun = p->tracer ? tn_tracer_clock(p->tracer) : 0;
    wait_until_empty(p);
    if (begun)
        tn_tracer_add(p->tracer, TN_TRACK_MAIN,
                      &(tn_event){ .begin = begun, .name = "wait for workers", .kind = TN_TRACED_WAIT });
}

void tn_pool_run(tn_pool *p, int64_t tiles, void (*fn)(void *arg, int64_t tile), void *arg)
{
    if (!p || p->threads == 1 || tiles <= 1 || atomic_exchange(&p->busy, true)) {
        for (int64_t t = 0; t < tiles; t++) fn(arg, t);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->tiles = tiles;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    const uint32_t epoch = epoch_of(atomic_load_explicit(&p->gate, memory_order_relaxed)) + 1;
    atomic_store(&p->gate, (uint64_t)epoch << GATE_EPOCH_SHIFT | GATE_OPEN);
    wake_workers(p, tiles - 1);
    (void)take_tiles(p);
    if ((atomic_fetch_and(&p->gate, ~GATE_OPEN) & GATE_INSIDE) != 0) wait_for_workers(p);
    atomic_store(&p->busy, false);
}

int tn_pool_threads(const tn_pool *p) { return p ? p->threads : 1; }

void tn_pool_trace(tn_pool *p, tn_tracer *to) { p->tracer = to; }

/* Signals belong to the thread that asked for them, never to a worker in the middle of a tile. */
static int start_worker(tn_pool *p)
{
    worker *w = &p->worker[p->started];
    sigset_t all, old;
    *w = (worker){ .pool = p, .number = p->started + 1 };
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    p->started += error == 0;
    return error;
}

tn_status tn_pool_new(int threads, tn_pool **out)
{
    tn_status s = TN_OK;
    tn_pool *p = NULL;
    if (threads < 1 || threads > TN_POOL_MAX_THREADS)
        TN_FAIL(TN_USAGE, "a pool of %d threads: the number must be between 1 and %d", threads, TN_POOL_MAX_THREADS);
    p = tn_alloc(sizeof *p);
    if (!p) return TN_MEMORY;
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->left, NULL);
    p->worker = tn_alloc((size_t)threads * sizeof *p->worker);
    if (!p->worker) TN_TRY(TN_MEMORY);
    while (p->started < threads - 1) {
        const int error = start_worker(p);
        if (error)
            TN_FAIL(TN_MEMORY, "thread %d of %d could not be started (%s): use fewer threads", p->started + 2, threads,
                    strerror(error));
    }
    *out = p;
    p = NULL;
done:
    tn_pool_free(p);
    return s;
}

void tn_pool_free(tn_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++) pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->left);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    tn_free(p->worker);
    tn_free(p);
}
