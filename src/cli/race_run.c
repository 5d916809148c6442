/* Training and measuring in a race, one after the other, each alone on the machine. Every racer sees the batches that its
 * settings and the seed give; nothing is shared between them but the data's files. */
#include "cli/race.h"

#include "base/clock.h"
#include "cli/train_sample.h"

#include <stdio.h>
#include <string.h>

static const double CELL_S = 1; /* a step at some context that takes longer is timed once */

static tn_status open_racer(const tn_race *r, const tn_racer *x, tn_session *out)
{
    const bool first = x == r->racer;
    const int64_t wanted = r->parameters != TN_RACE_MEASURED ? r->parameters : first ? 0 : r->racer[0].parameters;
    const tn_session_options o = { .asked = &r->c->asked,
                                   .target = x->target,
                                   .overrides = x->overrides,
                                   .n = x->n,
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
            return tn_error(TN_USAGE, "%s trains %lld tokens a step, which do not add up to %lld as the others' do: choose train.batch "
                                      "times train.context alike, or more --tokens", r->racer[i].name, (long long)step,
                            (long long)r->tokens);
    }
    const int64_t times = (r->tokens + common / 2) / common;
    r->tokens = (times > 0 ? times : 1) * common;
    for (size_t i = 0; i < r->n; i++) {
        tn_racer *x = &r->racer[i];
        x->overrides[x->n] = tn_arena_printf(&r->arena, "train.steps=%lld", (long long)(r->tokens / x->tokens_per_step));
        if (!x->overrides[x->n++]) return tn_error(TN_MEMORY, "out of memory");
    }
    return TN_OK;
}

tn_status tn_race_prepare(tn_race *r)
{
    for (size_t i = 0; i < r->n; i++) {
        tn_session s = { 0 };
        tn_racer *x = &r->racer[i];
        TN_RETURN_IF(open_racer(r, x, &s));
        x->parameters = tn_trainer_parameters(s.trainer);
        x->width = s.width;
        x->tokens_per_step = s.batch * s.length * tn_settings_int(s.settings, "train.accumulate");
        if (i == 0 && r->tokens == 0) r->tokens = x->tokens_per_step * tn_settings_int(s.settings, "train.steps");
        tn_session_close(&s);
    }
    return r->equal == TN_EQUAL_TOKENS ? equal_tokens(r) : TN_OK;
}

/* --- one of them ------------------------------------------------------------------------------------------------------ */

static tn_status train(tn_race *r, tn_racer *x, tn_session *on)
{
    static const tn_curve_axis axes[] = { TN_AXIS_STEPS, TN_AXIS_TOKENS, TN_AXIS_SECONDS };
    tn_train_view_start(&x->view, r->c->err, x->name);
    x->view.axis = axes[r->equal];
    const tn_training t = { .trainer = on->trainer, .settings = on->settings, .source = &on->source, .batch = on->batch,
                            .length = on->length, .seconds = r->equal == TN_EQUAL_SECONDS ? r->seconds : 0, .ctx = &x->view,
                            .report = tn_train_view_report, .interrupted = tn_interrupted };
    const tn_status s = tn_training_run(&t, NULL, &x->last);
    tn_train_view_end(&x->view);
    x->trained = x->last.step > 0;
    x->bytes = tn_trainer_memory(on->trainer).total;
    if (s != TN_OK) tn_error_prefix("%s", x->name);
    if (s == TN_OK && r->equal == TN_EQUAL_SECONDS && r->seconds == 0) r->seconds = x->last.working_s;
    return s == TN_OK ? x->view.status : s;
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
    const tn_contexts o = { .model = on->model, .settings = on->settings, .store = tn_trainer_store(on->trainer),
                            .data = on->data, .mode = on->mode, .tokens = step, .score = largest > step ? largest : step,
                            .budget_s = CELL_S, .ctx = &w, .progress = say_context, .interrupted = tn_interrupted };
    tn_progress_start(&w.progress, r->c->err);
    for (size_t i = 0; i < r->contexts.n; i++) x->context[i].context = r->contexts.at[i];
    x->n_measured = r->contexts.n;
    const tn_status s = tn_contexts_measure(&o, x->context, r->contexts.n);
    tn_progress_end(&w.progress);
    return s;
}

tn_status tn_race_run(tn_race *r, tn_racer *x)
{
    tn_session on = { 0 };
    TN_RETURN_IF(open_racer(r, x, &on));
    tn_session_describe(&on, r->c->err);
    tn_status s = on.samples && r->contexts.n ? tn_error(TN_USAGE, "--contexts is for models that learn from sequences, and %s learns "
                                                                   "from samples: leave it out", on.model->name)
                                              : train(r, x, &on);
    if (s == TN_OK && r->sample) s = sample(r, x, &on);
    if (s == TN_OK && r->contexts.n) s = measure_contexts(r, x, &on);
    tn_session_close(&on);
    return s;
}
