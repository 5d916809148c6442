/* Batches made ahead by a thread, for sources that make them in the call (tn_source.ahead). The batches, cursors and marks are those of the
 * source alone. */
#ifndef TN_TRAIN_SOURCES_AHEAD_H
#define TN_TRAIN_SOURCES_AHEAD_H

#include "train/source/source.h"

typedef struct tn_ahead tn_ahead;

/* Up to `depth` batches of a source that was started so. */
tn_status tn_ahead_new(const tn_source *s, const tn_source_start *how, int depth, tn_ahead **out);
size_t tn_ahead_bytes(const tn_inputs *in, int64_t batch, int64_t length, int depth);
void tn_ahead_free(tn_ahead *a); /* takes NULL; waits for a batch that is being filled */

tn_status tn_ahead_next(tn_ahead *a, int64_t step, const tn_feeder *to, int64_t *count);
void tn_ahead_mark(tn_ahead *a, tn_source_mark *out);
/* The source is where the run is, and stays there until the next batch is asked for: before it is saved, moved or looked at.
 * last: one batch back, whose inputs are made once more into buffers, so that the source can describe it. */
tn_status tn_ahead_settle(tn_ahead *a, bool last);
/* The thread stands still in between: held-out batches use the same source. */
void tn_ahead_pause(tn_ahead *a);
void tn_ahead_go_on(tn_ahead *a);

#endif
