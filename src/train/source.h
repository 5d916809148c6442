/* Where a training run gets its batches: a struct of functions between the loop and its data, so that a loader can be
 * plugged in without the loop knowing it. A source counts for itself how far it is; its cursor, a JSON object that only
 * it understands, goes into every checkpoint, and a source that loaded it goes on with the very next batch. */
#ifndef TN_TRAIN_SOURCE_H
#define TN_TRAIN_SOURCE_H

#include "data/bytes.h"

#include <jansson.h>

typedef struct tn_source {
    void *ctx;
    /* tokens, labels: (B,T). Inside a step: no allocation, no file. */
    tn_status (*next)(void *ctx, int32_t *tokens, int32_t *labels);
    /* Batch i of the held-out part: always the same, whatever came before. */
    tn_status (*heldout)(void *ctx, int64_t i, int32_t *tokens, int32_t *labels);
    json_t *(*save)(void *ctx); /* a new object; NULL: out of memory */
    /* TN_USAGE: the data are not those the cursor is for. */
    tn_status (*load)(void *ctx, const json_t *cursor);
} tn_source;

/* Text as bytes, in windows at random places that depend on the seed and the number of the batch only. */
typedef struct tn_bytes_source {
    const tn_bytes *data; /* borrowed */
    uint64_t seed;
    int64_t batch, length; /* B, T */
    int64_t at;            /* batches given */
} tn_bytes_source;

tn_source tn_source_of_bytes(tn_bytes_source *b); /* borrows b */

#endif
