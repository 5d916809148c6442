/* The thread pool: every tile once, short runs, nesting, two callers, and (TENON_BENCH=1) a neighbour that takes a core. */
#define _GNU_SOURCE
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "testlib.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 1000 };

typedef struct counts {
    atomic_int ran[MANY];
    tn_pool *pool;
    atomic_long total;
} counts;

static void count_tile(void *arg, int64_t tile)
{
    counts *c = arg;
    atomic_fetch_add(&c->ran[tile], 1);
}

static void every_tile_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        tn_pool *p = NULL;
        assert_ok(tn_pool_new(threads, &p));
        assert_int_equal(tn_pool_threads(p), threads);
        for (int tiles = 0; tiles <= MANY; tiles = tiles * 3 + 1) {
            counts c = { 0 };
            tn_pool_run(p, tiles, count_tile, &c);
            for (int i = 0; i < MANY; i++) assert_int_equal(atomic_load(&c.ran[i]), i < tiles);
        }
        tn_pool_free(p);
    }
}

static void none_to_run(void **state)
{
    (void)state;
    tn_pool *p = NULL;
    assert_ok(tn_pool_new(2, &p));
    counts c = { 0 };
    tn_pool_run(p, 0, count_tile, &c);
    tn_pool_run(p, -1, count_tile, &c);
    assert_int_equal(atomic_load(&c.ran[0]), 0);
    tn_pool_run(NULL, 3, count_tile, &c); /* no pool: the caller does it */
    assert_int_equal(atomic_load(&c.ran[2]), 1);
    tn_pool_free(p);
    tn_pool_free(NULL);
}

/* Plain ints: the sanitizer for threads sees whether a run really ends before the next one begins. */
static void plain_tile(void *arg, int64_t tile) { ((int *)arg)[tile]++; }

static void many_short_runs(void **state)
{
    (void)state;
    enum { RUNS = 100000, TILES = 3 };
    tn_pool *p = NULL;
    int ran[TILES] = { 0 };
    assert_ok(tn_pool_new(2, &p));
    const uint64_t before = tn_alloc_count();
    for (int i = 0; i < RUNS; i++) tn_pool_run(p, TILES, plain_tile, ran);
    assert_true(tn_alloc_count() == before);
    for (int i = 0; i < TILES; i++) assert_int_equal(ran[i], RUNS);
    tn_pool_free(p);
}

static void inner_tile(void *arg, int64_t tile)
{
    counts *c = arg;
    atomic_fetch_add(&c->total, (long)tile + 1);
}

static void outer_tile(void *arg, int64_t tile)
{
    counts *c = arg;
    (void)tile;
    tn_pool_run(c->pool, 10, inner_tile, c);
}

static void nested(void **state)
{
    (void)state;
    counts c = { 0 };
    assert_ok(tn_pool_new(3, &c.pool));
    for (int i = 0; i < 200; i++) tn_pool_run(c.pool, 20, outer_tile, &c);
    assert_int_equal(atomic_load(&c.total), 200L * 20 * 55);
    tn_pool_free(c.pool);
}

static void *call_from_thread(void *arg)
{
    for (int i = 0; i < 2000; i++) outer_tile(arg, 0);
    return NULL;
}

static void two_callers(void **state)
{
    (void)state;
    counts c = { 0 };
    pthread_t other;
    assert_ok(tn_pool_new(2, &c.pool));
    assert_int_equal(pthread_create(&other, NULL, call_from_thread, &c), 0);
    call_from_thread(&c);
    pthread_join(other, NULL);
    assert_int_equal(atomic_load(&c.total), 2L * 2000 * 55);
    tn_pool_free(c.pool);
}

static void refuses(void **state)
{
    (void)state;
    tn_pool *p = NULL;
    assert_fails(tn_pool_new(0, &p), TN_USAGE, "between 1 and");
    assert_fails(tn_pool_new(TN_POOL_MAX_THREADS + 1, &p), TN_USAGE, "between 1 and");
    for (uint64_t n = 1; n <= 2; n++) {
        tn_alloc_fail_at(n);
        assert_fails(tn_pool_new(2, &p), TN_MEMORY, "memory");
    }
    tn_alloc_fail_at(0);
    assert_null(p);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* About 50 us of work that cannot be skipped. */
static void burn_tile(void *arg, int64_t tile)
{
    volatile uint32_t x = (uint32_t)tile;
    (void)arg;
    for (int i = 0; i < 12000; i++) x = x * 1664525u + 1013904223u;
}

static double burn_s(tn_pool *p)
{
    const double start = now_s();
    for (int i = 0; i < 500; i++) tn_pool_run(p, 16, burn_tile, NULL);
    return now_s() - start;
}

static void serial_cost(void **state)
{
    (void)state;
    if (!getenv("TENON_BENCH")) skip();
    for (int threads = 1; threads <= 2; threads++) {
        tn_pool *p = NULL;
        int ran[2] = { 0 };
        assert_ok(tn_pool_new(threads, &p));
        const double start = now_s();
        for (int i = 0; i < 100000; i++) tn_pool_run(p, 2, plain_tile, ran);
        const double us = (now_s() - start) * 1e6 / 100000;
        print_message("a run of 2 empty tiles: %d thread(s) %.3f us\n", threads, us);
        if (threads == 1) assert_true(us < 2);
        tn_pool_free(p);
    }
}

static void busy_neighbour(void **state)
{
    (void)state;
    if (!getenv("TENON_BENCH") || sysconf(_SC_NPROCESSORS_ONLN) != 2) skip();
    tn_pool *p = NULL;
    assert_ok(tn_pool_new(2, &p));
    const double alone = burn_s(p);
    const pid_t neighbour = fork();
    if (neighbour == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(1, &one);
        sched_setaffinity(0, sizeof one, &one);
        for (volatile int x = 0;; x = x + 1) {
        }
    }
    const double beside = burn_s(p);
    kill(neighbour, SIGKILL);
    waitpid(neighbour, NULL, 0);
    print_message("8000 tiles on 2 threads: %.0f ms alone, %.0f ms beside a busy process on one core (%.2fx)\n",
                  alone * 1e3, beside * 1e3, beside / alone);
    assert_true(beside < 2.5 * alone);
    tn_pool_free(p);
}

void tn_tests_pool(tn_test_list *l)
{
    tn_test_add(l, every_tile_once, NULL, "pool: every tile once");
    tn_test_add(l, none_to_run, NULL, "pool: nothing to run");
    tn_test_add(l, many_short_runs, NULL, "pool: 100000 short runs");
    tn_test_add(l, nested, NULL, "pool: nested");
    tn_test_add(l, two_callers, NULL, "pool: two callers");
    tn_test_add(l, refuses, NULL, "pool: refuses");
    tn_test_add(l, serial_cost, NULL, "pool: bench cost of a run");
    tn_test_add(l, busy_neighbour, NULL, "pool: bench busy neighbour");
}
