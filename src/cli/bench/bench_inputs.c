/* One evaluation of a model whose weights are frozen: the loss, and its gradient with respect to the embeddings that are given in the
 * place of tokens. On a GPU matrices are bf16; nothing is computed or kept for their gradients. */
#include "cli/bench/bench_parts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/view.h"
#include "report/bench/timing.h"

#include <math.h>
#include <string.h>

enum { WARM = 3, MOST_RUNS = 64, LEAST_RUNS = 4 };

static const char INPUT[] = "embeddings", OUTPUT[] = "d.embeddings";

typedef struct inputs_bench {
    tn_cli *c;
    const char *name;
    tn_arena arena; /* settings as they were typed */
    tn_saved_model model;
    tn_trainer *trainer;
    int64_t batch, length, scored;
    tn_ceilings ceilings;
    double peak;
} inputs_bench;

/* --- before anything is measured ----------------------------------------------------------------------------------------- */

static tn_status open_trainer(inputs_bench *b, int threads)
{
    static const char *const wants[] = { OUTPUT, NULL };
    tn_saved_model *m = &b->model;
    tn_input_row rows[TN_INPUTS_MAX];
    if (!tn_model_reads(m->model, INPUT))
        return tn_error(TN_USAGE,
                        "%s takes no embeddings in the place of tokens (input %s): use a model that does, as gpt",
                        m->model->name, INPUT);
    const tn_input_spec spec = tn_input_spec_with(m->model, INPUT, rows);
    b->batch = tn_settings_int(m->settings, "train.batch");
    b->length = tn_inputs_length(m->model, m->settings);
    b->scored = b->length;
    TN_RETURN_IF(tn_args_whole(&b->c->args, "scored", 1, b->length, &b->scored));
    const tn_trainer_options o = { .model = m->model,
                                   .settings = m->settings,
                                   .batch = b->batch,
                                   .length = b->length,
                                   .input_spec = &spec,
                                   .wants = wants,
                                   .forward_only = true,
                                   .frozen = true,
                                   .drawn = !m->weights[0],
                                   .weights = m->weights[0] ? m->matrices.type : TN_F32,
                                   .threads = threads };
    TN_RETURN_IF(tn_trainer_new(&o, &b->trainer));
    return m->weights[0] ? tn_saved_model_load(m, tn_trainer_store(b->trainer)) : TN_OK;
}

/* Random vectors and labels; those before the last `scored` of a row do not count. */
static void fill_inputs(inputs_bench *b)
{
    const tn_feed f = tn_trainer_feed(b->trainer);
    tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 1 });
    int32_t *labels = tn_feed_at(&f, "labels"); /* (B,T) */
    for (int64_t i = 0; labels && i < b->batch * b->length; i++)
        if (i % b->length < b->length - b->scored) labels[i] = -1;
}

/* --- runs ------------------------------------------------------------------------------------------------------------------ */

/* The loss is read back: a run ends when the device has. */
static tn_status run_evaluations(void *ctx, int64_t n)
{
    const inputs_bench *b = ctx;
    float loss;
    for (int64_t i = 0; i < n; i++) {
        if (tn_interrupted(NULL)) return tn_error(TN_INTERRUPTED, "interrupted");
        TN_RETURN_IF(tn_trainer_eval(b->trainer, &loss));
    }
    return TN_OK;
}

/* copies: inputs go to the device and the gradient comes back in every run. Else inputs stay there, as where another network makes
 * them. The first runs choose kernels and record the plan. */
static tn_status time_runs(inputs_bench *b, double seconds, bool copies, tn_bench_row *r)
{
    double times[MOST_RUNS];
    size_t n = 0;
    tn_bound_hold(tn_trainer_bound(b->trainer, false), !copies);
    TN_RETURN_IF(run_evaluations(b, WARM));
    const double start = tn_clock_s();
    while (n < MOST_RUNS && (n < LEAST_RUNS || tn_clock_s() - start < seconds)) {
        const double begun = tn_clock_s();
        int64_t count;
        TN_RETURN_IF(run_evaluations(b, 1));
        if (copies && !tn_trainer_output(b->trainer, OUTPUT, &count)) return TN_MEMORY;
        times[n++] = tn_clock_s() - begun;
    }
    r->ms = 1e3 * tn_median(times, n, &r->spread_ms);
    r->spread_ms *= 1e3;
    return TN_OK;
}

/* The plan's own count. The CPU's head leaves out positions that are not scored; a GPU's computes all of them. */
static double flops_of(const inputs_bench *b)
{
    tn_op_time op[64];
    const size_t n = tn_bound_op_times(tn_trainer_bound(b->trainer, false), op, 0, 64);
    double flops = tn_plan_flops(tn_trainer_plan(b->trainer, false));
    for (size_t i = 0; i < n; i++)
        if (tn_trainer_device(b->trainer) == TN_CPU && strcmp(op[i].op, "linear_xent") == 0)
            flops -= op[i].flops * (1 - (double)b->scored / (double)b->length);
    return flops;
}

static tn_status time_parts(inputs_bench *b)
{
    tn_bound *bound = tn_trainer_bound(b->trainer, false);
    tn_cli *c = b->c;
    if (!tn_args_flag(&c->args, "regions") && !tn_args_flag(&c->args, "by-op")) return TN_OK;
    tn_bench_parts *p = tn_alloc(sizeof *p);
    if (!p) return TN_MEMORY;
    tn_bound_timers(bound, true);
    tn_status s = run_evaluations(b, TN_BENCH_TIMED);
    p->n_regions = tn_bound_times(bound, p->region, TN_BENCH_ROWS);
    if (p->n_regions > TN_BENCH_ROWS) p->n_regions = TN_BENCH_ROWS;
    p->n_ops = tn_bound_op_times(bound, p->op, 0, TN_BENCH_ROWS);
    tn_bound_timers(bound, false);
    if (s == TN_OK) s = tn_bench_print_parts(c, p, &b->ceilings, b->peak);
    tn_free(p);
    return s;
}

static tn_status measure(inputs_bench *b, size_t idle)
{
    double seconds = 10;
    const tn_device device = tn_trainer_device(b->trainer);
    tn_bench_row r = { .group = "inputs", .name = b->name }, copied = { .group = "copied", .name = b->name };
    TN_RETURN_IF(tn_args_number(&b->c->args, "seconds", 0.001, 3600, &seconds));
    TN_RETURN_IF(tn_bench_ceilings(b->c, device, tn_trainer_threads(b->trainer), seconds, &b->ceilings));
    b->peak = tn_ceilings_of_compute(&b->ceilings, tn_settings_text(b->model.settings, "compute"));
    fill_inputs(b);
    tn_trainer_steady(b->trainer, true);
    TN_RETURN_IF(time_runs(b, seconds, false, &r));
    r.gflops = flops_of(b) / r.ms * 1e-6;
    r.of_ceiling = r.gflops / b->peak;
    tn_bench_print_row(b->c, &r);
    if (device != TN_CPU) {
        TN_RETURN_IF(time_runs(b, seconds, true, &copied));
        tn_bench_print_row(b->c, &copied);
    }
    TN_RETURN_IF(tn_bench_print_rate(b->c, b->name, (double)(b->batch * b->length) / r.ms * 1e3, "tokens/s"));
    TN_RETURN_IF(tn_bench_print_memory(b->c, b->name, b->trainer, device == TN_CPU ? 0 : idle));
    tn_bound_hold(tn_trainer_bound(b->trainer, false), true);
    TN_RETURN_IF(tn_bench_trace(b->c, b->name, device, b->trainer, run_evaluations, b));
    return time_parts(b);
}

tn_status tn_bench_inputs(tn_cli *c)
{
    tn_status s = TN_OK;
    int threads;
    inputs_bench *b = tn_alloc(sizeof *b);
    if (!b) return TN_MEMORY;
    const size_t idle = tn_bench_gpu_taken();
    *b = (inputs_bench){ .c = c, .name = tn_args_positional(&c->args, 1) };
    TN_TRY(tn_bench_threads(c, &threads));
    TN_TRY(tn_args_expect(&c->args, 2, 2));
    TN_TRY(tn_bench_find(c, &b->arena, b->name, &b->model));
    TN_TRY(open_trainer(b, threads));
    tn_interrupt_watch();
    TN_TRY(measure(b, idle));
done:
    tn_trainer_free(b->trainer);
    tn_saved_model_free(&b->model);
    tn_arena_free(&b->arena);
    tn_free(b);
    return s;
}
