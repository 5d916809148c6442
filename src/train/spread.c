/* Counting numbers by name in bins of fractions of an octave. */
#include "train/spread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int bin_of(double value)
{
    const double at = floor(TN_SPREAD_PARTS * (log2(value) - TN_SPREAD_FIRST));
    return at < 0 || value <= 0 ? 0 : at < TN_SPREAD_BINS ? (int)at : TN_SPREAD_BINS - 1;
}

void tn_spread_add(tn_spread *s, double value)
{
    if (isnan(value)) return;
    s->min = s->n ? fmin(s->min, value) : value;
    s->max = s->n ? fmax(s->max, value) : value;
    s->n++;
    s->bin[bin_of(value)]++;
}

double tn_spread_quantile(const tn_spread *s, double q)
{
    int64_t below = 0;
    int k = 0;
    if (s->n == 0) return NAN;
    while (k < TN_SPREAD_BINS - 1 && (double)(below += s->bin[k]) < q * (double)s->n) k++;
    const double middle = exp2(TN_SPREAD_FIRST + ((double)k + 0.5) / TN_SPREAD_PARTS);
    return fmin(fmax(middle, s->min), s->max);
}

int64_t tn_spread_octave(const tn_spread *s, int k)
{
    int64_t sum = 0;
    const int from = (k - TN_SPREAD_FIRST) * TN_SPREAD_PARTS;
    for (int i = from; i >= 0 && i < from + TN_SPREAD_PARTS && i < TN_SPREAD_BINS; i++) sum += s->bin[i];
    return sum;
}

void tn_spreads_clear(tn_spreads *s)
{
    for (size_t i = 0; i < s->n; i++) s->row[i] = (tn_spread){ 0 };
    s->n = 0;
}

/* Numbers of one name come one after the other, so the last row is asked first. */
static tn_spread *find(tn_spreads *s, const char *name)
{
    for (size_t i = s->n; i > 0; i--)
        if (strcmp(s->row[i - 1].name, name) == 0) return &s->row[i - 1];
    if (s->n == TN_SPREAD_NAMES || strlen(name) >= sizeof s->row[0].name) return NULL;
    tn_spread *made = &s->row[s->n++];
    snprintf(made->name, sizeof made->name, "%s", name);
    return made;
}

void tn_spreads_take(void *spreads, const char *name, double value, const char *unit)
{
    const char *dot = strrchr(name, '.');
    tn_spread *all = find(spreads, dot ? dot + 1 : name), *own = dot ? find(spreads, name) : NULL;
    (void)unit;
    if (all) tn_spread_add(all, value);
    if (own) tn_spread_add(own, value);
}
