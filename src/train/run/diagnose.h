/* What was wrong with a step whose loss or gradient was not finite: which batch, and the first tensor that had such a number. Found by
 * computing the step again with a look at every number (plan.h: tn_bound_check); an ordinary step pays nothing for it. */
#ifndef TN_TRAIN_DIAGNOSE_H
#define TN_TRAIN_DIAGNOSE_H

#include "train/run/training.h"

typedef struct tn_diagnosis {
    char tensor[640]; /* "the parameter embed, f32 (256,16): NaN at (3,4)" */
    char batch[400];  /* "batch 11 of epoch 0, row 1 from document 0 byte 812" */
} tn_diagnosis;

/* Right after the step (counted from 0), whose first batch came from *from; the update was refused. Parameters, states, gradients (zero)
 * and the source are afterwards what they were. Where steps that were queued behind it have changed the parameters, the number may not be
 * found again: `tensor` then says so. "" where the source cannot go back. */
tn_status tn_diagnose(const tn_training *t, const tn_source_mark *from, int64_t step, tn_diagnosis *out);

#endif
