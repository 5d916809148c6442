/* A probe as a source of batches: made in the call that hands them out. The number of the next batch is the whole cursor. */
#ifndef TN_TRAIN_SOURCES_PROBE_H
#define TN_TRAIN_SOURCES_PROBE_H

#include "tasks/probe.h"
#include "train/source/source.h"

/* Opened and started; the probe is borrowed, the seed is that of the training sequences. `next` counts all tokens of its sequences, `heldout`
 * the questions. */
tn_status tn_source_probe_open(const tn_probe *p, uint64_t seed, const tn_source_start *how, tn_source *out);

#endif
