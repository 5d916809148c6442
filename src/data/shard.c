/* Reader of shards. A header passes as a whole or not at all: own hash, known words, sizes that fit each other and the
 * file. Tables, ids and labels are checked by tn_shard_verify and again, one by one, wherever they are used. */
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
        return BAD(path, "its header names kind %u with items %u, which there is not", h->kind, h->item);
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
    tn_map map = { 0 };
    char hex[3];
    TN_RETURN_IF(tn_file_map(path, &map));
    if (map.bytes < sizeof h) TN_TRY(BAD(path, "%zu bytes are fewer than a header has: it was cut short", map.bytes));
    memcpy(&h, map.data, sizeof h);
    TN_TRY(check_words(path, &h));
    TN_TRY(check_sizes(path, &h, map.bytes));
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
    out->items = map.data + h.items_at;
    out->starts = h.kind == TN_SHARD_TOKENS ? (const uint64_t *)(const void *)(map.data + h.table_at) : NULL;
    out->labels = h.kind == TN_SHARD_ARRAYS ? (const int32_t *)(const void *)(map.data + h.table_at) : NULL;
    out->map = map;
    map = (tn_map){ 0 };
done:
    tn_file_unmap(&map);
    return s;
}

void tn_shard_close(tn_shard *s)
{
    tn_file_unmap(&s->map);
    s->items = NULL;
    s->starts = NULL;
    s->labels = NULL;
}

static tn_status verify_tokens(const tn_shard *s)
{
    const uint16_t *narrow = s->items;
    const uint32_t *wide = s->items;
    uint32_t most = 0;
    for (uint64_t i = 0; i < s->info.documents; i++)
        if (s->starts[i] >= s->starts[i + 1] || (i == 0 && s->starts[0] != 0))
            return BAD(s->path, "document %llu ends before it begins", (unsigned long long)i);
    if (s->info.documents ? s->starts[s->info.documents] != s->info.tokens : s->info.tokens != 0)
        return BAD(s->path, "the table of documents does not end at the last of %llu tokens",
                   (unsigned long long)s->info.tokens);
    for (uint64_t i = 0; i < s->info.tokens; i++) {
        const uint32_t x = s->info.item == TN_ITEM_U16 ? narrow[i] : wide[i];
        most = x > most ? x : most;
    }
    if (s->info.tokens && most >= s->info.vocab)
        return BAD(s->path, "token %u is beyond the vocabulary of %llu", most, (unsigned long long)s->info.vocab);
    return TN_OK;
}

tn_status tn_shard_verify(const tn_shard *s)
{
    char hex[TN_HASH_BYTES];
    tn_hash_memory(s->map.data + TN_SHARD_HEADER_BYTES, s->map.bytes - TN_SHARD_HEADER_BYTES, hex);
    if (strcmp(hex, s->info.hash) != 0)
        return BAD(s->path, "its contents are damaged (checksum %s, header says %s)", hex, s->info.hash);
    if (s->info.kind == TN_SHARD_TOKENS) return verify_tokens(s);
    for (uint64_t i = 0; i < s->info.documents; i++)
        if (s->labels[i] < 0 || (uint64_t)s->labels[i] >= s->info.classes)
            return BAD(s->path, "sample %llu has label %d of %llu classes", (unsigned long long)i, s->labels[i],
                       (unsigned long long)s->info.classes);
    return TN_OK;
}
