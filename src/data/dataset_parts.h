/* Inside of a data set; for dataset.c and dataset_raw.c only. */
#ifndef TN_DATA_DATASET_PARTS_H
#define TN_DATA_DATASET_PARTS_H

#include "data/dataset.h"

/* Tokens that lie together: a shard, or raw text. */
typedef struct tn_extent {
    const void *items;
    const uint64_t *starts; /* (documents + 1), from 0 */
    const int32_t *labels;
    uint64_t tokens, documents;
    uint64_t first_token, first_document; /* of the split */
    const char *path;
} tn_extent;

typedef struct tn_split_extents {
    tn_extent *v; /* (n) */
    size_t n;
    tn_dataset_counts counts;
} tn_split_extents;

struct tn_dataset {
    tn_dataset_info info;
    tn_split_extents split[TN_SPLITS];
    tn_manifest manifest; /* prepared */
    tn_shard *shards;     /* (shard_n) */
    size_t shard_n;
    tn_map map;                     /* raw, mapped */
    unsigned char *text[TN_SPLITS]; /* raw, in memory */
    tn_tokens ids[TN_SPLITS];       /* raw, tokenized */
    uint64_t *starts[TN_SPLITS];    /* raw: tables of documents */
    char path[TN_PATH_BYTES];
};

tn_status tn__dataset_open_raw(tn_dataset *d, const tn_dataset_options *o);

#endif
