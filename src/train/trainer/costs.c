/* Counts work by the model's cost rows. */
#include "train/trainer/costs.h"

#include "base/settings_watch.h"

#include <math.h>
#include <string.h>

tn_status tn_costs_open(const tn_model *m, const tn_settings *st, int64_t batch, tn_costs *out)
{
    tn_costs c = { .row = m->costs, .n = m->n_costs, .batch = batch };
    if (c.n > TN_COSTS_MAX)
        return tn_error(TN_USAGE, "model %s has %zu cost rows, %d are possible: remove some", m->name, c.n,
                        TN_COSTS_MAX);
    tn_settings_watch(st);
    for (size_t i = 0; i < c.n; i++) {
        const tn_cost_row *r = &c.row[i];
        c.units[i] = r->units ? r->units(st) : 1;
        c.by_sample[i] = r->by_sample && r->by_sample(st);
        while (c.row[c.like[i]].eval != r->eval || strcmp(c.row[c.like[i]].output, r->output) != 0) c.like[i]++;
    }
    TN_RETURN_IF(tn_settings_mistake(st));
    *out = c;
    return TN_OK;
}

/* The counts of all samples of the batch that just ran; *there: samples that took part. */
static double count(const tn_costs *c, tn_bound *b, const char *output, int64_t *counted)
{
    const int32_t *each = b ? tn_bound_data(b, output) : NULL;
    double sum = 0;
    *counted = 0;
    for (int64_t i = 0; each && i < c->batch; i++) {
        sum += each[i];
        *counted += each[i] > 0;
    }
    return sum;
}

void tn_costs_add(tn_costs *c, tn_trainer_event what, tn_bound *b)
{
    const bool eval = what == TN_EVENT_EVAL;
    bool first = true;
    if (what == TN_EVENT_APPLY || what == TN_EVENT_DATA) return;
    for (size_t i = 0; i < c->n; i++) {
        int64_t counted;
        if (c->row[i].eval != eval) continue;
        const double sum = count(c, b, c->row[i].output, &counted);
        c->sum[i] += c->by_sample[i] ? (double)counted : sum;
        if (c->like[i] == i) c->calls += counted > 0;
        if (first) *(eval ? &c->eval_samples : &c->samples) += counted;
        first = false;
    }
}

double tn_costs_units(const tn_costs *c)
{
    double all = 0;
    for (size_t i = 0; i < c->n; i++) all += c->units[i] * c->sum[i];
    return c->calls ? all : NAN;
}

double tn_costs_sum(const tn_costs *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->row[i].name, name) == 0) return c->sum[i];
    return 0;
}
