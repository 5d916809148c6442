/* Where prepared documents and samples go: the open shard of each split, a new one when it is full, and their rows in the
 * manifest. Also decides which split a document belongs to. */
#ifndef TN_DATA_SINK_H
#define TN_DATA_SINK_H

#include "data/manifest.h"

typedef struct tn_sink {
    const char *dir;
    tn_manifest *manifest; /* kind, item, vocab, eot, rank and dims are set before the first put */
    uint64_t shard_tokens, seed;
    double valid_frac, test_frac;
    uint64_t samples; /* arrays: put so far, whatever the split */
    tn_shard_writer *open[TN_SPLITS];
} tn_sink;

/* By the document's first 64 KiB, so that copies of a document never part. */
tn_data_split tn_sink_split(const tn_sink *k, const void *head, size_t bytes);
/* By number, for samples. */
tn_data_split tn_sink_split_number(const tn_sink *k, uint64_t number);
/* A piece of a document: first begins one (with the eot token where there is one). Pieces of one document come in a row
 * within their split. */
tn_status tn_sink_tokens(tn_sink *k, tn_data_split split, bool first, const int32_t *ids, size_t n, uint64_t text_bytes);
tn_status tn_sink_sample(tn_sink *k, tn_data_split split, const void *features, int32_t label);
tn_status tn_sink_finish(tn_sink *k);
void tn_sink_abort(tn_sink *k);

#endif
