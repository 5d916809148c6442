/* Encoding with BPE: repair, added tokens, NFC, added tokens again, splits, words. The order is that of the
 * `tokenizers` library; tiktoken's is the part of it without normalizing. sentencepiece has its own way (spm.c) between
 * its control pieces.
 *
 * Words come from a cache of fixed size, two places for each hash: the newer word moves the older one to the second
 * place. What is in it never changes the ids, only the time. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"

#include <string.h>

typedef struct encoder {
    const tn_tokenizer *t;
    tn_tokenizer_scratch *x;
    bool special; /* special tokens are looked for */
    bool first;   /* a METASPACE text, or what is left of it, begins where the whole text does */
    tn_tokens *out;
} encoder;

/* --- words -------------------------------------------------------------------------------------------------------- */

/* n of 1 to 8 bytes as a number, zeros above. */
static inline uint64_t load_part(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    uint64_t whole;
    uint32_t low, high;
    if (n == 8) return memcpy(&whole, p, 8), whole;
    if (n < 4) return (uint64_t)u[0] | (uint64_t)u[n >> 1] << (8 * (n >> 1)) | (uint64_t)u[n - 1] << (8 * (n - 1));
    memcpy(&low, p, 4);
    memcpy(&high, p + n - 4, 4);
    return low | (uint64_t)high << (8 * (n - 4));
}

/* The word, padded with zeros, and its hash. Words never hold fewer bytes than 1. The value differs between byte
 * orders, which nothing outside sees. */
static inline uint64_t load_key(const char *p, size_t n, uint64_t key[TN_CACHE_KEY_WORDS])
{
    uint64_t h = n;
    for (int i = 0; i < TN_CACHE_KEY_WORDS; i++) key[i] = 0;
    for (int i = 0; n > 0; i++) {
        const size_t k = n < 8 ? n : 8;
        key[i] = load_part(p, k);
        h = (h ^ key[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
        p += k;
        n -= k;
    }
    return h;
}

/* What stands on both sides of a byte that is no token may merge. */
static void skip_bytes(tn_merge_space *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->id[i] >= 0) m->id[kept++] = m->id[i];
    m->n = kept;
}

static tn_status encode_word(encoder *e, const char *word, size_t n)
{
    const tn_tokenizer *t = e->t;
    tn_merge_space *m = &e->x->merge;
    const int32_t whole = t->whole_first ? tn_vocab_find(&t->vocab, word, n) : -1;
    if (whole >= 0) {
        TN_RETURN_IF(tn_tokens_reserve(e->out, 1));
        e->out->ids[e->out->n++] = whole;
        return TN_OK;
    }
    if (t->kind == TN_KIND_METASPACE) TN_RETURN_IF(tn__marked_symbols(t, e->x, word, n));
    else {
        TN_RETURN_IF(tn_merge_begin(m, n));
        for (size_t i = 0; i < n; i++) m->id[i] = t->byte_id[(unsigned char)word[i]];
        if (t->skips_bytes) skip_bytes(m);
    }
    return tn_merge_run(&t->vocab, m, e->out);
}

static tn_status encode_cached(encoder *e, const char *word, size_t n)
{
    uint64_t key[TN_CACHE_KEY_WORDS];
    if (n > sizeof key) return encode_word(e, word, n);
    tn_cached *c = e->x->cache + (load_key(word, n, key) & (TN_CACHE_SLOTS - 2));
    for (int i = 0; i < 2; i++)
        if (c[i].bytes == n && memcmp(c[i].key, key, sizeof key) == 0) {
            if (e->out->capacity - e->out->n < TN_CACHE_IDS) TN_RETURN_IF(tn_tokens_reserve(e->out, TN_CACHE_IDS));
            memcpy(e->out->ids + e->out->n, c[i].ids, sizeof c[i].ids); /* all of it: one copy of known size */
            e->out->n += c[i].n;
            return TN_OK;
        }
    const size_t before = e->out->n;
    TN_RETURN_IF(encode_word(e, word, n));
    const size_t made = e->out->n - before;
    if (made > TN_CACHE_IDS) return TN_OK;
    c[1] = c[0];
    c[0].bytes = (uint16_t)n;
    c[0].n = (uint16_t)made;
    memcpy(c[0].key, key, sizeof key);
    memcpy(c[0].ids, e->out->ids + before, made * sizeof *c[0].ids);
    return TN_OK;
}

/* --- splits: each takes the pieces of the one before apart -------------------------------------------------------- */

static tn_status split_piece(encoder *e, int level, const char *text, size_t n);

static tn_status split_regex(encoder *e, int level, const char *text, size_t n)
{
    const tn_split *s = &e->t->split[level];
    tn_regex_match **m = &e->x->match[level];
    if (!*m) TN_RETURN_IF(tn_regex_match_new(s->regex, m));
    for (size_t at = 0, first, last; at < n; at = last) {
        TN_RETURN_IF(tn_regex_find(s->regex, *m, text, n, at, &first, &last));
        if (first > at && !s->drop_rest) TN_RETURN_IF(split_piece(e, level + 1, text + at, first - at));
        if (last > first) TN_RETURN_IF(split_piece(e, level + 1, text + first, last - first));
    }
    return TN_OK;
}

static tn_status split_piece(encoder *e, int level, const char *text, size_t n)
{
    if (level == e->t->n_splits) return encode_cached(e, text, n);
    const tn_split_pattern *known = e->t->split[level].known;
    if (!known) return split_regex(e, level, text, n);
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    const bool last = level + 1 == e->t->n_splits;
    while (p < end) {
        const size_t k = known->scan(e->t->unicode, p, end);
        TN_RETURN_IF(last ? encode_cached(e, (const char *)p, k) : split_piece(e, level + 1, (const char *)p, k));
        p += k;
    }
    return TN_OK;
}

/* METASPACE: words begin at marks, or the text is one word. */
static tn_status encode_marked(encoder *e, const char *text, size_t n)
{
    const bool first = e->first;
    e->first = false;
    TN_RETURN_IF(tn__marked_prepend(e->t, e->x, first, &text, &n));
    for (size_t at = 0, end; at < n; at = end) {
        for (end = at + 1; end < n && !(e->t->marked.split && n - end >= TN_SPACE_MARK_BYTES &&
                                        memcmp(text + end, TN_SPACE_MARK, TN_SPACE_MARK_BYTES) == 0);)
            end += e->t->marked.split ? 1 : n - end;
        TN_RETURN_IF(encode_cached(e, text + at, end - at));
    }
    return TN_OK;
}

static tn_status encode_plain(encoder *e, const char *text, size_t n)
{
    tn_text *space = &e->x->prefixed;
    if (n == 0) return TN_OK;
    if (e->t->kind == TN_KIND_METASPACE) return encode_marked(e, text, n);
    if (!e->t->prefix_space || *text == ' ') return split_piece(e, 0, text, n);
    space->n = 0;
    TN_RETURN_IF(tn_text_append(space, " ", 1));
    TN_RETURN_IF(tn_text_append(space, text, n));
    return split_piece(e, 0, space->data, space->n);
}

/* --- added tokens ------------------------------------------------------------------------------------------------- */

/* Whitespace at the end / the start of a text, in bytes. */
static size_t space_before(const encoder *e, const char *text, size_t n)
{
    size_t kept = n, length;
    while (kept > 0) {
        size_t at = kept - 1;
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
        if (!(tn_class_at(e->t->unicode, (const unsigned char *)text + at, &length) & TN_CLASS_SPACE)) break;
        kept = at;
    }
    return n - kept;
}

static size_t space_after(const encoder *e, const char *text, size_t n)
{
    size_t at = 0, length;
    while (at < n && (tn_class_at(e->t->unicode, (const unsigned char *)text + at, &length) & TN_CLASS_SPACE))
        at += length;
    return at;
}

/* Cuts text at added tokens of the trie; what lies between goes to `rest`. A special token that is not looked for still
 * hides the text it covers from other tokens, as in the reference. */
static tn_status cut_added(encoder *e, const tn_trie *trie, const char *text, size_t n,
                           tn_status (*rest)(encoder *e, const char *text, size_t n))
{
    size_t taken = 0, bytes;
    for (size_t at = 0; trie->nodes && at < n;) {
        const int64_t k = trie->starts[(unsigned char)text[at]] ? tn__trie_match(trie, text + at, n - at, &bytes) : -1;
        if (k < 0) {
            at++;
            continue;
        }
        const tn_added *a = e->t->added + k;
        size_t first = at, last = at + bytes;
        at = last;
        if ((a->special && !e->special) || first < taken || tn__is_plain(e->x, a->id)) continue;
        if (a->lstrip) first -= space_before(e, text + taken, first - taken);
        if (a->rstrip) last += space_after(e, text + last, n - last);
        TN_RETURN_IF(rest(e, text + taken, first - taken));
        TN_RETURN_IF(tn_tokens_reserve(e->out, 1));
        e->out->ids[e->out->n++] = a->id;
        e->first = false;
        taken = last;
    }
    return taken < n ? rest(e, text + taken, n - taken) : TN_OK;
}

static tn_status encode_part(encoder *e, const char *text, size_t n)
{
    tn_text *nfc = &e->x->normalized;
    if (e->t->kind == TN_KIND_SPM) return tn__spm_encode(e->t, e->x, text, n, e->out);
    if (e->t->kind == TN_KIND_METASPACE) TN_RETURN_IF(tn__marked_normalize(e->t, e->x, &text, &n));
    if (e->t->nfc && tn_nfc_needed(e->t->unicode, text, n)) {
        nfc->n = 0;
        TN_RETURN_IF(tn_nfc(e->t->unicode, &e->x->nfc, text, n, nfc));
        text = nfc->data;
        n = nfc->n;
    }
    return cut_added(e, &e->t->normalized, text, n, encode_plain);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static tn_status prepare(const tn_tokenizer *t, tn_tokenizer_scratch *x)
{
    if (!x->cache && !(x->cache = tn_alloc(sizeof *x->cache * TN_CACHE_SLOTS))) return TN_MEMORY;
    if (x->owner != t->hash) {
        memset(x->cache, 0, sizeof *x->cache * TN_CACHE_SLOTS);
        x->owner = t->hash;
    }
    for (int i = 0; i < TN_SPLITS_MAX && x->matches_of != t; i++) {
        tn_regex_match_free(x->match[i]);
        x->match[i] = NULL;
    }
    x->matches_of = t;
    return TN_OK;
}

tn_status tn__encode_bpe(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes, unsigned flags,
                         tn_tokens *out)
{
    encoder e = { t, x, (flags & TN_ENCODE_SPECIAL) != 0, !x->part.inside, out };
    TN_RETURN_IF(prepare(t, x));
    TN_RETURN_IF(tn_tokens_reserve(out, bytes / 4 + TN_CACHE_IDS));
    if (t->kind != TN_KIND_SPM && tn_utf8_prefix(text, bytes) < bytes) {
        x->repaired.n = 0;
        TN_RETURN_IF(tn_utf8_repair(text, bytes, &x->repaired));
        text = x->repaired.data;
        bytes = x->repaired.n;
    }
    return cut_added(&e, &t->raw, text, bytes, encode_part);
}
