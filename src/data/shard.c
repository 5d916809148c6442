/* Reads shards. A header is accepted as a whole or not at all: its hash, known values, sizes that fit each other and
 * the file. Tables, ids and labels are checked by tn_shard_verify and again wherever they are used. */
#include "data/shard_format.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    tn_item item;
    size_t bytes;
    const char *name;
} items[] = {
    { TN_ITEM_U8, 1, "u8" }, { TN_ITEM_U16, 2, "u16" }, { TN_ITEM_U32, 4, "u32" }, { TN_ITEM_F32, 4, "f32" }
};

size_t tn_item_bytes(tn_item i)
{
    for (size_t k = 0; k < sizeof items / sizeof *items; k++)
        if (items[k].item == i) return items[k].bytes;
    return 0;
}

const char *tn_item_name(tn_item i)
{
    for (size_t k = 0; k < sizeof items / sizeof *items; k++)
        if (items[k].item == i) return items[k].name;
    return "none";
}

bool tn_shard_is(const char *path)
{
    char head[8] = { 0 };
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const bool is = tn_fd_read(fd, head, sizeof head) == 8 && memcmp(head, TN_SHARD_MAGIC, 8) == 0;
    close(fd);
    return is;
}

#define BAD(path, fmt, ...)                                                                                            \
    tn_error(TN_BAD_FILE, "%.640s: " fmt "; prepare the data again (tenon data prepare)", path, __VA_ARGS__)

/* Bytes of the two parts, checked. False: the counts overflow. */
static bool parts(const tn_shard_header *h, size_t *item_bytes, size_t *table_bytes)
{
    const size_t table_item = h->kind == TN_SHARD_TOKENS ? 8 : 4, more = h->kind == TN_SHARD_TOKENS ? 1 : 0;
    size_t rows;
    return tn_mul_ok(h->tokens, tn_item_bytes((tn_item)h->item), item_bytes) && tn_add_ok(h->documents, more, &rows) &&
           tn_mul_ok(rows, table_item, table_bytes);
}

static bool shape_fits(const tn_shard_header *h)
{
    size_t n = h->documents;
    if (h->kind == TN_SHARD_TOKENS) return h->rank == 0;
    if (h->rank > TN_SHARD_RANK_MAX) return false;
    for (uint32_t i = 0; i < h->rank; i++)
        if (h->dims[i] == 0 || h->dims[i] > INT32_MAX || !tn_mul_ok(n, h->dims[i], &n)) return false;
    return n == h->tokens;
}

static tn_status check_words(const char *path, const tn_shard_header *h)
{
    char hex[TN_HASH_BYTES];
    unsigned char hash[16];
    if (memcmp(h->magic, TN_SHARD_MAGIC, 8) != 0) return BAD(path, "not a shard of a prepared data set%s", "");
    if (h->version != TN_SHARD_VERSION)
        return tn_error(
            TN_BAD_FILE,
            "%.640s has format version %u, this program reads %d: use a newer tenon or prepare the data again", path,
            h->version, TN_SHARD_VERSION);
    tn_hash_memory(h, TN_SHARD_HASHED_BYTES, hex);
    tn_shard_hash_bytes(hex, hash);
    if (memcmp(hash, h->header_hash, 16) != 0)
        return BAD(path, "its header is damaged (%s does not match)", "checksum");
    const bool tokens = h->kind == TN_SHARD_TOKENS, arrays = h->kind == TN_SHARD_ARRAYS;
    const bool item_ok =
        tokens ? h->item == TN_ITEM_U16 || h->item == TN_ITEM_U32 : h->item == TN_ITEM_U8 || h->item == TN_ITEM_F32;
    if ((!tokens && !arrays) || !item_ok)
        return BAD(path, "its header names kind %u with items %u, which does not exist", h->kind, h->item);
    if (tokens && (h->vocab == 0 || h->vocab > INT32_MAX))
        return BAD(path, "its vocabulary of %llu is impossible", (unsigned long long)h->vocab);
    return TN_OK;
}

static tn_status check_sizes(const char *path, const tn_shard_header *h, size_t bytes)
{
    size_t item_bytes, table_bytes, item_end, table_end;
    if (h->file_bytes != bytes)
        return BAD(path, "%zu bytes, its header says %llu: it was cut short or added to", bytes,
                   (unsigned long long)h->file_bytes);
    if (!parts(h, &item_bytes, &table_bytes) || !shape_fits(h)) return BAD(path, "its counts are impossible%s", "");
    const bool aligned = h->items_at % 8 == 0 && h->table_at % 8 == 0;
    if (!aligned || h->items_at < TN_SHARD_HEADER_BYTES || !tn_add_ok(h->items_at, item_bytes, &item_end) ||
        item_end > h->table_at || !tn_add_ok(h->table_at, table_bytes, &table_end) || table_end > bytes)
        return BAD(path, "its parts do not fit into its %zu bytes", bytes);
    if (h->documents > h->tokens && h->kind == TN_SHARD_TOKENS)
        return BAD(path, "it has more documents than %s", "tokens");
    return TN_OK;
}

tn_status tn_shard_open(const char *path, tn_shard *out)
{
    tn_status s = TN_OK;
    tn_shard_header h;
    tn_file file = { 0 };
    char hex[3];
    TN_RETURN_IF(tn_file_open(path, &file));
    if (file.bytes < sizeof h) TN_TRY(BAD(path, "%zu bytes are fewer than a header has: it was cut short", file.bytes));
    TN_TRY(tn_file_read_at(&file, path, 0, &h, sizeof h));
    TN_TRY(check_words(path, &h));
    TN_TRY(check_sizes(path, &h, file.bytes));
    TN_TRY(tn_path_join("", path, out->path, sizeof out->path));
    out->info = (tn_shard_info){ .kind = (tn_shard_kind)h.kind,
                                 .item = (tn_item)h.item,
                                 .rank = (int)h.rank,
                                 .vocab = h.vocab,
                                 .classes = h.classes,
                                 .documents = h.documents,
                                 .tokens = h.tokens,
                                 .text_bytes = h.text_bytes };
    for (uint32_t i = 0; i < h.rank; i++) out->info.dims[i] = (int64_t)h.dims[i];
    for (int i = 0; i < 16; i++) {
        snprintf(hex, sizeof hex, "%02x", h.hash[i]);
        memcpy(out->info.hash + 2 * i, hex, 2);
    }
    out->info.hash[32] = 0;
    out->items_at = h.items_at;
    out->table_at = h.table_at;
    out->file = file;
    file = (tn_file){ 0 };
done:
    tn_file_close(&file);
    return s;
}

void tn_shard_close(tn_shard *s) { tn_file_close(&s->file); }

/* --- verifying ------------------------------------------------------------------------------------------------------------- */

typedef struct verifying {
    const tn_shard *s;
    tn_hash *hash;
    uint64_t i, last; /* rows of the table seen, and what the last one said */
    uint32_t most;    /* token */
} verifying;

/* Pieces of the file in their order; `bytes` is a multiple of 8 but for the last. */
typedef tn_status (*see)(verifying *v, const void *data, size_t bytes);

static tn_status see_bytes(verifying *v, const void *data, size_t bytes)
{
    tn_hash_add(v->hash, data, bytes);
    return TN_OK;
}

static tn_status see_starts(verifying *v, const void *data, size_t bytes)
{
    const uint64_t *starts = data;
    for (size_t k = 0; k < bytes / sizeof *starts; k++, v->i++) {
        if (v->i == 0 ? starts[k] != 0 && v->s->info.documents : v->last >= starts[k])
            return BAD(v->s->path, "document %llu ends before it begins", (unsigned long long)(v->i ? v->i - 1 : 0));
        v->last = starts[k];
    }
    return TN_OK;
}

static tn_status see_narrow(verifying *v, const void *data, size_t bytes)
{
    const uint16_t *x = data;
    for (size_t k = 0; k < bytes / sizeof *x; k++) v->most = x[k] > v->most ? x[k] : v->most;
    return TN_OK;
}

static tn_status see_wide(verifying *v, const void *data, size_t bytes)
{
    const uint32_t *x = data;
    for (size_t k = 0; k < bytes / sizeof *x; k++) v->most = x[k] > v->most ? x[k] : v->most;
    return TN_OK;
}

static tn_status see_labels(verifying *v, const void *data, size_t bytes)
{
    const int32_t *label = data;
    for (size_t k = 0; k < bytes / sizeof *label; k++, v->i++)
        if (label[k] < 0 || (uint64_t)label[k] >= v->s->info.classes)
            return BAD(v->s->path, "sample %llu has label %d of %llu classes", (unsigned long long)v->i, label[k],
                       (unsigned long long)v->s->info.classes);
    return TN_OK;
}

static tn_status walk(verifying *v, uint64_t at, uint64_t bytes, see what)
{
    enum { PIECE = 1 << 20 };
    tn_status s = TN_OK;
    void *piece = tn_alloc(PIECE);
    if (!piece) return TN_MEMORY;
    v->i = v->last = 0;
    while (bytes) {
        const size_t n = bytes < PIECE ? (size_t)bytes : PIECE;
        TN_TRY(tn_file_read_at(&v->s->file, v->s->path, at, piece, n));
        TN_TRY(what(v, piece, n));
        at += n;
        bytes -= n;
    }
done:
    tn_free(piece);
    return s;
}

static tn_status verify_tokens(verifying *v)
{
    const tn_shard_info *i = &v->s->info;
    TN_RETURN_IF(walk(v, v->s->table_at, (i->documents + 1) * sizeof(uint64_t), see_starts));
    if (i->documents ? v->last != i->tokens : i->tokens != 0)
        return BAD(v->s->path, "the table of documents does not end at the last of %llu tokens",
                   (unsigned long long)i->tokens);
    TN_RETURN_IF(
        walk(v, v->s->items_at, i->tokens * tn_item_bytes(i->item), i->item == TN_ITEM_U16 ? see_narrow : see_wide));
    if (i->tokens && v->most >= i->vocab)
        return BAD(v->s->path, "token %u is beyond the vocabulary of %llu", v->most, (unsigned long long)i->vocab);
    return TN_OK;
}

tn_status tn_shard_verify(const tn_shard *s)
{
    char hex[TN_HASH_BYTES];
    verifying v = { .s = s };
    TN_RETURN_IF(tn_hash_begin(&v.hash));
    const tn_status read = walk(&v, TN_SHARD_HEADER_BYTES, s->file.bytes - TN_SHARD_HEADER_BYTES, see_bytes);
    if (read == TN_OK) tn_hash_text(v.hash, hex);
    tn_hash_free(v.hash);
    TN_RETURN_IF(read);
    if (strcmp(hex, s->info.hash) != 0)
        return BAD(s->path, "its contents are damaged (checksum %s, header says %s)", hex, s->info.hash);
    if (s->info.kind == TN_SHARD_TOKENS) return verify_tokens(&v);
    return walk(&v, s->table_at, s->info.documents * sizeof(int32_t), see_labels);
}
