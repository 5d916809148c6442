/* dataset.json, the manifest of a prepared data set: what it holds, which shards, their sizes and hashes, and what it was
 * made from. Written last; a folder without it is no data set. Reading checks every field and name before anything is used. */
#ifndef TN_DATA_MANIFEST_H
#define TN_DATA_MANIFEST_H

#include "base/alloc.h"
#include "data/shard.h"

#define TN_MANIFEST_NAME "dataset.json"
enum { TN_SPLITS = 3, TN_MANIFEST_VERSION = 1, TN_MANIFEST_BYTES_MAX = 64 << 20 };

typedef enum tn_data_split { TN_TRAIN = 0, TN_VALID = 1, TN_TEST = 2 } tn_data_split;
extern const char *const tn_data_split_names[TN_SPLITS];

typedef struct tn_manifest_shard {
    const char *file; /* a bare name beside the manifest */
    uint64_t bytes, documents, tokens;
    const char *hash; /* of what follows the shard's header */
} tn_manifest_shard;

typedef struct tn_manifest_split {
    tn_manifest_shard *shards; /* (n) */
    size_t n, capacity;
    uint64_t documents, tokens, text_bytes;
} tn_manifest_split;

typedef struct tn_manifest {
    tn_arena arena; /* owns the texts */
    tn_shard_kind kind;
    tn_item item;
    int64_t vocab, classes;
    int32_t eot; /* the token every document begins with, -1: none */
    int rank;
    int64_t dims[TN_SHARD_RANK_MAX];
    const char *tokenizer_kind; /* "bytes", "bpe", ..., "" for arrays and for tokens whose tokenizer is not known */
    const char *tokenizer_hash, *tokenizer_file; /* "" where there is none */
    const char *settings, *fingerprint;
    tn_manifest_split split[TN_SPLITS];
} tn_manifest;

tn_status tn_manifest_add(tn_manifest *m, tn_data_split split, const char *file, uint64_t file_bytes,
                          const tn_shard_info *info);
tn_status tn_manifest_write(const tn_manifest *m, const char *dir);
tn_status tn_manifest_read(const char *dir, tn_manifest *out);
void tn_manifest_free(tn_manifest *m);

/* Whether an entry may belong to a prepared folder (manifest, shards, tokenizer files, temporaries): a tn_tree_owns. */
bool tn_manifest_owns(const char *name, mode_t mode);

#endif
