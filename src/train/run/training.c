/* The training loop. A step touches no file; metrics and checkpoints are written between steps. Everything that decides
 * how a resumed run continues is in tn_ckpt_state.
 *
 * Steps are queued and finished later, in order (tn_trainer_queue_depth; one on the CPU), so a GPU does not wait for
 * the host. What reads parameters (evaluation, checkpoints, samples, instruments) first finishes all queued steps:
 * files are the same as without a queue. */
#include "train/run/training.h"

#include "base/clock.h"
#include "train/run/metrics.h"
#include "train/run/overfit_watch.h"
#include "train/run/run.h"
#include "train/run/same_settings.h"
#include "train/run/training_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t MANY_STEPS = (int64_t)1 << 50; /* of a run limited by time, before its first step */

/* A queued step. */
typedef struct pending {
    int64_t tokens; /* trained on, this step included */
    bool line;
    double begun, applying; /* clock */
    double data_s, flops;
    tn_source_mark from; /* position of its first batch, if the source has marks */
} pending;

/* Settings that every step reads. */
typedef struct often {
    int64_t batches, eval_every, eval_batches, ckpt_every, sample_every, keep_best;
    double ckpt_every_s;
} often;

typedef struct loop {
    const tn_training *t;
    often often;
    tn_ckpt_state at;                      /* of the last finished step; cursor and tokens: of the last queued one */
    int64_t queued;                        /* steps */
    int ahead;                             /* how many may be unfinished */
    pending pending[TN_TRAINER_QUEUE_MAX]; /* by step */
    int64_t from;                          /* steps of earlier sessions */
    double first_step_s;                   /* until a line has reported it */
    double finished_s;                     /* clock, of the last step */
    tn_progress_report r;
    tn_metrics m;
    int64_t steps, saved;  /* of the run; of the last checkpoint */
    bool unscored;         /* the checkpoint of this step lacks its scores */
    double start, saved_s; /* clock at second 0 of the run; at the last try of a checkpoint */
    tn_evaluator *evaluator;
    tn_overfit_watch watch;
    tn_diagnosis bad;      /* of the last diagnosed step */
    double begun, bests_s; /* clock at the start of this session; seconds spent saving new bests, */
    bool said_cost;        /* which was reported */
    int part;              /* batches of a step that failed before it was queued */
    bool torn;             /* such batches are behind the data's cursor, and their gradients are nowhere */
    bool untidy;           /* after the last checkpoint metrics.csv or pruning failed */
    int failed;            /* tries since the last saved checkpoint */
} loop;

static void note(const loop *l, const char *text)
{
    if (l->t->note) l->t->note(l->t->ctx, text);
}

static tn_status next_batch(loop *l, int64_t *count)
{
    const double before = tn_metrics_clock(&l->m, TN_LOG_TRAINING);
    const uint64_t begun = tn_tracer_clock(l->t->tracer);
    TN_RETURN_IF(tn_source_next(l->t->source, l->queued, l->t->trainer, count));
    l->m.step_data_s += tn_metrics_clock(&l->m, TN_LOG_TRAINING) - before;
    tn__training_span(l->t, begun, TN_TRACED_WAIT, "wait for data", 0);
    l->at.tokens += *count;
    return TN_OK;
}

static pending *pending_of(loop *l, int64_t step) { return &l->pending[step % TN_TRAINER_QUEUE_MAX]; }

/* One optimizer step: its batches, then apply. */
static tn_status queue_step(loop *l)
{
    const tn_training *t = l->t;
    const int64_t step = l->queued;
    const int n = (int)l->often.batches;
    pending *p = pending_of(l, step);
    tn__training_trace_step(t);
    const uint64_t begun = tn_tracer_clock(t->tracer);
    *p = (pending){ .line = tn_metrics_due(&l->m, step + 1, l->steps), .begun = tn_clock_s() };
    tn_metrics_before(&l->m, p->line);
    if (t->source->mark && !t->undiagnosed) tn_source_mark_here(t->source, &p->from);
    const int64_t tokens = l->at.tokens;
    for (int i = 0; i < n; i++) {
        int64_t count;
        const tn_status s = next_batch(l, &count);
        if (s != TN_OK) { /* undo the step: its gradients are in no checkpoint */
            l->part = i;
            l->at.tokens = tokens;
            return s;
        }
        l->torn = true;
        TN_RETURN_IF(tn_trainer_queue_grad(t->trainer, step * n + i, n > 1 ? tn_source_weight(t->source, count) : 1,
                                           p->line && i == n - 1));
        p->flops += tn_trainer_flops(t->trainer);
    }
    if (t->seconds > 0) tn_trainer_schedule(t->trainer, l->steps);
    p->applying = tn_metrics_clock(&l->m, TN_LOG_PERFORMANCE);
    TN_RETURN_IF(tn_trainer_queue_apply(t->trainer, step));
    p->tokens = l->at.tokens;
    p->data_s = l->m.step_data_s;
    l->torn = false;
    l->queued++;
    tn__training_span(t, begun, TN_TRACED_STEP, "step", step + 1);
    return TN_OK;
}

/* Waits for the oldest step; its numbers go into the report. */
static tn_status collect(loop *l, const pending *p)
{
    tn_step_result x = { 0 };
    const bool waits = tn_trainer_device(l->t->trainer) != TN_CPU;
    const uint64_t begun = waits ? tn_tracer_clock(l->t->tracer) : 0;
    const tn_status s = tn_trainer_collect(l->t->trainer, &x);
    tn__training_span(l->t, begun, TN_TRACED_WAIT, "wait for step", l->at.step + 1);
    l->m.step_data_s = p->data_s;
    l->m.step_flops = p->flops;
    l->m.step_optimizer_s = tn_metrics_clock(&l->m, TN_LOG_PERFORMANCE) - p->applying;
    l->r.loss = x.loss;
    l->r.lr = (double)x.update.lr;
    l->r.grad_norm = (double)x.update.grad_norm;
    l->r.loss_scale = (double)x.update.loss_scale;
    l->r.action = x.update.action;
    return s;
}

/* --- checkpoints ----------------------------------------------------------------------------------------------------- */

static bool every(int64_t step, int64_t n) { return n && step % n == 0; }

static bool due(int64_t step, int64_t steps, int64_t n) { return step == steps || every(step, n); }

static json_t *make_cursor(const tn_training *t)
{
    json_t *own =
        t->extra ? t->extra->save(t->extra->ctx) : NULL; /* first: it may write what the checkpoint refers to */
    if (t->extra && !own) return NULL;
    json_t *data = tn_source_save(t->source);
    return t->extra ? json_pack("{s:o*, s:o*}", "data", data, t->extra->name, own) : data;
}

static tn_status write_state(loop *l)
{
    const tn_training *t = l->t;
    json_t *cursor = make_cursor(t);
    if (!cursor) return tn_error(TN_MEMORY, "out of memory for the data's cursor");
    json_decref(l->at.cursor);
    l->at.cursor = cursor;
    l->at.scaling = tn_trainer_loss_scale(t->trainer);
    l->at.guard = tn_guard_state_of(tn_trainer_guard(t->trainer));
    l->at.seconds = tn_clock_s() - l->start;
    l->at.tokens_per_s = l->r.tokens_per_s;
    l->at.samples_per_s = l->r.samples_per_s;
    l->at.utilisation = l->r.utilisation;
    tn_metrics_memory(&l->m, &l->at.planned_bytes, &l->at.peak_bytes);
    const tn_ckpt_what what = { .store = tn_trainer_store(t->trainer),
                                .guard = tn_trainer_guard(t->trainer),
                                .state = &l->at,
                                .compress = strcmp(tn_settings_text(t->settings, "ckpt.compress"), "zstd") == 0,
                                .failed = l->failed };
    if (l->failed) (void)tn_run_sweep(t->dir);
    l->failed++;
    TN_RETURN_IF(tn_ckpt_save(t->dir, &what));
    l->failed = 0;
    l->saved = l->at.step;
    l->unscored = false;
    return TN_OK;
}

static tn_status write_checkpoint(loop *l)
{
    const tn_training *t = l->t;
    if (l->saved != l->at.step || l->unscored) {
        TN_RETURN_IF(tn__training_sync(t));
        TN_RETURN_IF(write_state(l));
        l->saved_s = tn_clock_s();
    }
    l->untidy = true;
    if (tn_settings_on(t->settings, "log.csv")) TN_RETURN_IF(tn__training_csv(t));
    TN_RETURN_IF(tn_run_tidy(t->dir, t->settings, l->at.step));
    l->untidy = false;
    return TN_OK;
}

/* A checkpoint has held-out scores only if this step was evaluated: `best` must not depend on the clock or on ckpt.*. */
static tn_status save(loop *l)
{
    if (!l->t->dir || l->at.step == 0 || (l->saved == l->at.step && !l->untidy && !l->unscored)) return TN_OK;
    l->at.now = l->r.evaluated ? l->r.last : (tn_scores){ 0 };
    const uint64_t begun = tn_tracer_clock(l->t->tracer);
    l->saved_s = tn_clock_s();
    const double before = l->saved_s;
    const tn_status s = write_checkpoint(l);
    const double took = tn_clock_s() - before;
    l->at.saving += took;
    l->r.saving_s += took;
    tn__training_span(l->t, begun, TN_TRACED_SAVE, "checkpoint", l->at.step);
    return s;
}

/* A full or failing disk does not end the training. */
static tn_status save_or_warn(loop *l)
{
    char kept[64], next[64];
    const tn_status s = save(l);
    if (s != TN_DISK || !l->t->warn) return s;
    tn_training_warn(l->t, "%s; training continues, %s, next try %s", tn_error_text(), tn__kept_text(l->saved, kept),
                     tn__next_save_text(l->t->settings, l->at.step, l->steps, next));
    return TN_OK;
}

static tn_status ended_unsaved(const loop *l)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", tn_error_text());
    if (l->saved == l->at.step)
        return tn_error(TN_DISK, "%s; the run ended at step %lld, which is saved", text, (long long)l->at.step);
    if (l->t->once) return tn_error(TN_DISK, "%s; the run ended unsaved at step %lld", text, (long long)l->at.step);
    if (l->saved > 0)
        return tn_error(TN_DISK, "%s; the run ended unsaved at step %lld: rerun this command to resume from step %lld",
                        text, (long long)l->at.step, (long long)l->saved);
    return tn_error(TN_DISK, "%s; the run ended unsaved at step %lld: rerun this command to start over", text,
                    (long long)l->at.step);
}

/* The last save: a few tries at once, then, unless in a hurry, more until ckpt.wait_s is over. */
static tn_status save_last(loop *l, bool hurry)
{
    enum { AT_ONCE = 3 };
    const tn_training *t = l->t;
    const double wait_s = hurry ? 0 : tn_settings_float(t->settings, "ckpt.wait_s"), until = tn_clock_s() + wait_s;
    double pause = 1;
    for (int tries = 1;; tries++) {
        tn_status s = save(l);
        if (s == TN_OK) s = tn_metrics_flush(&l->m);
        if (s != TN_DISK) return s;
        if (!t->warn) return ended_unsaved(l);
        const double left = until - tn_clock_s();
        if (tries >= AT_ONCE && left <= 0) return ended_unsaved(l);
        if (tries == AT_ONCE)
            tn_training_warn(t, "%s; the run has ended and retries for %.0f s (ckpt.wait_s)", tn_error_text(), left);
        if (tries == 1) tn_training_warn(t, "%s; retrying now", tn_error_text());
        if (tries < AT_ONCE) continue;
        char text[1024]; /* callbacks in the pause might replace the error text */
        snprintf(text, sizeof text, "%s", tn_error_text());
        if (!tn_training_pause(t, pause < left ? pause : left)) {
            tn_error(TN_DISK, "%s", text);
            return ended_unsaved(l);
        }
        if (pause < 30) pause *= 2;
    }
}

/* The best parameters must be saved at once: the next step changes them. */
static bool is_new_best(const loop *l) { return l->r.evaluated && l->at.best_step == l->at.step && l->often.keep_best; }

static bool save_due(const loop *l)
{
    const double every_s = l->often.ckpt_every_s;
    if (every_s > 0 && tn_clock_s() - l->saved_s >= every_s) return true;
    if (l->at.step != l->queued) return false;
    return is_new_best(l) || every(l->at.step, l->often.ckpt_every);
}

/* A new best is always saved, since `best` must not depend on a clock; a note says so if that takes much time. */
static tn_status save_timed(loop *l)
{
    static const double LEAST_S = 10, MUCH = 0.1;
    const bool best = is_new_best(l) && !every(l->at.step, l->often.ckpt_every);
    const double before = tn_clock_s();
    char text[256];
    TN_RETURN_IF(save_or_warn(l));
    const double now = tn_clock_s(), part = (l->bests_s += best ? now - before : 0) / (now - l->begun);
    if (l->said_cost || l->bests_s < LEAST_S || part < MUCH) return TN_OK;
    l->said_cost = true;
    snprintf(
        text, sizeof text,
        "saving new best checkpoints took %.0f %% of the time: raise train.eval_every to evaluate and save less often",
        100 * part);
    note(l, text);
    return TN_OK;
}

/* --- the loop -------------------------------------------------------------------------------------------------------- */

/* Reports overfitting once. */
static void watch_evaluation(loop *l, bool best)
{
    char text[TN_OVERFIT_NOTE];
    const bool first = tn_overfit_watch_add(&l->watch, l->at.step, tn_scores_get(&l->r.last, l->r.select->name), best);
    l->r.worse = l->watch.worse;
    tn_patience_add(&l->r.patience, l->at.step, best);
    l->at.longest = (double)l->r.patience.longest;
    if (first && l->t->note) note(l, tn__overfit_note(l->t, &l->r, text));
}

static tn_status evaluate(loop *l)
{
    tn_evaluation e;
    l->r.evaluated = false;
    const double before = tn_clock_s();
    const uint64_t begun = tn_tracer_clock(l->t->tracer);
    TN_RETURN_IF(tn_evaluator_run(l->evaluator, l->t->source, l->often.eval_batches, &e));
    const double took = tn_clock_s() - before;
    l->at.evaluating += took;
    l->r.evaluation_s += took;
    tn__training_span(l->t, begun, TN_TRACED_EVALUATION, "evaluation", l->at.step);
    l->r.evaluated = e.count > 0;
    if (!l->r.evaluated) return TN_OK;
    const bool best = tn_scores_better(&e.scores, &l->r.best, l->r.select->name, l->at.lower);
    l->r.last = l->at.last = e.scores;
    l->at.stale++;
    if (best) {
        l->r.best = l->at.best = e.scores;
        l->r.best_step = l->at.best_step = l->at.step;
        l->at.stale = 0;
    }
    watch_evaluation(l, best);
    return TN_OK;
}

/* Of skipped steps only the first in a row, and few; decided by the saved state, so that a resumed run diagnoses the same. */
static bool looks_into(const loop *l, tn_status s)
{
    enum { MOST = 10 };
    const tn_guard_state g = tn_guard_state_of(tn_trainer_guard(l->t->trainer));
    return s == TN_DIVERGED ||
           (s == TN_OK && l->r.action == TN_GUARD_SKIPPED && g.bad == 1 && l->at.step - g.applied <= MOST);
}

/* Which batch and tensor of the step were not finite, for metrics, messages and the report. A failed diagnosis changes nothing. */
static void look_into(loop *l, const pending *p, tn_status s)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", tn_error_text());
    const char *cut = strstr(text, "not finite"), *rest = cut ? cut + strlen("not finite") : text;
    if (tn_diagnose(l->t, &p->from, l->at.step - 1, &l->bad) != TN_OK)
        snprintf(l->bad.tensor, sizeof l->bad.tensor, "not found: %.300s", tn_error_text());
    l->finished_s = tn_clock_s();
    l->r.bad_tensor = l->bad.tensor;
    l->r.bad_batch = l->bad.batch;
    if (s == TN_DIVERGED && !l->bad.tensor[0]) (void)tn_error(s, "%s", text);
    else if (s == TN_DIVERGED)
        (void)tn_error(s, "%.*s (first: %s; %s)%s", (int)(rest - text), text, l->bad.tensor, l->bad.batch, rest);
    else if (l->bad.tensor[0]) {
        snprintf(text, sizeof text, "step %lld was skipped: the loss or the gradient is not finite (first: %s; %s)",
                 (long long)l->at.step, l->bad.tensor, l->bad.batch);
        note(l, text);
    }
}

/* The step's line, if one is due or something happened. */
static tn_status write_line(loop *l, bool due_line, tn_status s)
{
    tn_status w = TN_OK;
    if (due_line || l->r.evaluated || s != TN_OK || l->r.action != TN_GUARD_CONTINUE) {
        const uint64_t begun = tn_tracer_clock(l->t->tracer);
        w = tn_metrics_line(&l->m, &l->r, l->first_step_s);
        l->first_step_s = NAN;
        l->r.evaluation_s = l->r.saving_s = 0;
        tn__training_span(l->t, begun, TN_TRACED_LOG, "metrics line", l->at.step);
    }
    tn_metrics_untime(&l->m);
    return s == TN_OK ? w : s;
}

/* A run limited by time: the steps that fit at the mean speed so far, rounded, so it ends within half a step of its time. */
static int64_t steps_in_time(const loop *l)
{
    const double step_s = l->at.working / (double)l->at.step, steps = l->t->seconds / step_s;
    if (!(steps < 1e15)) return MANY_STEPS;
    const int64_t n = (int64_t)(steps + 0.5);
    return n > l->at.step ? n : l->at.step;
}

/* What follows a step, up to its report: an evaluation, if r.evaluated says that one is due. One that is interrupted leaves no trace: its
 * line is written when it is made. */
static tn_status evaluated(loop *l, bool line, tn_status s)
{
    const tn_training *t = l->t;
    tn_progress_report *r = &l->r;
    l->at.unevaluated = false;
    if (r->evaluated) s = evaluate(l);
    l->at.unevaluated = s == TN_INTERRUPTED || s == TN_MEMORY;
    r->stopped = r->evaluated && tn__out_of_patience(t->settings, &l->at);
    r->seconds = tn_clock_s() - l->start;
    if (!l->at.unevaluated) s = write_line(l, line, s);
    else tn_metrics_untime(&l->m);
    const uint64_t begun = tn_tracer_clock(t->tracer);
    if (t->report) t->report(t->ctx, r);
    tn__training_span(t, begun, TN_TRACED_LOG, "progress", r->step);
    if (s == TN_OK && t->enough && t->enough(t->ctx)) r->stopped = true;
    return s;
}

/* Finishes the oldest step, up to its report. Its time counts from the end of the step before, or from when it was queued. */
static tn_status finish_step(loop *l)
{
    const tn_training *t = l->t;
    tn_progress_report *r = &l->r;
    const pending *p = pending_of(l, l->at.step);
    tn_status s = collect(l, p);
    const double now = tn_clock_s(), took = now - (l->finished_s > p->begun ? l->finished_s : p->begun);
    l->finished_s = now;
    l->at.working += took;
    r->step = ++l->at.step;
    r->first_step_s = l->at.step == l->from + 1 ? tn_clock_process_s() : NAN;
    if (!isnan(r->first_step_s)) l->first_step_s = r->first_step_s;
    if (t->seconds > 0) r->steps = l->steps = steps_in_time(l);
    r->tokens = p->tokens;
    r->working_s = l->at.working;
    r->tokens_per_s = (double)p->tokens / l->at.working;
    r->epoch = (double)p->tokens / t->source->train_tokens;
    if (t->source->train_samples > 0)
        r->samples_per_s = r->tokens_per_s * t->source->train_samples / t->source->train_tokens;
    l->at.loss = r->loss;
    l->at.lr = r->lr;
    l->at.grad_norm = r->grad_norm;
    tn_metrics_after(&l->m, took, p->line, r);
    r->bad_tensor = r->bad_batch = "";
    r->diverged = s == TN_DIVERGED;
    if (looks_into(l, s)) look_into(l, p, s);
    r->evaluated = s == TN_OK && due(r->step, l->steps, l->often.eval_every);
    return evaluated(l, p->line, s);
}

/* The evaluation that was interrupted when the run was saved: its step's line and what is best follow from it. */
static tn_status make_up(loop *l)
{
    const tn_source *source = l->t->source;
    l->r.epoch = (double)l->at.tokens / source->train_tokens;
    if (source->train_samples > 0)
        l->r.samples_per_s = l->r.tokens_per_s * source->train_samples / source->train_tokens;
    l->r.evaluated = true;
    TN_RETURN_IF(evaluated(l, true, TN_OK));
    l->unscored = true;
    return l->at.step < l->steps && save_due(l) ? save_timed(l) : TN_OK;
}

static tn_status finish_all(loop *l)
{
    while (l->at.step < l->queued) TN_RETURN_IF(finish_step(l));
    return TN_OK;
}

/* Whether something reads the parameters after the last queued step; also the first step, whose time is reported. */
static bool looked_at(const loop *l)
{
    const int64_t n = l->queued;
    return n == l->from + 1 || due(n, l->steps, l->often.eval_every) || every(n, l->often.ckpt_every) ||
           (l->t->sample && every(n, l->often.sample_every)) ||
           (tn_metrics_has_instruments(&l->m) && tn_metrics_due(&l->m, n, l->steps));
}

static tn_status advance(loop *l)
{
    const tn_status s = queue_step(l);
    if (s != TN_OK || looked_at(l)) {
        const tn_status finished = finish_all(l);
        return finished != TN_OK ? finished : s;
    }
    return l->queued - l->at.step < l->ahead ? TN_OK : finish_step(l);
}

static tn_status begin_metrics(loop *l)
{
    tn_metric_list metrics;
    TN_RETURN_IF(tn_metric_list_of(tn_trainer_model(l->t->trainer), l->t->source, &metrics));
    l->r = tn_training_report_at(l->t->settings, &metrics, &l->at);
    const tn_metric_row *by = l->r.select;
    snprintf(l->at.select, sizeof l->at.select, "%s", by == metrics.row[0] ? "" : by->name);
    l->at.lower = by->better == TN_LOWER;
    snprintf(l->at.unit, sizeof l->at.unit, "%s", tn_metric_unit(metrics.row[0]));
    tn_overfit_watch_begin(&l->watch, !l->at.lower, tn_scores_get(&l->r.best, by->name), l->at.best_step);
    TN_RETURN_IF(tn_evaluator_new(l->t->trainer, l->t->source, &l->evaluator));
    if (l->t->leaves_evaluations) tn_evaluator_stop(l->evaluator, l->t->interrupted, l->t->ctx);
    return TN_OK;
}

static tn_status begin(loop *l, const tn_ckpt_state *from)
{
    const tn_settings *st = l->t->settings;
    if (from) l->at = *from;
    else l->at = (tn_ckpt_state){ .loss = NAN };
    if (l->at.cursor) json_incref(l->at.cursor);
    l->at.batch = l->t->batch;
    l->at.length = l->t->length;
    l->at.seed = tn_settings_int(st, "seed");
    l->often =
        (often){ .batches = tn_trainer_batches(l->t->trainer),
                 .eval_every = tn_settings_int(st, "train.eval_every"),
                 .eval_batches = tn_settings_int(st, "train.eval_batches") * tn_trainer_microbatches(l->t->trainer),
                 .ckpt_every = tn_settings_int(st, "ckpt.every"),
                 .sample_every = tn_settings_int(st, "sample.every"),
                 .keep_best = tn_settings_int(st, "ckpt.keep_best"),
                 .ckpt_every_s = tn_settings_float(st, "ckpt.every_s") };
    l->queued = l->from = l->at.step;
    l->first_step_s = NAN;
    l->steps = l->t->seconds > 0 ? MANY_STEPS : tn_settings_int(st, "train.steps");
    l->saved = from ? from->step : -1;
    l->saved_s = l->begun = tn_clock_s();
    l->start = l->saved_s - l->at.seconds;
    TN_RETURN_IF(tn_run_prepare(l->t, !from));
    TN_RETURN_IF(begin_metrics(l));
    l->r.bits = l->t->source->bits;
    l->r.counts = tn_metric_counts(l->t->source);
    TN_RETURN_IF(tn_metrics_open(l->t, &l->m));
    l->ahead = l->t->seconds > 0 || l->m.level >= TN_LOG_PERFORMANCE ? 1 : tn_trainer_queue_depth(l->t->trainer);
    TN_RETURN_IF(tn_metrics_plan(&l->m, !from));
    TN_RETURN_IF(tn_warn_disk_space(l->t));
    tn__training_trace(l->t, l->steps - l->at.step);
    return tn_settings_same_hash(st, l->at.settings);
}

static bool sample_due(const loop *l)
{
    return l->t->sample && l->at.step == l->queued && every(l->at.step, l->often.sample_every);
}

static tn_status interrupted(loop *l)
{
    const tn_status s = finish_all(l);
    if (s != TN_OK && !l->at.unevaluated) return s;
    TN_RETURN_IF(save_last(l, true));
    if (l->steps == MANY_STEPS) return tn_error(TN_INTERRUPTED, "interrupted before the first step");
    const bool saved = l->t->dir && l->saved == l->at.step;
    return tn_error(TN_INTERRUPTED, "interrupted after %lld of %lld steps%s%s%s", (long long)l->at.step,
                    (long long)l->steps, saved ? ", saved in " : "", saved ? l->t->dir : "",
                    saved && !l->t->once ? ": rerun this command to resume" : "");
}

/* The data cannot be read any more: save first, unless batches of an unfinished step have already changed states. */
static tn_status data_failed(loop *l)
{
    char text[1024];
    if (!l->t->dir || l->t->unsaved_end) return TN_BAD_FILE;
    snprintf(text, sizeof text, "%s", tn_error_text());
    const bool moved = l->part > 0 && tn__has_states(tn_trainer_store(l->t->trainer));
    if (!moved && save_last(l, true) != TN_OK)
        return tn_error(TN_BAD_FILE, "%.480s; and not saved: %.480s", text, tn_error_text());
    if (l->saved <= 0) return tn_error(TN_BAD_FILE, "%s", text);
    if (l->t->once) return tn_error(TN_BAD_FILE, "%s; step %lld is saved", text, (long long)l->saved);
    return tn_error(TN_BAD_FILE, "%s; step %lld is saved: rerun this command to resume", text, (long long)l->saved);
}

/* Memory that a step, an evaluation or a save asked for is not there: what is whole is saved, so that a smaller run goes on from it. */
static tn_status memory_failed(loop *l)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", tn_error_text());
    if (l->t->dir && !l->t->unsaved_end && !l->torn && l->at.step == l->queued) (void)save(l);
    return tn_error(TN_MEMORY, "%s", text);
}

tn_status tn_training_run(const tn_training *t, const tn_ckpt_state *from, tn_progress_report *last)
{
    loop l = { .t = t };
    tn_status s = begin(&l, from);
    const bool begun = s == TN_OK;
    tn_trainer_steady(t->trainer, true);
    if (begun && l.at.unevaluated) s = make_up(&l);
    while (s == TN_OK && l.queued < l.steps && !l.r.stopped) {
        if (t->interrupted && t->interrupted(t->ctx)) s = interrupted(&l);
        else s = advance(&l);
        if (s == TN_INTERRUPTED && l.at.unevaluated) break;
        if (t->unsaved_end && (l.r.stopped || l.at.step == l.steps)) break;
        if (s == TN_OK && save_due(&l)) s = finish_all(&l);
        if (s == TN_OK && save_due(&l) && l.at.step < l.steps) s = save_timed(&l); /* the last step is saved below */
        if (s == TN_OK && sample_due(&l)) s = t->sample(t->ctx, l.at.step);
    }
    if (s == TN_INTERRUPTED && l.at.unevaluated) s = interrupted(&l);
    tn_trainer_steady(t->trainer, false);
    tn_trainer_schedule(t->trainer, 0);
    if (s == TN_OK && !t->unsaved_end) s = save_last(&l, false);
    if (begun && s == TN_BAD_FILE) s = data_failed(&l);
    if (begun && s == TN_MEMORY) s = memory_failed(&l);
    for (tn_step_result x; tn_trainer_queued(t->trainer);)
        (void)tn_trainer_collect(t->trainer, &x); /* behind one that ended the run */
    tn__training_trace_end(t);
    tn_metrics_finish(&l.m);
    tn_metrics_close(&l.m);
    tn_evaluator_free(l.evaluator);
    *last = l.r;
    tn_ckpt_state_free(&l.at);
    return s;
}
