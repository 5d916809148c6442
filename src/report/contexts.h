/* A trained model at other contexts than its own: held-out loss, training speed and planned memory for each. The
 * weights are those of a store; they are scored first and trained on afterwards, a little, so that speed is that of
 * real steps. */
#ifndef TN_REPORT_CONTEXTS_H
#define TN_REPORT_CONTEXTS_H

#include "train/source/text.h"

typedef struct tn_context_row {
    int64_t context, batch;
    double loss, bits;   /* held out, nats per token; bits per byte of one. NaN: not measured */
    int64_t scored;      /* tokens of the held-out part */
    double tokens_per_s; /* of training steps; NaN: not measured */
    int steps;           /* that were timed; 1 where a step takes long, and then it is the first, which may be slower */
    size_t bytes;        /* planned, for training; 0: not known */
    char why[256];       /* it cannot be measured: the reason */
} tn_context_row;

typedef struct tn_contexts {
    const tn_model *model;
    const tn_settings *settings; /* of the trained model; borrowed */
    tn_store *store;             /* its tensors; steps change them */
    const tn_dataset *data;
    tn_loader_mode mode;
    int64_t tokens;      /* of a step: batch x context, one sequence at least */
    int64_t score;       /* held-out tokens to score at each context, where there are so many; 0: all */
    tn_data_split split; /* that is scored */
    bool loss_only;      /* no training steps: speed and memory stay unknown */
    double budget_s;     /* a step that takes longer is timed once */
    void *ctx;
    void (*progress)(void *ctx, const char *what, int64_t context);
    bool (*interrupted)(void *ctx);
} tn_contexts;

/* Fills n rows, whose `context` is set. What does not fit the machine, the model or, where the loss is all, the text says why in its row;
 * TN_INTERRUPTED leaves the rest NaN. */
tn_status tn_contexts_measure(const tn_contexts *o, tn_context_row *rows, size_t n);

#endif
