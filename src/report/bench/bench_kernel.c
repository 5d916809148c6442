/* Timing one op of a graph. */
#include "report/bench/bench_kernel.h"

#include "base/clock.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "report/bench/timing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RUNS = 64, LEAST_RUNS = 10, MOST_OPS = 32, BLOCK = 1 << 16, CLASSES = 50257 };

tn_ref tn_bench_activation(tn_graph *g, const char *name, tn_dims dims)
{
    char gain[32];
    snprintf(gain, sizeof gain, "%s_gain", name);
    const tn_ref x = tn_input(g, name, dims, tn_graph_get_options(g)->activation);
    return tn_mul(g, x, tn_param(g, gain, tn_shape(dims.dim[dims.rank - 1]), tn_ones));
}

/* A block of random numbers, again and again: the largest inputs have 10^9. */
static tn_status fill(void *to, tn_dtype type, int64_t n, tn_rng r)
{
    const int64_t first = n < BLOCK ? n : BLOCK;
    const size_t item = tn_dtype_bytes(type);
    if (type == TN_I32) {
        for (int64_t i = 0; i < first; i++) ((int32_t *)to)[i] = (int32_t)tn_rng_below(r, (uint64_t)i, CLASSES);
    } else {
        float *x = tn_alloc(sizeof *x * BLOCK);
        if (!x) return TN_MEMORY;
        tn_rng_normals(r, x, first);
        tn_convert(to, type, x, TN_F32, first);
        tn_free(x);
    }
    for (int64_t at = first; at < n; at += first)
        memcpy((char *)to + (size_t)at * item, to, (size_t)(n - at < first ? n - at : first) * item);
    return TN_OK;
}

static tn_status fill_inputs(tn_bound *bound, const tn_plan *p)
{
    for (int i = 0; i < tn_plan_externs(p); i++) {
        const tn_gtensor *t = tn_plan_extern(p, i);
        if (t->role == TN_ROLE_INPUT)
            TN_RETURN_IF(
                fill(tn_bound_data(bound, t->name), t->dtype, tn_gtensor_count(t), (tn_rng){ 3, (uint64_t)i }));
    }
    return TN_OK;
}

static tn_status find_op(const tn_bound *bound, const char *op, tn_op_time *out)
{
    tn_op_time row[MOST_OPS];
    const size_t n = tn_bound_op_times(bound, row, 0, MOST_OPS);
    for (size_t i = 0; i < n; i++)
        if (strcmp(row[i].op, op) == 0) {
            *out = row[i];
            return TN_OK;
        }
    return tn_error(TN_INTERNAL, "the graph of this row has no %s", op);
}

static tn_status time_runs(const tn_bench *b, const char *op, tn_bound *bound, tn_bench_time *out)
{
    double all[MOST_RUNS], forward[MOST_RUNS], backward[MOST_RUNS];
    size_t runs = 0;
    tn_op_time t = { 0 };
    tn_bound_hold(bound, true);
    tn_bound_timers(bound, true);
    TN_RETURN_IF(tn_run(bound)); /* touches the memory, and looks up what the kernels need */
    const double start = tn_clock_s();
    while (runs < MOST_RUNS && (runs < LEAST_RUNS || tn_clock_s() - start < b->budget_s)) {
        tn_bound_timers(bound, true); /* from zero again */
        TN_RETURN_IF(tn_run(bound));
        TN_RETURN_IF(find_op(bound, op, &t));
        forward[runs] = t.forward_ms;
        backward[runs] = t.backward_ms;
        all[runs++] = t.forward_ms + t.backward_ms;
    }
    *out = (tn_bench_time){ .flops = t.flops,
                            .backward_flops = t.backward_flops,
                            .bytes = t.bytes,
                            .backward_bytes = t.backward_bytes,
                            .forward_ms = tn_median(forward, runs, NULL),
                            .backward_ms = tn_median(backward, runs, NULL) };
    out->ms = tn_median(all, runs, &out->spread_ms);
    out->best_ms = all[0]; /* sorted now */
    return TN_OK;
}

static tn_status compile(const tn_bench *b, const tn_bench_case *k, tn_store *store, tn_plan **out)
{
    tn_status s = TN_OK;
    tn_graph *g = NULL;
    const bool half = !k->f32 && !k->tf32;
    const tn_graph_options o = { .training = !k->forward_only,
                                 .threads = b->ceilings.threads,
                                 .activation = half ? TN_BF16 : TN_F32,
                                 .round = half ? TN_BF16 : TN_F32,
                                 .tf32 = k->tf32 };
    TN_TRY(tn_graph_new(&o, &g));
    tn_seed seed = { .y = k->build(g, k->sizes) };
    TN_TRY(tn_graph_status(g));
    const bool loss = tn_dims_count(tn_ref_dims(g, seed.y)) == 1;
    if (!k->forward_only && !loss) seed.dy = tn_input(g, "dy", tn_ref_dims(g, seed.y), tn_ref_dtype(g, seed.y));
    tn_output(g, "y", seed.y);
    tn_compile_options how = { .device = b->device };
    if (!k->forward_only && loss) how.loss = seed.y;
    else if (!k->forward_only) how.seeds = &seed, how.n_seeds = 1;
    TN_TRY(tn_store_adopt(store, g));
    tn_graph *taken = g;
    g = NULL;
    TN_TRY(tn_graph_compile(taken, &how, out));
done:
    tn_graph_free(g);
    return s;
}

tn_status tn_bench_time_case(const tn_bench *b, const tn_bench_case *k, tn_bench_time *out)
{
    tn_status s = TN_OK;
    tn_store *store = NULL;
    tn_plan *p = NULL;
    tn_context *c = NULL;
    tn_bound *bound = NULL;
    TN_TRY(tn_store_new(b->device, 1, &store));
    TN_TRY(compile(b, k, store, &p));
    TN_TRY(tn_context_new(b->device, b->ceilings.threads, &c));
    TN_TRY(tn_bind(p, c, store, &bound));
    TN_TRY(fill_inputs(bound, p));
    TN_TRY(time_runs(b, k->op, bound, out));
done:
    tn_bound_free(bound);
    tn_context_free(c);
    tn_plan_free(p);
    tn_store_free(store);
    return s;
}

void tn_bench_report(const tn_bench *b, const char *group, const char *name, double ms, double spread_ms, double flops,
                     double bytes, double peak)
{
    tn_bench_row r = { .group = group, .name = name, .ms = ms, .spread_ms = spread_ms };
    const double arithmetic = peak > 0 ? flops / peak * 1e-6 : 0,
                 gbs = tn_ceilings_bandwidth(&b->ceilings, bytes, NULL), moves = gbs > 0 ? bytes / gbs * 1e-6 : 0;
    r.gflops = flops / ms * 1e-6;
    r.gbs = bytes / ms * 1e-6;
    r.of_ceiling = fmax(arithmetic, moves) / ms;
    b->row(b->ctx, &r);
}
