/* Decoding: ids to bytes at once, or token by token in whole characters. llama2.c's vocabularies put a space before
 * every text, which decoding takes away at the start and after BOS, as they do. */
#include "token/tokenizer_impl.h"

#include <string.h>

/* The bytes of an id after another (previous: 1 + its id, 0: none). */
static tn_status piece_after(const tn_tokenizer *t, int32_t previous, int32_t id, const char **piece, size_t *bytes)
{
    *piece = tn_tokenizer_piece(t, id, bytes);
    if (!*piece)
        return tn_error(TN_USAGE,
                        "no token has the id %d; the vocabulary has %lld. Was the text encoded with this tokenizer?",
                        id, (long long)tn_tokenizer_vocab(t));
    const bool begins = previous == 0 || previous == 1 + t->role[TN_TOKEN_BOS];
    if (t->kind == TN_KIND_LLAMA2C && begins && **piece == ' ') {
        ++*piece;
        --*bytes;
    }
    return TN_OK;
}

tn_status tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, size_t n, tn_text *out)
{
    const size_t before = out->n;
    int32_t previous = 0;
    for (size_t i = 0; i < n; i++) {
        const char *piece;
        size_t bytes;
        tn_status s = piece_after(t, previous, ids[i], &piece, &bytes);
        if (s == TN_OK) s = tn_text_append(out, piece, bytes);
        if (s != TN_OK) {
            out->n = before;
            return s;
        }
        previous = ids[i] + 1;
    }
    return TN_OK;
}

tn_status tn_token_stream_put(const tn_tokenizer *t, tn_token_stream *d, int32_t id, tn_text *out)
{
    const char *piece;
    size_t bytes, at = 0, length;
    tn_status s = TN_OK;
    tn_text text = { 0 }; /* what was begun, and the piece */
    const size_t before = out->n;
    TN_TRY(piece_after(t, d->previous, id, &piece, &bytes));
    TN_TRY(tn_text_append(&text, d->pending, (size_t)d->n));
    TN_TRY(tn_text_append(&text, piece, bytes));
    while (at < text.n) {
        const unsigned char *p = (const unsigned char *)text.data + at;
        const tn_utf8 kind = tn_utf8_first(p, text.n - at, &length);
        if (kind == TN_UTF8_CUT) break;
        if (kind == TN_UTF8_CHAR) TN_TRY(tn_text_append(out, p, length));
        else TN_TRY(tn_text_append(out, "\xef\xbf\xbd", 3));
        at += length;
    }
    d->n = (int)(text.n - at);
    if (d->n) memcpy(d->pending, text.data + at, (size_t)d->n);
    d->previous = id + 1;
done:
    if (s != TN_OK) out->n = before;
    tn_text_free(&text);
    return s;
}

tn_status tn_token_stream_end(tn_token_stream *d, tn_text *out)
{
    if (d->n) TN_RETURN_IF(tn_text_append(out, "\xef\xbf\xbd", 3));
    *d = (tn_token_stream){ 0 };
    return TN_OK;
}
