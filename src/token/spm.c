/* Encoding with sentencepiece's BPE: its normalizer, then merging by score. What sentencepiece does is followed to the
 * letter: bytes that are no UTF-8 become U+FFFD one by one, user-defined pieces are never merged, unknown characters
 * may be halves of a piece and become bytes or one unknown token afterwards. */
#include "token/tokenizer_impl.h"

#include <string.h>

enum { DEEPEST = 128 }; /* bytes of a rule's left side; those of real rules have a dozen */

/* --- the normalizer ----------------------------------------------------------------------------------------------- */

static uint32_t unit(const tn_marked *m, size_t i)
{
    const unsigned char *u = (const unsigned char *)m->charsmap + 4 * i;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static size_t offset_of(uint32_t u) { return (size_t)(u >> 10) << ((u & 512) >> 6); }

/* The longest rule whose left side begins the text, in a double array as Darts-clone lays it out; *to is its right side.
 * Bytes of the left side; 0: no rule. */
static size_t match_rule(const tn_marked *m, const char *text, size_t n, const char **to)
{
    size_t at = 0, longest = 0, value = 0;
    if (!m->trie_units) return 0;
    at = offset_of(unit(m, 0));
    for (size_t i = 0; i < n && i < DEEPEST; i++) {
        const unsigned char c = (unsigned char)text[i];
        at ^= c;
        if (at >= m->trie_units) break;
        const uint32_t u = unit(m, at);
        if ((u & (1u << 31 | 0xff)) != c) break;
        at ^= offset_of(u);
        if (!(u >> 8 & 1)) continue;
        if (at >= m->trie_units) break;
        longest = i + 1;
        value = unit(m, at) & 0x7fffffff;
    }
    const size_t texts = 4 * m->trie_units;
    if (!longest || value >= m->charsmap_bytes - texts) return 0;
    const char *right = m->charsmap + texts + value;      /* ends in a NUL: the loader saw to it */
    if (((unsigned char)*right & 0xc0) == 0x80) return 0; /* inside a character: no real rule */
    *to = right;
    return longest;
}

/* The longest user-defined piece that begins the text: its index among added tokens; -1: none. */
static int64_t own_piece(const tn_tokenizer *t, const tn_tokenizer_scratch *x, const char *text, size_t n,
                         size_t *bytes)
{
    if (!t->normalized.nodes || !t->normalized.starts[(unsigned char)*text]) return -1;
    const int64_t own = tn__trie_match(&t->normalized, text, n, bytes);
    return own >= 0 && tn__is_plain(x, t->added[own].id) ? -1 : own;
}

/* What the text's first character or rule becomes; bytes of the text that it takes. */
static size_t normalize_prefix(const tn_tokenizer *t, const tn_tokenizer_scratch *x, const char *text, size_t n,
                               const char **to, size_t *to_bytes)
{
    size_t k;
    *to = text;
    if (own_piece(t, x, text, n, &k) >= 0) return *to_bytes = k;
    k = match_rule(&t->marked, text, n, to);
    if (k) return *to_bytes = strlen(*to), k;
    if (tn_utf8_first((const unsigned char *)text, n, &k) == TN_UTF8_CHAR) return *to_bytes = k;
    *to = "\xef\xbf\xbd";
    *to_bytes = 3;
    return 1;
}

static tn_status put_escaped(const tn_marked *m, const char *text, size_t n, tn_text *out)
{
    for (size_t i = 0; i < n; i++)
        TN_RETURN_IF(m->escape && text[i] == ' ' ? tn_text_append(out, TN_SPACE_MARK, TN_SPACE_MARK_BYTES)
                                                 : tn_text_append(out, text + i, 1));
    return TN_OK;
}

static tn_status normalize(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t n)
{
    tn_text *out = &x->normalized;
    const tn_marked *m = &t->marked;
    const char *to;
    size_t at = 0, k, bytes;
    bool after_space = m->squeeze;
    out->n = 0;
    for (; m->squeeze && at < n; at += k) {
        k = normalize_prefix(t, x, text + at, n - at, &to, &bytes);
        if (bytes != 1 || *to != ' ') break;
    }
    if (at == n) return TN_OK;
    if (m->dummy_prefix) TN_RETURN_IF(put_escaped(m, " ", 1, out));
    for (; at < n; at += k) {
        k = normalize_prefix(t, x, text + at, n - at, &to, &bytes);
        for (; after_space && bytes && *to == ' '; bytes--) to++;
        TN_RETURN_IF(put_escaped(m, to, bytes, out));
        if (bytes) after_space = m->squeeze && to[bytes - 1] == ' ';
    }
    const char *space = m->escape ? TN_SPACE_MARK : " ";
    const size_t space_bytes = strlen(space);
    while (m->squeeze && out->n >= space_bytes && memcmp(out->data + out->n - space_bytes, space, space_bytes) == 0)
        out->n -= space_bytes;
    return TN_OK;
}

/* --- merging ------------------------------------------------------------------------------------------------------ */

static tn_status merge(const tn_tokenizer *t, tn_tokenizer_scratch *x)
{
    const tn_text *text = &x->normalized;
    size_t made = 0, k;
    TN_RETURN_IF(tn_merge_begin(&x->merge, text->n));
    for (size_t at = 0; at < text->n; at += k) {
        const int64_t own = own_piece(t, x, text->data + at, text->n - at, &k);
        if (own >= 0) {
            x->merge.id[made++] = t->added[own].id;
            continue;
        }
        const uint32_t code = tn_utf8_get((const unsigned char *)text->data + at, &k);
        const int32_t id = tn_vocab_find(&t->vocab, text->data + at, k);
        x->merge.id[made++] = id >= 0 ? id : (int32_t)(TN_UNKNOWN_CHAR | code);
    }
    x->merge.n = made;
    x->symbols.n = 0;
    return tn_merge_run(&t->vocab, &x->merge, &x->symbols);
}

static tn_status put_unknown(const tn_tokenizer *t, uint32_t code, bool before, tn_tokens *out)
{
    char utf8[4];
    const size_t n = tn_utf8_write(code, utf8);
    TN_RETURN_IF(tn_tokens_reserve(out, n));
    for (size_t i = 0; t->marked.fallback && i < n; i++) out->ids[out->n++] = t->byte_id[(unsigned char)utf8[i]];
    if (!t->marked.fallback && !before) out->ids[out->n++] = t->marked.unknown;
    return TN_OK;
}

tn_status tn__spm_encode(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t n, tn_tokens *out)
{
    bool before = false;
    TN_RETURN_IF(normalize(t, x, text, n));
    TN_RETURN_IF(merge(t, x));
    for (size_t i = 0; i < x->symbols.n; i++) {
        const int32_t id = x->symbols.ids[i];
        const bool unknown = id & TN_UNKNOWN_CHAR;
        if (unknown) TN_RETURN_IF(put_unknown(t, (uint32_t)id & ~(uint32_t)TN_UNKNOWN_CHAR, before, out));
        else {
            TN_RETURN_IF(tn_tokens_reserve(out, 1));
            out->ids[out->n++] = id;
        }
        before = unknown;
    }
    return TN_OK;
}
