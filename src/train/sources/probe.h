/* A probe as a source of batches: made in the call that hands them out. The number of the next batch is the whole cursor. */
#ifndef TN_TRAIN_SOURCES_PROBE_H
#define TN_TRAIN_SOURCES_PROBE_H

#include "tasks/probe.h"
#include "train/sources/source.h"

typedef struct tn_source_probe_options {
    const tn_probe *probe; /* borrowed */
    uint64_t seed;         /* of the training sequences */
} tn_source_probe_options;

/* Opened and started. `next` counts all tokens of its sequences, `heldout` the questions. */
tn_status tn_source_probe_open(const tn_source_probe_options *o, const tn_source_start *how, tn_source *out);

#endif
