/* llama2.c's tokenizer.bin: a score for each token, bytes as "<0xNN>". Encoding puts a space before the text, takes it
 * apart into characters (bytes where there is no token for one) and merges neighbours whose joined text is the token of
 * the best score, the leftmost of equals; the ids are those of llama2.c's loop, the time is O(n log n).
 *
 * File: int32 longest token; then for each token float score, int32 length, bytes. Little-endian, no count. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNKNOWN = 0, BOS = 1, EOS = 2, FIRST_BYTE = 3 };
enum { MOST_TOKENS = 1 << 19 }; /* a token has 9 bytes and more in the file and 29 while scores are sorted */

static uint32_t little(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static tn_status load_tokens(tn_tokenizer *t, const char *data, size_t bytes, tn_scored **list, size_t *capacity)
{
    if (bytes < 4) return tn_error(TN_BAD_FILE, "%zu bytes are too few; is this a tokenizer.bin of llama2.c?", bytes);
    const uint32_t longest = little(data);
    if (longest == 0 || longest > TN_PIECE_MAX_BYTES)
        return tn_error(TN_BAD_FILE, "its longest token would have %u bytes; is this a tokenizer.bin of llama2.c?",
                        longest);
    for (size_t at = 4; at < bytes;) {
        const size_t id = t->vocab.n;
        if (bytes - at < 8)
            return tn_error(TN_BAD_FILE, "cut short in token %zu at byte %zu; download the file again", id, at);
        if (id == MOST_TOKENS)
            return tn_error(TN_BAD_FILE, "more than %d tokens; is this a tokenizer.bin of llama2.c?", MOST_TOKENS);
        const uint32_t bits = little(data + at), n = little(data + at + 4);
        float score;
        memcpy(&score, &bits, 4);
        if (n == 0 || n > longest || n > bytes - at - 8)
            return tn_error(TN_BAD_FILE, "token %zu at byte %zu would have %u bytes; download the file again", id, at,
                            n);
        if (!isfinite(score))
            return tn_error(TN_BAD_FILE, "token %zu at byte %zu has no finite score; download the file again", id, at);
        const char *text = data + at + 8;
        TN_RETURN_IF(tn_vocab_put(&t->vocab, (int64_t)id, text, n, tn_vocab_find(&t->vocab, text, n) < 0));
        if (id >= *capacity) {
            void *p = *list;
            TN_RETURN_IF(tn_grow(&p, capacity, 2 * id + 1024, sizeof **list));
            *list = p;
        }
        (*list)[id] = (tn_scored){ score, (uint32_t)id };
        at += 8 + n;
    }
    if (t->vocab.n <= EOS)
        return tn_error(TN_BAD_FILE, "%zu tokens are too few; is this a tokenizer.bin of llama2.c?", t->vocab.n);
    return TN_OK;
}

/* Frees the list. */
static tn_status make_pairs(tn_tokenizer *t, tn_scored *list)
{
    const size_t n = t->vocab.n;
    uint32_t *rank = tn_alloc(n * sizeof *rank);
    if (!rank) {
        tn_free(list);
        return TN_MEMORY;
    }
    tn__rank_scores(list, n, rank);
    for (size_t i = 0; i < n; i++)
        if (!(list[i].score > -1e10f)) rank[list[i].id] = UINT32_MAX; /* llama2.c's bound */
    tn_free(list);
    t->vocab.most_bytes += TN_TABLES_BYTES / 2;
    const tn_status s = tn_vocab_pairs_from_pieces(&t->vocab, rank);
    tn_free(rank);
    return s;
}

static void find_bytes(tn_tokenizer *t)
{
    char name[8];
    for (int b = 0; b < 256; b++) {
        const size_t id = FIRST_BYTE + (size_t)b;
        snprintf(name, sizeof name, "<0x%02X>", b);
        const bool present = id < t->vocab.n && t->vocab.piece[id].bytes == 6 &&
                             memcmp(tn_vocab_bytes(&t->vocab, (int32_t)id), name, 6) == 0;
        t->byte_id[b] = present ? (int32_t)id : UNKNOWN;
    }
}

tn_status tn__load_llama2c(const char *path, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    char *data = NULL;
    size_t bytes, capacity = 0;
    tn_scored *list = NULL;
    tn_tokenizer *t = NULL;
    TN_TRY(tn__tokenizer_new(TN_KIND_LLAMA2C, &t));
    TN_TRY(tn_file_read_all(path, TN_TOKENIZER_FILE_MAX_BYTES, &data, &bytes));
    t->vocab.most_bytes =
        bytes + TN_TABLES_BYTES / 2; /* the scores and their sorting take as much, and go before the pairs come */
    TN_TRY(load_tokens(t, data, bytes, &list, &capacity));
    s = make_pairs(t, list);
    list = NULL;
    if (s != TN_OK) goto done;
    find_bytes(t);
    t->from_pieces = true;
    t->role[TN_TOKEN_BOS] = BOS;
    t->role[TN_TOKEN_EOS] = EOS;
    t->role[TN_TOKEN_END] = BOS; /* its data and its sampling set documents apart by BOS */
    TN_TRY(tn__tokenizer_finish(t));
    *out = t;
    t = NULL;
done:
    if (s == TN_BAD_FILE && data) tn_error_prefix("%.400s", path);
    tn_free(list);
    tn_free(data);
    tn_tokenizer_free(t);
    return s;
}

tn_status tn__encode_llama2c(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                             tn_tokens *out)
{
    size_t n = 0;
    if (bytes == 0) return TN_OK;
    TN_RETURN_IF(tn_merge_begin(&x->merge, bytes + 1));
    int32_t *id = x->merge.id;
    const int32_t space = tn_vocab_find(&t->vocab, " ", 1);
    if (space >= 0 && !x->part.inside) id[n++] = space;
    for (size_t at = 0, k; at < bytes; at += k) {
        /* a character here is a byte and up to three continuation bytes after it, good UTF-8 or not */
        for (k = 1; k < 4 && at + k < bytes && ((unsigned char)text[at + k] & 0xc0) == 0x80;) k++;
        const int32_t whole = tn_vocab_find(&t->vocab, text + at, k);
        if (whole >= 0) id[n++] = whole;
        for (size_t i = 0; whole < 0 && i < k; i++) id[n++] = t->byte_id[(unsigned char)text[at + i]];
    }
    x->merge.n = n;
    return tn_merge_run(&t->vocab, &x->merge, out);
}
