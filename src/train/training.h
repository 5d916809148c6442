/* The training run: steps, evaluation, metrics and checkpoints over a trainer and its data. Knows nothing of terminals:
 * what it has to say goes to the caller's functions and, line by line, to a metrics file. */
#ifndef TN_TRAIN_TRAINING_H
#define TN_TRAIN_TRAINING_H

#include "io/jsonl.h"
#include "train/checkpoint.h"
#include "train/source.h"
#include "train/trainer.h"

typedef struct tn_progress_report {
    int64_t step, steps; /* done so far, of how many */
    double loss;         /* of this step, nats per token */
    double heldout;      /* nats per token at the last evaluation; NaN before the first */
    bool evaluated;      /* `heldout` is new */
    bool stopped;        /* early: train.stop_patience */
    double lr, grad_norm, tokens_per_s, seconds;
    tn_guard_action action;
} tn_progress_report;

typedef struct tn_training {
    tn_trainer *trainer;
    const tn_settings *settings;
    const tn_source *source;
    tn_jsonl *metrics; /* or NULL */
    const char *dir;   /* of the run: checkpoints go there; NULL: none are made */
    int64_t batch, length;
    void *ctx;
    void (*report)(void *ctx, const tn_progress_report *r); /* after every step, or NULL */
    bool (*interrupted)(void *ctx);                         /* asked between steps, or NULL */
} tn_training;

/* Runs to train.steps and a last evaluation, from the beginning (from = NULL) or from a checkpoint whose tensors, guard
 * and cursor are loaded already. A run with a directory saves as ckpt.* says and at its end. TN_DIVERGED and
 * TN_INTERRUPTED (after saving) end it early; *last is always filled. */
tn_status tn_training_run(const tn_training *t, const tn_ckpt_state *from, tn_progress_report *last);
/* Mean held-out loss over train.eval_batches batches. */
tn_status tn_training_evaluate(const tn_training *t, double *loss);
/* Nothing is left to do: all steps are done, or train.stop_patience ended it. */
bool tn_training_finished(const tn_settings *st, const tn_ckpt_state *state);
/* What a run that stands at this checkpoint last reported. */
tn_progress_report tn_training_report_at(const tn_settings *st, const tn_ckpt_state *state);

#endif
