/* Ops, forward and backward, at the sizes of a small language model. The plan's own count of FLOPs, and the bytes of
 * every argument of every step, tell which ceiling bounds a row; `of_ceiling` is the time that bound allows over the
 * time taken. */
#include "base/rng.h"
#include "plan/plan.h"
#include "report/bench.h"
#include "base/clock.h"
#include "report/timing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 4, T = 256, D = 256, K = 64, H = 4, V = 4096, LONG = 100000 };

static tn_ref in(tn_graph *g, const char *name, tn_dims dims) { return tn_want_gradient(g, tn_input(g, name, dims, TN_F32)); }

static tn_ref ids(tn_graph *g, const char *name) { return tn_input(g, name, tn_shape(B, T), TN_I32); }

static tn_ref case_linear(tn_graph *g)
{
    return tn_linear(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(4 * D, D)), .act = TN_ACT_GELU);
}
static tn_ref case_rmsnorm(tn_graph *g) { return tn_rmsnorm(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(D))); }
static tn_ref case_layernorm(tn_graph *g)
{
    return tn_layernorm(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(D)), in(g, "b", tn_shape(D)));
}
static tn_ref case_gelu(tn_graph *g) { return tn_gelu(g, in(g, "x", tn_shape(B, T, 4 * D))); }
static tn_ref case_silu(tn_graph *g) { return tn_silu(g, in(g, "x", tn_shape(B, T, 4 * D))); }
static tn_ref case_swiglu(tn_graph *g)
{
    return tn_swiglu(g, in(g, "a", tn_shape(B, T, 4 * D)), in(g, "b", tn_shape(B, T, 4 * D)));
}
static tn_ref case_add(tn_graph *g) { return tn_add(g, in(g, "a", tn_shape(B, T, 4 * D)), in(g, "b", tn_shape(B, T, 4 * D))); }
static tn_ref case_softmax(tn_graph *g) { return tn_softmax(g, in(g, "x", tn_shape(B, T, D))); }
static tn_ref case_scan(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(1, 16 * T, 2 * K)), in(g, "rho", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
static tn_ref case_scan_gated(tn_graph *g)
{
    return tn_scan_gated(g, in(g, "x", tn_shape(B, T, 2 * K)), in(g, "ri", tn_shape(B, T, 2 * K)), in(g, "nu", tn_shape(K)),
                         in(g, "omega", tn_shape(K)));
}
/* The scans again, long enough to leave every cache. */
static tn_ref case_scan_long(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(1, LONG, 2 * K)), in(g, "rho", tn_shape(K)), in(g, "omega", tn_shape(K)),
                   .gamma = in(g, "gamma", tn_shape(K)));
}
static tn_ref case_gated_long(tn_graph *g)
{
    return tn_scan_gated(g, in(g, "x", tn_shape(1, LONG, 2 * K)), in(g, "ri", tn_shape(1, LONG, 2 * K)),
                         in(g, "nu", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
static tn_ref case_outer(tn_graph *g)
{
    const tn_ref alpha = tn_neg(g, tn_softplus(g, in(g, "alpha", tn_shape(B, T, H))));
    return tn_outer(g, in(g, "q", tn_shape(B, T, H, 64)), in(g, "k", tn_shape(B, T, H, 64)), in(g, "v", tn_shape(B, T, H, 64)),
                    alpha);
}
static tn_ref case_conv(tn_graph *g) { return tn_conv_causal(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(4, D))); }
static tn_ref case_attention(tn_graph *g)
{
    return tn_attention(g, in(g, "q", tn_shape(B, T, H, 64)), in(g, "k", tn_shape(B, T, H, 64)),
                        in(g, "v", tn_shape(B, T, H, 64)), .causal = true);
}
static tn_ref case_embed(tn_graph *g) { return tn_embed(g, ids(g, "tokens"), in(g, "table", tn_shape(V, D))); }
static tn_ref case_xent(tn_graph *g)
{
    return tn_linear_xent(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(V, D)), ids(g, "labels"));
}

static const struct {
    const char *name;
    tn_ref (*build)(tn_graph *g);
} cases[] = {
    { "linear+gelu", case_linear }, { "rmsnorm", case_rmsnorm },         { "layernorm", case_layernorm }, { "gelu", case_gelu },
    { "silu", case_silu },          { "swiglu", case_swiglu },           { "add", case_add },             { "softmax", case_softmax },
    { "scan", case_scan },          { "scan_gated", case_scan_gated },   { "outer", case_outer },         { "conv_causal", case_conv },
    { "attention", case_attention }, { "embed", case_embed },            { "linear_xent", case_xent },
    { "scan long", case_scan_long }, { "scan_gated long", case_gated_long },
};

static double argument_bytes(const tn_graph *g, int32_t id)
{
    return id ? (double)tn_gtensor_count(&g->tensor[id]) * (double)tn_dtype_bytes(g->tensor[id].dtype) : 0;
}

/* Bytes that the steps of a plan read and write, each argument once. */
static double plan_bytes(const tn_plan *p)
{
    const tn_graph *g = tn_plan_graph(p);
    double bytes = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i];
        for (int k = 0; k < n->n_in; k++) {
            if (!n->backward || (n->reads_in >> k & 1)) bytes += argument_bytes(g, n->in[k]);
            if (n->backward) bytes += argument_bytes(g, n->din[k]);
        }
        for (int k = 0; k < n->n_out; k++) {
            if (!n->backward || (n->reads_out >> k & 1)) bytes += argument_bytes(g, n->out[k]);
            if (n->backward) bytes += argument_bytes(g, n->dout[k]);
        }
    }
    return bytes;
}

/* Weights are centred and of a layer's usual size: with positive ones every gate would be shut, and the gradients below
 * what a float holds in full, which some processors take a hundred times as long for. */
static void fill_inputs(tn_bound *bound, const tn_plan *p)
{
    for (int i = 0; i < tn_plan_externs(p); i++) {
        const tn_gtensor *t = tn_plan_extern(p, i);
        void *data = tn_bound_data(bound, t->name);
        const tn_rng r = { 3, (uint64_t)i };
        const bool weight = t->name[0] == 'w' && t->dims.rank == 2;
        const float range = weight ? 2 / sqrtf((float)t->dims.dim[1]) : 0.8f, from = weight ? -range / 2 : 0.1f;
        for (int64_t k = 0; t->role == TN_ROLE_INPUT && k < tn_gtensor_count(t); k++) {
            if (t->dtype == TN_I32) ((int32_t *)data)[k] = (int32_t)tn_rng_below(r, (uint64_t)k, V);
            else ((float *)data)[k] = from + range * tn_rng_uniform(r, (uint64_t)k);
        }
    }
}

static tn_status measure(const tn_bench *b, const char *group, const char *name, tn_bound *bound, const tn_plan *p)
{
    enum { MOST = 64 };
    double times[MOST];
    size_t runs = 0;
    const double start = tn_clock_s();
    fill_inputs(bound, p);
    TN_RETURN_IF(tn_run(bound));
    while (runs < MOST && (runs < 5 || tn_clock_s() - start < b->budget_s)) {
        const double t = tn_clock_s();
        TN_RETURN_IF(tn_run(bound));
        times[runs++] = tn_clock_s() - t;
    }
    tn_bench_row r = { .group = group, .name = name };
    const double s = tn_median(times, runs, &r.spread_ms), flops = tn_plan_flops(p), bytes = plan_bytes(p);
    const double least = flops / b->ceilings.fma_gflops * 1e-9, moves = bytes / b->ceilings.copy_gbs * 1e-9;
    r.ms = 1e3 * s;
    r.spread_ms *= 1e3;
    r.gflops = flops / s * 1e-9;
    r.gbs = bytes / s * 1e-9;
    r.of_ceiling = (least > moves ? least : moves) / s;
    b->row(b->ctx, &r);
    return TN_OK;
}

tn_status tn_bench_graph(const tn_bench *b, const char *group, const char *name, tn_ref (*build)(tn_graph *g))
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    tn_plan *p = NULL;
    tn_context *c = NULL;
    tn_bound *bound = NULL;
    const tn_graph_options go = { .training = true, .threads = b->ceilings.threads };
    TN_TRY(tn_graph_new(&go, &g));
    tn_ref y = build(g);
    tn_seed seed = { .y = y };
    if (y.id) seed.dy = tn_input(g, "dy", tn_ref_dims(g, y), TN_F32);
    const tn_compile_options co = { .seeds = &seed, .n_seeds = 1 };
    tn_graph *taken = g;
    g = NULL;
    TN_TRY(tn_graph_compile(taken, &co, &p));
    TN_TRY(tn_context_new(TN_CPU, b->ceilings.threads, &c));
    TN_TRY(tn_bind(p, c, NULL, &bound));
    TN_TRY(measure(b, group, name, bound, p));
done:
    tn_graph_free(g);
    tn_bound_free(bound);
    tn_context_free(c);
    tn_plan_free(p);
    return s;
}

tn_status tn_bench_ops(const tn_bench *b)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) TN_RETURN_IF(tn_bench_graph(b, "op", cases[i].name, cases[i].build));
    return tn_bench_xent(b);
}
