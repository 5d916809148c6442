/* Writes shards: items through a buffer, then the table, then the header into the space left for it. Invariant: the
 * file gets its final name only when all of it is synced. */
#include "data/shard_format.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

struct tn_shard_writer {
    tn_atomic_file file;
    tn_shard_info info;
    tn_hash *hash;
    size_t item_bytes, sample; /* features in a sample */
    void *table; /* i32 labels, or what documents have in tokens: 7 bits a byte, the lowest first, the last below 128 */
    size_t table_used;     /* bytes of the latter: a start has 8 in the file, a text of short lines has millions */
    size_t table_capacity; /* of labels or bytes */
    uint64_t begin;        /* of the open document */
    size_t used;
    unsigned char *buffer; /* (BUFFER_BYTES) */
};

static tn_status flush(tn_shard_writer *w)
{
    if (w->used == 0) return TN_OK;
    tn_hash_add(w->hash, w->buffer, w->used);
    const tn_status s = tn_atomic_write(&w->file, w->buffer, w->used);
    w->used = 0;
    return s;
}

static tn_status put(tn_shard_writer *w, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    while (bytes) {
        const size_t left = BUFFER_BYTES - w->used, n = bytes < left ? bytes : left;
        memcpy(w->buffer + w->used, p, n);
        w->used += n;
        p += n;
        bytes -= n;
        if (w->used == BUFFER_BYTES) TN_RETURN_IF(flush(w));
    }
    return TN_OK;
}

tn_status tn_shard_writer_open(const char *path, const tn_shard_info *info, tn_shard_writer **out)
{
    tn_status s = TN_OK;
    static const unsigned char zeros[TN_SHARD_HEADER_BYTES];
    tn_shard_writer *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    w->info = *info;
    w->info.documents = w->info.tokens = w->info.text_bytes = 0;
    w->item_bytes = tn_item_bytes(info->item);
    w->sample = 1;
    for (int i = 0; i < info->rank; i++) w->sample *= (size_t)info->dims[i];
    w->buffer = tn_alloc(BUFFER_BYTES);
    if (!w->buffer) TN_TRY(TN_MEMORY);
    TN_TRY(tn_hash_begin(&w->hash));
    TN_TRY(tn_atomic_open(path, &w->file));
    TN_TRY(tn_atomic_write(&w->file, zeros, sizeof zeros));
    *out = w;
    w = NULL;
done:
    tn_shard_writer_abort(w);
    return s;
}

void tn_shard_writer_abort(tn_shard_writer *w)
{
    if (!w) return;
    tn_atomic_abort(&w->file);
    tn_hash_free(w->hash);
    tn_free(w->table);
    tn_free(w->buffer);
    tn_free(w);
}

/* The open document, if there is one, into the table. */
static tn_status end_document(tn_shard_writer *w)
{
    enum { LONGEST = 10 };
    if (w->info.documents == 0) return TN_OK;
    TN_RETURN_IF(tn_grow(&w->table, &w->table_capacity, w->table_used + LONGEST, 1));
    unsigned char *p = (unsigned char *)w->table + w->table_used;
    uint64_t n = w->info.tokens - w->begin;
    for (; n >= 128; n >>= 7) *p++ = (unsigned char)(n | 128);
    *p++ = (unsigned char)n;
    w->table_used = (size_t)(p - (unsigned char *)w->table);
    w->begin = w->info.tokens;
    return TN_OK;
}

tn_status tn_shard_writer_document(tn_shard_writer *w, uint64_t text_bytes)
{
    TN_RETURN_IF(end_document(w));
    w->info.documents++;
    w->info.text_bytes += text_bytes;
    return TN_OK;
}

/* Where documents begin, and where the last one ends. */
static tn_status put_starts(tn_shard_writer *w)
{
    uint64_t at = 0;
    const unsigned char *p = w->table, *end = p ? p + w->table_used : NULL;
    TN_RETURN_IF(put(w, &at, sizeof at));
    while (p < end) {
        uint64_t n = 0;
        for (int shift = 0;; shift += 7) {
            n |= (uint64_t)(*p & 127) << shift;
            if (*p++ < 128) break;
        }
        at += n;
        TN_RETURN_IF(put(w, &at, sizeof at));
    }
    return TN_OK;
}

void tn_shard_writer_text(tn_shard_writer *w, uint64_t text_bytes) { w->info.text_bytes += text_bytes; }

tn_status tn_shard_writer_tokens(tn_shard_writer *w, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint64_t)ids[i] >= w->info.vocab)
            return tn_error(TN_INTERNAL, "token %d does not fit a vocabulary of %llu", ids[i],
                            (unsigned long long)w->info.vocab);
        const uint16_t narrow = (uint16_t)ids[i];
        if (BUFFER_BYTES - w->used < 4) TN_RETURN_IF(flush(w));
        if (w->item_bytes == 2) memcpy(w->buffer + w->used, &narrow, 2);
        else memcpy(w->buffer + w->used, &ids[i], 4);
        w->used += w->item_bytes;
    }
    w->info.tokens += n;
    return TN_OK;
}

tn_status tn_shard_writer_sample(tn_shard_writer *w, const void *features, int32_t label)
{
    TN_RETURN_IF(tn_grow(&w->table, &w->table_capacity, w->info.documents + 1, sizeof(int32_t)));
    TN_RETURN_IF(put(w, features, w->sample * w->item_bytes));
    ((int32_t *)w->table)[w->info.documents++] = label;
    w->info.tokens += w->sample;
    if (label >= 0 && (uint64_t)label >= w->info.classes) w->info.classes = (uint64_t)label + 1;
    return TN_OK;
}

uint64_t tn_shard_writer_count(const tn_shard_writer *w, uint64_t *documents)
{
    *documents = w->info.documents;
    return w->info.tokens;
}

static tn_status write_header(tn_shard_writer *w, uint64_t table_at)
{
    const tn_shard_info *i = &w->info;
    char hex[TN_HASH_BYTES];
    tn_shard_header h = { .magic = TN_SHARD_MAGIC,
                          .version = TN_SHARD_VERSION,
                          .kind = i->kind,
                          .item = i->item,
                          .rank = (uint32_t)i->rank,
                          .vocab = i->vocab,
                          .classes = i->classes,
                          .documents = i->documents,
                          .tokens = i->tokens,
                          .text_bytes = i->text_bytes,
                          .items_at = TN_SHARD_HEADER_BYTES,
                          .table_at = table_at,
                          .file_bytes = w->file.bytes };
    for (int k = 0; k < i->rank; k++) h.dims[k] = (uint64_t)i->dims[k];
    tn_shard_hash_bytes(i->hash, h.hash);
    tn_hash_memory(&h, TN_SHARD_HASHED_BYTES, hex);
    tn_shard_hash_bytes(hex, h.header_hash);
    ssize_t k;
    do k = pwrite(w->file.fd, &h, sizeof h, 0);
    while (k < 0 && errno == EINTR);
    return k == (ssize_t)sizeof h ? TN_OK : tn_fs_error(TN_DISK, k < 0 ? errno : EIO, "write", w->file.path);
}

tn_status tn_shard_writer_finish(tn_shard_writer *w, tn_shard_info *info)
{
    tn_status s = TN_OK;
    static const unsigned char zeros[8];
    const bool tokens = w->info.kind == TN_SHARD_TOKENS;
    const size_t item_end = TN_SHARD_HEADER_BYTES + (size_t)w->info.tokens * w->item_bytes;
    const uint64_t table_at = (item_end + 7) / 8 * 8;
    TN_TRY(put(w, zeros, table_at - item_end));
    if (tokens) {
        TN_TRY(end_document(w));
        TN_TRY(put_starts(w));
    } else TN_TRY(put(w, w->table ? w->table : zeros, w->info.documents * sizeof(int32_t)));
    TN_TRY(flush(w));
    tn_hash_text(w->hash, w->info.hash);
    TN_TRY(write_header(w, table_at));
    TN_TRY(tn_atomic_finish(&w->file));
    if (info) *info = w->info;
done:
    tn_shard_writer_abort(w);
    return s;
}
