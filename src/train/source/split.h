/* A batch of the source as several smaller ones for the trainer (plan.microbatches): the rows, their order, cursors and marks are those
 * of the whole batch. Held-out batches are made small to begin with. */
#ifndef TN_TRAIN_SOURCES_SPLIT_H
#define TN_TRAIN_SOURCES_SPLIT_H

#include "train/source/source.h"

typedef struct tn_split tn_split;

/* Of a source that was started so, with how->microbatches > 1; it fills the memory of a whole batch. */
tn_status tn_split_new(const tn_source *s, const tn_source_start *how, tn_split **out);
size_t tn_split_bytes(const tn_inputs *in, const tn_source_start *how);
void tn_split_free(tn_split *p); /* takes NULL */

/* The next part of a batch; where the last was handed out, `next` fills another whole one. *count: of all that the batch counts, what falls
 * to this part. */
typedef tn_status tn_split_next_batch(void *ctx, int64_t step, const tn_feeder *to, int64_t *count);
tn_status tn_split_next(tn_split *p, tn_split_next_batch *next, void *ctx, int64_t step, const tn_feeder *to,
                        int64_t *count);
/* Of the part handed out last: its weight among those of its batch (1 where they have as many labels each), what the whole batch counts,
 * and which row of it is row `row` of the part. */
float tn_split_weight(const tn_split *p);
int64_t tn_split_count(const tn_split *p);
int64_t tn_split_row(const tn_split *p, int64_t row);
void tn_split_forget(tn_split *p); /* the source was moved: the next part is the first of another batch */
const tn_source *tn_split_heldout(const tn_split *p); /* NULL: there is no held-out split */

#endif
