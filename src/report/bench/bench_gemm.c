/* Matrix products in the shapes of real models. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "report/bench/bench.h"
#include "base/clock.h"
#include "report/bench/timing.h"

#include <stdio.h>

/* x W^T as a linear layer's forward has it, dy W as its backward has for x, and dy^T x as it has for W. */
typedef enum layout { FORWARD, BACKWARD_X, BACKWARD_W } layout;

typedef struct shape {
    int64_t m, n, k;
    layout layout;
} shape;

static const shape shapes[] = {
    { 64, 256, 768, FORWARD },      { 512, 512, 512, FORWARD },     { 1024, 1024, 1024, FORWARD },
    { 4096, 4096, 1024, FORWARD },  { 256, 768, 768, FORWARD },     { 256, 2304, 768, FORWARD },
    { 256, 3072, 768, FORWARD },    { 256, 768, 3072, FORWARD },    { 256, 50257, 768, FORWARD },
    { 256, 768, 3072, BACKWARD_X }, { 256, 3072, 768, BACKWARD_X }, { 3072, 768, 256, BACKWARD_W },
    { 768, 3072, 256, BACKWARD_W },
};

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = tn_rng_uniform((tn_rng){ 1, 2 }, (uint64_t)i) - 0.5f;
}

static tn_status bench_shape(const tn_bench *b, tn_pool *pool, const shape *of, bool bf16)
{
    static const char *const layouts[] = { "", " dx", " dw" };
    const int64_t m = of->m, n = of->n, k = of->k;
    const double ceiling = bf16 ? b->ceilings.bf16_gflops : b->ceilings.fma_gflops;
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
    const bool down_a = of->layout == BACKWARD_W, down_b = of->layout == FORWARD; /* stored the other way round */
    const tn_gemm g = { .m = m,
                        .n = n,
                        .k = k,
                        .a = A,
                        .a_row = down_a ? 1 : k,
                        .a_col = down_a ? m : 1,
                        .b = W,
                        .b_row = down_b ? 1 : n,
                        .b_col = down_b ? k : 1,
                        .c = C,
                        .c_row = n,
                        .batch = 1,
                        .alpha = 1,
                        .round = bf16 ? TN_BF16 : TN_F32,
                        .share_b = true };
    work = tn_alloc(tn_gemm_work_bytes(&g, b->ceilings.threads) + 64);
    if (!work) TN_TRY(TN_MEMORY);
    const double start = tn_clock_s();
    while (runs < MOST && (runs < 3 || tn_clock_s() - start < b->budget_s)) {
        const double t = tn_clock_s();
        tn_gemm_run(pool, &g, work);
        times[runs++] = tn_clock_s() - t;
    }
    tn_bench_row r = { .group = bf16 ? "bf16" : "gemm", .name = name };
    snprintf(name, sizeof name, "%lldx%lldx%lld%s", (long long)m, (long long)n, (long long)k, layouts[of->layout]);
    r.ms = 1e3 * tn_median(times, runs, &r.spread_ms);
    r.spread_ms *= 1e3;
    r.gflops = 2e-6 * (double)m * (double)n * (double)k / r.ms;
    r.of_ceiling = r.gflops / ceiling;
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
    for (int bf16 = 0; bf16 <= (tn_gemm_kernel_name_bf16() != NULL); bf16++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && s == TN_OK; i++)
            s = bench_shape(b, pool, &shapes[i], bf16);
    tn_pool_free(pool);
    return s;
}
