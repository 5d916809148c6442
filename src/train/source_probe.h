/* A probe as a source of batches: made in the call that hands them out. The number of the next batch is the whole cursor. */
#ifndef TN_TRAIN_SOURCE_PROBE_H
#define TN_TRAIN_SOURCE_PROBE_H

#include "tasks/probe.h"
#include "train/source.h"

typedef struct tn_source_probe_options {
    const tn_probe *probe; /* borrowed */
    int64_t batch;
    uint64_t seed; /* of the training sequences */
    tn_data_split heldout;
} tn_source_probe_options;

/* `next` counts all tokens of its sequences, `heldout` the questions. */
tn_status tn_source_probe_open(const tn_source_probe_options *o, tn_source *out); /* tn_source_close */

#endif
