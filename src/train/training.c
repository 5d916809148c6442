/* The training run. A step touches no file; metrics are written between steps. */
#include "train/training.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

tn_status tn_training_evaluate(const tn_training *t, double *loss)
{
    const int64_t n = tn_settings_int(t->settings, "train.eval_batches");
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        float x;
        tn_bytes_heldout(t->data, i, t->batch, t->length, tn_trainer_tokens(t->trainer), tn_trainer_labels(t->trainer));
        TN_RETURN_IF(tn_trainer_eval(t->trainer, &x));
        sum += (double)x;
    }
    *loss = sum / (double)n;
    return TN_OK;
}

/* One optimizer step: train.accumulate batches, then apply. */
static tn_status one_step(const tn_training *t, int64_t step, tn_progress_report *r)
{
    const uint64_t seed = (uint64_t)tn_settings_int(t->settings, "seed");
    const int n = (int)tn_settings_int(t->settings, "train.accumulate");
    double loss = 0;
    tn_applied applied = { 0 };
    for (int i = 0; i < n; i++) {
        float x;
        tn_bytes_batch(t->data, seed, step * n + i, t->batch, t->length, tn_trainer_tokens(t->trainer),
                       tn_trainer_labels(t->trainer));
        TN_RETURN_IF(tn_trainer_grad(t->trainer, step * n + i, &x));
        loss += (double)x / n;
    }
    r->loss = loss;
    const tn_status s = tn_trainer_apply(t->trainer, step, n, (float)loss, &applied);
    r->lr = (double)applied.lr;
    r->grad_norm = (double)applied.grad_norm;
    r->action = applied.action;
    return s;
}

static void write_instrument(void *ctx, const char *name, double value, const char *unit)
{
    (void)unit;
    tn_jsonl_number(ctx, name, value);
}

static tn_status write_metrics(const tn_training *t, const tn_progress_report *r)
{
    if (!t->metrics) return TN_OK;
    tn_jsonl_begin(t->metrics);
    tn_jsonl_integer(t->metrics, "step", r->step);
    tn_jsonl_number(t->metrics, "loss", r->loss);
    if (r->evaluated) tn_jsonl_number(t->metrics, "heldout", r->heldout);
    tn_jsonl_number(t->metrics, "lr", r->lr);
    tn_jsonl_number(t->metrics, "grad_norm", r->grad_norm);
    tn_jsonl_number(t->metrics, "tokens_per_s", r->tokens_per_s);
    tn_jsonl_number(t->metrics, "seconds", r->seconds);
    if (r->action != TN_GUARD_CONTINUE)
        tn_jsonl_text(t->metrics, "nonfinite", r->action == TN_GUARD_SKIPPED ? "skipped" : "rolled back");
    if (r->evaluated) tn_trainer_instruments(t->trainer, write_instrument, t->metrics);
    return tn_jsonl_end(t->metrics);
}

static bool due(int64_t step, int64_t steps, int64_t every) { return step == steps || (every && step % every == 0); }

static tn_status run_steps(const tn_training *t, tn_progress_report *last)
{
    const tn_settings *st = t->settings;
    const int64_t steps = tn_settings_int(st, "train.steps"), every = tn_settings_int(st, "train.eval_every");
    const double tokens = (double)(t->batch * t->length * tn_settings_int(st, "train.accumulate"));
    const double start = tn_clock_s();
    double working = 0; /* seconds inside steps */
    tn_progress_report r = { .steps = steps, .heldout = NAN };
    for (int64_t step = 0; step < steps; step++) {
        if (t->interrupted && t->interrupted(t->ctx)) {
            *last = r;
            return tn_error(TN_INTERRUPTED, "interrupted after %lld of %lld steps", (long long)step, (long long)steps);
        }
        const double before = tn_clock_s();
        tn_status s = one_step(t, step, &r);
        working += tn_clock_s() - before;
        r.step = step + 1;
        r.tokens_per_s = tokens * (double)r.step / working;
        r.evaluated = s == TN_OK && due(r.step, steps, every);
        if (r.evaluated) s = tn_training_evaluate(t, &r.heldout);
        r.seconds = tn_clock_s() - start;
        if (r.evaluated || s != TN_OK || due(r.step, steps, 10) || r.action != TN_GUARD_CONTINUE) {
            const tn_status w = write_metrics(t, &r);
            if (s == TN_OK) s = w;
        }
        *last = r;
        if (t->report) t->report(t->ctx, &r);
        if (s != TN_OK) return s;
    }
    return TN_OK;
}

tn_status tn_training_run(const tn_training *t, tn_progress_report *last)
{
    tn_trainer_steady(t->trainer, true);
    const tn_status s = run_steps(t, last);
    tn_trainer_steady(t->trainer, false);
    return s;
}
