/* Shards are cut only between documents: a document is in one shard, however long it is. */
#include "data/sink.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 64 << 10 };

static tn_data_split decide(tn_splitter *p, uint64_t stream, uint64_t index)
{
    const double u = (double)tn_rng_uniform((tn_rng){ p->seed, stream }, index);
    tn_data_split k = u < p->frac[TN_VALID] ? TN_VALID : u < p->frac[TN_VALID] + p->frac[TN_TEST] ? TN_TEST : TN_TRAIN;
    const double n = (double)++p->seen;
    for (int i = TN_TEST; i >= TN_VALID; i--)
        if (p->given[i] == 0 && n * p->frac[i] >= 1) k = (tn_data_split)i;
    if (p->seen == 1) k = TN_TRAIN;
    p->given[k]++;
    return k;
}

tn_data_split tn_splitter_document(tn_splitter *p, const void *head, size_t bytes)
{
    char hex[TN_HASH_BYTES];
    if (p->frac[TN_VALID] + p->frac[TN_TEST] <= 0) return TN_TRAIN;
    tn_hash_memory(head, bytes < HEAD_BYTES ? bytes : HEAD_BYTES, hex);
    hex[16] = 0;
    return decide(p, strtoull(hex, NULL, 16), 0);
}

tn_data_split tn_splitter_sample(tn_splitter *p) { return decide(p, tn_rng_stream("data.split"), p->seen); }

static tn_status close_shard(tn_sink *k, tn_data_split split)
{
    char name[32];
    tn_shard_info info;
    tn_shard_writer *w = k->open[split];
    k->open[split] = NULL;
    if (!w) return TN_OK;
    TN_RETURN_IF(tn_shard_writer_finish(w, &info));
    const bool tokens = info.kind == TN_SHARD_TOKENS;
    const uint64_t items = (info.tokens * tn_item_bytes(info.item) + 7) / 8 * 8;
    const uint64_t table = tokens ? 8 * (info.documents + 1) : 4 * info.documents;
    snprintf(name, sizeof name, "%s-%05zu.bin", tn_data_split_names[split], k->manifest->split[split].n);
    return tn_manifest_add(k->manifest, split, name, TN_SHARD_HEADER_BYTES + items + table, &info);
}

static tn_status open_shard(tn_sink *k, tn_data_split split)
{
    char name[32], path[TN_PATH_BYTES];
    const tn_manifest *m = k->manifest;
    tn_shard_info info = { .kind = m->kind, .item = m->item, .rank = m->rank, .vocab = (uint64_t)m->vocab };
    memcpy(info.dims, m->dims, sizeof info.dims);
    snprintf(name, sizeof name, "%s-%05zu.bin", tn_data_split_names[split], m->split[split].n);
    TN_RETURN_IF(tn_path_join(k->dir, name, path, sizeof path));
    return tn_shard_writer_open(path, &info, &k->open[split]);
}

/* The split's shard with room for one more document. */
static tn_status next_shard(tn_sink *k, tn_data_split split)
{
    uint64_t documents;
    if (k->open[split] &&
        (tn_shard_writer_count(k->open[split], &documents) >= k->shard_tokens || documents >= TN_SHARD_DOCUMENTS_MAX))
        TN_RETURN_IF(close_shard(k, split));
    return k->open[split] ? TN_OK : open_shard(k, split);
}

tn_status tn_sink_tokens(tn_sink *k, tn_data_split split, bool first, const int32_t *ids, size_t n, uint64_t text_bytes)
{
    if (first) {
        TN_RETURN_IF(next_shard(k, split));
        TN_RETURN_IF(tn_shard_writer_document(k->open[split], text_bytes));
        if (k->manifest->eot >= 0) TN_RETURN_IF(tn_shard_writer_tokens(k->open[split], &k->manifest->eot, 1));
    } else tn_shard_writer_text(k->open[split], text_bytes);
    return tn_shard_writer_tokens(k->open[split], ids, n);
}

tn_status tn_sink_sample(tn_sink *k, tn_data_split split, const void *features, int32_t label)
{
    TN_RETURN_IF(next_shard(k, split));
    return tn_shard_writer_sample(k->open[split], features, label);
}

tn_status tn_sink_finish(tn_sink *k)
{
    for (int i = 0; i < TN_SPLITS; i++) TN_RETURN_IF(close_shard(k, (tn_data_split)i));
    return TN_OK;
}

void tn_sink_abort(tn_sink *k)
{
    for (int i = 0; i < TN_SPLITS; i++) {
        tn_shard_writer_abort(k->open[i]);
        k->open[i] = NULL;
    }
}
