/* Ops at the sizes of a small language model: forward and backward as one row, or as two ("NAME bwd") where memory or
 * an elementary function bounds them. The plan's own count of FLOPs, the bytes of every argument of every step, and the
 * instructions that an elementary function takes, tell which ceiling bounds a row; `of_ceiling` is the time that bound
 * allows over the time taken. */
#include "base/alloc.h"
#include "base/rng.h"
#include "backend/cpu/pool.h"
#include "ops/adamw/adamw.h"
#include "ops/segments.h"
#include "plan/plan.h"
#include "report/bench/bench.h"
#include "base/clock.h"
#include "report/bench/timing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 4, T = 256, D = 256, K = 64, H = 4, V = 4096, LONG = 200000 };

static tn_ref in(tn_graph *g, const char *name, tn_dims dims)
{
    return tn_want_gradient(g, tn_input(g, name, dims, TN_F32));
}

static tn_ref ids(tn_graph *g, const char *name) { return tn_input(g, name, tn_shape(B, T), TN_I32); }

static tn_ref case_linear(tn_graph *g)
{
    return tn_linear(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(4 * D, D)), .act = TN_ACT_GELU);
}
static tn_ref case_rmsnorm(tn_graph *g)
{
    return tn_rmsnorm(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(D)));
}
static tn_ref case_layernorm(tn_graph *g)
{
    return tn_layernorm(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(D)), in(g, "b", tn_shape(D)));
}
static tn_ref case_gelu_erf(tn_graph *g) { return tn_gelu_erf(g, in(g, "x", tn_shape(B, T, 4 * D))); }
static tn_ref case_gelu(tn_graph *g) { return tn_gelu(g, in(g, "x", tn_shape(B, T, 4 * D))); }
static tn_ref case_silu(tn_graph *g) { return tn_silu(g, in(g, "x", tn_shape(B, T, 4 * D))); }
static tn_ref case_swiglu(tn_graph *g)
{
    return tn_swiglu(g, in(g, "a", tn_shape(B, T, 4 * D)), in(g, "b", tn_shape(B, T, 4 * D)));
}
static tn_ref case_add(tn_graph *g)
{
    return tn_add(g, in(g, "a", tn_shape(B, T, 4 * D)), in(g, "b", tn_shape(B, T, 4 * D)));
}
static tn_ref case_softmax(tn_graph *g) { return tn_softmax(g, in(g, "x", tn_shape(B, T, D))); }
static tn_ref case_scan(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(1, 16 * T, 2 * K)), in(g, "rho", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
static tn_ref case_scan_gated(tn_graph *g)
{
    return tn_scan_gated(g, in(g, "x", tn_shape(B, T, 2 * K)), in(g, "ri", tn_shape(B, T, 2 * K)),
                         in(g, "nu", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
/* The scans again, long enough to leave every cache: alone, with a gain, and with memories of up to thousands of
 * tokens, whose states are carried in double. */
static tn_ref case_scan_long(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(1, LONG, 2 * K)), in(g, "rho", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
static tn_ref case_scan_gain(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(1, LONG, 2 * K)), in(g, "rho", tn_shape(K)), in(g, "omega", tn_shape(K)),
                   .gamma = in(g, "gamma", tn_shape(K)));
}
static tn_ref case_scan_memory(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(1, LONG, 2 * K)), in(g, "near_one", tn_shape(K)),
                   in(g, "omega", tn_shape(K)));
}
static tn_ref case_gated_long(tn_graph *g)
{
    return tn_scan_gated(g, in(g, "x", tn_shape(1, LONG, 2 * K)), in(g, "ri", tn_shape(1, LONG, 2 * K)),
                         in(g, "nu", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
static tn_ref case_outer(tn_graph *g)
{
    const tn_ref alpha = tn_neg(g, tn_softplus(g, in(g, "alpha", tn_shape(B, T, H))));
    return tn_outer(g, in(g, "q", tn_shape(B, T, H, 64)), in(g, "k", tn_shape(B, T, H, 64)),
                    in(g, "v", tn_shape(B, T, H, 64)), alpha);
}
static tn_ref case_delta(tn_graph *g)
{
    const tn_ref alpha = tn_neg(g, tn_softplus(g, in(g, "alpha", tn_shape(B, T, H))));
    const tn_ref key = tn_l2_normalize(g, in(g, "k", tn_shape(B, T, H, 64)), 1e-6f);
    return tn_delta(g, in(g, "q", tn_shape(B, T, H, 64)), key, in(g, "v", tn_shape(B, T, H, 64)), alpha,
                    tn_sigmoid(g, in(g, "beta", tn_shape(B, T, H))));
}
static tn_ref case_conv(tn_graph *g)
{
    return tn_conv_causal(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(4, D)));
}
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

/* What is timed. `slots`: instructions per element of the elementary functions, counted in the vector code of the inner
 * loop on aarch64; one is as much work for the arithmetic units as a multiply-add, that is 2 FLOPs. */
enum { WHOLE, FORWARD, BACKWARD };
static const struct {
    const char *name;
    tn_ref (*build)(tn_graph *g);
    const char *backward; /* NULL: one row for both */
    double slots, slots_backward;
} cases[] = {
    { "linear+gelu", case_linear, NULL, 0, 0 },
    { "rmsnorm", case_rmsnorm, "rmsnorm bwd", 0, 0 },
    { "layernorm", case_layernorm, "layernorm bwd", 0, 0 },
    { "gelu", case_gelu, "gelu bwd", 29, 36.5 },
    { "gelu_erf", case_gelu_erf, "gelu_erf bwd", 0, 0 },
    { "silu", case_silu, "silu bwd", 26, 29.5 },
    { "swiglu", case_swiglu, "swiglu bwd", 27, 34 },
    { "add", case_add, NULL, 0, 0 },
    { "softmax", case_softmax, "softmax bwd", 22, 0 },
    { "scan", case_scan, NULL, 0, 0 },
    { "scan_gated", case_scan_gated, NULL, 0, 0 },
    { "outer", case_outer, NULL, 0, 0 },
    { "delta", case_delta, NULL, 0, 0 },
    { "conv_causal", case_conv, "conv_causal bwd", 0, 0 },
    { "attention", case_attention, NULL, 0, 0 },
    { "embed", case_embed, NULL, 0, 0 },
    { "linear_xent", case_xent, NULL, 0, 0 },
    { "scan long", case_scan_long, NULL, 0, 0 },
    { "scan long, gain", case_scan_gain, NULL, 0, 0 },
    { "scan long, memory", case_scan_memory, NULL, 0, 0 },
    { "scan_gated long", case_gated_long, NULL, 0, 0 },
};

/* Bytes that the ops of a part of a plan read and write, each argument once, and the time of the copies the planner
 * makes of given gradients: no op asked for these, so they are in neither bytes nor times. */
typedef struct moved {
    double bytes, copies_ms;
} moved;

static moved moved_by(const tn_bound *bound, int part)
{
    enum { MOST_OPS = 32 };
    tn_op_time row[MOST_OPS];
    const size_t n = tn_bound_op_times(bound, row, 0, MOST_OPS);
    moved m = { 0 };
    for (size_t i = 0; i < n; i++) {
        const bool copy = strcmp(row[i].op, "copy") == 0;
        if (copy) m.copies_ms += row[i].backward_ms + (part == BACKWARD ? 0 : row[i].forward_ms);
        else m.bytes += part == BACKWARD ? row[i].backward_bytes : row[i].bytes;
    }
    return m;
}

/* Weights are centred and of a layer's usual size: with positive ones every gate would be shut, and the gradients below
 * what a float holds in full, which some processors take a hundred times as long for. */
static void fill_inputs(tn_bound *bound, const tn_plan *p)
{
    for (int i = 0; i < tn_plan_externs(p); i++) {
        const tn_gtensor *t = tn_plan_extern(p, i);
        void *data = tn_bound_data(bound, t->name);
        const tn_rng r = { 3, (uint64_t)i };
        const bool weight = t->name[0] == 'w' && t->dims.rank == 2, modulus = strcmp(t->name, "near_one") == 0;
        const float range = weight ? 2 / sqrtf((float)t->dims.dim[1]) : modulus ? 0.0999f : 0.8f;
        const float from = weight ? -range / 2 : modulus ? 0.9f : 0.1f;
        for (int64_t k = 0; t->role == TN_ROLE_INPUT && k < tn_gtensor_count(t); k++) {
            if (t->dtype == TN_I32) ((int32_t *)data)[k] = (int32_t)tn_rng_below(r, (uint64_t)k, V);
            else ((float *)data)[k] = from + range * tn_rng_uniform(r, (uint64_t)k);
        }
    }
}

/* Milliseconds of one run's part. The forward part is timed in a plan that has no other. */
static tn_status run_part(tn_bound *bound, int part, double *ms)
{
    tn_bound_timers(bound, true); /* from zero again */
    const double t = tn_clock_s();
    TN_RETURN_IF(tn_run(bound));
    *ms = 1e3 * (tn_clock_s() - t);
    if (part == BACKWARD) {
        tn_region_time whole;
        tn_bound_times(bound, &whole, 1);
        *ms = whole.backward_ms;
    }
    *ms -= moved_by(bound, part).copies_ms;
    return TN_OK;
}

static void report(const tn_bench *b, const char *group, const char *name, double *times, size_t runs, double flops,
                   double bytes, double steps)
{
    tn_bench_row r = { .group = group, .name = name };
    r.ms = tn_median(times, runs, &r.spread_ms);
    const double peak = b->bf16 ? b->ceilings.bf16_gflops : b->ceilings.fma_gflops;
    const double arithmetic = (flops > steps ? flops : steps) / peak * 1e-6;
    const double moves = bytes / tn_ceilings_bandwidth(&b->ceilings, bytes, NULL) * 1e-6;
    r.gflops = flops / r.ms * 1e-6;
    r.gbs = bytes / r.ms * 1e-6;
    r.of_ceiling = (arithmetic > moves ? arithmetic : moves) / r.ms;
    b->row(b->ctx, &r);
}

enum { MOST_RUNS = 64 };

static tn_status measure(const tn_bench *b, const char *group, const char *name, tn_bound *bound, const tn_plan *p,
                         int part, double slots)
{
    double times[MOST_RUNS], elements = 0;
    size_t runs = 0;
    const double start = tn_clock_s();
    fill_inputs(bound, p);
    TN_RETURN_IF(run_part(bound, part, &times[0]));
    while (runs < MOST_RUNS && (runs < 5 || tn_clock_s() - start < b->budget_s)) {
        TN_RETURN_IF(run_part(bound, part, &times[runs]));
        runs++;
    }
    if (tn_plan_externs(p)) elements = (double)tn_gtensor_count(tn_plan_extern(p, 0));
    const double flops = part == BACKWARD ? 0 : tn_plan_flops(p); /* the plan counts no parts */
    report(b, group, name, times, runs, flops, moved_by(bound, part).bytes, 2 * slots * elements);
    return TN_OK;
}

static tn_status graph_row(const tn_bench *b, const char *group, const char *name, tn_ref (*build)(tn_graph *g),
                           int part, double slots, const char *const *off)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    tn_plan *p = NULL;
    tn_context *c = NULL;
    tn_bound *bound = NULL;
    const tn_graph_options go = {
        .training = part != FORWARD, .threads = b->ceilings.threads, .off = off, .round = b->bf16 ? TN_BF16 : TN_F32
    };
    TN_TRY(tn_graph_new(&go, &g));
    tn_ref y = build(g);
    tn_seed seed = { .y = y };
    if (y.id && part != FORWARD) seed.dy = tn_input(g, "dy", tn_ref_dims(g, y), TN_F32);
    if (part == FORWARD) tn_output(g, "y", y);
    const tn_compile_options co = { .seeds = &seed, .n_seeds = part != FORWARD };
    tn_graph *taken = g;
    g = NULL;
    TN_TRY(tn_graph_compile(taken, &co, &p));
    TN_TRY(tn_context_new(TN_CPU, b->ceilings.threads, &c));
    TN_TRY(tn_bind(p, c, NULL, &bound));
    TN_TRY(measure(b, group, name, bound, p, part, slots));
done:
    tn_graph_free(g);
    tn_bound_free(bound);
    tn_context_free(c);
    tn_plan_free(p);
    return s;
}

tn_status tn_bench_graph(const tn_bench *b, const char *group, const char *name, tn_ref (*build)(tn_graph *g),
                         const char *const *off)
{
    return graph_row(b, group, name, build, WHOLE, 0, off);
}

/* AdamW by its kernel, on arrays that no cache holds. Each of gradient, parameter and two moments is read and written:
 * the gradient as zero. */
static tn_status bench_adamw(const tn_bench *b)
{
    enum { N = 16 << 20, RUNS = 12 };
    tn_status s = TN_OK;
    tn_pool *pool = NULL;
    double times[RUNS];
    float scalar[] = { 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 10, 1 };
    int32_t ok = 1;
    const tn_segment all = { .count = N, .lr = 1, .decay = true };
    const tn_adamw_attr attr = { .segment = &all, .n = 1 };
    tn_arg in[TN_ADAMW_INPUTS] = { { 0 } };
    float *flat = tn_alloc(sizeof *flat * TN_ADAMW_FLATS * N);
    if (!flat) TN_TRY(TN_MEMORY);
    for (int64_t i = 0; i < (int64_t)TN_ADAMW_FLATS * N; i++) flat[i] = 1e-3f;
    for (int i = 0; i < TN_ADAMW_INPUTS - 1; i++)
        in[i].data = i < TN_ADAMW_FLATS ? flat + (int64_t)i * N : scalar + i - TN_ADAMW_FLATS;
    in[TN_ADAMW_INPUTS - 1].data = &ok;
    TN_TRY(tn_pool_new(b->ceilings.threads, &pool));
    const tn_call call = {
        .attr = &attr, .n_in = TN_ADAMW_INPUTS, .n_out = TN_ADAMW_FLATS, .in = in, .out = in, .pool = pool
    };
    for (int i = 0; i < RUNS; i++) {
        const double t = tn_clock_s();
        TN_TRY(tn_op_adamw.kernel[TN_CPU].forward(&call));
        times[i] = 1e3 * (tn_clock_s() - t);
    }
    report(b, "op", "adamw", times, RUNS, 16.0 * N, 32.0 * N, 0);
done:
    tn_pool_free(pool);
    tn_free(flat);
    return s;
}

tn_status tn_bench_ops(const tn_bench *b)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int part = cases[i].backward ? FORWARD : WHOLE;
        TN_RETURN_IF(graph_row(b, "op", cases[i].name, cases[i].build, part, cases[i].slots, NULL));
        if (cases[i].backward)
            TN_RETURN_IF(
                graph_row(b, "op", cases[i].backward, cases[i].build, BACKWARD, cases[i].slots_backward, NULL));
    }
    TN_RETURN_IF(bench_adamw(b));
    return tn_bench_xent(b);
}
