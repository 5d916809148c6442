/* Matrix products in the shapes of real models, on the CPU and on a GPU. */
#include "backend/cpu/gemm.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "report/bench/bench_kernel.h"
#include "report/bench/timing.h"

#include <stdio.h>

/* x W^T as a linear layer's forward has it, dy W as its backward has for x, and dy^T x as it has for W. */
typedef enum layout { FORWARD, BACKWARD_X, BACKWARD_W } layout;

typedef struct shape {
    int64_t m, n, k;
    layout layout;
} shape;

static const shape cpu_shapes[] = {
    { 64, 256, 768, FORWARD },      { 512, 512, 512, FORWARD },     { 1024, 1024, 1024, FORWARD },
    { 4096, 4096, 1024, FORWARD },  { 256, 768, 768, FORWARD },     { 256, 2304, 768, FORWARD },
    { 256, 3072, 768, FORWARD },    { 256, 768, 3072, FORWARD },    { 256, 50257, 768, FORWARD },
    { 256, 768, 3072, BACKWARD_X }, { 256, 3072, 768, BACKWARD_X }, { 3072, 768, 256, BACKWARD_W },
    { 768, 3072, 256, BACKWARD_W },
};

/* Steps with 65,536 tokens at the widths of GPT-2 124M and of the 128 M TEN, and the head of both. */
static const shape gpu_shapes[] = {
    { 8192, 8192, 8192, FORWARD },    { 65536, 2304, 768, FORWARD },     { 65536, 768, 768, FORWARD },
    { 65536, 3072, 768, FORWARD },    { 65536, 768, 3072, FORWARD },     { 65536, 768, 3072, BACKWARD_X },
    { 65536, 3072, 768, BACKWARD_X }, { 3072, 768, 65536, BACKWARD_W },  { 65536, 4096, 1024, FORWARD },
    { 65536, 1024, 4096, FORWARD },   { 65536, 1024, 4096, BACKWARD_X }, { 4096, 1024, 65536, BACKWARD_W },
    { 9472, 50304, 1024, FORWARD },   { 9472, 1024, 50304, BACKWARD_X }, { 50304, 1024, 9472, BACKWARD_W },
};
enum { GPU_SHAPES = sizeof gpu_shapes / sizeof *gpu_shapes, F32_SHAPES = 4 };

static const char *shape_name(const shape *s, char name[48])
{
    static const char *const layouts[] = { "", " dx", " dw" };
    snprintf(name, 48, "%lldx%lldx%lld%s", (long long)s->m, (long long)s->n, (long long)s->k, layouts[s->layout]);
    return name;
}

/* Stored the other way round. */
static bool down_a(const shape *s) { return s->layout == BACKWARD_W; }
static bool down_b(const shape *s) { return s->layout == FORWARD; }

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = tn_rng_uniform((tn_rng){ 1, 2 }, (uint64_t)i) - 0.5f;
}

static tn_status bench_on_cpu(const tn_bench *b, tn_pool *pool, const shape *of, bool bf16)
{
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
    const tn_gemm g = { .m = m,
                        .n = n,
                        .k = k,
                        .a = A,
                        .a_row = down_a(of) ? 1 : k,
                        .a_col = down_a(of) ? m : 1,
                        .b = W,
                        .b_row = down_b(of) ? 1 : n,
                        .b_col = down_b(of) ? k : 1,
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
    tn_bench_row r = { .group = bf16 ? "bf16" : "gemm", .name = shape_name(of, name) };
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
        for (size_t i = 0; i < sizeof cpu_shapes / sizeof *cpu_shapes && s == TN_OK; i++)
            s = bench_on_cpu(b, pool, &cpu_shapes[i], bf16);
    tn_pool_free(pool);
    return s;
}

/* --- on a GPU ------------------------------------------------------------------------------------------------------- */

static tn_ref build(tn_graph *g, const void *sizes)
{
    const shape *s = sizes;
    const tn_dtype type = tn_graph_get_options(g)->activation;
    const tn_ref a = tn_input(g, "a", down_a(s) ? tn_shape(s->k, s->m) : tn_shape(s->m, s->k), type);
    const tn_ref b = tn_input(g, "b", down_b(s) ? tn_shape(s->n, s->k) : tn_shape(s->k, s->n), type);
    return tn_matmul(g, a, b, .transpose_a = down_a(s), .transpose_b = down_b(s));
}

static tn_status bench_on_gpu(const tn_bench *b, const char *group, const shape *s, bool f32, bool tf32, double peak)
{
    char name[48];
    tn_bench_time t;
    const tn_bench_case k = {
        .op = "matmul", .build = build, .sizes = s, .forward_only = true, .f32 = f32, .tf32 = tf32
    };
    TN_RETURN_IF(tn_bench_time_case(b, &k, &t));
    tn_bench_report(b, group, shape_name(s, name), t.ms, t.spread_ms, t.flops, 0, peak);
    return TN_OK;
}

tn_status tn_bench_gemm_gpu(const tn_bench *b)
{
    const tn_ceilings *c = &b->ceilings;
    for (size_t i = 0; i < GPU_SHAPES; i++)
        TN_RETURN_IF(bench_on_gpu(b, "bf16", &gpu_shapes[i], false, false, c->bf16_gflops));
    for (size_t i = 1; i < F32_SHAPES; i++)
        TN_RETURN_IF(bench_on_gpu(b, "tf32", &gpu_shapes[i], false, true, c->tf32_gflops));
    for (size_t i = 1; i < F32_SHAPES; i++)
        TN_RETURN_IF(bench_on_gpu(b, "f32", &gpu_shapes[i], true, false, c->fma_gflops));
    return TN_OK;
}
