/* A set of samples as a source of batches: the training part in another order each epoch, the last batch of an epoch as
 * short as it comes; a held-out part in its own order. */
#ifndef TN_TRAIN_SOURCE_TASK_H
#define TN_TRAIN_SOURCE_TASK_H

#include "tasks/task.h"
#include "train/source.h"

typedef struct tn_source_task_options {
    const tn_samples *samples; /* borrowed */
    int64_t batch;
    uint64_t seed;         /* of the orders */
    tn_data_split heldout; /* an empty one: no held-out batches */
    bool heldout_only;     /* no training batches */
} tn_source_task_options;

tn_status tn_source_task_open(const tn_source_task_options *o, tn_source *out); /* tn_source_close */
/* Batches of an epoch. */
int64_t tn_source_task_batches(const tn_samples *set, int64_t batch);

#endif
