/* One op timed inside a graph: its own FLOPs and bytes, and nobody else's. */
#include "report/bench/bench_kernel.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

enum { ROWS = 6, D = 8 };

static tn_ref build(tn_graph *g, const void *sizes)
{
    const int64_t n = *(const int64_t *)sizes;
    const tn_ref x = tn_bench_activation(g, "x", tn_shape(ROWS, D));
    return tn_gelu(g, tn_linear(g, x, tn_param(g, "w", tn_shape(n, D), tn_normal(1.f))));
}

static tn_ref build_loss(tn_graph *g, const void *sizes)
{
    const int64_t n = *(const int64_t *)sizes;
    return tn_linear_xent(g, tn_bench_activation(g, "x", tn_shape(ROWS, D)),
                          tn_param(g, "w", tn_shape(n, D), tn_normal(1.f)),
                          tn_input(g, "labels", tn_shape(ROWS), TN_I32));
}

static const tn_bench on_cpu = { .device = TN_CPU,
                                 .ceilings = { .threads = 1, .fma_gflops = 1, .bf16_gflops = 2, .memory_gbs = 1 },
                                 .budget_s = 0 };
static const int64_t N = 10;

static void its_own_numbers(void **state)
{
    const tn_bench_case k = { .op = "linear", .build = build, .sizes = &N, .f32 = true };
    tn_bench_time t;
    (void)state;
    assert_ok(tn_bench_time_case(&on_cpu, &k, &t));
    assert_true(t.ms > 0 && t.forward_ms > 0 && t.backward_ms > 0);
    assert_true(t.flops == 3 * 2.0 * ROWS * D * N && t.backward_flops == 2 * 2.0 * ROWS * D * N);
    const double x = 4.0 * ROWS * D, w = 4.0 * N * D, y = 4.0 * ROWS * N;
    assert_true(t.bytes - t.backward_bytes == x + w + y);   /* x, w -> y */
    assert_true(t.backward_bytes == (x + w + y) + (x + w)); /* x, w, dy -> dx, dw */
}

static void forward_alone(void **state)
{
    const tn_bench_case k = { .op = "unary", .build = build, .sizes = &N, .f32 = true, .forward_only = true };
    tn_bench_time t;
    (void)state;
    assert_ok(tn_bench_time_case(&on_cpu, &k, &t));
    assert_true(t.forward_ms > 0 && t.backward_ms == 0 && t.backward_bytes == 0);
    assert_true(t.bytes == 2 * 4.0 * ROWS * N);
}

static void a_loss_needs_no_cotangent(void **state)
{
    const int64_t classes = 60000; /* more than the labels that are drawn */
    const tn_bench_case k = { .op = "linear_xent", .build = build_loss, .sizes = &classes, .f32 = true };
    tn_bench_time t;
    (void)state;
    assert_ok(tn_bench_time_case(&on_cpu, &k, &t));
    assert_true(t.backward_ms > 0);
}

static void an_op_that_is_not_there(void **state)
{
    const tn_bench_case k = { .op = "scan", .build = build, .sizes = &N, .f32 = true };
    tn_bench_time t;
    (void)state;
    assert_fails(tn_bench_time_case(&on_cpu, &k, &t), TN_INTERNAL, "no scan");
}

static void keep_row(void *ctx, const tn_bench_row *r) { *(tn_bench_row *)ctx = *r; }

static void the_ceiling_that_bounds(void **state)
{
    tn_bench_row r;
    tn_bench b = on_cpu;
    (void)state;
    b.ctx = &r, b.row = keep_row;
    tn_bench_report(&b, "op", "x", 2, 0, 1e6, 0, b.ceilings.bf16_gflops); /* 0.5 ms of arithmetic at 2 GFLOP/s */
    assert_true(r.of_ceiling == 0.25 && r.gflops == 0.5 && r.gbs == 0);
    tn_bench_report(&b, "op", "x", 2, 0, 1e6, 1e6, b.ceilings.bf16_gflops); /* 1 ms of copying at 1 GB/s */
    assert_true(r.of_ceiling == 0.5);
    b.ceilings.shared_gbs = 2, b.ceilings.cache_gbs = 4; /* into which the arguments fit, and not */
    tn_bench_report(&b, "op", "x", 2, 0, 0, 1e6, b.ceilings.bf16_gflops);
    assert_true(r.of_ceiling == 0.25);
    tn_bench_report(&b, "op", "x", 2, 0, 0, 1e5, b.ceilings.bf16_gflops);
    assert_true(fabs(r.of_ceiling - 0.0125) < 1e-9);
    const tn_ceilings gpu = { .gpu = true, .fma_gflops = 1, .tf32_gflops = 2, .bf16_gflops = 3 };
    assert_true(tn_ceilings_of_compute(&gpu, "auto") == 3 && tn_ceilings_of_compute(&gpu, "tf32") == 2 &&
                tn_ceilings_of_compute(&gpu, "f32") == 1);
    assert_true(tn_ceilings_of_compute(&on_cpu.ceilings, "auto") == 1 &&
                tn_ceilings_of_compute(&on_cpu.ceilings, "bf16x3") == 2);
}

void tn_tests_bench_kernel(tn_test_list *l)
{
    tn_test_add(l, its_own_numbers, NULL, "bench: one op of a graph, its FLOPs and bytes");
    tn_test_add(l, forward_alone, NULL, "bench: an op forward alone");
    tn_test_add(l, a_loss_needs_no_cotangent, NULL, "bench: a loss needs no cotangent");
    tn_test_add(l, an_op_that_is_not_there, NULL, "bench: an op that is not there");
    tn_test_add(l, the_ceiling_that_bounds, NULL, "bench: the ceiling that bounds a row");
}
