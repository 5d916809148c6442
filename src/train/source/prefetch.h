/* Batches prefetched by a thread, for sources that allow it (tn_source.ahead). Batches, cursors and marks are the same
 * as without. */
#ifndef TN_TRAIN_SOURCES_PREFETCH_H
#define TN_TRAIN_SOURCES_PREFETCH_H

#include "train/source/source.h"

typedef struct tn_prefetch tn_prefetch;

/* Up to `depth` batches of a source that was started so. */
tn_status tn_prefetch_new(const tn_source *s, const tn_source_start *how, int depth, tn_prefetch **out);
size_t tn_prefetch_bytes(const tn_inputs *in, int64_t batch, int64_t length, int depth);
void tn_prefetch_free(tn_prefetch *a); /* takes NULL; waits for a batch that is being filled */

tn_status tn_prefetch_next(tn_prefetch *a, int64_t step, const tn_feeder *to, int64_t *count);
void tn_prefetch_mark(tn_prefetch *a, tn_source_mark *out);
/* The source is where the run is, and stays there until the next batch is asked for: before it is saved, moved or looked at.
 * last: one batch back, whose inputs are made once more into buffers, so that the source can describe it. */
tn_status tn_prefetch_sync(tn_prefetch *a, bool last);
/* The thread stands still in between: held-out batches use the same source. So it does until the next batch is asked for. */
void tn_prefetch_pause(tn_prefetch *a);
void tn_prefetch_resume(tn_prefetch *a);
void tn_prefetch_trace(tn_prefetch *a, struct tn_tracer *to);

#endif
