/* Sides compared in several studies at once (other texts, other lengths): who ranks where, in how many studies a side is shown to be better
 * or worse than one of them, and the mean difference, for which a study is one observation. */
#ifndef TN_LAB_ACROSS_H
#define TN_LAB_ACROSS_H

#include "base/alloc.h"
#include "lab/statistics/verdict.h"

enum { TN_ACROSS_STUDIES = 256 };

/* What one study says of one side. */
typedef struct tn_across_value {
    double mean; /* on the test split, over seeds */
    double difference, lo,
        hi; /* from the side it is compared with, and the 95 % interval; NaN: not known, or it is that side */
} tn_across_value;

typedef struct tn_across_side {
    double rank;          /* mean over studies: 1 is best, equal means share theirs */
    size_t better, worse; /* studies whose interval leaves out 0 */
    tn_paired paired;     /* its means minus the other's, study by study; n is 0 for the other itself */
    double p_adjusted;    /* Holm's, over the sides */
} tn_across_side;

/* v (studies, sides), every mean known; out (sides). maximise: larger means are better. TN_USAGE: a mean that is not finite. */
tn_status tn_across(const tn_across_value *v, size_t studies, size_t sides, size_t against, bool maximise,
                    tn_arena *arena, tn_across_side *out);

#endif
