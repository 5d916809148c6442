/* Equilibria of the block at the sizes of the TEP report: a batch of 128 samples, 20 steps that none of them leaves
 * early. One row for the solve and one for each of its gradients, by the fused op and by its plain twin
 * (opt.relax=off). FLOPs are those of the block's two products, by the evaluations that were counted. On a GPU a row
 * is a whole replay. */
#include "backend/cpu/pool.h"
#include "base/clock.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "report/bench/bench.h"
#include "report/bench/timing.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { B = 128, STEPS = 20, CLASSES = 10, MOST_RUNS = 64 };

static const int dims[] = { 13, 64, 128 };

static const struct way {
    const char *name;
    tn_loop_grad grad;
    bool backward, centred;
} ways[] = {
    { "forward", TN_LOOP_ONE_STEP, false, false }, { "ep", TN_LOOP_EP, true, false },
    { "ep_centred", TN_LOOP_EP, true, true },      { "implicit", TN_LOOP_IMPLICIT, true, false },
    { "one_step", TN_LOOP_ONE_STEP, true, false }, { "bptt", TN_LOOP_BPTT, true, false },
};

static tn_ref wanted(tn_graph *g, const char *name, tn_dims dims_of)
{
    return tn_want_gradient(g, tn_input(g, name, dims_of, TN_F32));
}

static tn_ref build(tn_graph *g, const struct way *w, int64_t d)
{
    tn_ref steps, nudged, adjoint;
    const tn_ref h =
        tn_relax(g, wanted(g, "a", tn_shape(B, d)), .kind = TN_RELAX_BLOCK, .w1 = wanted(g, "w1", tn_shape(4 * d, d)),
                 .b1 = wanted(g, "b1", tn_shape(4 * d)), .w2 = wanted(g, "w2", tn_shape(d, 4 * d)),
                 .b2 = wanted(g, "b2", tn_shape(d)), .norm2_gain = wanted(g, "gain2", tn_shape(d)),
                 .norm2_bias = wanted(g, "bias2", tn_shape(d)), .norm_gain = wanted(g, "gain", tn_shape(d)),
                 .norm_bias = wanted(g, "bias", tn_shape(d)),
                 .head_w = tn_input(g, "wout", tn_shape(CLASSES, d), TN_F32),
                 .head_b = tn_input(g, "bout", tn_shape(CLASSES), TN_F32),
                 .labels = tn_input(g, "labels", tn_shape(B), TN_I32), .steps = STEPS, .grad = w->grad,
                 .centred = w->centred, .mean = true, .rtol = tn_scalar(g, "rtol", 1e-30f),
                 .damping = tn_scalar(g, "damping", 0.9f), .beta = tn_scalar(g, "beta", 0.1f), .free_steps = &steps,
                 .nudged_steps = &nudged, .adjoint_steps = &adjoint);
    tn_output(g, "h", h);
    tn_output(g, "free", steps);
    if (w->grad == TN_LOOP_EP) tn_output(g, "nudged", nudged);
    if (w->backward && w->grad == TN_LOOP_IMPLICIT) tn_output(g, "adjoint", adjoint);
    return h;
}

/* Injections and seeds as of a network at its start; gains are 1, biases 0. */
static void fill(tn_bound *bound, const tn_plan *p)
{
    for (int i = 0; i < tn_plan_externs(p); i++) {
        const tn_gtensor *t = tn_plan_extern(p, i);
        if (t->role != TN_ROLE_INPUT) continue;
        const tn_rng r = { 5, (uint64_t)i };
        const bool weight = t->name[0] == 'w', gain = strncmp(t->name, "gain", 4) == 0, bias = t->name[0] == 'b';
        const float bound_of = weight ? 1 / sqrtf((float)t->dims.dim[1]) : 1;
        void *data = tn_bound_data(bound, t->name);
        for (int64_t k = 0; k < tn_gtensor_count(t); k++) {
            if (t->dtype == TN_I32) ((int32_t *)data)[k] = (int32_t)(k % CLASSES);
            else ((float *)data)[k] = gain ? 1 : bias ? 0 : bound_of * (2 * tn_rng_uniform(r, (uint64_t)k) - 1);
        }
    }
}

static double count(tn_bound *bound, const char *output)
{
    const int32_t *steps = tn_bound_data(bound, output);
    double sum = 0;
    for (int i = 0; steps && i < B; i++) sum += steps[i];
    return sum;
}

/* Of the part that is timed: the gradient alone, on a GPU with its solve. Gradients of the parameters count for
 * three: the block again, the state, the parameters; through time the block's first product alone is made again. */
static double flops_of(tn_bound *bound, const struct way *w, int64_t d, bool whole)
{
    const double free = count(bound, "free"), map = 16 * (double)(d * d);
    if (!w->backward) return map * free;
    return map * ((whole ? free : 0) + count(bound, "nudged") + count(bound, "adjoint") +
                  (w->grad == TN_LOOP_BPTT ? 2.5 * free : 3 * B));
}

/* On a GPU: a whole replay, solve and gradient, by the clock on the wall over many of them. */
static tn_status run_many(tn_bound *bound, double *ms)
{
    enum { REPLAYS = 50 };
    const double start = tn_clock_s();
    for (int i = 0; i < REPLAYS; i++) TN_RETURN_IF(tn_run(bound));
    if (!tn_bound_data(bound, "h")) return TN_INTERNAL; /* waits */
    *ms = 1e3 * (tn_clock_s() - start) / REPLAYS;
    return TN_OK;
}

static tn_status run_once(tn_bound *bound, const struct way *w, double *ms)
{
    tn_region_time whole;
    tn_bound_timers(bound, true); /* from zero */
    TN_RETURN_IF(tn_run(bound));
    tn_bound_times(bound, &whole, 1);
    *ms = w->backward ? whole.backward_ms : whole.forward_ms;
    return TN_OK;
}

static tn_status measure(const tn_bench *b, const char *name, tn_bound *bound, const struct way *w, int64_t d)
{
    double times[MOST_RUNS];
    size_t runs = 0;
    tn_bench_row r = { .group = "relax", .name = name };
    const bool gpu = b->device != TN_CPU;
    if (gpu) tn_bound_hold(bound, true);
    for (int i = 0; i < (gpu ? 3 : 1); i++)
        TN_RETURN_IF(gpu ? tn_run(bound) : run_once(bound, w, &times[0])); /* touches the memory, records */
    const double start = tn_clock_s();
    while (runs < MOST_RUNS && (runs < 5 || tn_clock_s() - start < b->budget_s / 2)) {
        TN_RETURN_IF(gpu ? run_many(bound, &times[runs]) : run_once(bound, w, &times[runs]));
        runs++;
    }
    const double flops = flops_of(bound, w, d, gpu);
    r.ms = tn_median(times, runs, &r.spread_ms);
    r.gflops = flops / r.ms * 1e-6;
    if (b->device == TN_CPU) r.of_ceiling = r.gflops / b->ceilings.fma_gflops;
    b->row(b->ctx, &r);
    return TN_OK;
}

static tn_status bench_way(const tn_bench *b, const struct way *w, int64_t d, bool plain)
{
    static const char *const off[] = { "opt.relax", NULL };
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    tn_plan *p = NULL;
    tn_context *c = NULL;
    tn_bound *bound = NULL;
    char name[64];
    snprintf(name, sizeof name, "d%d %s%s", (int)d, w->name, plain ? " plain" : "");
    TN_TRY(tn_graph_new(&(tn_graph_options){ .training = w->backward,
                                             .threads = b->ceilings.threads,
                                             .off = plain ? off : NULL,
                                             .device = b->device,
                                             .round = b->bf16 ? TN_BF16 : TN_F32 },
                        &g));
    tn_seed seed = { .y = build(g, w, d) };
    if (w->backward) seed.dy = tn_input(g, "dy", tn_shape(B, d), TN_F32);
    const tn_compile_options o = { .device = b->device, .seeds = &seed, .n_seeds = w->backward };
    tn_graph *taken = g;
    g = NULL;
    TN_TRY(tn_graph_compile(taken, &o, &p));
    TN_TRY(tn_context_new(b->device, b->ceilings.threads, &c));
    TN_TRY(tn_bind(p, c, NULL, &bound));
    fill(bound, p);
    TN_TRY(measure(b, name, bound, w, d));
done:
    tn_graph_free(g);
    tn_bound_free(bound);
    tn_context_free(c);
    tn_plan_free(p);
    return s;
}

static tn_status bench_dim(const tn_bench *b, int64_t d)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int plain = 0; plain < 2; plain++) TN_RETURN_IF(bench_way(b, &ways[i], d, plain));
    return TN_OK;
}

tn_status tn_bench_relax(const tn_bench *b)
{
    if (b->dim) return bench_dim(b, b->dim);
    for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) TN_RETURN_IF(bench_dim(b, dims[k]));
    return TN_OK;
}
