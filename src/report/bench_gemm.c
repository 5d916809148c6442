/* The matrix product over the shapes that models have. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "report/bench.h"
#include "base/clock.h"
#include "report/timing.h"

#include <stdio.h>

static const struct {
    int64_t m, n, k;
} shapes[] = { { 64, 256, 768 }, { 256, 768, 768 }, { 256, 3072, 768 }, { 256, 768, 3072 }, { 512, 512, 512 }, { 1024, 1024, 1024 } };

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = tn_rng_uniform((tn_rng){ 1, 2 }, (uint64_t)i) - 0.5f;
}

static tn_status bench_shape(const tn_bench *b, tn_pool *pool, int64_t m, int64_t n, int64_t k)
{
    enum { MOST = 64 };
    tn_status s = TN_OK;
    double times[MOST];
    size_t runs = 0;
    char name[48];
    float *A = tn_alloc(sizeof *A * (size_t)(m * k)), *W = tn_alloc(sizeof *W * (size_t)(n * k));
    float *C = tn_alloc(sizeof *C * (size_t)(m * n));
    void *work = NULL;
    if (!A || !W || !C) TN_TRY(TN_MEMORY);
    fill(A, m * k);
    fill(W, n * k);
    const tn_gemm g = { .m = m, .n = n, .k = k, .a = A, .a_row = k, .a_col = 1, .b = W, .b_row = 1, .b_col = k,
                        .c = C, .c_row = n, .batch = 1, .alpha = 1 };
    work = tn_alloc(tn_gemm_work_bytes(&g, b->ceilings.threads) + 64);
    if (!work) TN_TRY(TN_MEMORY);
    const double start = tn_clock_s();
    while (runs < MOST && (runs < 3 || tn_clock_s() - start < b->budget_s)) {
        const double t = tn_clock_s();
        tn_gemm_run(pool, &g, work);
        times[runs++] = tn_clock_s() - t;
    }
    tn_bench_row r = { .group = "gemm", .name = name };
    snprintf(name, sizeof name, "%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    r.ms = 1e3 * tn_median(times, runs, &r.spread_ms);
    r.spread_ms *= 1e3;
    r.gflops = 2e-6 * (double)m * (double)n * (double)k / r.ms;
    r.of_ceiling = r.gflops / b->ceilings.fma_gflops;
    b->row(b->ctx, &r);
done:
    tn_free(A);
    tn_free(W);
    tn_free(C);
    tn_free(work);
    return s;
}

tn_status tn_bench_gemm(const tn_bench *b)
{
    tn_pool *pool;
    tn_status s = TN_OK;
    TN_RETURN_IF(tn_pool_new(b->ceilings.threads, &pool));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && s == TN_OK; i++)
        s = bench_shape(b, pool, shapes[i].m, shapes[i].n, shapes[i].k);
    tn_pool_free(pool);
    return s;
}
