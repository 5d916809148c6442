/* tenon train: trains a model on text or a task in a run directory, or continues the run that is there. */
#include "base/alloc.h"
#include "base/fs.h"
#include "base/output.h"
#include "cli/habits.h"
#include "cli/tracing.h"
#include "cli/view.h"
#include "cli/next.h"
#include "cli/train/train_estimate.h"
#include "cli/train/train_sample.h"
#include "cli/tune/tuned.h"
#include "report/bench/ceilings.h"
#include "train/run/metrics.h"
#include "train/run/run_train.h"

#include <math.h>
#include <string.h>

typedef struct result {
    tn_evaluation found;
    const tn_metric_row *own; /* what episodes are judged by, or NULL */
    double episodes, mean;    /* how many, and of the last of them; else NaN */
    tn_source_play played;    /* episodes is 0 where none was */
} result;

static void keep_own(void *to, const char *name, double value, const char *unit)
{
    result *r = to;
    (void)unit;
    if (strcmp(name, "episodes") == 0) r->episodes = value;
    if (strcmp(name, r->own->key) == 0) r->mean = value;
}

/* ", held out 1.2345 nats (1.781 bits per byte)" with the name of the split */
static void print_scores(tn_cli *c, const char *what, const tn_progress_report *r, const tn_scores *s)
{
    if (isnan(tn_scores_first(s))) return;
    fprintf(c->out, ", %s ", what);
    tn_scores_print(c->out, &r->metrics, s, r->counts, true);
}

/* Without the first in another unit. Of the best also without groups, and what it is the best by before its loss. */
static tn_status emit_scores(tn_cli *c, const char *lead, const tn_progress_report *r, const tn_scores *s, bool best)
{
    tn_scores out = { 0 };
    for (size_t i = best; i < s->n; i++) {
        const tn_metric_row *row = tn_metric_find(&r->metrics, s->at[i].name);
        if (!row || tn_metric_is_other_unit(row) || (best && strcmp(row->name, s->at[i].name) != 0)) continue;
        tn_scores_put(&out, s->at[i].name, s->at[i].value);
    }
    if (best && s->n) tn_scores_put(&out, s->at[0].name, s->at[0].value);
    return tn_scores_emit(c, &r->metrics, &out, lead, r->counts, NULL);
}

static tn_status emit_result(tn_cli *c, const char *dir, const tn_progress_report *r, const result *test)
{
    char name[TN_SCORE_KEY], text[24];
    const bool task = !isnan(r->samples_per_s);
    const double best = tn_scores_get(&r->best, r->select->name);
    if (!c->json) {
        fprintf(c->out, "run %s: %lld steps", dir, (long long)r->step);
        if (!isnan(test->mean))
            fprintf(c->out, ", %.0f episodes, mean %s of the last %.0f %.1f", test->episodes, test->own->name,
                    fmin(test->episodes, 100), test->mean);
        if (test->played.episodes)
            fprintf(c->out, ", greedy actions %.1f +-%.1f", test->played.mean, test->played.deviation);
        print_scores(c, "held out", r, &r->last);
        if (tn_metric_better(r->select, best, tn_scores_get(&r->last, r->select->name)))
            fprintf(c->out, " (best %s after step %lld)", tn_score_text(best, 4, text), (long long)r->best_step);
        print_scores(c, "test", r, &test->found.scores);
        fprintf(c->out, task ? ", %.0f samples/s\n" : ", %.0f tokens/s\n", task ? r->samples_per_s : r->tokens_per_s);
        return TN_OK;
    }
    TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s}", "name", "run", "value", dir)));
    TN_RETURN_IF(
        tn_cli_emit(c, json_pack("{s:s, s:I, s:s}", "name", "steps", "value", (json_int_t)r->step, "unit", "steps")));
    if (!isnan(test->episodes)) TN_RETURN_IF(tn_cli_number(c, "episodes", test->episodes, "episodes"));
    if (!isnan(test->mean)) TN_RETURN_IF(tn_cli_number(c, test->own->key, test->mean, test->own->unit));
    if (test->played.episodes) {
        snprintf(name, sizeof name, "test_%s", test->own->name);
        TN_RETURN_IF(tn_cli_number(c, name, test->played.mean, test->own->unit));
    }
    TN_RETURN_IF(tn_scores_emit(c, &r->metrics, &r->last, "heldout_", r->counts, NULL));
    TN_RETURN_IF(emit_scores(c, "best_", r, &r->best, true));
    if (!isnan(best))
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:I, s:s}", "name", "best_step", "value", (json_int_t)r->best_step,
                                              "unit", "steps")));
    TN_RETURN_IF(emit_scores(c, "test_", r, &test->found.scores, false));
    if (task) return tn_cli_number(c, "samples_per_s", r->samples_per_s, "samples/s");
    return tn_cli_number(c, "tokens_per_s", r->tokens_per_s, "tokens/s");
}

static tn_status evaluate_test(tn_session *on, const tn_source *source, const tn_run_dir *run, result *out)
{
    tn_evaluator *e;
    TN_RETURN_IF(tn_evaluator_new(on->trainer, source, &e));
    tn_evaluator_stop(e, tn_interrupted, NULL);
    tn_status s = tn_evaluator_run(e, source, 0, &out->found);
    tn_evaluator_free(e);
    if (s == TN_INTERRUPTED)
        s = tn_error(s, "interrupted in the evaluation on the test split, trained in %s: rerun this command to resume",
                     run->dir);
    return s;
}

/* The best checkpoint on the test split: at the end, once, and only if asked for. */
static tn_status run_test(tn_cli *c, tn_session *on, const tn_run_dir *run, result *out)
{
    tn_status s = TN_OK;
    tn_source source = { 0 };
    char note[TN_CKPT_NOTE];
    if (!tn_settings_on(on->settings, "train.test")) return TN_OK;
    if (on->source.play) return on->source.play(on->source.ctx, TN_SESSION_EPISODES, &out->played);
    if (tn_session_count(on, TN_TEST) == 0)
        TN_FAIL(TN_USAGE, "train.test=on, but the data have no test split: prepare them with test_frac= or test=FILE");
    TN_TRY(tn_ckpt_load_weights(run->dir, tn_trainer_store(on->trainer), note));
    TN_TRY(tn_cli_warn(c, note));
    TN_TRY(tn_session_heldout(on, TN_TEST, &source));
    TN_TRY(evaluate_test(on, &source, run, out));
done:
    tn_source_close(&source);
    return s;
}

/* What happened, and the ways on: a run that was found by its settings was asked for by the very same command. */
static void describe_finished(tn_cli *c, const tn_session *on, const tn_run_dir *run, const tn_ckpt_state *at)
{
    const bool fixed = strcmp(tn_settings_text(on->settings, "train.schedule"), "cosine") == 0;
    const long long steps = tn_settings_int(on->settings, "train.steps"), step = at->step;
    fprintf(c->err, run->found ? ", already finished: %lld steps" : ", finished after %lld steps", step);
    if (step < steps) fprintf(c->err, " of %lld; to continue: a larger train.stop_patience", steps);
    else if (!fixed)
        fprintf(c->err, "; to continue: %s%s%strain.steps=%lld", run->found ? "run=" : "", run->found ? run->dir : "",
                run->found ? " " : "", 2 * steps);
    else
        fprintf(c->err, "; to train longer: train.steps=%lld, a new run%s (the cosine schedule has ended)", 2 * steps,
                run->found ? "" : " with run=OTHER");
    fprintf(c->err, run->found ? "; to train it again: --fresh, or another seed\n" : "; to restart: --fresh\n");
}

/* "run ..." with what happens to it, and what the run has to say. */
static void describe_run(tn_cli *c, const tn_session *on, const tn_run_dir *run, const tn_ckpt_state *from)
{
    const long long steps = tn_settings_int(on->settings, "train.steps");
    for (const char *p = run->note; *p;) {
        const size_t n = strcspn(p, "\n");
        fprintf(c->err, "note    %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    fprintf(c->err, "run     %s", run->dir);
    if (from && tn_training_finished(on->settings, from)) {
        describe_finished(c, on, run, from);
        return;
    }
    if (from) fprintf(c->err, ", continuing at step %lld of %lld", (long long)from->step, steps);
    if (run->found) fprintf(c->err, "   (the same settings, unfinished; --fresh starts another)\n");
    else fprintf(c->err, "%s\n", from ? "" : "   (rerun this command to resume)");
}

/* log.level=profiling: the largest places of the step's arena; all of them are in the run's memory.csv. */
static tn_status describe_layout(tn_cli *c, tn_session *on, const tn_run_dir *run)
{
    enum { SHOWN = 10 };
    (void)tn_trainer_feed(on->trainer); /* the widest plan */
    const tn_plan *p = tn_trainer_plan(on->trainer, true);
    const size_t n = tn_plan_layout(p, NULL);
    tn_layout_row *rows = tn_alloc(sizeof *rows * (n + 1));
    if (!rows) return TN_MEMORY;
    tn_plan_layout(p, rows);
    fprintf(c->err, "layout  %zu allocations in %.1f MB over %zu steps, all in %s/memory.csv; the largest:\n", n,
            (double)tn_plan_memory(p).arena / 1e6, tn_plan_steps(p), run->dir);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        const tn_layout_row *r = &rows[i];
        char dims[128];
        fprintf(c->err, "        %8.2f MB at %8.2f MB  steps %5zu..%-5zu  %s%s%s%s", (double)r->bytes / 1e6,
                (double)r->offset / 1e6, r->first, r->last, r->region, r->region[0] ? " " : "", r->op,
                r->backward ? " backward" : "");
        if (r->workspace) fprintf(c->err, " workspace\n");
        else
            fprintf(c->err, "%s%s %s %s\n", r->name ? " " : "", r->name ? r->name : "", tn_dtype_name(r->dtype),
                    tn_dims_text(r->dims, dims, sizeof dims));
    }
    tn_free(rows);
    return TN_OK;
}

typedef struct watcher {
    tn_train_view view; /* first: its functions are given the watcher */
    const tn_session *on;
    tn_estimate estimate;
    tn_tracing *tracing;
} watcher;

static void report(void *ctx, const tn_progress_report *r)
{
    watcher *w = ctx;
    tn_train_view_report(&w->view, r);
    tn_train_estimate(&w->estimate, w->on, r, &w->view);
    tn_tracing_sample(w->tracing);
}

/* A trace that fails does not end the training. */
static void switch_trace(void *ctx, tn_tracer_change what)
{
    watcher *w = ctx;
    char text[160];
    if (tn_tracing_switch(w->tracing, what) != TN_OK) tn_train_view_warn(&w->view, tn_error_text());
    if (what != TN_TRACER_ENDS || tn_tracer_traced(w->tracing->tracer) < w->tracing->steps) return;
    snprintf(text, sizeof text, "traced %lld steps; the file is written when training ends",
             (long long)tn_tracer_traced(w->tracing->tracer));
    tn_train_view_note(&w->view, text);
}

/* The ceiling that the run's matrix products are measured by. */
static double measure_peak(void *ctx)
{
    const tn_session *on = ((const watcher *)ctx)->on;
    tn_ceilings c;
    if (tn_trainer_device(on->trainer) != TN_CPU) return 0; /* not measured there yet */
    if (tn_ceilings_arithmetic(tn_trainer_threads(on->trainer), &c) != TN_OK) return 0;
    return 1e9 * (strncmp(tn_settings_text(on->settings, "compute"), "bf16", 4) == 0 ? c.bf16_gflops : c.fma_gflops);
}

static tn_status show_sample(void *ctx, int64_t step)
{
    watcher *w = ctx;
    tn_progress_end(&w->view.progress);
    return tn_train_sample(w->on, step, w->view.progress.term.f);
}

/* At the end of a run that was best long before. */
static void describe_rise(tn_cli *c, const tn_settings *st, const tn_run_dir *run, const tn_progress_report *r)
{
    char text[TN_RISE_TEXT], patience[TN_PATIENCE_TEXT];
    fprintf(c->err, "note    %s", tn_training_rise(r, 1, text));
    if (tn__ckpt_pointed(run->dir, "best") == r->best_step)
        fprintf(c->err, ": sample, eval and convert use step-%lld, the best checkpoint", (long long)r->best_step);
    fputc('\n', c->err);
    if (*tn_training_patience(r, st, true, patience)) fprintf(c->err, "note    %s\n", patience);
}

static void describe_ladder(void *ctx, const tn_session *on)
{
    watcher *w = ctx;
    tn_progress_end(&w->view.progress);
    tn_session_describe_ladder(on, on->ladder.changed, w->view.progress.term.f);
}

static tn_status train(tn_cli *c, tn_session *on, const tn_run_dir *run, const tn_ckpt_state *from, tn_tracing *tracing,
                       tn_progress_report *last)
{
    watcher w = { .on = on, .tracing = tracing };
    const tn_training calls = { .ctx = &w,
                                .report = report,
                                .note = tn_train_view_note,
                                .interrupted = tn_interrupted,
                                .leaves_evaluations = true,
                                .warn = tn_train_view_warn,
                                .peak = measure_peak,
                                .sample = show_sample,
                                .tracer = tracing->tracer,
                                .tracing = switch_trace };
    tn_train_view_start(&w.view, c->err, "");
    tn_status s = tn_run_train(run, on, from, &calls, describe_ladder, last);
    tn_train_view_end(&w.view);
    s = tn_tracing_write(tracing, run->dir, s);
    tn_train_view_free(&w.view);
    if (s == TN_OK && last->stopped)
        fprintf(
            c->err,
            "stopped early: no improvement on held-out data in %s evaluations (train.stop_patience) since step %lld\n",
            tn_settings_text(on->settings, "train.stop_patience"), (long long)last->best_step);
    else if (s == TN_OK && last->worse) describe_rise(c, on->settings, run, last);
    return s;
}

static void say_next(const tn_cli *c, const tn_session *on, const tn_run_dir *run)
{
    char dir[TN_PATH_BYTES], model[TN_PATH_BYTES];
    const char *name = tn_settings_text(on->settings, "model");
    const bool object = strstr(name, ".so") != NULL; /* which only the command line can name */
    tn_shell_word(run->dir, dir, sizeof dir);
    tn_next(c, "%s %s%s%s",
            on->source.verb   ? on->source.verb
            : on->source.text ? "sample"
                              : "eval",
            dir, object ? " model=" : "", object ? tn_shell_word(name, model, sizeof model) : "");
    tn_next(c, "plot %s", dir);
}

static tn_status start_or_continue(tn_cli *c, tn_session *on, const tn_run_dir *run, tn_tracing *tracing)
{
    tn_status s = TN_OK;
    tn_ckpt_state state = { 0 };
    const tn_ckpt_state *from = NULL;
    tn_progress_report last = { 0 };
    tn_metric_list metrics;
    result test = { .own = on->source.n_metrics ? on->source.metrics : NULL, .episodes = NAN, .mean = NAN };
    TN_TRY(tn_run_load(run, on, &state, &from));
    TN_TRY(tn_train_sample_check(on));
    tn_session_describe(on, c->err);
    describe_run(c, on, run, from);
    if (tn_log_level_of(on->settings) >= TN_LOG_PROFILING) TN_TRY(describe_layout(c, on, run));
    TN_TRY(tn_metric_list_of(on->model, &on->source, &metrics));
    tn_interrupt_watch();
    if (from && tn_training_finished(on->settings, from)) {
        last = tn_training_report_at(on->settings, &metrics, from);
        TN_TRY(tn_tracing_write(tracing, run->dir, TN_OK));
    } else TN_TRY(train(c, on, run, from, tracing, &last));
    last.bits = on->source.bits;
    last.counts = tn_metric_counts(&on->source);
    if (test.own) on->source.report(on->source.ctx, keep_own, &test);
    if (on->source.train_samples > 0)
        last.samples_per_s = last.tokens_per_s * on->source.train_samples / on->source.train_tokens;
    TN_TRY(run_test(c, on, run, &test));
    TN_TRY(emit_result(c, run->dir, &last, &test));
    say_next(c, on, run);
done:
    tn_ckpt_state_free(&state);
    return s;
}

/* Before data are read: reading and encoding them may take long. */
static tn_status check_run(const tn_cli *c)
{
    const char *dir = tn_cli_override(c, "run");
    const tn_status s = dir && *dir ? tn_output_dir_check(dir) : TN_OK;
    if (s != TN_OK) tn_error_prefix("run");
    return s;
}

/* The last word may be a file to train on: `tenon train gpt book.txt` is `tenon train gpt data=book.txt`. */
static tn_status read_words(tn_cli *c, tn_arena *arena, const char **target)
{
    tn_args *a = &c->args;
    const size_t n = a->positional_n;
    const bool file = n > 0 && !tn_cli_override(c, "data") && tn_is_bare_data(a->positional[n - 1]);
    TN_RETURN_IF(tn_args_expect(a, 0, file ? 2 : 1));
    *target = tn_args_positional(a, 0);
    if (!file) return TN_OK;
    if (n == 1) *target = NULL;
    a->overrides[a->overrides_n] =
        tn_arena_printf(arena, "data=%s", a->positional[n - 1]); /* there is room for every word */
    return a->overrides[a->overrides_n++] ? TN_OK : tn_error(TN_MEMORY, "out of memory");
}

static tn_status train_words(tn_cli *c, tn_arena *arena)
{
    tn_session s = { 0 };
    tn_run_dir run = { .lock = -1 };
    tn_tracing tracing = { 0 };
    const char *target;
    TN_RETURN_IF(read_words(c, arena, &target));
    TN_RETURN_IF(check_run(c));
    const char *const *words = c->args.overrides;
    size_t n_words = c->args.overrides_n;
    if (tn_args_flag(&c->args, "tuned")) TN_RETURN_IF(tn_tuned_apply(c, arena, target, &words, &n_words));
    const bool fresh = tn_args_flag(&c->args, "fresh");
    const tn_session_options o = { .user = &c->user,
                                   .target = target,
                                   .overrides = words,
                                   .n = n_words,
                                   .needs_data = true,
                                   .goes_on = !fresh,
                                   .runs = true };
    TN_RETURN_IF(tn_session_open_with(&o, &s));
    tn_status st = tn_run_open(s.settings, tn_settings_text(s.settings, "model"), fresh, &run);
    if (st == TN_OK) st = tn_tracing_open(c, tn_trainer_device(s.trainer), s.trainer, s.settings, &tracing);
    if (st == TN_OK) st = start_or_continue(c, &s, &run, &tracing);
    tn_run_undo(&run, st);
    tn_run_close(&run);
    tn_session_close(&s);
    tn_tracing_close(&tracing);
    return st;
}

tn_status tn_cmd_train(tn_cli *c)
{
    tn_arena arena = { 0 };
    const tn_status s = train_words(c, &arena);
    tn_arena_free(&arena);
    return s;
}
