/* Runs one hot kernel, or one training step of a tiny model, for gate.sh to count: kernels NAME [RUNS], or no argument
 * for the list. A warm-up comes first; what counts is what runs inside tn_perf_measured, which callgrind is told to
 * collect. One thread, fixed sizes, fixed data: two runs of one build execute the same instructions. Prints the
 * micro-kernel of the matrix product, because other instructions make other counts. */
#include "backend/cpu/gemm.h"
#include "base/rng.h"
#include "base/status.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 1, T = 128, D = 128, K = 64, H = 2, V = 512 };

/* What is counted: `run` once for each of `runs`. Not inlined, so that callgrind finds its name. */
tn_status tn_perf_measured(tn_status (*run)(void *ctx), void *ctx, int runs);
__attribute__((noinline)) tn_status tn_perf_measured(tn_status (*run)(void *ctx), void *ctx, int runs)
{
    tn_status s = TN_OK;
    for (int i = 0; i < runs && s == TN_OK; i++) s = run(ctx);
    return s;
}

static tn_status count(tn_status (*run)(void *ctx), void *ctx, int runs)
{
    TN_RETURN_IF(run(ctx)); /* warm-up: first touches, lazy binding of the C library's functions */
    return tn_perf_measured(run, ctx, runs);
}

/* --- kernels ------------------------------------------------------------------------------------------------------------- */

static tn_ref in(tn_graph *g, const char *name, tn_dims dims)
{
    return tn_want_gradient(g, tn_input(g, name, dims, TN_F32));
}

static tn_ref build_linear(tn_graph *g)
{
    return tn_linear(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(2 * D, D)),
                     .bias = in(g, "b", tn_shape(2 * D)), .act = TN_ACT_GELU);
}
static tn_ref build_norm(tn_graph *g)
{
    return tn_rmsnorm(g, in(g, "x", tn_shape(B, 4 * T, D)), in(g, "w", tn_shape(D)));
}
static tn_ref build_attention(tn_graph *g)
{
    const tn_dims d = tn_shape(B, T, H, 64);
    return tn_attention(g, in(g, "q", d), in(g, "k", d), in(g, "v", d), .causal = true);
}
static tn_ref build_scan(tn_graph *g)
{
    return tn_scan(g, in(g, "x", tn_shape(B, 4 * T, 2 * K)), in(g, "rho", tn_shape(K)), in(g, "omega", tn_shape(K)),
                   .gamma = in(g, "gamma", tn_shape(K)));
}
static tn_ref build_scan_gated(tn_graph *g)
{
    return tn_scan_gated(g, in(g, "x", tn_shape(B, T, 2 * K)), in(g, "ri", tn_shape(B, T, 2 * K)),
                         in(g, "nu", tn_shape(K)), in(g, "omega", tn_shape(K)));
}
static tn_ref build_outer(tn_graph *g)
{
    const tn_dims d = tn_shape(B, T, H, 64);
    return tn_outer(g, in(g, "q", d), in(g, "k", d), in(g, "v", d), tn_neg(g, in(g, "alpha", tn_shape(B, T, H))));
}
static tn_ref build_linear_xent(tn_graph *g)
{
    return tn_linear_xent(g, in(g, "x", tn_shape(B, T, D)), in(g, "w", tn_shape(V, D)),
                          tn_input(g, "labels", tn_shape(B, T), TN_I32));
}

/* Two steps of the solve and two of its adjoint. */
static tn_ref relax_of(tn_graph *g, int64_t samples, int64_t d)
{
    return tn_relax(g, in(g, "a", tn_shape(samples, d)), .w1 = in(g, "w1", tn_shape(4 * d, d)),
                    .b1 = in(g, "b1", tn_shape(4 * d)), .w2 = in(g, "w2", tn_shape(d, 4 * d)),
                    .b2 = in(g, "b2", tn_shape(d)), .norm_gain = in(g, "n", tn_shape(d)), .steps = 2,
                    .rtol = tn_scalar(g, "rtol", 0), .grad = TN_LOOP_IMPLICIT);
}
static tn_ref build_relax(tn_graph *g) { return relax_of(g, 32, D); }
static tn_ref build_relax_small(tn_graph *g) { return relax_of(g, T, 13); }

static void fill_inputs(tn_bound *bound, const tn_plan *p)
{
    for (int i = 0; i < tn_plan_externs(p); i++) {
        const tn_gtensor *t = tn_plan_extern(p, i);
        void *data = tn_bound_data(bound, t->name);
        const tn_rng r = { 3, (uint64_t)i };
        for (int64_t k = 0; t->role == TN_ROLE_INPUT && k < tn_gtensor_count(t); k++) {
            if (t->dtype == TN_I32) ((int32_t *)data)[k] = (int32_t)tn_rng_below(r, (uint64_t)k, V);
            else ((float *)data)[k] = 0.1f + 0.8f * tn_rng_uniform(r, (uint64_t)k);
        }
    }
}

static tn_status run_bound(void *ctx) { return tn_run(ctx); }

static tn_status count_graph(tn_ref (*build)(tn_graph *g), int runs)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    tn_plan *p = NULL;
    tn_context *c = NULL;
    tn_bound *bound = NULL;
    const tn_graph_options go = { .training = true, .threads = 1 };
    TN_TRY(tn_graph_new(&go, &g));
    tn_seed seed = { .y = build(g) };
    if (seed.y.id) seed.dy = tn_input(g, "dy", tn_ref_dims(g, seed.y), TN_F32);
    const tn_compile_options co = { .seeds = &seed, .n_seeds = 1 };
    TN_TRY(tn_graph_compile(g, &co, &p)); /* takes the graph, also when it fails */
    TN_TRY(tn_context_new(TN_CPU, 1, &c));
    TN_TRY(tn_bind(p, c, NULL, &bound));
    fill_inputs(bound, p);
    TN_TRY(count(run_bound, bound, runs));
done:
    tn_bound_free(bound);
    tn_context_free(c);
    tn_plan_free(p);
    return s;
}

/* --- training steps -------------------------------------------------------------------------------------------------------- */

typedef struct stepper {
    tn_trainer *trainer;
    int64_t step;
} stepper;

static tn_status run_step(void *ctx)
{
    stepper *w = ctx;
    float loss;
    tn_update_result a;
    TN_RETURN_IF(tn_trainer_grad(w->trainer, w->step, &loss));
    TN_RETURN_IF(tn_trainer_apply(w->trainer, w->step++, 1, loss, &a));
    return TN_OK;
}

static tn_status count_model(const char *name, int runs)
{
    enum { LENGTH = 64 };
    static const char *const overrides[] = { "dim=64", "layers=2", "heads=2", "vocab=256", "train.context=64" };
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    stepper w = { 0 };
    tn_trainer_options o = { .batch = 1, .length = LENGTH, .threads = 1 };
    TN_TRY(tn_settings_resolve(name, overrides, sizeof overrides / sizeof *overrides, &st, &o.model));
    o.settings = st;
    TN_TRY(tn_trainer_new(&o, &w.trainer));
    for (int k = 0; k < LENGTH; k++) {
        ((int32_t *)tn_trainer_input(w.trainer, "tokens"))[k] = k * 7 % 251;
        ((int32_t *)tn_trainer_input(w.trainer, "labels"))[k] = (k + 1) * 7 % 251;
    }
    TN_TRY(count(run_step, &w, runs));
done:
    tn_trainer_free(w.trainer);
    tn_settings_free(st);
    return s;
}

static const struct {
    const char *name;
    tn_ref (*build)(tn_graph *g); /* NULL: a model of this name */
} cases[] = {
    { "linear", build_linear },
    { "norm", build_norm },
    { "attention", build_attention },
    { "scan", build_scan },
    { "scan_gated", build_scan_gated },
    { "outer", build_outer },
    { "linear_xent", build_linear_xent },
    { "relax", build_relax },
    { "relax_small", build_relax_small },
    { "ten", NULL },
    { "gpt", NULL },
};

int main(int argc, char **argv)
{
    const int runs = argc > 2 ? atoi(argv[2]) : 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc < 2) puts(cases[i].name);
        if (argc < 2 || strcmp(argv[1], cases[i].name) != 0) continue;
        const tn_status s = cases[i].build ? count_graph(cases[i].build, runs) : count_model(cases[i].name, runs);
        if (s != TN_OK) fprintf(stderr, "%s: %s\n", argv[1], tn_error_text());
        else puts(tn_gemm_kernel_name());
        return s;
    }
    if (argc > 1) fprintf(stderr, "%s: not in the list that no argument prints\n", argv[1]);
    return argc > 1 ? TN_USAGE : TN_OK;
}
