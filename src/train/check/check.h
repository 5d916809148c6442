/* Checks a model: gradients against the loss, causality, overfitting one batch, determinism, allocations in a step, memory against its
 * plan, speed, decay rates. Results are rows; nothing is printed here. */
#ifndef TN_TRAIN_CHECK_H
#define TN_TRAIN_CHECK_H

#include "train/source/source.h"

typedef enum tn_verdict { TN_PASS, TN_FAILED, TN_SKIPPED } tn_verdict;

typedef struct tn_check_row {
    const char *name; /* "gradients", "leak", ... */
    tn_verdict verdict;
    char detail[320];
    double value; /* the measured quantity, NaN where there is none */
    const char *unit;
    double seconds;
    const float *values; /* (n_values): what was found step by step; valid during the call, or NULL */
    int64_t n_values;
} tn_check_row;

typedef struct tn_check {
    const tn_model *model;
    const tn_settings *settings;
    int64_t batch, length;   /* B, T */
    const tn_source *source; /* of data to check it with, not started; NULL, or an empty one: made-up numbers */
    const char *only;        /* names with commas, or NULL: all */
    double overfit_s;        /* the most time of overfit; 0: 25 s */
    const char *step;        /* the only one of the model's steps that trains; NULL: those that it chooses */
    void *ctx;
    void (*row)(void *ctx, const tn_check_row *r); /* as each is known */
} tn_check;

/* TN_OK when all pass or are skipped; TN_DIVERGED when one failed (the row says what); other codes: could not run. */
tn_status tn_check_run(const tn_check *c);

/* Compares outputs, loss, gradients and training losses by name with a file another implementation wrote
 * (docs/against.md). The settings in the file come first, `settings` were resolved with them. Rows as above. */
tn_status tn_check_against(const tn_check *c, const char *path);

#endif
