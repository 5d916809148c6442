/* The spectrum of a model as it begins: its instruments on one batch. Decays must be decays, and states finite. */
#include "base/alloc.h"
#include "train/check_internal.h"
#include "train/spread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct heard {
    tn_spreads spreads;
    double least, most; /* state_rms */
    bool bad;
} heard;

static void hear(void *ctx, const char *name, double value, const char *unit)
{
    heard *h = ctx;
    const char *dot = strrchr(name, '.');
    (void)unit;
    if (!isfinite(value)) h->bad = true;
    if (!dot || strcmp(dot, ".state_rms") != 0) return;
    h->least = isnan(h->least) ? value : fmin(h->least, value);
    h->most = isnan(h->most) ? value : fmax(h->most, value);
}

static void hear_spread(void *ctx, const char *name, double value, const char *unit)
{
    heard *h = ctx;
    if (!(value > 0)) h->bad = true; /* NaN too; a state that never forgets is one */
    tn_spreads_take(&h->spreads, name, value, unit);
}

static const tn_spread *find_tau(const heard *h)
{
    for (size_t i = 0; i < h->spreads.n; i++)
        if (strcmp(h->spreads.row[i].name, "tau") == 0) return &h->spreads.row[i];
    return NULL;
}

static void judge(const heard *h, tn_check_row *r)
{
    const tn_spread *tau = find_tau(h);
    if (!tau) {
        r->verdict = TN_SKIPPED;
        snprintf(r->detail, sizeof r->detail, "the model says nothing of decaying states (nor does any in chunks)");
        return;
    }
    r->verdict = h->bad ? TN_FAILED : TN_PASS;
    r->value = tn_spread_quantile(tau, 0.5);
    r->unit = "tokens";
    snprintf(r->detail, sizeof r->detail, "%lld states, |lambda| %.4f to %.4f, tau %.1f to %.1f tokens (median %.1f), state rms %.3g to %.3g",
             (long long)tau->n, exp(-1 / tau->min), exp(-1 / tau->max), tau->min, tau->max, r->value, h->least, h->most);
}

tn_status tn__check_spectrum(const tn_check *c, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    float loss;
    heard *h = tn_alloc(sizeof *h);
    if (!h) return TN_MEMORY;
    *h = (heard){ .least = NAN, .most = NAN };
    TN_TRY(tn__check_open_looking(c, &t));
    TN_TRY(tn_trainer_eval(t, &loss));
    tn_trainer_keep_look(t);
    TN_TRY(tn_trainer_instruments(t, hear, hear_spread, h));
    judge(h, r);
done:
    tn_trainer_free(t);
    tn_free(h);
    return s;
}
