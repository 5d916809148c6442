/* The workload of the TEP report: one trial by equilibrium propagation and one by back-propagation through time, on the digits
 * with 80 % to train on and 20 % to test after every epoch, at two widths, in three rows:
 *
 *   full      every solve takes all its steps
 *   early     a sample stops at rtol
 *   faithful  as the prototype computed it: its nudge and gradient, a batch stops at the absolute tol
 *
 * The report's protocol is kept, its flaw included: accuracy is that of the best epoch on the samples it is measured with. */
#include "cli/bench_w2.h"

#include "cli/train/train_view.h"
#include "report/bench/ceilings.h"
#include "report/w2.h"

#include <string.h>

enum { MOST_SETTINGS = 256, TEP = 0, BP = 1, TRIALS = 2 };

/* The report's profile: seconds of 1260 solver calls. Its parts lie inside each other. */
static const double REPORT_TOTAL_S = 40.2, REPORT_BACKWARD_S = 12.8, REPORT_SOLVER_S = 17.6, REPORT_ATTENTION_S = 10.4,
                    REPORT_LINEAR_S = 4.6, REPORT_EINSUM_S = 2.7, REPORT_CALL_MS = 13.97;

/* What can be changed by key=value; the prototype's own values. */
static const char *const base[] = {
    "task=digits",       "task.valid_frac=0", "task.test_frac=0.2", "train.batch=128",
    "train.epochs=30",   "iterations=20",     "beta=0.1",           "anchor=state",
    "damping=0.9",       "rtol=1e-2",         "tol=1e-4",           "train.lr=1e-3",
    "train.beta2=0.999", "train.decay=0",     "train.warmup=0",     "train.schedule=constant",
};

/* What cannot. The prototype clips back-propagation alone. */
static const struct row {
    const char *name, *variant, *rtol,
        *clip; /* rtol: or NULL; clip: of the trial by equilibrium propagation, or NULL */
} rows[] = {
    { "full", "variant=corrected", "rtol=1e-30", NULL },
    { "early", "variant=corrected", NULL, NULL },
    { "faithful", "variant=faithful", NULL, "train.clip=0" },
};
enum { ROWS = sizeof rows / sizeof *rows };
static const char *const grads[TRIALS] = { "grad=ep", "grad=bptt" };
static const char *const trial_names[TRIALS] = { "tep", "bp" };

typedef struct w2 {
    tn_cli *c;
    int threads;
    double peak; /* GFLOP/s of the processor; 0 until it is measured */
} w2;

/* Two trials of one row and width. */
typedef struct pair {
    const struct row *row;
    int64_t dim, train, test, batch, epochs, steps, per_epoch;
    tn_w2_trial trial[TRIALS];
} pair;

/* --- running ------------------------------------------------------------------------------------------------------- */

static bool sets(const char *override, const char *key)
{
    const size_t n = strlen(key);
    return strncmp(override, key, n) == 0 && override[n] == '=';
}

static tn_status check_settings(const tn_cli *c, bool *dim)
{
    static const char *const rows_own[] = {
        "model", "variant", "grad", "log.level", "train.steps", "train.eval_every"
    };
    for (size_t i = 0; i < c->args.overrides_n; i++) {
        const tn_task *task =
            sets(c->args.overrides[i], "task") ? tn_task_named(c->args.overrides[i] + strlen("task=")) : NULL;
        if (task && task->env)
            return tn_error(TN_USAGE, "w2 needs a task of samples, and %s is an environment: leave task out",
                            task->name);
        *dim = *dim || sets(c->args.overrides[i], "dim");
        for (size_t k = 0; k < sizeof rows_own / sizeof *rows_own; k++)
            if (sets(c->args.overrides[i], rows_own[k]))
                return tn_error(TN_USAGE,
                                "%s is set by the workload w2 itself: leave it out, or train with `tenon train tep`",
                                rows_own[k]);
    }
    return TN_OK;
}

/* dim 0: as the settings say. */
static tn_status open_trial(const w2 *w, const struct row *row, int which, int dim, tn_session *s)
{
    const char *list[MOST_SETTINGS];
    char width[24], threads[24];
    size_t n = 0;
    if (w->c->args.overrides_n > MOST_SETTINGS / 2) return tn_error(TN_USAGE, "too many settings");
    snprintf(width, sizeof width, "dim=%d", dim);
    snprintf(threads, sizeof threads, "threads=%d", w->threads);
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) list[n++] = base[i];
    list[n++] = threads;
    for (size_t i = 0; i < w->c->args.overrides_n; i++) list[n++] = w->c->args.overrides[i];
    if (dim) list[n++] = width;
    list[n++] = row->variant;
    list[n++] = grads[which];
    list[n++] = "log.level=info"; /* the run's own timers would reset those of the trial */
    if (row->rtol) list[n++] = row->rtol;
    if (row->clip && which == TEP) list[n++] = row->clip;
    TN_RETURN_IF(tn_session_open_with(
        &(tn_session_options){ .target = "tep", .overrides = list, .n = n, .needs_data = true, .split = TN_TEST }, s));
    if (tn_session_count(s, TN_TEST) == 0)
        return tn_error(TN_USAGE, "w2 measures accuracy on the test part: make task.test_frac larger than 0");
    snprintf(width, sizeof width, "%lld", (long long)s->source.epoch_batches);
    return tn_settings_set(s->settings, "train.eval_every", width, "w2");
}

static tn_status run_trial(const w2 *w, pair *p, int which, tn_session *s)
{
    tn_train_view view;
    char label[64];
    snprintf(label, sizeof label, "d%lld %s %s", (long long)p->dim, p->row->name, trial_names[which]);
    tn_train_view_start(&view, w->c->err, label);
    const tn_training t = { .trainer = s->trainer,
                            .settings = s->settings,
                            .source = &s->source,
                            .batch = s->batch,
                            .length = s->length,
                            .ctx = &view,
                            .report = tn_train_view_report,
                            .interrupted = tn_interrupted };
    const tn_status st = tn_w2_trial_run(&t, &p->trial[which]);
    tn_train_view_end(&view);
    tn_train_view_free(&view);
    return st == TN_OK ? view.status : st;
}

static void describe(const tn_session *s, pair *p)
{
    p->dim = tn_settings_int(s->settings, "dim");
    p->steps = tn_settings_int(s->settings, "iterations");
    p->per_epoch = s->source.epoch_batches;
    p->epochs = tn_settings_int(s->settings, "train.steps") / p->per_epoch;
    p->train = tn_session_count(s, TN_TRAIN);
    p->test = tn_session_count(s, TN_TEST);
    p->batch = s->batch;
}

/* --- printing -------------------------------------------------------------------------------------------------------- */

/* A figure of the pair; what the report has for it stands beside it. 0: it has none. */
static tn_status emit(const w2 *w, const pair *p, const char *what, double value, const char *unit, double report)
{
    char name[64];
    snprintf(name, sizeof name, "d%lld_%s_%s", (long long)p->dim, p->row->name, what);
    json_t *row = json_pack("{s:s, s:s, s:f, s:s}", "group", "w2", "name", name, "value", value, "unit", unit);
    if (row && report > 0) json_object_set_new(row, "report", json_real(report));
    return tn_cli_emit(w->c, row);
}

typedef struct component {
    const char *name, *key; /* key: in JSON, or NULL */
    double report, here;    /* seconds; report 0: it has none; here < 0: cannot be told apart */
    const char *note;
} component;

enum { COMPONENTS = 11 };

/* The nudged solve of equilibrium propagation ends in the one gradient it is for: both are the backward kernel of the solve. */
static void components_of(const pair *p, component out[COMPONENTS])
{
    const tn_w2_trial *a = &p->trial[TEP], *b = &p->trial[BP];
    const double wall = a->wall_s + b->wall_s, optimizer = a->optimizer_s + b->optimizer_s,
                 data = a->data_s + b->data_s;
    const double solver = a->solve_s + a->solve_backward_s + a->eval_solve_s + b->solve_s + b->eval_solve_s;
    const double backward = b->solve_backward_s + a->injection_backward_s + a->head_backward_s +
                            b->injection_backward_s + b->head_backward_s;
    const double injection = a->injection_s + a->eval_injection_s + b->injection_s + b->eval_injection_s;
    const double head = a->head_s + a->eval_head_s + b->head_s + b->eval_head_s;
    const component all[COMPONENTS] = {
        { "backward", "backward", REPORT_BACKWARD_S, backward,
          "back through bp's iterations; injection, head and loss of both" },
        { "solver", "solver", REPORT_SOLVER_S, solver,
          "free and nudged solves and evaluations, with tep's one gradient at the end" },
        { "attention", "attention", REPORT_ATTENTION_S, 0,
          "none in the loop: of one token it is a constant, see injection" },
        { "linear layers", NULL, REPORT_LINEAR_S, -1, "inside the solver, one kernel" },
        { "einsum", "einsum", REPORT_EINSUM_S, 0, "none" },
        { "injection", "injection", 0, injection, "embedding, values, projection: once a batch" },
        { "head and loss", "head", 0, head, "" },
        { "optimizer", "optimizer", 0, optimizer, "" },
        { "data", "data", 0, data, "" },
        { "rest", "rest", 0, wall - backward - solver - injection - head - optimizer - data, "" },
        { "total", "wall", REPORT_TOTAL_S, wall, "" },
    };
    memcpy(out, all, sizeof all);
}

/* By processor time, so that neighbours on the machine do not count. */
static double gflops_of(const pair *p)
{
    return (p->trial[TEP].flops + p->trial[BP].flops) / (p->trial[TEP].cpu_s + p->trial[BP].cpu_s) * 1e-9;
}

static tn_status emit_pair(const w2 *w, const pair *p)
{
    const tn_w2_trial *a = &p->trial[TEP], *b = &p->trial[BP];
    const double calls = (double)(a->solver_calls + b->solver_calls);
    component part[COMPONENTS];
    components_of(p, part);
    const struct {
        const char *name;
        double value;
        const char *unit;
        double report;
    } all[] = {
        { "tep_wall", a->wall_s, "s", 0 },
        { "bp_wall", b->wall_s, "s", 0 },
        { "cpu", a->cpu_s + b->cpu_s, "s", 0 },
        { "solver_calls", calls, "calls", 1260 },
        { "ms_per_call", 1e3 * part[1].here / calls, "ms", REPORT_CALL_MS },
        { "free_evaluations", a->free + b->free, "evaluations", 0 },
        { "nudged_evaluations", a->nudged + b->nudged, "evaluations", 0 },
        { "backward_evaluations", a->backward + b->backward, "gradients", 0 },
        { "eval_evaluations", a->eval + b->eval, "evaluations", 0 },
        { "tep_free_steps", a->free / (double)a->samples, "steps", 0 },
        { "tep_nudged_steps", a->nudged / (double)a->samples, "steps", 0 },
        { "tep_eval_steps", a->eval / (double)a->eval_samples, "steps", 0 },
        { "bp_free_steps", b->free / (double)b->samples, "steps", 0 },
        { "bp_eval_steps", b->eval / (double)b->eval_samples, "steps", 0 },
        { "tep_test_accuracy_of_best_epoch", a->score, "", 0 },
        { "bp_test_accuracy_of_best_epoch", b->score, "", 0 },
        { "gflops", gflops_of(p), "GFLOP/s", 0 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TN_RETURN_IF(emit(w, p, all[i].name, all[i].value, all[i].unit, all[i].report));
    for (int i = 0; i < COMPONENTS; i++)
        if (part[i].key) TN_RETURN_IF(emit(w, p, part[i].key, part[i].here, "s", part[i].report));
    return TN_OK;
}

static void print_components(const w2 *w, const pair *p)
{
    component part[COMPONENTS];
    components_of(p, part);
    fprintf(w->c->out, "  %-14s %9s %11s\n", "seconds", "report", "here");
    for (int i = 0; i < COMPONENTS; i++) {
        char report[16] = "-", here[24] = "-";
        if (part[i].report > 0) snprintf(report, sizeof report, "%.1f", part[i].report);
        if (part[i].here >= 0) snprintf(here, sizeof here, part[i].here == 0 ? "%.0f" : "%.3f", part[i].here);
        fprintf(w->c->out, "  %-14s %9s %11s   %s\n", part[i].name, report, here, part[i].note);
    }
}

static void print_pair(const w2 *w, const pair *p)
{
    FILE *f = w->c->out;
    const tn_w2_trial *a = &p->trial[TEP], *b = &p->trial[BP];
    const double gflops = gflops_of(p), per_epoch = (double)p->per_epoch;
    fprintf(f, "\nd=%lld %s: %.2f s (tep %.2f, bp %.2f; of the processor %.2f), %lld solver calls\n", (long long)p->dim,
            p->row->name, a->wall_s + b->wall_s, a->wall_s, b->wall_s, a->cpu_s + b->cpu_s,
            (long long)(a->solver_calls + b->solver_calls));
    fprintf(f, "  %lld samples, %lld to test, batch %lld, epochs %lld, at most %lld steps\n", (long long)p->train,
            (long long)p->test, (long long)p->batch, (long long)p->epochs, (long long)p->steps);
    fprintf(f, "  block evaluations: free %.0f, nudged %.0f, in evaluations %.0f; gradients through it %.0f\n",
            a->free + b->free, a->nudged + b->nudged, a->eval + b->eval, a->backward + b->backward);
    fprintf(f, "  their products: %.1f GFLOP/s", gflops);
    if (w->peak > 0) fprintf(f, ", %.0f %% of fp32", 100 * gflops / w->peak);
    fprintf(f, "\n  mean steps: tep free %.1f, nudged %.1f, in evaluations %.1f; bp free %.1f, in evaluations %.1f\n",
            a->free / (double)a->samples, a->nudged / (double)a->samples, a->eval / (double)a->eval_samples,
            b->free / (double)b->samples, b->eval / (double)b->eval_samples);
    fprintf(f,
            "  test accuracy of the best epoch (the report's protocol): tep %.4f (epoch %.0f), bp %.4f (epoch %.0f)\n",
            a->score, (double)a->best_step / per_epoch, b->score, (double)b->best_step / per_epoch);
    print_components(w, p);
    fflush(f);
}

/* --- the verb ---------------------------------------------------------------------------------------------------------- */

static tn_status measure_peak(w2 *w, const tn_session *s)
{
    tn_ceilings m;
    const int threads = tn_trainer_threads(s->trainer);
    if (w->peak > 0 || tn_trainer_device(s->trainer) != TN_CPU) return TN_OK;
    TN_RETURN_IF(tn_ceilings_arithmetic(threads, &m));
    w->peak = m.fma_gflops;
    if (w->c->json) return tn_cli_number(w->c, "fma_peak", w->peak, "GFLOP/s");
    fprintf(w->c->out, "machine  %d thread%s: %.1f GFLOP/s fp32 (measured now)\n", threads, threads > 1 ? "s" : "",
            w->peak);
    return TN_OK;
}

static tn_status run_pair(w2 *w, const struct row *row, int dim)
{
    pair p = { .row = row };
    tn_status st = TN_OK;
    for (int which = 0; which < TRIALS && st == TN_OK; which++) {
        tn_session s = { 0 };
        st = open_trial(w, row, which, dim, &s);
        if (st == TN_OK) st = measure_peak(w, &s);
        if (st == TN_OK) describe(&s, &p);
        if (st == TN_OK) st = run_trial(w, &p, which, &s);
        tn_session_close(&s);
    }
    if (st != TN_OK || w->c->json) return st == TN_OK ? emit_pair(w, &p) : st;
    print_pair(w, &p);
    return TN_OK;
}

/* A bit for each row that --only names. */
static tn_status chosen_rows(const tn_cli *c, unsigned *chosen)
{
    const char *p = tn_args_value(&c->args, "only");
    *chosen = p ? 0 : (1u << ROWS) - 1;
    while (p && *p) {
        const size_t n = strcspn(p, ",");
        size_t i = 0;
        while (i < ROWS && (strlen(rows[i].name) != n || strncmp(rows[i].name, p, n) != 0)) i++;
        if (i == ROWS) return tn_error(TN_USAGE, "--only=%.40s: the rows of w2 are full, early and faithful", p);
        *chosen |= 1u << i;
        p += n + (p[n] == ',');
    }
    return TN_OK;
}

tn_status tn_bench_w2(tn_cli *c, int threads)
{
    static const int dims[] = { 64, 128 };
    w2 w = { .c = c, .threads = threads };
    bool dim = false;
    unsigned chosen;
    TN_RETURN_IF(check_settings(c, &dim));
    TN_RETURN_IF(chosen_rows(c, &chosen));
    tn_interrupt_watch();
    for (int k = 0; k < (dim ? 1 : 2); k++)
        for (int i = 0; i < ROWS; i++)
            if (chosen >> i & 1) TN_RETURN_IF(run_pair(&w, &rows[i], dim ? 0 : dims[k]));
    return TN_OK;
}
