/* Measuring the ceilings: independent chains of fused multiply-adds in registers, on random numbers (cores that
 * limit their power run faster on zeros), and a copy far larger than caches. */
#include "report/bench/ceilings.h"

#include "backend/cpu/gemm.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "report/bench/timing.h"

#include <tenon/tensor.h>

#include <math.h>
#include <string.h>

enum { LOOPS = 40000, COPY_MB = 64, MOST_LANES = 16, CACHE_TIMES = 64 };

typedef struct fma_job {
    const float *numbers; /* (4 * MOST_LANES) */
    float *out;
} fma_job;

#if defined(__aarch64__)
#define VECTOR_REGISTER(x) "w"(x)
#elif defined(__x86_64__)
#define VECTOR_REGISTER(x) "v"(x)
#else
#define VECTOR_REGISTER(x) "m"(x)
#endif

/* One tile of multiply-adds: `chains` independent chains of vectors of `width` floats hide the latency. */
#define FMA_TILE(name, width, chains, attributes)                                                                      \
    typedef float name##_lanes __attribute__((vector_size(width * sizeof(float))));                                    \
    attributes static void name(void *arg, int64_t tile)                                                               \
    {                                                                                                                  \
        const fma_job *j = arg;                                                                                        \
        name##_lanes acc[chains], a[2], b[2];                                                                          \
        for (int i = 0; i < 2; i++)                                                                                    \
            for (int k = 0; k < width; k++) {                                                                          \
                a[i][k] = j->numbers[i * width + k];                                                                   \
                b[i][k] = j->numbers[(2 + i) * width + k];                                                             \
            }                                                                                                          \
        _Pragma("GCC unroll 32") for (int i = 0; i < chains; i++) acc[i] = b[0] * (float)i; /* no two chains alike */  \
        for (int n = 0; n < LOOPS; n++) {                                                                              \
            /* New numbers each time, for all the compiler knows. */                                                   \
            __asm__ volatile("" : "+" VECTOR_REGISTER(a[0]), "+" VECTOR_REGISTER(a[1]));                               \
            _Pragma("GCC unroll 32") for (int i = 0; i < chains; i++) acc[i] += a[i & 1] * b[i >> 1 & 1];              \
        }                                                                                                              \
        float sum = 0;                                                                                                 \
        _Pragma("GCC unroll 32") for (int i = 0; i < chains; i++) for (int k = 0; k < width; k++) sum += acc[i][k];    \
        j->out[tile] = sum; /* so that the work is not dropped */                                                      \
    }

typedef struct fma_kernel {
    void (*tile)(void *arg, int64_t tile);
    double flops; /* of one tile */
} fma_kernel;

FMA_TILE(fma_plain, 4, 20, ) /* 16 bytes: the width every processor has */
#if defined(__x86_64__)
FMA_TILE(fma_avx2, 8, 12, __attribute__((target("avx2,fma"))))
FMA_TILE(fma_avx512, 16, 12, __attribute__((target("avx512f"))))
#endif

/* The widest arithmetic this processor has. */
static fma_kernel widest(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return (fma_kernel){ fma_avx512, 2.0 * 16 * 12 * LOOPS };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (fma_kernel){ fma_avx2, 2.0 * 8 * 12 * LOOPS };
#endif
    return (fma_kernel){ fma_plain, 2.0 * 4 * 20 * LOOPS };
}

typedef struct bf16_job {
    uint16_t numbers[TN_GEMM_PROBE_NUMBERS];
    double flops[TN_POOL_MAX_THREADS];
} bf16_job;

static void bf16_tile(void *arg, int64_t tile)
{
    bf16_job *j = arg;
    j->flops[tile] = tn_gemm_probe_bf16(LOOPS, j->numbers);
}

typedef struct copy_job {
    char *to;
    const char *from;
    size_t bytes;
} copy_job;

static void copy_tile(void *arg, int64_t tile)
{
    const copy_job *j = arg;
    memcpy(j->to + (size_t)tile * j->bytes, j->from + (size_t)tile * j->bytes, j->bytes);
}

/* Half of the piece to the other half, as often as hides the start of a thread. */
static void cache_tile(void *arg, int64_t tile)
{
    const copy_job *j = arg;
    char *from = j->to + (size_t)tile * TN_CEILING_CACHE, *to = from + TN_CEILING_CACHE / 2;
    for (int i = 0; i < CACHE_TIMES; i++) memcpy(i % 2 ? from : to, i % 2 ? to : from, TN_CEILING_CACHE / 2);
}

enum { ROUNDS = 6 };
static const double LEAST_S = 0.25; /* rounds go on so long: other work on a core seldom lasts as long */

static double time_of(tn_pool *pool, int tiles, void (*tile)(void *arg, int64_t tile), void *arg)
{
    const double before = tn_clock_s();
    tn_pool_run(pool, tiles, tile, arg);
    return tn_clock_s() - before;
}

static float random_number(int i) { return tn_rng_uniform((tn_rng){ 7, 1 }, (uint64_t)i) - 0.5f; }

static void measure_arithmetic(tn_pool *pool, int threads, tn_ceilings *out)
{
    float sums[TN_POOL_MAX_THREADS];
    float numbers[4 * MOST_LANES];
    bf16_job h = { .flops = { 0 } };
    double best_fma = 1e9, best_bf16 = 1e9;
    const fma_kernel kernel = widest();
    fma_job f = { numbers, sums };
    for (int i = 0; i < 4 * MOST_LANES; i++) numbers[i] = random_number(i);
    for (int i = 0; i < TN_GEMM_PROBE_NUMBERS; i++) h.numbers[i] = tn_f32_to_bf16(random_number(i));
    const double start = tn_clock_s();
    for (int i = 0; i < ROUNDS || tn_clock_s() - start < LEAST_S; i++) {
        best_fma = fmin(best_fma, time_of(pool, threads, kernel.tile, &f));
        best_bf16 = fmin(best_bf16, time_of(pool, threads, bf16_tile, &h));
    }
    out->threads = threads;
    out->fma_gflops = kernel.flops * threads / best_fma * 1e-9;
    out->bf16_gflops = h.flops[0] > 0 ? h.flops[0] * threads / best_bf16 * 1e-9 : out->fma_gflops;
}

static tn_status measure_copy(tn_pool *pool, int threads, tn_ceilings *out)
{
    tn_status s = TN_OK;
    const size_t bytes = (size_t)COPY_MB << 20;
    char *a = tn_alloc(bytes), *b = tn_alloc(bytes);
    const int most = (int)(bytes / TN_CEILING_CACHE), pieces = threads < most ? threads : most;
    double best = 1e9;
    if (!a || !b) TN_TRY(TN_MEMORY);
    memset(a, 1, bytes);
    const double start = tn_clock_s();
    for (int i = 0; i < ROUNDS || tn_clock_s() - start < LEAST_S; i++) {
        copy_job c = { b, a, bytes / (size_t)(4 * threads) };
        const double t = time_of(pool, 4 * threads, copy_tile, &c);
        if (i) best = fmin(best, t); /* the first touches the pages */
    }
    out->copy_gbs = 2.0 * (double)bytes / best * 1e-9;
    best = 1e9;
    const double again = tn_clock_s();
    for (int i = 0; i < ROUNDS || tn_clock_s() - again < LEAST_S; i++)
        best = fmin(best, time_of(pool, pieces, cache_tile, &(copy_job){ .to = b }));
    out->cache_gbs = (double)TN_CEILING_CACHE * CACHE_TIMES * pieces / best * 1e-9;
done:
    tn_free(a);
    tn_free(b);
    return s;
}

double tn_ceilings_of_compute(const tn_ceilings *c, const char *compute)
{
    if (strcmp(compute, "auto") == 0) compute = c->gpu ? "bf16" : "f32";
    if (strcmp(compute, "tf32") == 0) return c->gpu ? c->tf32_gflops : c->fma_gflops;
    return strncmp(compute, "bf16", 4) == 0 ? c->bf16_gflops : c->fma_gflops;
}

tn_status tn_ceilings_arithmetic(int threads, tn_ceilings *out)
{
    tn_pool *pool = NULL;
    TN_RETURN_IF(tn_pool_new(threads, &pool));
    *out = (tn_ceilings){ 0 };
    measure_arithmetic(pool, threads, out);
    tn_pool_free(pool);
    return TN_OK;
}

tn_status tn_ceilings_measure(int threads, tn_ceilings *out)
{
    tn_pool *pool = NULL;
    tn_ceilings c = { 0 };
    TN_RETURN_IF(tn_pool_new(threads, &pool));
    measure_arithmetic(pool, threads, &c);
    const tn_status s = measure_copy(pool, threads, &c);
    tn_pool_free(pool);
    if (s == TN_OK) *out = c;
    return s;
}
