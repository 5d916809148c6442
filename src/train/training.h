/* The training run: steps, evaluation and metrics over a trainer and its data. Knows nothing of terminals: what it has
 * to say goes to the caller's functions and, line by line, to a metrics file. */
#ifndef TN_TRAIN_TRAINING_H
#define TN_TRAIN_TRAINING_H

#include "data/bytes.h"
#include "io/jsonl.h"
#include "train/trainer.h"

typedef struct tn_progress_report {
    int64_t step, steps; /* done so far, of how many */
    double loss;         /* of this step, nats per token */
    double heldout;      /* nats per token at the last evaluation; NaN before the first */
    bool evaluated;      /* `heldout` is new */
    double lr, grad_norm, tokens_per_s, seconds;
    tn_guard_action action;
} tn_progress_report;

typedef struct tn_training {
    tn_trainer *trainer;
    const tn_settings *settings;
    const tn_bytes *data;
    tn_jsonl *metrics; /* or NULL */
    int64_t batch, length;
    void *ctx;
    void (*report)(void *ctx, const tn_progress_report *r); /* after every step, or NULL */
    bool (*interrupted)(void *ctx);                         /* asked between steps, or NULL */
} tn_training;

/* Runs train.steps steps and a last evaluation. TN_DIVERGED and TN_INTERRUPTED end it early; *last is always filled. */
tn_status tn_training_run(const tn_training *t, tn_progress_report *last);
/* Mean held-out loss over train.eval_batches batches. */
tn_status tn_training_evaluate(const tn_training *t, double *loss);

#endif
