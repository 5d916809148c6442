/* The first view of an untrained model (tn_view_row), from its instruments on one batch: the distribution must be
 * positive, and all reported numbers finite. */
#include "base/alloc.h"
#include "models/models.h"
#include "train/check/check_internal.h"
#include "train/trainer/histogram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct heard {
    const tn_view_row *view;
    tn_histograms spreads;
    double least, most; /* of view->extra */
    bool bad;
} heard;

static void hear(void *ctx, const char *name, double value, const char *unit)
{
    heard *h = ctx;
    const char *dot = strrchr(name, '.');
    (void)unit;
    if (!isfinite(value)) h->bad = true;
    if (!dot || !h->view->extra || strcmp(dot + 1, h->view->extra) != 0) return;
    h->least = isnan(h->least) ? value : fmin(h->least, value);
    h->most = isnan(h->most) ? value : fmax(h->most, value);
}

static void hear_spread(void *ctx, const char *name, double value, const char *unit)
{
    heard *h = ctx;
    if (!(value > 0)) h->bad = true; /* NaN too; infinity is a number here: a state that never forgets is one */
    tn_histograms_take(&h->spreads, name, value, unit);
}

static const tn_histogram *find_all(const heard *h)
{
    for (size_t i = 0; i < h->spreads.n; i++)
        if (strcmp(h->spreads.row[i].name, h->view->name) == 0) return &h->spreads.row[i];
    return NULL;
}

static void skip(const tn_view_row *known, tn_check_row *r)
{
    r->verdict = TN_SKIPPED;
    snprintf(r->detail, sizeof r->detail, "the model reports no %s (with plan.recompute=chunk none does)", known->what);
}

static void judge(const heard *h, tn_check_row *r)
{
    const tn_view_row *v = h->view;
    const tn_histogram *all = find_all(h);
    char twin[96] = "", extra[96] = "";
    if (!all) {
        skip(v, r);
        return;
    }
    r->verdict = h->bad ? TN_FAILED : TN_PASS;
    r->value = tn_histogram_quantile(all, 0.5);
    r->unit = v->unit;
    if (v->twin) snprintf(twin, sizeof twin, " %s %.4f to %.4f,", v->twin, v->twin_of(all->min), v->twin_of(all->max));
    if (v->extra) snprintf(extra, sizeof extra, ", %s %.3g to %.3g", v->extra_label, h->least, h->most);
    snprintf(r->detail, sizeof r->detail, "%lld %s,%s %s %.1f to %.1f %s (median %.1f)%s", (long long)all->n, v->of,
             twin, v->name, all->min, all->max, v->unit, r->value, extra);
}

tn_status tn__check_spectrum(const tn_check *c, tn_check_row *r)
{
    tn_status s = TN_OK;
    tn_trainer *t = NULL;
    float loss;
    const tn_model *known;
    const tn_view_row *view = tn_model_view(c->model, &known);
    if (!view) {
        skip(known->views, r);
        return TN_OK;
    }
    heard *h = tn_alloc(sizeof *h);
    if (!h) return TN_MEMORY;
    *h = (heard){ .view = view, .least = NAN, .most = NAN };
    TN_TRY(tn__check_open(c, (tn_trainer_options){ .instruments = true, .forward_only = true }, &t));
    TN_TRY(tn_trainer_eval(t, &loss));
    tn_trainer_keep_outputs(t);
    TN_TRY(tn_trainer_instruments(t, hear, hear_spread, h));
    judge(h, r);
done:
    tn_trainer_free(t);
    tn_free(h);
    return s;
}
