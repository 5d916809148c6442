/* Distributions of positive numbers by name, such as the time constants of a layer's states: counted in bins of a sixteenth of an
 * octave, so that quantiles are known to about 2 % and a doubling is a whole number of bins. Nothing is allocated but the set
 * itself. A name "layer0.D.tau" also counts for its last part, "tau", the distribution over all of them. */
#ifndef TN_TRAIN_SPREAD_H
#define TN_TRAIN_SPREAD_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TN_SPREAD_NAMES = 96,
    TN_SPREAD_PARTS = 16,
    TN_SPREAD_FIRST = -8,
    TN_SPREAD_OCTAVES = 40,
    TN_SPREAD_BINS = TN_SPREAD_PARTS * TN_SPREAD_OCTAVES
};

typedef struct tn_spread {
    char name[64];
    int64_t n; /* numbers; NaN is not counted */
    double min, max;
    int32_t bin[TN_SPREAD_BINS]; /* the first and the last also hold what lies beyond */
} tn_spread;

typedef struct tn_spreads {
    tn_spread row[TN_SPREAD_NAMES]; /* (n), in the order of appearance; what finds no room is left out */
    size_t n;
} tn_spreads;

void tn_spread_add(tn_spread *s, double value);
/* The value below which a part q of the numbers lies; NaN where there are none. */
double tn_spread_quantile(const tn_spread *s, double q);
/* How many lie in [2^k, 2^(k+1)), k from TN_SPREAD_FIRST on. */
int64_t tn_spread_octave(const tn_spread *s, int k);

void tn_spreads_clear(tn_spreads *s);
/* As tn_instrument_report: one more number, for its name and the last part of it. */
void tn_spreads_take(void *spreads, const char *name, double value, const char *unit);

#endif
