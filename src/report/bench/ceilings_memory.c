/* Bandwidth of memory and caches: the best of three ways to go over them. A copy is not always the fastest: where it reads what it is
 * about to overwrite, a kernel that changes numbers in place, such as an optimizer, moves more of the bytes that count. */
#include "report/bench/ceilings_memory.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

enum { MEMORY_MB = 128, CACHE_TIMES = 64, ROUNDS = 4, PIECES = 4 }; /* pieces of a thread */
static const double LEAST_S = 0.08; /* of a second: rounds go on so long, other work on a core seldom lasts as long */

typedef struct pass_job {
    float *x; /* (tiles,n) */
    size_t n;
    int times;
    double least_s;
    float *sum; /* (tiles), so that reading is not dropped */
} pass_job;

static void copy_tile(void *arg, int64_t tile)
{
    const pass_job *j = arg;
    float *from = j->x + (size_t)tile * j->n, *to = from + j->n / 2;
    for (int i = 0; i < j->times; i++) memcpy(i % 2 ? from : to, i % 2 ? to : from, j->n / 2 * sizeof *to);
}

/* Both passes in vectors of `width` floats; n is a multiple of eight of them. */
#define PASS_TILES(name, width, attributes)                                                                            \
    typedef float name##_lanes __attribute__((vector_size(width * sizeof(float)), aligned(4)));                        \
    attributes static void name##_read(void *arg, int64_t tile)                                                        \
    {                                                                                                                  \
        const pass_job *j = arg;                                                                                       \
        name##_lanes acc[8] = { 0 };                                                                                   \
        for (int t = 0; t < j->times; t++) {                                                                           \
            const float *x = j->x + (size_t)tile * j->n;                                                               \
            for (size_t i = 0; i < j->n; i += 8 * width)                                                               \
                _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) acc[k] +=                                          \
                    *(const name##_lanes *)(x + i + k * width);                                                        \
        }                                                                                                              \
        _Pragma("GCC unroll 8") for (int k = 1; k < 8; k++) acc[0] += acc[k];                                          \
        j->sum[tile] = acc[0][0];                                                                                      \
    }                                                                                                                  \
    attributes static void name##_change(void *arg, int64_t tile)                                                      \
    {                                                                                                                  \
        const pass_job *j = arg;                                                                                       \
        for (int t = 0; t < j->times; t++) {                                                                           \
            float *x = j->x + (size_t)tile * j->n;                                                                     \
            for (size_t i = 0; i < j->n; i += 8 * width)                                                               \
                _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) * (name##_lanes *)(x + i + k * width) *= 0.999f;   \
        }                                                                                                              \
    }

typedef void pass_tile(void *arg, int64_t tile);

PASS_TILES(plain, 4, ) /* 16 bytes: the width every processor has */
#if defined(__x86_64__)
PASS_TILES(avx2, 8, __attribute__((target("avx2,fma"))))
PASS_TILES(avx512, 16, __attribute__((target("avx512f"))))
#endif

static void widest(pass_tile **read, pass_tile **change)
{
    *read = plain_read, *change = plain_change;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) *read = avx2_read, *change = avx2_change;
    if (__builtin_cpu_supports("avx512f")) *read = avx512_read, *change = avx512_change;
#endif
}

static double time_of(tn_pool *pool, int tiles, pass_tile *tile, pass_job *j)
{
    double best = HUGE_VAL;
    const double start = tn_clock_s();
    tn_pool_run(pool, tiles, tile, j); /* touches the pages, fills the caches */
    for (int i = 0; i < ROUNDS || tn_clock_s() - start < j->least_s; i++) {
        const double before = tn_clock_s();
        tn_pool_run(pool, tiles, tile, j);
        best = fmin(best, tn_clock_s() - before);
    }
    return best;
}

/* GB/s of a copy alone, and of the fastest way, over so many bytes in so many tiles. */
static void measure(tn_pool *pool, pass_job *j, size_t bytes, int tiles, double *copy, double *best)
{
    pass_tile *read, *change;
    widest(&read, &change);
    j->n = bytes / sizeof *j->x / (size_t)tiles / 256 * 256;
    const double all =
        (double)j->n * (double)sizeof *j->x * tiles * j->times * 1e-9; /* a copy reads one half and writes one */
    *copy = all / time_of(pool, tiles, copy_tile, j);
    *best = fmax(*copy, fmax(all / time_of(pool, tiles, read, j), 2 * all / time_of(pool, tiles, change, j)));
}

tn_status tn_ceilings_of_memory(tn_pool *pool, int threads, double seconds, tn_ceilings *out)
{
    const size_t bytes = (size_t)MEMORY_MB << 20;
    const int most = (int)(bytes / TN_CEILING_CACHE), own = threads < most ? threads : most;
    float sum[PIECES * TN_POOL_MAX_THREADS];
    double unused;
    pass_job j = { .x = tn_alloc(bytes), .times = 1, .least_s = LEAST_S * seconds, .sum = sum };
    if (!j.x) return TN_MEMORY;
    memset(j.x, 0, bytes);
    measure(pool, &j, bytes, PIECES * threads, &out->copy_gbs, &out->memory_gbs);
    measure(pool, &j, TN_CEILING_SHARED, PIECES * threads, &unused, &out->shared_gbs);
    j.times = CACHE_TIMES;
    measure(pool, &j, (size_t)own * TN_CEILING_CACHE, own, &unused, &out->cache_gbs);
    tn_free(j.x);
    return TN_OK;
}
