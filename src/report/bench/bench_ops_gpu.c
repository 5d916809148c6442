/* Ops on a GPU at the sizes of a step of 65,536 tokens in bf16, as models use them: activations come from
 * activations, weights are parameters. Each has a row for both directions together and one for each; what does not
 * fit the GPU says so in its row. Two rows are from elsewhere: the head against its three bare products, and the
 * optimizer's pass. */
#include "optim/optim.h"
#include "report/bench/bench_kernel.h"
#include "report/bench/timing.h"

#include <stdio.h>
#include <string.h>

typedef struct sizes {
    int64_t batch, length, heads, width; /* B, T, H, and D, K or V as the op has it */
} sizes;

static tn_dims rows_of(const sizes *s) { return tn_shape(s->batch, s->length, s->width); }

static tn_dims heads_of(const sizes *s) { return tn_shape(s->batch, s->length, s->heads, s->width); }

static tn_ref vector(tn_graph *g, const char *name, int64_t n)
{
    return tn_param(g, name, tn_shape(n), tn_uniform(0.1f, 0.9f));
}

static tn_ref build_linear(tn_graph *g, const void *how)
{
    const sizes *s = how;
    return tn_linear(g, tn_bench_activation(g, "x", rows_of(s)),
                     tn_param(g, "w", tn_shape(4 * s->width, s->width), tn_normal(0.02f)),
                     .bias = vector(g, "b", 4 * s->width), .act = TN_ACT_GELU);
}
static tn_ref build_rmsnorm(tn_graph *g, const void *how)
{
    const sizes *s = how;
    return tn_rmsnorm(g, tn_bench_activation(g, "x", rows_of(s)), vector(g, "w", s->width));
}
static tn_ref build_layernorm(tn_graph *g, const void *how)
{
    const sizes *s = how;
    return tn_layernorm(g, tn_bench_activation(g, "x", rows_of(s)), vector(g, "w", s->width), vector(g, "b", s->width));
}
static tn_ref build_norm_residual(tn_graph *g, const void *how)
{
    const sizes *s = how;
    tn_ref sum;
    const tn_ref y = tn_rmsnorm(g, tn_bench_activation(g, "x", rows_of(s)), vector(g, "w", s->width),
                                .residual = tn_bench_activation(g, "r", rows_of(s)), .sum = &sum);
    tn_output(g, "sum", sum);
    return y;
}
static tn_ref build_gelu(tn_graph *g, const void *how) { return tn_gelu(g, tn_bench_activation(g, "x", rows_of(how))); }
static tn_ref build_gate(tn_graph *g, const void *how)
{
    return tn_mul_silu(g, tn_bench_activation(g, "x", rows_of(how)), tn_bench_activation(g, "z", rows_of(how)));
}
static tn_ref build_scan(tn_graph *g, const void *how)
{
    const sizes *s = how;
    return tn_scan(g, tn_bench_activation(g, "x", tn_shape(s->batch, s->length, 2 * s->width)),
                   vector(g, "rho", s->width), vector(g, "omega", s->width), .gamma = vector(g, "gamma", s->width));
}
static tn_ref build_scan_gated(tn_graph *g, const void *how)
{
    const sizes *s = how;
    const tn_dims d = tn_shape(s->batch, s->length, 2 * s->width);
    return tn_scan_gated(g, tn_bench_activation(g, "x", d), tn_bench_activation(g, "ri", d), vector(g, "nu", s->width),
                         vector(g, "omega", s->width));
}
static tn_ref build_outer(tn_graph *g, const void *how)
{
    const sizes *s = how;
    const tn_ref a = tn_bench_activation(g, "alpha", tn_shape(s->batch, s->length, s->heads));
    return tn_outer(g, tn_bench_activation(g, "q", heads_of(s)), tn_bench_activation(g, "k", heads_of(s)),
                    tn_bench_activation(g, "v", heads_of(s)), tn_neg(g, tn_softplus(g, a)));
}
static tn_ref build_delta(tn_graph *g, const void *how)
{
    const sizes *s = how;
    const tn_dims each = tn_shape(s->batch, s->length, s->heads);
    return tn_delta(g, tn_bench_activation(g, "q", heads_of(s)),
                    tn_l2_normalize(g, tn_bench_activation(g, "k", heads_of(s)), 1e-6f),
                    tn_bench_activation(g, "v", heads_of(s)),
                    tn_neg(g, tn_softplus(g, tn_bench_activation(g, "alpha", each))),
                    tn_sigmoid(g, tn_bench_activation(g, "beta", each)));
}
static tn_ref build_conv(tn_graph *g, const void *how)
{
    const sizes *s = how;
    return tn_conv_causal(g, tn_bench_activation(g, "x", rows_of(s)),
                          tn_param(g, "w", tn_shape(4, s->width), tn_normal(0.5f)));
}
static tn_ref build_attention(tn_graph *g, const void *how)
{
    const sizes *s = how;
    return tn_attention(g, tn_bench_activation(g, "q", heads_of(s)), tn_bench_activation(g, "k", heads_of(s)),
                        tn_bench_activation(g, "v", heads_of(s)), .causal = true);
}

enum { V = 50304, D = 1024, N = 65536 };

static tn_ref build_xent(tn_graph *g, const void *how)
{
    const tn_ref labels = tn_input(g, "labels", tn_shape(N), TN_I32);
    (void)how;
    return tn_linear_xent(g, tn_bench_activation(g, "x", tn_shape(N, D)),
                          tn_param(g, "w", tn_shape(V, D), tn_normal(0.02f)), labels);
}
/* Logits, dx, dw of the same: each a bare product, the second and third of the first one's result. */
static tn_ref build_products(tn_graph *g, const void *how)
{
    const tn_ref x = tn_input(g, "x", tn_shape(N, D), TN_BF16), w = tn_input(g, "w", tn_shape(V, D), TN_BF16);
    const tn_ref logits = tn_matmul(g, x, w, .transpose_b = true, .scale = 0.02f);
    (void)how;
    tn_output(g, "dw", tn_matmul(g, logits, x, .transpose_a = true));
    return tn_matmul(g, logits, w);
}

static const struct gpu_case {
    const char *name, *op;
    tn_ref (*build)(tn_graph *g, const void *how);
    sizes at;
} cases[] = {
    { "linear+gelu 65536x768", "linear", build_linear, { 64, 1024, 0, 768 } },
    { "rmsnorm 65536x1024", "norm", build_rmsnorm, { 64, 1024, 0, 1024 } },
    { "layernorm 65536x768", "norm", build_layernorm, { 64, 1024, 0, 768 } },
    { "norm+residual 65536x1024", "norm", build_norm_residual, { 64, 1024, 0, 1024 } },
    { "gelu 65536x3072", "unary", build_gelu, { 64, 1024, 0, 3072 } },
    { "gate 65536x1024", "gate", build_gate, { 64, 1024, 0, 1024 } },
    { "conv_causal 65536x1024", "conv_causal", build_conv, { 64, 1024, 0, 1024 } },
    { "scan 1M K128", "scan", build_scan, { 1, 1 << 20, 0, 128 } },
    { "scan 64x1024 K128", "scan", build_scan, { 64, 1024, 0, 128 } },
    { "scan_gated 64x1024 K64", "scan_gated", build_scan_gated, { 64, 1024, 0, 64 } },
    { "scan_gated 2x32768 K64", "scan_gated", build_scan_gated, { 2, 32768, 0, 64 } },
    { "outer 64x1024 H8", "outer", build_outer, { 64, 1024, 8, 64 } },
    { "outer 2x32768 H8", "outer", build_outer, { 2, 32768, 8, 64 } },
    { "delta 64x1024 H8", "delta", build_delta, { 64, 1024, 8, 64 } },
    { "delta 2x32768 H8", "delta", build_delta, { 2, 32768, 8, 64 } },
    { "attention 64x1024 H12", "attention", build_attention, { 64, 1024, 12, 64 } },
    { "attention 8x8192 H12", "attention", build_attention, { 8, 8192, 12, 64 } },
    { "linear_xent", "linear_xent", build_xent, { 1, N, 0, V } },
};

/* What is measured is bound by arithmetic or by memory, whichever takes longer by the ceilings. */
static void report_parts(const tn_bench *b, const char *name, const tn_bench_time *t)
{
    const double peak = b->ceilings.bf16_gflops;
    char part[64];
    tn_bench_report(b, "op", name, t->ms, t->spread_ms, t->flops, t->bytes, peak);
    if (!(t->backward_ms > 0) || !(t->forward_ms > 0)) return;
    snprintf(part, sizeof part, "%s fwd", name);
    tn_bench_report(b, "op", part, t->forward_ms, 0, t->flops - t->backward_flops, t->bytes - t->backward_bytes, peak);
    snprintf(part, sizeof part, "%s bwd", name);
    tn_bench_report(b, "op", part, t->backward_ms, 0, t->backward_flops, t->backward_bytes, peak);
}

/* The head beside its three products, measured right after it, whose time is the row's ceiling. */
static tn_status bench_head(const tn_bench *b, const tn_bench_time *op)
{
    const tn_bench_case k = { .op = "matmul", .build = build_products, .forward_only = true };
    tn_bench_time bare;
    TN_RETURN_IF(tn_bench_time_case(b, &k, &bare));
    tn_bench_report(b, "op", "its three products", bare.ms, bare.spread_ms, bare.flops, 0, b->ceilings.bf16_gflops);
    const tn_bench_row r = { .group = "op",
                             .name = "linear_xent, of products",
                             .ms = op->ms,
                             .spread_ms = op->spread_ms,
                             .gflops = bare.flops / op->ms * 1e-6,
                             .of_ceiling = bare.ms / op->ms };
    b->row(b->ctx, &r);
    return TN_OK;
}

static tn_status bench_case(const tn_bench *b, const struct gpu_case *c)
{
    const tn_bench_case k = { .op = c->op, .build = c->build, .sizes = &c->at };
    tn_bench_time t;
    TN_RETURN_IF(tn_bench_time_case(b, &k, &t));
    report_parts(b, c->name, &t);
    return c->build == build_xent ? bench_head(b, &t) : TN_OK;
}

/* --- the optimizer ------------------------------------------------------------------------------------------------ */

static tn_status time_optimizer(const tn_bench *b, tn_bound *bound)
{
    enum { RUNS = 20, MOST_OPS = 8 };
    static const char *const ops[] = { "sumsq", "adamw" };
    double ms[2][RUNS];
    tn_op_time row[MOST_OPS], last[2] = { { 0 } };
    for (int i = -1; i < RUNS; i++) {
        tn_bound_timers(bound, true);
        TN_RETURN_IF(tn_run(bound));
        const size_t n = tn_bound_op_times(bound, row, 0, MOST_OPS);
        for (size_t k = 0; k < n && i >= 0; k++)
            for (int o = 0; o < 2; o++)
                if (strcmp(row[k].op, ops[o]) == 0) last[o] = row[k], ms[o][i] = row[k].forward_ms;
    }
    for (int o = 0; o < 2; o++) {
        double spread;
        const double median = tn_median(ms[o], RUNS, &spread);
        tn_bench_report(b, "op", o ? "adamw 128M" : "gradient norm 128M", median, spread, 0, last[o].bytes, 0);
    }
    return TN_OK;
}

static tn_status bench_optimizer(const tn_bench *b)
{
    tn_status s = TN_OK;
    tn_store *store = NULL;
    tn_graph *g = NULL;
    tn_plan *p = NULL;
    tn_context *c = NULL;
    tn_bound *bound = NULL;
    TN_TRY(tn_store_new(b->device, 1, &store));
    TN_TRY(tn_graph_new(&(tn_graph_options){ .threads = 1 }, &g));
    tn_param(g, "w", tn_shape(128 << 10, 1000), tn_zeros);
    TN_TRY(tn_store_adopt(store, g));
    TN_TRY(tn_optim_plan(store, &(tn_optim_options){ .kind = TN_ADAMW }, b->device, 1, &p));
    TN_TRY(tn_context_new(b->device, 1, &c));
    TN_TRY(tn_bind(p, c, store, &bound));
    TN_TRY(tn_optim_set(bound, &(tn_optim_scalars){ .lr = 1e-3f,
                                                    .beta1 = 0.9f,
                                                    .beta2 = 0.95f,
                                                    .eps = 1e-8f,
                                                    .decay = 0.1f,
                                                    .clip = 1,
                                                    .scale = 1,
                                                    .opt_step = 1 }));
    TN_TRY(time_optimizer(b, bound));
done:
    tn_bound_free(bound);
    tn_context_free(c);
    tn_plan_free(p);
    tn_graph_free(g);
    tn_store_free(store);
    return s;
}

tn_status tn_bench_ops_gpu(const tn_bench *b)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tn_status s = bench_case(b, &cases[i]);
        const tn_bench_row r = { .group = "op",
                                 .name = cases[i].name,
                                 .why = s == TN_MEMORY ? "does not fit the GPU" : NULL };
        if (s != TN_OK && s != TN_MEMORY) return s;
        if (s == TN_MEMORY) b->row(b->ctx, &r);
    }
    return bench_optimizer(b);
}
