/* Training and measuring in a race, one after the other, each alone on the machine. Every racer sees the batches that its
 * settings and the seed give; nothing is shared between them but the data's files. What is measured afterwards is measured on the
 * weights of the best evaluation. */
#include "cli/race/race.h"

#include "base/clock.h"
#include "cli/train/train_sample.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double CELL_S = 1; /* a step at some context that takes longer is timed once */

/* t: one of its trainings, or NULL: a first look. */
static tn_status open_racer(tn_race *r, const tn_racer *x, const tn_race_trial *t, tn_session *out)
{
    const bool first = x == r->racer;
    const int64_t wanted = r->parameters != TN_RACE_MEASURED ? r->parameters : first ? 0 : r->racer[0].parameters;
    const char **all = tn_arena_alloc(&r->arena, (x->n + 3) * sizeof *all);
    size_t n = x->n;
    if (!all) return tn_error(TN_MEMORY, "out of memory");
    memcpy(all, x->overrides, n * sizeof *all);
    if (r->raw_test && x->settings)
        all[n++] =
            tn_arena_printf(&r->arena, "train.test_frac=%.17g", tn_settings_float(x->settings, "train.holdout_frac"));
    if (t && t->rate) all[n++] = tn_arena_printf(&r->arena, "train.lr=%s", t->rate);
    if (t && t->dir) all[n++] = tn_arena_printf(&r->arena, "run=%s", t->dir);
    for (size_t i = x->n; i < n; i++)
        if (!all[i]) return tn_error(TN_MEMORY, "out of memory");
    const tn_session_options o = { .user = &r->c->user,
                                   .target = x->target,
                                   .overrides = all,
                                   .n = n,
                                   .needs_data = true,
                                   .parameters = wanted,
                                   .width = r->width };
    const tn_status s = tn_session_open_with(&o, out);
    if (s != TN_OK && !strstr(tn_error_text(), x->name)) tn_error_prefix("%s", x->name);
    return s;
}

/* --- making them equal ------------------------------------------------------------------------------------------------ */

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Steps of different size can only be cut at a common multiple of them: the nearest one to what was asked for. */
static tn_status equal_tokens(tn_race *r)
{
    int64_t common = 1;
    for (size_t i = 0; i < r->n; i++) {
        const int64_t step = r->racer[i].tokens_per_step;
        if (__builtin_mul_overflow(common / greatest_divisor(common, step), step, &common) || common > 2 * r->tokens)
            return tn_error(TN_USAGE,
                            "%s: its %lld tokens per step and the others' have no common multiple near %lld: choose "
                            "equal train.batch * train.context, or more --tokens",
                            r->racer[i].name, (long long)step, (long long)r->tokens);
    }
    const int64_t times = (r->tokens + common / 2) / common;
    r->tokens = (times > 0 ? times : 1) * common;
    for (size_t i = 0; i < r->n; i++) {
        tn_racer *x = &r->racer[i];
        x->overrides[x->n] =
            tn_arena_printf(&r->arena, "train.steps=%lld", (long long)(r->tokens / x->tokens_per_step));
        if (!x->overrides[x->n++]) return tn_error(TN_MEMORY, "out of memory");
    }
    return TN_OK;
}

/* Rates are chosen on held-out data, so that their loss there flatters: what is reported has to be from a test part. */
static tn_status need_test(tn_race *r, const tn_racer *x, const tn_session *on)
{
    if (!r->n_rates) return TN_OK;
    if (tn_session_count(on, TN_VALID) == 0)
        return tn_error(TN_USAGE, "%s: --lr needs a validation split, and the data have none: set train.lr=X for each",
                        x->name);
    if (tn_session_count(on, TN_TEST) > 0) return TN_OK;
    if (on->source.text && tn_dataset_about(on->source.text)->is_raw) r->raw_test = true;
    else
        return tn_error(
            TN_USAGE,
            "%s: --lr reports the test split, and the data have none: prepare them with test_frac=0.02 or test=FILE",
            x->name);
    return TN_OK;
}

static tn_status look_at(tn_race *r, tn_racer *x)
{
    tn_session on = { 0 };
    char batch[32];
    TN_RETURN_IF(open_racer(r, x, NULL, &on));
    tn_status s = tn_settings_clone(on.settings, &x->settings);
    snprintf(batch, sizeof batch, "%lld", (long long)on.batch);
    if (s == TN_OK) s = tn_settings_set(x->settings, "train.batch", batch, "auto"); /* what it is, where it was found */
    if (s == TN_OK) s = need_test(r, x, &on);
    x->parameters = tn_trainer_parameters(on.trainer);
    x->lr = tn_settings_float(on.settings, "train.lr");
    x->width = on.width;
    x->writes = on.source.text != NULL;
    x->tokens_per_step = on.batch * on.length * tn_settings_int(on.settings, "train.accumulate");
    if (x == r->racer && r->tokens == 0) r->tokens = x->tokens_per_step * tn_settings_int(on.settings, "train.steps");
    tn_session_close(&on);
    return s;
}

/* That the text is long enough for a test part beside the held-out one shows when it is opened with both. */
static tn_status look_at_test(tn_race *r)
{
    for (size_t i = 0; i < r->n && r->raw_test; i++) {
        tn_session on = { 0 };
        TN_RETURN_IF(open_racer(r, &r->racer[i], NULL, &on));
        const int64_t tokens = tn_session_count(&on, TN_TEST);
        tn_session_close(&on);
        if (tokens == 0)
            return tn_error(TN_USAGE,
                            "%s: --lr reports a test split, and the text has too few documents for one: use more text, "
                            "or a larger train.holdout_frac",
                            r->racer[i].name);
    }
    return TN_OK;
}

tn_status tn_race_prepare(tn_race *r)
{
    for (size_t i = 0; i < r->n; i++) TN_RETURN_IF(look_at(r, &r->racer[i]));
    TN_RETURN_IF(look_at_test(r));
    TN_RETURN_IF(tn_race_differ(r));
    return r->equal == TN_EQUAL_TOKENS ? equal_tokens(r) : TN_OK;
}

/* --- one training ----------------------------------------------------------------------------------------------------- */

typedef struct runner {
    tn_train_view *view;
    tn_race_trial *t;
    const tn_store *store;
    tn_status status; /* of keeping the best weights */
} runner;

/* Between two steps, with nothing queued behind an evaluation: the weights are those that were evaluated. */
static void report(void *ctx, const tn_progress_report *p)
{
    runner *w = ctx;
    tn_train_view_report(w->view, p);
    if (p->evaluated && p->best_step == p->step && w->status == TN_OK)
        w->status = tn_race_weights_take(&w->t->weights, w->store);
}

static void say(void *ctx, const char *text) { tn_train_view_note(((runner *)ctx)->view, text); }

static tn_status train_in(tn_race *r, tn_race_trial *t, const tn_session *on, tn_jsonl *metrics)
{
    runner w = { .view = &t->view, .t = t, .store = tn_trainer_store(on->trainer) };
    const tn_training o = { .trainer = on->trainer,
                            .settings = on->settings,
                            .source = &on->source,
                            .metrics = metrics,
                            .dir = t->dir,
                            .batch = on->batch,
                            .length = on->length,
                            .seconds = r->equal == TN_EQUAL_SECONDS ? r->seconds : 0,
                            .ctx = &w,
                            .report = report,
                            .note = say,
                            .interrupted = tn_interrupted,
                            .once = true };
    const tn_status s = tn_training_run(&o, NULL, &t->last);
    return s == TN_OK ? w.status : s;
}

/* In its run's folder, where runs are kept. */
static tn_status train_kept(tn_race *r, tn_race_trial *t, const tn_session *on)
{
    tn_status s = TN_OK;
    tn_run_dir run = { .lock = -1 };
    tn_jsonl *metrics = NULL;
    char path[TN_RUN_PATH];
    if (!t->dir) return train_in(r, t, on, NULL);
    TN_RETURN_IF(tn_run_open(on->settings, tn_settings_text(on->settings, "model"), false, &run));
    TN_TRY(tn_path_join(t->dir, "metrics.jsonl", path, sizeof path));
    TN_TRY(tn_jsonl_open(path, false, &metrics));
    s = train_in(r, t, on, metrics);
    const tn_status closed = tn_jsonl_close(metrics);
    if (s == TN_OK) s = closed;
done:
    tn_run_close(&run);
    return s;
}

static tn_status train(tn_race *r, tn_racer *x, tn_race_trial *t, tn_session *on)
{
    static const tn_curve_axis axes[] = { TN_AXIS_STEPS, TN_AXIS_TOKENS, TN_AXIS_SECONDS };
    tn_train_view_start(&t->view, r->c->err, t->label);
    t->view.axis = axes[r->equal];
    const tn_status s = train_kept(r, t, on);
    tn_train_view_end(&t->view);
    t->trained = t->last.step > 0;
    t->finished = s == TN_OK;
    x->bytes = tn_trainer_memory(on->trainer).total;
    if (s != TN_OK) tn_error_prefix("%s", t->label);
    if (s == TN_OK && r->equal == TN_EQUAL_SECONDS && r->seconds == 0) r->seconds = t->last.working_s;
    return s == TN_OK ? t->view.status : s;
}

/* --- one side --------------------------------------------------------------------------------------------------------- */

/* One that did not come to its end counts only while there is no other. */
static bool is_better(const tn_race_trial *a, const tn_race_trial *b)
{
    if (a->finished != b->finished) return a->finished;
    const tn_scores *x = &a->last.best, *y = &b->last.best;
    if (isnan(tn_scores_first(x)) || isnan(tn_scores_first(y))) return isnan(tn_scores_first(y)) && a->trained;
    return tn_scores_better(x, y, a->last.select->name, a->last.select->better == TN_LOWER);
}

/* Weights are kept of the chosen one alone. */
static void choose(tn_racer *x, size_t k)
{
    const bool better = k > 0 && is_better(&x->trial[k], &x->trial[x->chosen]);
    if (k > 0) tn_race_weights_free(&x->trial[better ? x->chosen : k].weights);
    if (better) x->chosen = k;
}

const tn_race_trial *tn_race_chosen(const tn_racer *x)
{
    const tn_race_trial *t = &x->trial[x->chosen];
    return t->trained ? t : NULL;
}

static tn_status train_all(tn_race *r, tn_racer *x, tn_session *on)
{
    for (size_t k = 0; k < x->n_trials; k++) {
        tn_race_trial *t = &x->trial[k];
        TN_RETURN_IF(open_racer(r, x, t, on));
        if (k == 0) tn_session_describe(on, r->c->err);
        if (r->contexts.n && !on->source.text)
            return tn_error(TN_USAGE, "--contexts needs a model that is trained on text, and %s is not: remove it",
                            on->model->name);
        const tn_status s = train(r, x, t, on);
        t->diverged = s == TN_DIVERGED;
        choose(x, k);
        if (t->diverged && r->n_rates)
            fprintf(r->c->err, "note    %s\n", tn_error_text()); /* a rate that is too large is an answer */
        else if (s != TN_OK) return s;
        if (k + 1 < x->n_trials) tn_session_close(on);
    }
    if (x->trial[x->chosen].diverged)
        return tn_error(TN_DIVERGED, "%s diverges at every rate of --lr: try smaller ones", x->name);
    return TN_OK;
}

/* What no choice has looked at. */
static tn_status test(tn_racer *x, const tn_session *on)
{
    tn_source source = { 0 };
    TN_RETURN_IF(tn_session_heldout(on, TN_TEST, &source));
    const tn_status s = tn_evaluate(on->trainer, &source, 0, &x->test);
    x->test_bits = source.bits;
    tn_source_close(&source);
    return s;
}

/* A model that cannot be sampled from still races. */
static tn_status sample(tn_race *r, tn_racer *x, tn_session *on)
{
    tn_status s = TN_OK;
    if (x == r->racer) s = tn_session_prompt(on, TN_RACE_PROMPT_BYTES, &r->prompt);
    if (s == TN_OK) s = tn_session_sample(on, r->prompt.data ? r->prompt.data : "", r->prompt.n, r->sample, &x->sample);
    if (s == TN_USAGE) snprintf(x->no_sample, sizeof x->no_sample, "%s", tn_error_text());
    return s == TN_USAGE ? TN_OK : s;
}

typedef struct watcher {
    tn_progress progress;
    const char *name;
    double start;
} watcher;

static void say_context(void *ctx, const char *what, int64_t context)
{
    watcher *w = ctx;
    tn_progress_line(&w->progress, tn_clock_s() - w->start, "%s  context %lld, %s", w->name, (long long)context, what);
}

static tn_status measure_contexts(const tn_race *r, tn_racer *x, const tn_session *on)
{
    watcher w = { .name = x->name, .start = tn_clock_s() };
    const int64_t largest = r->contexts.at[r->contexts.n - 1], step = on->batch * on->length;
    const tn_contexts o = { .model = on->model,
                            .settings = on->settings,
                            .store = tn_trainer_store(on->trainer),
                            .data = on->source.text,
                            .mode = on->source.mode,
                            .tokens = step,
                            .score = largest > step ? largest : step,
                            .split = TN_VALID,
                            .budget_s = CELL_S,
                            .ctx = &w,
                            .progress = say_context,
                            .interrupted = tn_interrupted };
    tn_progress_start(&w.progress, r->c->err);
    for (size_t i = 0; i < r->contexts.n; i++) x->context[i].context = r->contexts.at[i];
    x->n_measured = r->contexts.n;
    const tn_status s = tn_contexts_measure(&o, x->context, r->contexts.n);
    tn_progress_end(&w.progress);
    return s;
}

/* The session of the last rate serves the chosen one: it differs in weights alone. */
static tn_status measure(tn_race *r, tn_racer *x, tn_session *on)
{
    const tn_race_trial *t = &x->trial[x->chosen];
    if (t->weights.numbers) TN_RETURN_IF(tn_race_weights_give(&t->weights, tn_trainer_store(on->trainer)));
    if (r->n_rates) TN_RETURN_IF(test(x, on));
    if (r->sample) TN_RETURN_IF(sample(r, x, on));
    return r->contexts.n ? measure_contexts(r, x, on) : TN_OK;
}

tn_status tn_race_run(tn_race *r, tn_racer *x)
{
    tn_session on = { 0 };
    tn_status s = train_all(r, x, &on);
    if (s == TN_OK) s = measure(r, x, &on);
    tn_race_weights_free(&x->trial[x->chosen].weights);
    tn_session_close(&on);
    return s;
}
