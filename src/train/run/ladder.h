/* What a run does without the memory it needs, one rung after the other (train.memory=ladder):
 *
 *   1. batches in more parts (plan.microbatches), down to parts of one row: the same rows, the same step up to rounding (wire: nearly)
 *   2. activations are computed again (plan.recompute=layer): bit-identical
 *   3. what the model gives up (tn_model.gives_up), in its order: another loss; the old values are kept in train.dropped
 *
 * All of it is settings, so config.yaml has it. Below the last rung the run ends (TN_MEMORY). */
#ifndef TN_TRAIN_LADDER_H
#define TN_TRAIN_LADDER_H

#include "train/trainer/trainer.h"

enum { TN_LADDER_LINES = 8, TN_LADDER_LINE = 200 };

/* What was done in this process, a line for each kind of rung: "38 GB of 24 GB: micro-batch 64 -> 16, accumulate 1 -> 4". */
typedef struct tn_ladder {
    char line[TN_LADDER_LINES][TN_LADDER_LINE];
    size_t n;
    size_t changed;  /* the first line that is new since the run began, or since the last failure */
    int64_t parts;   /* plan.microbatches before the first line about it, */
    size_t parts_at; /* which is that one; counted from 1, 0: there is none */
    char of[64];     /* its "38 GB of 24 GB: ", or "" */
} tn_ladder;

typedef struct tn_ladder_step {
    const tn_model *model;
    int64_t batch;      /* rows of the run's batch */
    bool whole_batch;   /* it cannot be cut: episodes of an environment */
    bool gives_up;      /* rung 3 is allowed */
    tn_refusal refusal; /* why */
} tn_ladder_step;

bool tn_ladder_on(const tn_settings *st); /* train.memory=ladder */
/* One rung down. TN_MEMORY, with the error's text as it was and what has been tried: there is none. */
tn_status tn_ladder_lower(tn_ladder *l, const tn_ladder_step *how, tn_settings *st);
/* All lines in one, divided by "; ". */
const char *tn_ladder_text(const tn_ladder *l, char *buf, size_t bytes);

/* A run that goes on stays on the rung that it had, and the command may be lower: now gets the lower one of both. *lowered: it changed. */
tn_status tn_ladder_keep(tn_settings *now, const tn_settings *run, bool *lowered);
/* The settings as they were before anything was given up. */
tn_status tn_ladder_undo(tn_settings *st);

#endif
