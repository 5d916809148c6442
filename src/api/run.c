/* Whole runs: what `tenon train` does, without its screen. */
#include "api/net.h"

#include "base/status.h"
#include "train/run/run_train.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct watch {
    const tenon_train_options *o;
    const tn_run_dir *run;
    bool stop;
} watch;

void tenon_train_init(tenon_train_options *o) { *o = (tenon_train_options){ .size = sizeof *o }; }

static void report(void *ctx, const tn_progress_report *r)
{
    watch *w = ctx;
    const tenon_progress p = { .size = sizeof p,
                               .run = w->run->dir,
                               .step = r->step,
                               .steps = r->steps,
                               .best_step = r->best_step,
                               .metric = r->select->name,
                               .higher = r->select->better == TN_HIGHER,
                               .evaluated = r->evaluated,
                               .loss = r->loss,
                               .heldout = tn_scores_get(&r->last, r->select->name),
                               .best = tn_scores_get(&r->best, r->select->name),
                               .lr = r->lr,
                               .grad_norm = r->grad_norm,
                               .rate = isnan(r->samples_per_s) ? r->tokens_per_s : r->samples_per_s,
                               .seconds = r->seconds };
    if (w->o->progress && w->o->progress(w->o->user, &p)) w->stop = true;
}

static bool stopped(void *ctx) { return ((watch *)ctx)->stop; }

static void say(const watch *w, const char *text, int warning)
{
    if (w->o->note) w->o->note(w->o->user, text, warning);
}

/* A line each. */
static void note(void *ctx, const char *text)
{
    char line[1024];
    for (; *text; text += *text == '\n') {
        const size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        say(ctx, line, 0);
        text += n;
    }
}

static void warn(void *ctx, const char *text) { say(ctx, text, 1); }

static void describe_ladder(void *ctx, const tn_session *on)
{
    char text[32 + TN_LADDER_LINE];
    for (size_t i = on->ladder.changed; i < on->ladder.n; i++) {
        snprintf(text, sizeof text, "memory: %s", on->ladder.line[i]);
        note(ctx, text);
    }
}

static tn_status start_or_continue(watch *w, tn_session *on)
{
    tn_status s = TN_OK;
    tn_ckpt_state state = { 0 };
    const tn_ckpt_state *from = NULL;
    tn_metric_list metrics;
    tn_progress_report last;
    char dropout[TN_DROPOUT_AUTO_TEXT];
    const tn_training calls = { .ctx = w,
                                .report = report,
                                .interrupted = stopped,
                                .leaves_evaluations = true,
                                .note = note,
                                .warn = w->o->note ? warn : NULL,
                                .once = true };
    TN_TRY(tn_run_load(w->run, on, &state, &from));
    note(w, w->run->note);
    note(w, tn_dropout_auto_text(&on->dropout, on->settings, dropout));
    describe_ladder(w, on);
    TN_TRY(tn_metric_list_of(on->model, &on->source, &metrics));
    last = tn_training_report_at(on->settings, &metrics, from ? from : &(tn_ckpt_state){ .loss = NAN });
    report(w, &last);
    if (!from || !tn_training_finished(on->settings, from))
        TN_TRY(tn_run_train(w->run, on, from, &calls, describe_ladder, &last));
done:
    tn_ckpt_state_free(&state);
    return s;
}

tenon_status tenon_train(const tenon_train_options *given)
{
    tn_status s = TN_OK;
    tenon_train_options o;
    tn_session on = { 0 };
    tn_run_dir run = { .lock = -1 };
    tenon_train_init(&o);
    TN_TRY(tn__api_take(given, &o, sizeof o, "tenon_train_options"));
    const tn_user_args user = { .word = o.overrides, .n = o.n, .target = o.target, .to = "the call" };
    const tn_session_options how = { .user = &user,
                                     .target = o.target,
                                     .overrides = o.overrides,
                                     .n = o.n,
                                     .needs_data = true,
                                     .goes_on = !o.fresh,
                                     .runs = true };
    TN_TRY(tn_session_open_with(&how, &on));
    TN_TRY(tn_run_open(on.settings, tn_settings_text(on.settings, "model"), o.fresh, &run));
    TN_TRY(start_or_continue(&(watch){ .o = &o, .run = &run }, &on));
done:
    tn_run_undo(&run, s);
    tn_run_close(&run);
    tn_session_close(&on);
    return (tenon_status)s;
}

tenon_status tenon_settings_of(const char *target, const char *const *overrides, size_t n,
                               int (*each)(void *user, const char *key, const char *value, const char *choices,
                                           const char *help),
                               void *user)
{
    tn_settings *st = NULL;
    const tn_model *model;
    TN_API_TRY(tn__api_need((const void *)(uintptr_t)each, "each"));
    const tn_user_args args = { .word = overrides, .n = n, .target = target, .to = "the call" };
    TN_API_TRY(tn_settings_resolve_user(&args, target, overrides, n, &st, &model));
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const tn_setting *row = tn_settings_row_at(st, i);
        if (each(user, row->key, tn_settings_text_at(st, i), row->choices, row->help)) break;
    }
    tn_settings_free(st);
    return TENON_OK;
}
