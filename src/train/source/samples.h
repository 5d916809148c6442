/* A set of samples as a source of batches: the training part in another order each epoch, the last batch of an epoch as
 * short as it comes; a held-out part in its own order. */
#ifndef TN_TRAIN_SOURCES_SAMPLES_H
#define TN_TRAIN_SOURCES_SAMPLES_H

#include "tasks/task.h"
#include "train/source/source.h"

/* Opened and started; the samples are borrowed, the seed is that of the orders. */
tn_status tn_source_samples_open(const tn_samples *set, uint64_t seed, const tn_source_start *how, tn_source *out);

#endif
