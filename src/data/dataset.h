/* A data set: a prepared folder, or raw text as bytes or tokens (a plain .txt read as bytes stays in its file; other
 * text is read, and tokenized, into memory if it is small). Any number of threads may read one. Files are read, not
 * mapped: one that is truncated meanwhile is TN_BAD_FILE.
 *
 * A split is a list of documents, each a list of tokens; positions count the tokens of a split from 0 across its
 * shards. File contents are checked before use: damage fails the call that meets it with TN_BAD_FILE. */
#ifndef TN_DATA_DATASET_H
#define TN_DATA_DATASET_H

#include "base/hash.h"
#include "data/manifest.h"
#include "token/tokenizer.h"

enum { TN_DATASET_RAW_BYTES = 512 << 20 }; /* of text held in memory; more has to be prepared */

typedef struct tn_dataset tn_dataset;

typedef struct tn_dataset_options { /* for raw text only; NULL or zeros: none held out, a file is a document */
    double holdout_frac;            /* one document: its end is held out; several: whole documents (into "valid") */
    double test_frac; /* another part beside it, at the very end or other documents (into "test"); 0: none */
    uint64_t window;  /* one document as bytes: each part gets so many at least, or the open fails; 0: any */
    const char *doc_sep, *text_key; /* see documents.h */
    const char *tokenizer;          /* for tn_tokenizer_open; NULL or "": bytes */
    uint64_t seed;
    bool content; /* info.content is wanted: all of the text is read for it */
} tn_dataset_options;

typedef struct tn_dataset_info {
    tn_shard_kind kind;
    bool is_raw;
    int64_t vocab;
    int32_t eot; /* every document begins with it and is followed by it; -1: none */
    tn_item item;
    int rank; /* arrays: shape of a sample, its size, number of classes */
    int64_t dims[TN_SHARD_RANK_MAX], sample, classes;
    char tokenizer[TN_PATH_BYTES]; /* for tn_tokenizer_open; "" where it is not known */
    char fingerprint[40];          /* of what a prepared one was made from; "" for raw text */
    char content[TN_HASH_BYTES];   /* of the tokens, whatever files they came from; "" where it was not asked for */
} tn_dataset_info;

typedef struct tn_dataset_counts {
    uint64_t documents, tokens; /* arrays: samples, features */
    uint64_t text_bytes;        /* of the original text, for bits per byte; 0: not known */
} tn_dataset_counts;

tn_status tn_dataset_open(const char *path, const tn_dataset_options *o, tn_dataset **out);
void tn_dataset_close(tn_dataset *d); /* takes NULL */
/* Reads every byte of a prepared data set: hashes of shards, tables, ids, labels, and its tokenizer. */
tn_status tn_dataset_verify(const tn_dataset *d);

size_t tn_dataset_bytes(
    const tn_dataset *d); /* memory it takes: text, tokens and tables of documents that are not left in files */
const tn_dataset_info *tn_dataset_about(const tn_dataset *d);
tn_dataset_counts tn_dataset_count(const tn_dataset *d, tn_data_split split);
/* Document i of the split: its first position and its number of tokens, 1 or more. */
tn_status tn_dataset_document(const tn_dataset *d, tn_data_split split, uint64_t i, uint64_t *start, uint64_t *tokens);
/* The document that holds a position. */
tn_status tn_dataset_find(const tn_dataset *d, tn_data_split split, uint64_t position, uint64_t *document);
/* ids (n) from a position on; they may cross documents and shards. */
tn_status tn_dataset_read(const tn_dataset *d, tn_data_split split, uint64_t position, size_t n, int32_t *ids);
/* Sample i of arrays: features (sample) times scale. */
tn_status tn_dataset_sample(const tn_dataset *d, tn_data_split split, uint64_t i, float scale, float *features,
                            int32_t *label);

#endif
