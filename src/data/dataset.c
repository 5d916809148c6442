/* Reads prepared data sets. Opening compares every shard's header with the manifest; each read checks the table entries
 * and ids it uses. */
#include "data/dataset_parts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static tn_status mismatch(const tn_dataset *d, const char *file)
{
    return tn_error(TN_BAD_FILE,
                    "%.400s/%.64s is not the shard its manifest describes; prepare the data again (tenon data prepare)",
                    d->path, file);
}

static tn_status open_shard(tn_dataset *d, tn_data_split k, const tn_manifest_shard *m, tn_extent *e)
{
    char path[TN_PATH_BYTES];
    tn_shard *s = &d->shards[d->shard_n];
    const tn_manifest *all = &d->manifest;
    TN_RETURN_IF(tn_path_join(d->path, m->file, path, sizeof path));
    TN_RETURN_IF(tn_shard_open(path, s));
    d->shard_n++;
    const tn_shard_info *i = &s->info;
    bool same = i->kind == all->kind && i->item == all->item && i->documents == m->documents &&
                i->tokens == m->tokens && s->file.bytes == m->bytes && strcmp(i->hash, m->hash) == 0 &&
                i->rank == all->rank;
    same = same && (i->kind == TN_SHARD_ARRAYS ? (int64_t)i->classes <= all->classes : (int64_t)i->vocab == all->vocab);
    for (int r = 0; same && r < i->rank; r++) same = i->dims[r] == all->dims[r];
    if (!same) return mismatch(d, m->file);
    tn_dataset_counts *c = &d->split[k].counts;
    *e = (tn_extent){ .file = &s->file,
                      .items_at = s->items_at,
                      .table_at = s->table_at,
                      .tokens = i->tokens,
                      .documents = i->documents,
                      .first_token = c->tokens,
                      .first_document = c->documents,
                      .path = s->path };
    c->tokens += i->tokens;
    c->documents += i->documents;
    return TN_OK;
}

/* The manifest has a checksum of every shard, and the shards' headers have been compared with it. */
static tn_status hash_manifest(const tn_manifest *m, char hex[TN_HASH_BYTES])
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    if (m->tokenizer_hash) tn_hash_add(h, m->tokenizer_hash, strlen(m->tokenizer_hash) + 1);
    for (int k = 0; k < TN_SPLITS; k++) {
        for (size_t i = 0; i < m->split[k].n; i++)
            tn_hash_add(h, m->split[k].shards[i].hash, strlen(m->split[k].shards[i].hash) + 1);
        tn_hash_add(h, "", 1);
    }
    tn_hash_text(h, hex);
    tn_hash_free(h);
    return TN_OK;
}

static tn_status open_prepared(tn_dataset *d)
{
    size_t n = 0;
    TN_RETURN_IF(tn_manifest_read(d->path, &d->manifest));
    const tn_manifest *m = &d->manifest;
    d->info = (tn_dataset_info){ .kind = m->kind,
                                 .vocab = m->vocab,
                                 .eot = m->eot,
                                 .item = m->item,
                                 .rank = m->rank,
                                 .sample = 1,
                                 .classes = m->classes };
    memcpy(d->info.dims, m->dims, sizeof d->info.dims);
    snprintf(d->info.fingerprint, sizeof d->info.fingerprint, "%s", m->fingerprint);
    TN_RETURN_IF(hash_manifest(m, d->info.content));
    for (int i = 0; i < m->rank; i++)
        d->info.sample *= m->dims[i]; /* the shards' headers say the same, checked there */
    if (*m->tokenizer_file)
        TN_RETURN_IF(tn_path_join(d->path, m->tokenizer_file, d->info.tokenizer, sizeof d->info.tokenizer));
    else
        snprintf(d->info.tokenizer, sizeof d->info.tokenizer, "%s",
                 strcmp(m->tokenizer_kind, "bytes") == 0 ? "bytes" : "");
    for (int k = 0; k < TN_SPLITS; k++) n += m->split[k].n;
    d->shards = tn_alloc((n ? n : 1) * sizeof *d->shards);
    if (!d->shards) return TN_MEMORY;
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_split_extents *p = &d->split[k];
        p->v = tn_alloc((m->split[k].n ? m->split[k].n : 1) * sizeof *p->v);
        if (!p->v) return TN_MEMORY;
        for (; p->n < m->split[k].n; p->n++)
            TN_RETURN_IF(open_shard(d, (tn_data_split)k, &m->split[k].shards[p->n], &p->v[p->n]));
        p->counts.text_bytes = m->split[k].text_bytes;
    }
    return TN_OK;
}

tn_status tn_dataset_open(const char *path, const tn_dataset_options *o, tn_dataset **out)
{
    tn_status s = TN_OK;
    char manifest[TN_PATH_BYTES];
    struct stat info;
    const tn_dataset_options none = { 0 };
    tn_dataset *d = tn_alloc(sizeof *d);
    if (!d) return TN_MEMORY;
    TN_TRY(tn_path_join("", path, d->path, sizeof d->path));
    TN_TRY(tn_path_join(path, TN_MANIFEST_NAME, manifest, sizeof manifest));
    if (stat(manifest, &info) == 0) TN_TRY(open_prepared(d));
    else TN_TRY(tn__dataset_open_raw(d, o ? o : &none));
    *out = d;
    d = NULL;
done:
    tn_dataset_close(d);
    return s;
}

void tn_dataset_close(tn_dataset *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->shard_n; i++) tn_shard_close(&d->shards[i]);
    for (int k = 0; k < TN_SPLITS; k++) {
        tn_free(d->split[k].v);
        tn_free(d->text[k]);
        tn_tokens_free(&d->ids[k]);
        tn_free(d->starts[k]);
    }
    tn_file_close(&d->file);
    tn_free(d->shards);
    tn_manifest_free(&d->manifest);
    tn_free(d);
}

/* The tokenizer beside the shards is the one that made them. */
static tn_status verify_tokenizer(const tn_dataset *d)
{
    tn_tokenizer *t = NULL;
    char hex[24];
    if (d->info.is_raw || !d->info.tokenizer[0]) return TN_OK;
    TN_RETURN_IF(tn_tokenizer_open(d->info.tokenizer, &t));
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)tn_tokenizer_hash(t));
    const bool same = strcmp(hex, d->manifest.tokenizer_hash) == 0 && tn_tokenizer_vocab(t) == d->info.vocab;
    tn_tokenizer_free(t);
    if (same) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.640s: its tokenizer (%.64s) is not the one that made its tokens; prepare the data again (tenon "
                    "data prepare)",
                    d->path, *d->manifest.tokenizer_file ? d->manifest.tokenizer_file : "bytes");
}

tn_status tn_dataset_verify(const tn_dataset *d)
{
    TN_RETURN_IF(verify_tokenizer(d));
    for (size_t i = 0; i < d->shard_n; i++) TN_RETURN_IF(tn_shard_verify(&d->shards[i]));
    return TN_OK;
}

/* Of a text in one piece both parts lie in the first; room that grew in steps counts as what is in it. */
size_t tn_dataset_bytes(const tn_dataset *d)
{
    size_t n = d->shard_n * sizeof *d->shards;
    for (int k = 0; k < TN_SPLITS; k++) {
        const tn_dataset_counts *c = &d->split[k].counts;
        if (d->ids[k].ids) n += d->ids[k].capacity * sizeof *d->ids[k].ids;
        else if (d->info.is_raw && !d->file.is_open) n += c->tokens;
        if (d->starts[k]) n += (c->documents + 1) * sizeof *d->starts[k];
    }
    return n;
}

const tn_dataset_info *tn_dataset_about(const tn_dataset *d) { return &d->info; }

tn_dataset_counts tn_dataset_count(const tn_dataset *d, tn_data_split split) { return d->split[split].counts; }

/* The extent that holds token (or document) number x; the last one that begins at or before it. */
static const tn_extent *extent_of(const tn_split_extents *p, uint64_t x, bool by_document)
{
    size_t lo = 0, hi = p->n;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if ((by_document ? p->v[mid].first_document : p->v[mid].first_token) <= x) lo = mid;
        else hi = mid;
    }
    return &p->v[lo];
}

static tn_status bad_table(const tn_extent *e, uint64_t document)
{
    return tn_error(
        TN_BAD_FILE,
        "%.640s: the table places document %llu outside its tokens; the file is damaged, prepare the data again",
        e->path, (unsigned long long)document);
}

/* n rows of the table of documents from `from` on. */
static tn_status read_rows(const tn_extent *e, uint64_t from, size_t n, uint64_t *rows)
{
    if (!e->starts) return tn_file_read_at(e->file, e->path, e->table_at + from * sizeof *rows, rows, n * sizeof *rows);
    memcpy(rows, e->starts + from, n * sizeof *rows);
    return TN_OK;
}

tn_status tn_dataset_document(const tn_dataset *d, tn_data_split split, uint64_t i, uint64_t *start, uint64_t *tokens)
{
    const tn_split_extents *p = &d->split[split];
    if (i >= p->counts.documents || d->info.kind != TN_SHARD_TOKENS)
        return tn_error(TN_USAGE, "document %llu of %llu in %s of %.300s", (unsigned long long)i,
                        (unsigned long long)p->counts.documents, tn_data_split_names[split], d->path);
    const tn_extent *e = extent_of(p, i, true);
    const uint64_t k = i - e->first_document;
    uint64_t row[2];
    TN_RETURN_IF(read_rows(e, k, 2, row));
    if (row[0] >= row[1] || row[1] > e->tokens) return bad_table(e, k);
    *start = e->first_token + row[0];
    *tokens = row[1] - row[0];
    return TN_OK;
}

tn_status tn_dataset_find(const tn_dataset *d, tn_data_split split, uint64_t position, uint64_t *document)
{
    enum { NEAR = 256 };
    const tn_split_extents *p = &d->split[split];
    if (position >= p->counts.tokens || d->info.kind != TN_SHARD_TOKENS)
        return tn_error(TN_USAGE, "token %llu of %llu in %s of %.300s", (unsigned long long)position,
                        (unsigned long long)p->counts.tokens, tn_data_split_names[split], d->path);
    const tn_extent *e = extent_of(p, position, false);
    const uint64_t x = position - e->first_token;
    uint64_t lo = 0, hi = e->documents, row[NEAR + 1];
    while (hi - lo > NEAR) {
        const uint64_t mid = lo + (hi - lo) / 2;
        TN_RETURN_IF(read_rows(e, mid, 1, row));
        if (row[0] <= x) lo = mid;
        else hi = mid;
    }
    if (hi == 0) return bad_table(e, lo);
    TN_RETURN_IF(read_rows(e, lo, (size_t)(hi - lo) + 1, row)); /* the rest at once */
    uint64_t k = 0, n = hi - lo;
    while (n - k > 1) {
        const uint64_t mid = k + (n - k) / 2;
        if (row[mid] <= x) k = mid;
        else n = mid;
    }
    lo += k;
    if (row[k] > x || row[k + 1] <= x) return bad_table(e, lo);
    *document = e->first_document + lo;
    return TN_OK;
}

/* n ids from items; the largest of them. The items may lie in the last bytes of `ids` themselves: id i takes no byte of an item after
 * the i-th. */
static uint32_t widen(tn_item item, const unsigned char *items, size_t n, int32_t *ids)
{
    uint32_t most = 0;
    uint16_t h;
    uint32_t w;
    if (item == TN_ITEM_U8)
        for (size_t i = 0; i < n; i++) ids[i] = items[i];
    else if (item == TN_ITEM_U16)
        for (size_t i = 0; i < n; i++) {
            memcpy(&h, items + i * sizeof h, sizeof h);
            ids[i] = h;
            most = h > most ? h : most;
        }
    else
        for (size_t i = 0; i < n; i++) {
            memcpy(&w, items + i * sizeof w, sizeof w);
            ids[i] = (int32_t)w;
            most = w > most ? w : most;
        }
    return most;
}

/* n ids out of one extent, and the largest of them. */
static tn_status copy_ids(tn_item item, const tn_extent *e, uint64_t from, size_t n, int32_t *ids, uint32_t *most)
{
    const size_t each = tn_item_bytes(item);
    const unsigned char *items = (const unsigned char *)e->items + from * each;
    if (!e->items) {
        unsigned char *tail = (unsigned char *)ids + n * (sizeof *ids - each);
        TN_RETURN_IF(tn_file_read_at(e->file, e->path, e->items_at + from * each, tail, n * each));
        items = tail;
    }
    *most = widen(item, items, n, ids);
    return TN_OK;
}

tn_status tn_dataset_read(const tn_dataset *d, tn_data_split split, uint64_t position, size_t n, int32_t *ids)
{
    const tn_split_extents *p = &d->split[split];
    if (d->info.kind != TN_SHARD_TOKENS || position > p->counts.tokens || n > p->counts.tokens - position)
        return tn_error(TN_USAGE, "tokens %llu to %llu of %llu in %s of %.300s", (unsigned long long)position,
                        (unsigned long long)(position + n), (unsigned long long)p->counts.tokens,
                        tn_data_split_names[split], d->path);
    while (n) {
        const tn_extent *e = extent_of(p, position, false);
        const uint64_t from = position - e->first_token, left = e->tokens - from;
        const size_t k = n < left ? n : (size_t)left;
        uint32_t most;
        TN_RETURN_IF(copy_ids(d->info.item, e, from, k, ids, &most));
        if (most >= (uint64_t)d->info.vocab)
            return tn_error(
                TN_BAD_FILE,
                "%.640s: a token near %llu is %u, the vocabulary has %lld; the file is damaged, prepare the data again",
                e->path, (unsigned long long)from, most, (long long)d->info.vocab);
        position += k;
        ids += k;
        n -= k;
    }
    return TN_OK;
}

tn_status tn_dataset_sample(const tn_dataset *d, tn_data_split split, uint64_t i, float scale, float *features,
                            int32_t *label)
{
    const tn_split_extents *p = &d->split[split];
    if (d->info.kind != TN_SHARD_ARRAYS || i >= p->counts.documents)
        return tn_error(TN_USAGE, "sample %llu of %llu in %s of %.300s", (unsigned long long)i,
                        (unsigned long long)p->counts.documents, tn_data_split_names[split], d->path);
    const tn_extent *e = extent_of(p, i, true);
    const uint64_t k = i - e->first_document;
    const size_t n = (size_t)d->info.sample;
    const size_t each = tn_item_bytes(d->info.item);
    int32_t found;
    TN_RETURN_IF(tn_file_read_at(e->file, e->path, e->table_at + k * sizeof found, &found, sizeof found));
    if (found < 0 || found >= d->info.classes)
        return tn_error(TN_BAD_FILE,
                        "%.640s: sample %llu has label %d of %lld classes; the file is damaged, prepare the data again",
                        e->path, (unsigned long long)k, found, (long long)d->info.classes);
    unsigned char *tail =
        (unsigned char *)features + n * (sizeof *features - each); /* bytes widen in place, from the front */
    TN_RETURN_IF(tn_file_read_at(e->file, e->path, e->items_at + k * n * each, tail, n * each));
    for (size_t j = 0; j < n; j++) features[j] = scale * (d->info.item == TN_ITEM_U8 ? (float)tail[j] : features[j]);
    *label = found;
    return TN_OK;
}
