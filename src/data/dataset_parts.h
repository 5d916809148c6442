/* Shared by dataset.c and dataset_raw.c. */
#ifndef TN_DATA_DATASET_PARTS_H
#define TN_DATA_DATASET_PARTS_H

#include "data/dataset.h"

/* Tokens that lie together: a shard, or raw text; in memory, or in a file, where they are read whenever they are asked for. */
typedef struct tn_extent {
    const tn_file *file;    /* NULL: all in memory */
    const void *items;      /* (tokens), or NULL: they are in the file, */
    uint64_t items_at;      /* from this byte on */
    const uint64_t *starts; /* (documents + 1), from 0; or NULL: likewise, */
    uint64_t table_at;      /* from here; arrays: labels (documents) */
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
    tn_file file;                   /* raw, a plain text of bytes */
    unsigned char *text[TN_SPLITS]; /* raw, in memory */
    tn_tokens ids[TN_SPLITS];       /* raw, tokenized */
    uint64_t *starts[TN_SPLITS];    /* raw: tables of documents */
    char path[TN_PATH_BYTES];
};

tn_status tn__dataset_open_raw(tn_dataset *d, const tn_dataset_options *o);

#endif
