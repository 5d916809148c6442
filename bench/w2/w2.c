/* The workload of the TEP report: one run by equilibrium propagation (tep) and one by back-propagation through time (bp), on the
 * digits with 80 % to train on and 20 % to test after every epoch, at two widths, in three rows:
 *
 *   full      every solve takes all its steps
 *   early     a sample stops at rtol
 *   faithful  as the prototype computed it: its nudge and gradient, a batch stops at the absolute tol
 *
 * The report's protocol is kept, its flaw included: accuracy is that of the best epoch on the test split itself.
 * Prints one figure a line: name, value, unit, and what the report has for it. bench/w2/run.sh builds and runs this. */
#include "base/clock.h"
#include "report/bench/ceilings.h"
#include "train/run/session.h"
#include "train/run/training.h"
#include "train/trainer/costs.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SETTINGS = 256, TEP = 0, BP = 1, RUNS = 2 };

/* What key=value may change; the prototype's own values. */
static const char *const base[] = {
    "task=digits",       "task.valid_frac=0", "task.test_frac=0.2", "train.batch=128",
    "train.epochs=30",   "iterations=20",     "beta=0.1",           "anchor=state",
    "damping=0.9",       "rtol=1e-2",         "tol=1e-4",           "train.lr=1e-3",
    "train.beta2=0.999", "train.decay=0",     "train.warmup=0",     "train.schedule=constant",
    "threads=1",
};

/* What it may not. The prototype clips back-propagation alone. */
static const struct row {
    const char *name, *variant, *rtol, *tep_clip; /* or NULL */
} rows[] = {
    { "full", "variant=corrected", "rtol=1e-30", NULL },
    { "early", "variant=corrected", NULL, NULL },
    { "faithful", "variant=faithful", NULL, "train.clip=0" },
};
enum { ROWS = sizeof rows / sizeof *rows };
static const char *const own[] = { "model", "variant", "grad", "log.level", "train.steps", "train.eval_every" };
static const char *const grads[RUNS] = { "grad=ep", "grad=bptt" };

/* Seconds by region of the model, and what a run counted. */
typedef struct regions {
    double solve, injection, head; /* injection: embedding, values and their projection; head: with the loss */
} regions;

typedef struct run {
    tn_costs costs;
    double wall_s, cpu_s; /* training with its evaluations, from the first batch on; cpu: without waiting for a core */
    double optimizer_s, data_s, score, flops, peak_gflops;
    int64_t dim;
    regions forward, backward, eval;
} run;

static bool sets(const char *override, const char *key)
{
    const size_t n = strlen(key);
    return strncmp(override, key, n) == 0 && override[n] == '=';
}

/* dim 0: as the settings say. */
static tn_status open_run(const struct row *row, int which, int dim, char *const *given, size_t n_given, tn_session *s)
{
    const char *list[MOST_SETTINGS];
    char text[24];
    size_t n = 0;
    if (n_given > MOST_SETTINGS / 2) return tn_error(TN_USAGE, "too many settings");
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) list[n++] = base[i];
    for (size_t i = 0; i < n_given; i++) list[n++] = given[i];
    snprintf(text, sizeof text, "dim=%d", dim);
    if (dim) list[n++] = text;
    list[n++] = row->variant;
    list[n++] = grads[which];
    list[n++] = "log.level=info"; /* the run's own timers would reset those read here */
    if (row->rtol) list[n++] = row->rtol;
    if (row->tep_clip && which == TEP) list[n++] = row->tep_clip;
    TN_RETURN_IF(tn_session_open_with(
        &(tn_session_options){ .target = "tep", .overrides = list, .n = n, .needs_data = true, .split = TN_TEST }, s));
    if (tn_session_count(s, TN_TEST) == 0)
        return tn_error(TN_USAGE, "accuracy is measured on the test split: make task.test_frac larger than 0");
    snprintf(text, sizeof text, "%lld", (long long)s->source.epoch_batches);
    return tn_settings_set(s->settings, "train.eval_every", text, "w2");
}

static void count(void *ctx, tn_trainer_event what, tn_bound *b, double seconds)
{
    run *r = ctx;
    if (what == TN_EVENT_APPLY) r->optimizer_s += seconds;
    if (what == TN_EVENT_DATA) r->data_s += seconds;
    tn_costs_add(&r->costs, what, b);
}

static void read_timers(tn_bound *b, regions *forward, regions *backward)
{
    enum { MOST = 64 };
    tn_region_time time[MOST];
    const size_t n = tn_bound_times(b, time, MOST);
    for (size_t i = 0; i < n && i < MOST; i++) {
        const char *name = time[i].region;
        const bool solve = strcmp(name, "solve") == 0, in = strcmp(name, "embed") == 0 || strcmp(name, "attn") == 0;
        *(solve ? &forward->solve : in ? &forward->injection : &forward->head) += 1e-3 * time[i].forward_ms;
        *(solve ? &backward->solve : in ? &backward->injection : &backward->head) += 1e-3 * time[i].backward_ms;
    }
}

/* Of the map's two products. A gradient counts for three: the map again (through time one product), the state, the parameters. */
static double block_flops(const tn_settings *st, const tn_costs *c)
{
    const double d = (double)tn_settings_int(st, "dim"),
                 ff = tn_settings_is_auto(st, "ff") ? 4 * d : (double)tn_settings_int(st, "ff");
    const double again = strcmp(tn_settings_text(st, "grad"), "bptt") == 0 ? 0.5 : 1;
    return 4 * d * ff *
           (tn_costs_sum(c, "free") + tn_costs_sum(c, "nudged") + tn_costs_sum(c, "eval") +
            (again + 2) * tn_costs_sum(c, "backward"));
}

static void show(void *ctx, const tn_progress_report *r)
{
    if (r->evaluated)
        fprintf(stderr, "%s step %lld of %lld\n", (const char *)ctx, (long long)r->step, (long long)r->steps);
}

static tn_status train(tn_session *s, const char *label, run *r)
{
    tn_progress_report last;
    tn_ceilings peak = { 0 };
    tn_bound *grad = tn_trainer_bound(s->trainer, true), *eval = tn_trainer_bound(s->trainer, false);
    regions none = { 0 };
    const tn_training t = { .trainer = s->trainer,
                            .settings = s->settings,
                            .source = &s->source,
                            .batch = s->batch,
                            .length = s->length,
                            .ctx = (void *)label,
                            .report = show };
    if (tn_trainer_device(s->trainer) == TN_CPU)
        TN_RETURN_IF(tn_ceilings_arithmetic(tn_trainer_threads(s->trainer), &peak));
    TN_RETURN_IF(tn_costs_open(tn_trainer_model(s->trainer), s->settings, s->batch, &r->costs));
    tn_trainer_watch(s->trainer, (tn_watch){ .ctx = r, .ran = count });
    tn_bound_timers(grad, true);
    tn_bound_timers(eval, true);
    const double wall = tn_clock_s(), cpu = tn_clock_cpu_s();
    TN_RETURN_IF(tn_training_run(&t, NULL, &last));
    r->wall_s = tn_clock_s() - wall, r->cpu_s = tn_clock_cpu_s() - cpu;
    read_timers(grad, &r->forward, &r->backward);
    read_timers(eval, &r->eval, &none);
    r->score = tn_scores_get(&last.best, last.select->name);
    r->flops = block_flops(s->settings, &r->costs);
    r->peak_gflops = peak.fma_gflops;
    r->dim = tn_settings_int(s->settings, "dim");
    return TN_OK;
}

static double steps(const run *r, const char *phase, int64_t samples)
{
    return tn_costs_sum(&r->costs, phase) / (double)samples;
}

/* The nudged solve of equilibrium propagation ends in the one gradient it is for: both are the backward kernel of the solve.
 * Seconds of the report are those of its profile of 1260 solver calls; its parts lie inside each other. */
static void print_pair(const char *name, const run r[RUNS])
{
    const run *a = &r[TEP], *b = &r[BP];
    const double wall = a->wall_s + b->wall_s, optimizer = a->optimizer_s + b->optimizer_s,
                 data = a->data_s + b->data_s, calls = (double)(a->costs.calls + b->costs.calls),
                 gflops = (a->flops + b->flops) / (a->cpu_s + b->cpu_s) * 1e-9;
    const double solver = a->forward.solve + a->backward.solve + a->eval.solve + b->forward.solve + b->eval.solve;
    const double backward =
        b->backward.solve + a->backward.injection + a->backward.head + b->backward.injection + b->backward.head;
    const double injection = a->forward.injection + a->eval.injection + b->forward.injection + b->eval.injection;
    const double head = a->forward.head + a->eval.head + b->forward.head + b->eval.head;
    const struct {
        const char *name;
        double value;
        const char *unit;
        double report; /* 0: it has none */
    } all[] = {
        { "wall", wall, "s", 40.2 },
        { "tep_wall", a->wall_s, "s", 0 },
        { "bp_wall", b->wall_s, "s", 0 },
        { "cpu", a->cpu_s + b->cpu_s, "s", 0 },
        { "backward", backward, "s", 12.8 },
        { "solver", solver, "s", 17.6 },
        { "injection", injection, "s", 0 }, /* attention of one token is a constant: in here, once a batch */
        { "head", head, "s", 0 },
        { "optimizer", optimizer, "s", 0 },
        { "data", data, "s", 0 },
        { "rest", wall - backward - solver - injection - head - optimizer - data, "s", 0 },
        { "solver_calls", calls, "calls", 1260 },
        { "ms_per_call", 1e3 * solver / calls, "ms", 13.97 },
        { "tep_free_steps", steps(a, "free", a->costs.samples), "steps", 0 },
        { "tep_nudged_steps", steps(a, "nudged", a->costs.samples), "steps", 0 },
        { "tep_eval_steps", steps(a, "eval", a->costs.eval_samples), "steps", 0 },
        { "bp_free_steps", steps(b, "free", b->costs.samples), "steps", 0 },
        { "bp_eval_steps", steps(b, "eval", b->costs.eval_samples), "steps", 0 },
        { "tep_test_accuracy_of_best_epoch", a->score, "", 0 },
        { "bp_test_accuracy_of_best_epoch", b->score, "", 0 },
        { "gflops", gflops, "GFLOP/s", 0 },
        { "fma_peak", a->peak_gflops, "GFLOP/s", 0 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        printf("d%lld_%s_%-32s %12.4f %-8s", (long long)a->dim, name, all[i].name, all[i].value, all[i].unit);
        if (all[i].report > 0) printf("  report %.2f", all[i].report);
        putchar('\n');
    }
    fflush(stdout);
}

static tn_status run_pair(const struct row *row, int dim, char *const *given, size_t n)
{
    run r[RUNS] = { { .wall_s = 0 } };
    for (int which = 0; which < RUNS; which++) {
        tn_session s = { 0 };
        char label[64];
        snprintf(label, sizeof label, "%s %s", row->name, grads[which]);
        tn_status st = open_run(row, which, dim, given, n, &s);
        if (st == TN_OK) st = train(&s, label, &r[which]);
        tn_session_close(&s);
        TN_RETURN_IF(st);
    }
    print_pair(row->name, r);
    return TN_OK;
}

static tn_status run_all(int argc, char *const *argv)
{
    const char *only = NULL;
    bool dim = false, ran = false;
    if (argc > 1 && strncmp(argv[1], "--only=", 7) == 0) only = argv[1] + 7, argc--, argv++;
    for (int i = 1; i < argc; i++) {
        dim = dim || sets(argv[i], "dim");
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (sets(argv[i], own[k])) return tn_error(TN_USAGE, "%s is set by this workload: remove it", own[k]);
    }
    for (int d = 64; d <= (dim ? 64 : 128); d += 64)
        for (int i = 0; i < ROWS; i++)
            if (!only || strcmp(only, rows[i].name) == 0) {
                TN_RETURN_IF(run_pair(&rows[i], dim ? 0 : d, argv + 1, (size_t)argc - 1));
                ran = true;
            }
    return ran ? TN_OK : tn_error(TN_USAGE, "--only=%.40s: choose full, early or faithful", only);
}

int main(int argc, char **argv)
{
    const tn_status s = run_all(argc, argv);
    if (s != TN_OK) fprintf(stderr, "error: %s\n", tn_error_text());
    return (int)s;
}
