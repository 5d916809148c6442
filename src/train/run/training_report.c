/* A run's report as its checkpoint has it, whether the run is finished, and what is said of overfitting. */
#include "train/run/training_internal.h"

#include <math.h>
#include <stdio.h>

bool tn__out_of_patience(const tn_settings *st, const tn_ckpt_state *state)
{
    const int64_t patience = tn_settings_int(st, "train.stop_patience");
    return patience > 0 && state->stale >= patience;
}

bool tn_training_finished(const tn_settings *st, const tn_ckpt_state *state)
{
    return !state->unevaluated && (state->step >= tn_settings_int(st, "train.steps") || tn__out_of_patience(st, state));
}

/* A checkpoint does not say what its first score is called. */
static tn_scores named(const tn_scores *s, const tn_metric_list *l)
{
    tn_scores out = *s;
    if (out.n) snprintf(out.at[0].name, sizeof out.at[0].name, "%s", l->row[0]->name);
    return out;
}

tn_progress_report tn_training_report_at(const tn_settings *st, const tn_metric_list *metrics,
                                         const tn_ckpt_state *state)
{
    tn_progress_report r = { .step = state->step,
                             .steps = tn_settings_int(st, "train.steps"),
                             .loss = state->loss,
                             .tokens = state->tokens,
                             .working_s = state->working,
                             .metrics = *metrics,
                             .select = tn_metric_selected(metrics, st),
                             .last = named(&state->last, metrics),
                             .best = named(&state->best, metrics),
                             .best_step = state->best_step,
                             .patience = { .best_step = state->best_step,
                                           .stale = state->stale,
                                           .longest = state->longest > 0 ? (int64_t)state->longest : 0 },
                             .samples_per_s = NAN,
                             .lr = state->lr,
                             .grad_norm = state->grad_norm,
                             .stopped = tn__out_of_patience(st, state),
                             .seconds = state->seconds,
                             .bits = NAN,
                             .epoch = NAN,
                             .step_ms = NAN,
                             .first_step_s = NAN,
                             .utilisation = NAN,
                             .stall_s = NAN,
                             .stall_frac = NAN,
                             .memory_bytes = NAN,
                             .gpu_busy = NAN,
                             .gpu_clock = NAN,
                             .gpu_watt = NAN,
                             .gpu_used = NAN,
                             .gpu_all = NAN,
                             .loss_scale = NAN,
                             .tokens_per_s = state->working > 0 ? (double)state->tokens / state->working : 0 };
    if (!r.select) r.select = metrics->row[0];
    return r;
}

const char *tn_training_rise(const tn_progress_report *r, double unit, char buf[TN_RISE_TEXT])
{
    const tn_metric_row *by = r->select;
    const double in = by == r->metrics.row[0] ? unit : 1;
    snprintf(buf, TN_RISE_TEXT, "held-out %s has %s since step %lld (%.4f -> %.4f)", by->name,
             by->better == TN_HIGHER ? "fallen" : "risen", (long long)r->best_step,
             in * tn_scores_get(&r->best, by->name), in * tn_scores_get(&r->last, by->name));
    return buf;
}

const char *tn_training_patience(const tn_progress_report *r, const tn_settings *st, bool over,
                                 char buf[TN_PATIENCE_TEXT])
{
    const int64_t steps = over ? r->step : r->steps, every = tn_settings_int(st, "train.eval_every");
    const double tokens = (double)r->tokens / (double)r->step * (double)steps;
    buf[0] = 0;
    if (tn_settings_int(st, "train.stop_patience")) return buf;
    return tn_patience_text(&r->patience, steps, every, isnan(r->samples_per_s) ? tokens : NAN, over, buf);
}

const char *tn__overfit_note(const tn_training *t, const tn_progress_report *r, char buf[TN_OVERFIT_NOTE])
{
    char rise[TN_RISE_TEXT], patience[TN_PATIENCE_TEXT];
    const bool kept = t->dir && tn__ckpt_pointed(t->dir, "best") == r->best_step;
    tn_training_patience(r, t->settings, false, patience);
    snprintf(buf, TN_OVERFIT_NOTE, "%s: %s%lld; more data or a larger train.dropout may help%s%s",
             tn_training_rise(r, 1, rise), kept ? "the best checkpoint is step-" : "the best was step ",
             (long long)r->best_step, patience[0] ? "; " : "", patience);
    return buf;
}
