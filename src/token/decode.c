/* Decoding: ids to bytes at once, or token by token in whole characters. llama2.c's vocabularies put a space before
 * every text, which decoding takes away at the start and after BOS, as they do; those with U+2581 for a space take away
 * what their file says (tn_strip), BOS before it or not. */
#include "token/tokenizer_impl.h"

#include <string.h>

enum { UNSEEN, AT_START, INSIDE }; /* tn_token_stream.place */

static bool is_control(const tn_tokenizer *t, int32_t id)
{
    if (id == t->role[TN_TOKEN_BOS]) return true;
    return t->marked.type && (size_t)id < t->vocab.n && t->marked.type[id] == TN_SPM_CONTROL;
}

static tn_status append_spaced(const char *piece, size_t bytes, bool drop, tn_text *out)
{
    for (size_t at = 0; at < bytes;) {
        const bool mark =
            bytes - at >= TN_SPACE_MARK_BYTES && memcmp(piece + at, TN_SPACE_MARK, TN_SPACE_MARK_BYTES) == 0;
        if (!mark) TN_RETURN_IF(tn_text_append(out, piece + at, 1));
        else if (!drop) TN_RETURN_IF(tn_text_append(out, " ", 1));
        at += mark ? TN_SPACE_MARK_BYTES : 1;
    }
    return TN_OK;
}

/* sentencepiece: control pieces have no text, the unknown one its own; the mark before the text goes, and all of them
 * where its normalizer squeezes spaces. */
static tn_status append_spm(const tn_tokenizer *t, tn_token_stream *d, int32_t id, const char *piece, size_t bytes,
                            tn_text *out)
{
    const size_t before = out->n;
    if (t->marked.type[id] == TN_SPM_CONTROL) return TN_OK;
    if (id == t->marked.unknown)
        TN_RETURN_IF(tn_text_append(out, t->marked.unknown_text, strlen(t->marked.unknown_text)));
    else if (t->marked.type[id] == TN_SPM_BYTE) TN_RETURN_IF(tn_text_append(out, piece, 1));
    else {
        const bool strip = d->place == AT_START && t->marked.strip == TN_STRIP_PIECE && bytes >= TN_SPACE_MARK_BYTES &&
                           memcmp(piece, TN_SPACE_MARK, TN_SPACE_MARK_BYTES) == 0;
        if (strip && !t->marked.squeeze) d->place = INSIDE;
        const size_t skip = strip ? TN_SPACE_MARK_BYTES : 0;
        TN_RETURN_IF(append_spaced(piece + skip, bytes - skip, false, out));
    }
    if (out->n > before) d->place = INSIDE;
    return TN_OK;
}

/* tokenizer.json with U+2581 for a space. */
static tn_status append_metaspace(const tn_tokenizer *t, tn_token_stream *d, const char *piece, size_t bytes,
                                  tn_text *out)
{
    const tn_marked *m = &t->marked;
    const size_t before = out->n;
    const bool start = d->place == AT_START;
    if (m->shows_spaces) TN_RETURN_IF(append_spaced(piece, bytes, start && m->strip == TN_STRIP_FIRST_TOKEN, out));
    else TN_RETURN_IF(tn_text_append(out, piece, bytes));
    d->place = INSIDE;
    if (start && m->strip == TN_STRIP_ONE && out->data[before] == ' ') {
        memmove(out->data + before, out->data + before + 1, out->n - before - 1);
        out->n--;
    }
    return TN_OK;
}

/* The bytes of an id after what the stream had. */
static tn_status append_piece(const tn_tokenizer *t, tn_token_stream *d, int32_t id, tn_text *out)
{
    size_t n;
    const char *text = tn_tokenizer_piece(t, id, &n);
    if (!text)
        return tn_error(TN_USAGE,
                        "no token has the id %d; the vocabulary has %lld. Was the text encoded with this tokenizer?",
                        id, (long long)tn_tokenizer_vocab(t));
    const bool begins = d->previous == 0 || d->previous == 1 + t->role[TN_TOKEN_BOS];
    if (d->place == UNSEEN) d->place = d->previous == 0 || is_control(t, d->previous - 1) ? AT_START : INSIDE;
    d->previous = id + 1;
    if (t->kind == TN_KIND_SPM) return append_spm(t, d, id, text, n, out);
    if (t->kind == TN_KIND_METASPACE && !is_control(t, id)) {
        const tn_shown *shown = tn__marked_shown(t, id);
        if (shown) return append_metaspace(t, d, t->vocab.text.data + shown->at, shown->bytes, out);
        return append_metaspace(t, d, text, n, out);
    }
    const bool skip = t->kind == TN_KIND_LLAMA2C && begins && *text == ' ';
    return tn_text_append(out, text + skip, n - skip);
}

tn_status tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, size_t n, tn_text *out)
{
    const size_t before = out->n;
    tn_token_stream d = { 0 };
    for (size_t i = 0; i < n; i++) {
        const tn_status s = append_piece(t, &d, ids[i], out);
        if (s != TN_OK) {
            out->n = before;
            return s;
        }
    }
    return TN_OK;
}

tn_status tn_token_stream_put(const tn_tokenizer *t, tn_token_stream *d, int32_t id, tn_text *out)
{
    size_t at = 0, length;
    tn_token_stream next = *d;
    tn_status s = TN_OK;
    tn_text text = { 0 }; /* what was begun, and the piece */
    const size_t before = out->n;
    TN_TRY(tn_text_append(&text, d->pending, (size_t)d->n));
    TN_TRY(append_piece(t, &next, id, &text));
    while (at < text.n) {
        const unsigned char *p = (const unsigned char *)text.data + at;
        const tn_utf8 kind = tn_utf8_first(p, text.n - at, &length);
        if (kind == TN_UTF8_CUT) break;
        if (kind == TN_UTF8_CHAR) TN_TRY(tn_text_append(out, p, length));
        else TN_TRY(tn_text_append(out, "\xef\xbf\xbd", 3));
        at += length;
    }
    next.n = (int)(text.n - at);
    if (next.n) memcpy(next.pending, text.data + at, (size_t)next.n);
    *d = next;
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
