/* The arithmetic of sampling: one token from the logits of a position and one random number. Knows nothing of models or
 * text. The same logits, options and number give the same token everywhere: all sums run in one fixed order, in double. */
#ifndef TN_TRAIN_SAMPLE_PICK_H
#define TN_TRAIN_SAMPLE_PICK_H

#include "base/rng.h"
#include "base/status.h"

typedef struct tn_pick_options {
    double temperature; /* 0: the largest logit */
    int64_t top_k;      /* only so many of the likeliest; 0: all */
    double top_p;       /* only the likeliest that together have this probability; 1: all */
} tn_pick_options;

typedef struct tn_picker tn_picker; /* memory for one vocabulary */

tn_status tn_picker_new(int64_t vocab, tn_picker **out);
void tn_picker_free(tn_picker *p); /* takes NULL */

/* A token from logits (vocab), u in [0,1). First top_k, then top_p of what is left, then the draw; of equal logits the
 * lower ids come first, so that exactly top_k stay. A token at -inf is never taken.
 * TN_DIVERGED: a logit is NaN or +inf, or all are -inf. TN_USAGE: options out of range. */
tn_status tn_pick(tn_picker *p, const tn_pick_options *o, const float *logits, double u, int32_t *id);

/* Number `index` of a stream, in [0,1) with 53 bits. */
double tn_pick_uniform(tn_rng r, uint64_t index);

#endif
