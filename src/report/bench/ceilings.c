/* Measuring the ceilings of arithmetic: independent chains of fused multiply-adds in registers, on random numbers (cores that limit
 * their power run faster on zeros). Those of memory are in ceilings_memory.c. */
#include "report/bench/ceilings_memory.h"

#include "backend/cpu/gemm.h"
#include "backend/cpu/pool.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/tracer.h"
#include "report/bench/timing.h"

#include <tenon/tensor.h>

#include <math.h>
#include <string.h>

enum { LOOPS = 40000, MOST_LANES = 16 };

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

enum { ROUNDS = 6, LAUNCHES = 1000, LITTLE = 2000, CLOCK_NS = 20 };
static const double LEAST_S = 0.25; /* of a second: rounds go on so long, other work on a core seldom lasts as long */

static double time_of(tn_pool *pool, int tiles, void (*tile)(void *arg, int64_t tile), void *arg)
{
    const double before = tn_clock_s();
    tn_pool_run(pool, tiles, tile, arg);
    return tn_clock_s() - before;
}

static float random_number(int i) { return tn_rng_uniform((tn_rng){ 7, 1 }, (uint64_t)i) - 0.5f; }

static void measure_arithmetic(tn_pool *pool, int threads, double seconds, tn_ceilings *out)
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
    for (int i = 0; i < ROUNDS || tn_clock_s() - start < LEAST_S * seconds; i++) {
        best_fma = fmin(best_fma, time_of(pool, threads, kernel.tile, &f));
        best_bf16 = fmin(best_bf16, time_of(pool, threads, bf16_tile, &h));
    }
    out->threads = threads;
    out->fma_gflops = kernel.flops * threads / best_fma * 1e-9;
    out->bf16_gflops = h.flops[0] > 0 ? h.flops[0] * threads / best_bf16 * 1e-9 : out->fma_gflops;
}

/* Some microseconds for a thread: long enough that the others come to take their part. */
static void little(void *arg, int64_t tile)
{
    float *const sum = arg;
    float x = 1;
    for (int i = 0; i < LITTLE; i++) x = x * 0.999f + 1e-3f; /* each waits for the one before */
    sum[tile] = x;
}

static uint64_t shortest(tn_pool *pool, int tiles, float *sum)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < LAUNCHES; i++) {
        const uint64_t begun = tn_tracer_now();
        tn_pool_run(pool, tiles, little, sum);
        const uint64_t took = tn_tracer_now() - begun;
        best = took < best ? took : best;
    }
    return best;
}

/* What it takes more that every thread has a part than that one has it alone; at least what the clock can tell. */
static double measure_launch(tn_pool *pool, int threads)
{
    float sum[TN_POOL_MAX_THREADS];
    const uint64_t alone = shortest(NULL, 1, sum), together = shortest(pool, threads, sum);
    return 1e-6 * (double)(together > alone + CLOCK_NS ? together - alone : CLOCK_NS);
}

double tn_ceilings_bandwidth(const tn_ceilings *c, double bytes, bool *cached)
{
    const bool own = c->cache_gbs > 0 && bytes <= (double)TN_CEILING_CACHE * fmax(c->threads, 1),
               shared = c->shared_gbs > 0 && bytes <= TN_CEILING_SHARED;
    if (cached) *cached = own || shared;
    return own ? c->cache_gbs : shared ? fmax(c->shared_gbs, c->memory_gbs) : c->memory_gbs;
}

double tn_ceilings_of_compute(const tn_ceilings *c, const char *compute)
{
    if (strcmp(compute, "auto") == 0) compute = c->gpu ? "bf16" : "f32";
    if (strcmp(compute, "tf32") == 0) return c->gpu ? c->tf32_gflops : c->fma_gflops;
    const bool f16 = c->gpu && strcmp(compute, "f16") == 0; /* as fast as bf16 there */
    return f16 || strncmp(compute, "bf16", 4) == 0 ? c->bf16_gflops : c->fma_gflops;
}

tn_status tn_ceilings_arithmetic(int threads, tn_ceilings *out)
{
    tn_pool *pool = NULL;
    TN_RETURN_IF(tn_pool_new(threads, &pool));
    *out = (tn_ceilings){ 0 };
    measure_arithmetic(pool, threads, 1, out);
    tn_pool_free(pool);
    return TN_OK;
}

tn_status tn_ceilings_measure(int threads, double seconds, tn_ceilings *out)
{
    tn_pool *pool = NULL;
    tn_ceilings c = { 0 };
    TN_RETURN_IF(tn_pool_new(threads, &pool));
    seconds = fmin(seconds, 1);
    measure_arithmetic(pool, threads, seconds, &c);
    c.launch_ms = measure_launch(pool, threads);
    const tn_status s = tn_ceilings_of_memory(pool, threads, seconds, &c);
    tn_pool_free(pool);
    if (s == TN_OK) *out = c;
    return s;
}
