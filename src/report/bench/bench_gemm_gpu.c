/* The matrix product on a GPU over the shapes of steps with 65,536 tokens: a linear layer's forward, its gradient by
 * x and by the weights, at the widths of GPT-2 124M and of the 128 M TEN, and the head of both. */
#include "report/bench/bench_kernel.h"

#include <stdio.h>

typedef enum layout { FORWARD, BACKWARD_X, BACKWARD_W } layout; /* x W^T, dy W, dy^T x */

typedef struct shape {
    int64_t m, n, k;
    layout layout;
} shape;

static const shape shapes[] = {
    { 8192, 8192, 8192, FORWARD },    { 65536, 2304, 768, FORWARD },     { 65536, 768, 768, FORWARD },
    { 65536, 3072, 768, FORWARD },    { 65536, 768, 3072, FORWARD },     { 65536, 768, 3072, BACKWARD_X },
    { 65536, 3072, 768, BACKWARD_X }, { 3072, 768, 65536, BACKWARD_W },  { 65536, 4096, 1024, FORWARD },
    { 65536, 1024, 4096, FORWARD },   { 65536, 1024, 4096, BACKWARD_X }, { 4096, 1024, 65536, BACKWARD_W },
    { 9472, 50304, 1024, FORWARD },   { 9472, 1024, 50304, BACKWARD_X }, { 50304, 1024, 9472, BACKWARD_W },
};
enum { SHAPES = sizeof shapes / sizeof *shapes, SHAPES_F32 = 4 };

static tn_ref build(tn_graph *g, const void *sizes)
{
    const shape *s = sizes;
    const tn_dtype type = tn_graph_get_options(g)->activation;
    const bool down_a = s->layout == BACKWARD_W, down_b = s->layout == FORWARD; /* stored the other way round */
    const tn_ref a = tn_input(g, "a", down_a ? tn_shape(s->k, s->m) : tn_shape(s->m, s->k), type);
    const tn_ref b = tn_input(g, "b", down_b ? tn_shape(s->n, s->k) : tn_shape(s->k, s->n), type);
    return tn_matmul(g, a, b, .transpose_a = down_a, .transpose_b = down_b);
}

static tn_status bench_shape(const tn_bench *b, const char *group, const shape *s, bool f32, bool tf32, double peak)
{
    static const char *const layouts[] = { "", " dx", " dw" };
    char name[48];
    tn_bench_time t;
    const tn_bench_case k = {
        .op = "matmul", .build = build, .sizes = s, .forward_only = true, .f32 = f32, .tf32 = tf32
    };
    snprintf(name, sizeof name, "%lldx%lldx%lld%s", (long long)s->m, (long long)s->n, (long long)s->k,
             layouts[s->layout]);
    TN_RETURN_IF(tn_bench_time_case(b, &k, &t));
    tn_bench_report(b, group, name, t.ms, t.spread_ms, t.flops, 0, peak);
    return TN_OK;
}

tn_status tn_bench_gemm_gpu(const tn_bench *b)
{
    const tn_ceilings *c = &b->ceilings;
    for (size_t i = 0; i < SHAPES; i++) TN_RETURN_IF(bench_shape(b, "bf16", &shapes[i], false, false, c->bf16_gflops));
    for (size_t i = 1; i < SHAPES_F32; i++)
        TN_RETURN_IF(bench_shape(b, "tf32", &shapes[i], false, true, c->tf32_gflops));
    for (size_t i = 1; i < SHAPES_F32; i++) TN_RETURN_IF(bench_shape(b, "f32", &shapes[i], true, false, c->fma_gflops));
    return TN_OK;
}
