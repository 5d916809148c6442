/* Histograms by name. */
#include "train/trainer/histogram.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int bin_of(double value)
{
    const double at = floor(TN_HISTOGRAM_PARTS * (log2(value) - TN_HISTOGRAM_FIRST));
    return at < 0 || value <= 0 ? 0 : at < TN_HISTOGRAM_BINS ? (int)at : TN_HISTOGRAM_BINS - 1;
}

void tn_histogram_add(tn_histogram *s, double value)
{
    if (isnan(value)) return;
    s->min = s->n ? fmin(s->min, value) : value;
    s->max = s->n ? fmax(s->max, value) : value;
    s->n++;
    s->bin[bin_of(value)]++;
}

double tn_histogram_quantile(const tn_histogram *s, double q)
{
    int64_t below = 0;
    int k = 0;
    if (s->n == 0) return NAN;
    while (k < TN_HISTOGRAM_BINS - 1 && (double)(below += s->bin[k]) < q * (double)s->n) k++;
    const double middle = exp2(TN_HISTOGRAM_FIRST + ((double)k + 0.5) / TN_HISTOGRAM_PARTS);
    return fmin(fmax(middle, s->min), s->max);
}

int64_t tn_histogram_octave(const tn_histogram *s, int k)
{
    int64_t sum = 0;
    const int from = (k - TN_HISTOGRAM_FIRST) * TN_HISTOGRAM_PARTS;
    for (int i = from; i >= 0 && i < from + TN_HISTOGRAM_PARTS && i < TN_HISTOGRAM_BINS; i++) sum += s->bin[i];
    return sum;
}

void tn_histograms_clear(tn_histograms *s)
{
    for (size_t i = 0; i < s->n; i++) s->row[i] = (tn_histogram){ 0 };
    s->n = 0;
}

/* Numbers of one name come one after the other, so the last row is asked first. */
static tn_histogram *find(tn_histograms *s, const char *name)
{
    for (size_t i = s->n; i > 0; i--)
        if (strcmp(s->row[i - 1].name, name) == 0) return &s->row[i - 1];
    if (s->n == TN_HISTOGRAM_NAMES || strlen(name) >= sizeof s->row[0].name) return NULL;
    tn_histogram *made = &s->row[s->n++];
    snprintf(made->name, sizeof made->name, "%s", name);
    return made;
}

void tn_histograms_take(void *spreads, const char *name, double value, const char *unit)
{
    const char *dot = strrchr(name, '.');
    tn_histogram *all = find(spreads, dot ? dot + 1 : name), *own = dot ? find(spreads, name) : NULL;
    (void)unit;
    if (all) tn_histogram_add(all, value);
    if (own) tn_histogram_add(own, value);
}
