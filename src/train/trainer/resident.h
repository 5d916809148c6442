/* Samples that stay in the memory of the device that trains (opt.resident_samples): a training set that is the same in every epoch is
 * put there once, and training plans take the rows of a batch out of it by number (take_samples). The host then fills, and a step
 * uploads, the numbers alone. What changes from step to step, and evaluations, are fed as ever.
 *
 *     tn_trainer_options.resident -> tn_trainer_new decides -> tn_trainer_load_samples, before the first step */
#ifndef TN_TRAIN_RESIDENT_H
#define TN_TRAIN_RESIDENT_H

#include "base/status.h"
#include "train/trainer/inputs.h"

enum { TN_RESIDENT_PARTS = 4 };

/* What one input is taken from. */
typedef struct tn_resident_part {
    const char *input;
    tn_dtype stored; /* TN_U8 (f32 of it: times scale), or the input's own */
    float scale;
    int64_t each; /* numbers of a sample */
    bool counts;  /* batches have it nevertheless: whoever cuts them counts its numbers */
} tn_resident_part;

/* By a source: what of its training samples is the same in every step. */
typedef struct tn_resident {
    int64_t samples;
    /* inputs that say which sample a row is (i32, B), and how many rows are valid (i32, 1) */
    const char *number, *valid;
    tn_resident_part part[TN_RESIDENT_PARTS]; /* (n) */
    size_t n;
    const void *data;
    /* the stored numbers of training sample 0, 1, ... */
    void (*read)(const void *data, size_t part, int64_t sample, void *to);
} tn_resident;

double tn_resident_bytes(const tn_resident *r);

/* Whether `samples` bytes may stay unasked beside what needs `need` of `limit` bytes: in a tenth of what is left. */
bool tn_resident_fits(double samples, double need, double limit);

/* Marks the inputs that are taken from the set; false: it does not hold what the model reads. */
bool tn_resident_mark(const tn_resident *r, int64_t length, tn_inputs *in);

#endif
