/* A trained model under a trainer with another batch and context, on the tensors of its store. */
#ifndef TN_REPORT_AT_CONTEXT_H
#define TN_REPORT_AT_CONTEXT_H

#include "train/trainer/trainer.h"

typedef struct tn_at_context_options {
    const tn_model *model;
    const tn_settings *settings; /* of the trained model; borrowed */
    tn_store *store;             /* its tensors */
    int64_t batch, context;
    bool trains;    /* with gradients: steps change the tensors */
    bool documents; /* rows have marks of where documents start */
    bool nll;       /* evaluations put out the loss label by label */
} tn_at_context_options;

typedef struct tn_at_context {
    tn_settings *settings;
    tn_trainer *trainer;
} tn_at_context;

/* Only train.context differs from the settings of the run, and never below it, so that tables of positions keep
 * their length. TN_USAGE: the model has no such context (its learned positions end before it). */
tn_status tn_at_context_open(const tn_at_context_options *o, tn_at_context *out);
void tn_at_context_close(tn_at_context *a); /* takes a zeroed one */

#endif
