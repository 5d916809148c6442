/* Where prepared documents and samples go: the open shard of each split, a new one when it is full, and their rows in
 * the manifest. Also which split a document belongs to. */
#ifndef TN_DATA_SINK_H
#define TN_DATA_SINK_H

#include "data/manifest.h"

/* Which split a document or sample belongs to: by chance, from the seed and a hash of its first 64 KiB, so that copies of a
 * document stay together. The first always trains, and where nothing has fallen to a split that should have had one by now,
 * the next does: small data sets have every split. Depends on the documents before it, never on threads. */
typedef struct tn_splitter {
    uint64_t seed;
    double frac[3]; /* by split; frac[TN_TRAIN] is not used */
    uint64_t seen, given[3];
} tn_splitter;

tn_data_split tn_splitter_document(tn_splitter *p, const void *head, size_t bytes);
tn_data_split tn_splitter_sample(tn_splitter *p); /* by its number */

typedef struct tn_sink {
    const char *dir;
    tn_manifest *manifest; /* kind, item, vocab, eot, rank and dims are set before the first put */
    uint64_t shard_tokens;
    tn_shard_writer *open[TN_SPLITS];
} tn_sink;

/* A piece of a document: first begins one (with the eot token where there is one). Pieces of one document come in a row
 * within their split. */
tn_status tn_sink_tokens(tn_sink *k, tn_data_split split, bool first, const int32_t *ids, size_t n,
                         uint64_t text_bytes);
tn_status tn_sink_sample(tn_sink *k, tn_data_split split, const void *features, int32_t label);
tn_status tn_sink_finish(tn_sink *k);
void tn_sink_abort(tn_sink *k);

#endif
