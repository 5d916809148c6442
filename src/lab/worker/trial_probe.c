/* Probing a side: a few timed steps. */
#include "lab/worker/trial_probe.h"

#include "base/clock.h"
#include "train/run/training.h"

#include <math.h>

enum { PROBED_BATCHES = 2 };

static double batches_of(const tn_session *on, tn_data_split split)
{
    if (on->source.on_policy) return 0;
    const double each = on->source.epoch_batches ? (double)on->batch : (double)(on->batch * on->length);
    return ceil((double)tn_session_count(on, split) / each);
}

/* Batches that the trial will evaluate from beginning to end. */
static double evaluated(const tn_session *on, int64_t every, int64_t at_most, int64_t steps, bool compares)
{
    double each = batches_of(on, TN_VALID);
    if (at_most > 0 && each > (double)at_most) each = (double)at_most;
    const double times = every > 0 ? ceil((double)steps / (double)every) : 1;
    return times * each + (compares ? batches_of(on, TN_TEST) : 0);
}

/* The first steps look up kernels and record the plan: they are not timed. */
enum { SETTLING = 2, LONGEST = 4 /* times the seconds, with the first steps */ };

typedef struct stopwatch {
    double seconds, settled_s, working_s;
    int64_t settled, step;
} stopwatch;

static void look_at_clock(void *ctx, const tn_progress_report *r)
{
    stopwatch *w = ctx;
    w->step = r->step;
    w->working_s = r->working_s;
    if (r->step > SETTLING) return;
    w->settled = r->step;
    w->settled_s = r->working_s;
}

static bool is_enough(void *ctx)
{
    const stopwatch *w = ctx;
    return w->working_s - w->settled_s >= w->seconds || w->working_s >= LONGEST * w->seconds;
}

/* Steps until the time is over, and one short evaluation. */
static tn_status time_it(tn_session *on, double seconds, double *step_s, double *eval_s)
{
    tn_progress_report last;
    tn_evaluation e;
    stopwatch w = { .seconds = seconds };
    const tn_training job = { .trainer = on->trainer,
                              .settings = on->settings,
                              .source = &on->source,
                              .batch = on->batch,
                              .length = on->length,
                              .ctx = &w,
                              .report = look_at_clock,
                              .enough = is_enough };
    TN_RETURN_IF(tn_settings_set(on->settings, "train.from", "", "plan")); /* no time depends on it */
    TN_RETURN_IF(tn_settings_set(on->settings, "train.eval_every", "0", "plan"));
    TN_RETURN_IF(tn_settings_set(on->settings, "train.eval_batches", "1", "plan"));
    TN_RETURN_IF(tn_training_run(&job, NULL, &last));
    *step_s = w.step > w.settled ? (w.working_s - w.settled_s) / (double)(w.step - w.settled)
                                 : last.working_s / (double)last.step;
    const double before = tn_clock_s();
    TN_RETURN_IF(tn_evaluate(on->trainer, &on->source, PROBED_BATCHES, &e));
    *eval_s = (tn_clock_s() - before) / PROBED_BATCHES;
    return TN_OK;
}

tn_status tn_trial_probe_side(tn_trial_host *h, const tn_claim *c, const double *x, double seconds, tn_trial_probe *out)
{
    tn_session on = { 0 };
    double eval_s = 0;
    TN_RETURN_IF(tn_trial_session(h, c, x, &on));
    tn_trial_probe p = { .parameters = tn_trainer_parameters(on.trainer),
                         .steps = tn_settings_int(on.settings, "train.steps"),
                         .memory_bytes = (double)tn_trainer_memory(on.trainer).total,
                         .step_s = NAN,
                         .seconds = NAN,
                         .width = on.width,
                         .device = tn_trainer_device(on.trainer) };
    p.tokens = p.steps * on.batch * on.length * tn_settings_int(on.settings, "train.accumulate");
    const double batches =
        evaluated(&on, tn_settings_int(on.settings, "train.eval_every"),
                  tn_settings_int(on.settings, "train.eval_batches"), p.steps, c->kind == TN_TRIAL_COMPARE);
    tn_status s = on.source.on_policy ? TN_OK : time_it(&on, seconds, &p.step_s, &eval_s);
    p.seconds = (double)p.steps * p.step_s + batches * eval_s;
    tn_session_close(&on);
    if (s == TN_OK) *out = p;
    return s;
}
