/* Histograms of positive numbers by name, such as time constants: 16 bins per octave, so quantiles are known to about 2
 * %. Only the set itself is allocated. "layer0.D.tau" also counts for "tau", the distribution over all layers. */
#ifndef TN_TRAIN_SPREAD_H
#define TN_TRAIN_SPREAD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TN_HISTOGRAM_NAMES = 96,
    TN_HISTOGRAM_PARTS = 16,
    TN_HISTOGRAM_FIRST = -8,
    TN_HISTOGRAM_OCTAVES = 40,
    TN_HISTOGRAM_BINS = TN_HISTOGRAM_PARTS * TN_HISTOGRAM_OCTAVES
};

typedef struct tn_histogram {
    char name[64];
    int64_t n; /* numbers; NaN is not counted */
    double min, max;
    int32_t bin[TN_HISTOGRAM_BINS]; /* the first and the last also hold what lies beyond */
} tn_histogram;

typedef struct tn_histograms {
    tn_histogram row[TN_HISTOGRAM_NAMES]; /* (n), in the order of appearance; what finds no room is left out */
    size_t n;
} tn_histograms;

void tn_histogram_add(tn_histogram *s, double value);
/* The value below which a part q of the numbers lies; NaN where there are none. */
double tn_histogram_quantile(const tn_histogram *s, double q);
/* How many lie in [2^k, 2^(k+1)), k from TN_HISTOGRAM_FIRST on. */
int64_t tn_histogram_octave(const tn_histogram *s, int k);

void tn_histograms_clear(tn_histograms *s);
/* As tn_instrument_report: one more number, for its name and the last part of it. */
void tn_histograms_take(void *spreads, const char *name, double value, const char *unit);

#endif
