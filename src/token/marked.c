/* Vocabularies of characters with U+2581 for a space, as in the tokenizer.json of Llama 2, Mistral and Gemma: what
 * their normalizer and their Metaspace pre-tokenizer do to a text, and a word in single symbols. Order and rules are
 * those of the `tokenizers` library. Text is valid UTF-8 here. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tn_status replace_spaces(const char *text, size_t n, tn_text *out)
{
    for (size_t at = 0; at < n;) {
        const char *space = memchr(text + at, ' ', n - at);
        const size_t k = space ? (size_t)(space - text) - at : n - at;
        TN_RETURN_IF(tn_text_append(out, text + at, k));
        if (space) TN_RETURN_IF(tn_text_append(out, TN_SPACE_MARK, TN_SPACE_MARK_BYTES));
        at += k + (space != NULL);
    }
    return TN_OK;
}

tn_status tn__marked_normalize(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char **text, size_t *n)
{
    for (int i = 0; i < t->marked.n_steps && *n; i++) {
        tn_text *to = &x->step[i % 2];
        to->n = 0;
        switch (t->marked.step[i]) {
        case TN_NORMAL_PREPEND:
            TN_RETURN_IF(tn_text_append(to, TN_SPACE_MARK, TN_SPACE_MARK_BYTES));
            TN_RETURN_IF(tn_text_append(to, *text, *n));
            break;
        case TN_NORMAL_REPLACE: TN_RETURN_IF(replace_spaces(*text, *n, to)); break;
        case TN_NORMAL_NFC: TN_RETURN_IF(tn_nfc(t->unicode, &x->nfc, *text, *n, to)); break;
        }
        *text = to->data;
        *n = to->n;
    }
    return TN_OK;
}

static bool starts_marked(const char *text, size_t n)
{
    return n >= TN_SPACE_MARK_BYTES && memcmp(text, TN_SPACE_MARK, TN_SPACE_MARK_BYTES) == 0;
}

tn_status tn__marked_prepend(const tn_tokenizer *t, tn_tokenizer_scratch *x, bool first, const char **text, size_t *n)
{
    const tn_marked *m = &t->marked;
    tn_text *to = &x->prefixed;
    if (!m->metaspace || *n == 0) return TN_OK;
    to->n = 0;
    const bool wanted = m->prepend == TN_PREPEND_ALWAYS || (m->prepend == TN_PREPEND_FIRST && first);
    if (wanted && **text != ' ' && !starts_marked(*text, *n))
        TN_RETURN_IF(tn_text_append(to, TN_SPACE_MARK, TN_SPACE_MARK_BYTES));
    TN_RETURN_IF(replace_spaces(*text, *n, to));
    *text = to->data;
    *n = to->n;
    return TN_OK;
}

tn_status tn__marked_symbols(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *word, size_t n)
{
    const tn_marked *m = &t->marked;
    size_t made = 0, k;
    bool before = false; /* the character before was unknown */
    TN_RETURN_IF(tn_merge_begin(&x->merge, n));
    int32_t *id = x->merge.id;
    for (size_t at = 0; at < n; at += k) {
        (void)tn_utf8_get((const unsigned char *)word + at, &k);
        const int32_t whole = tn_vocab_find(&t->vocab, word + at, k);
        const bool unknown = whole < 0 && !m->fallback;
        if (whole >= 0) id[made++] = whole;
        else if (m->fallback)
            for (size_t i = 0; i < k; i++) id[made++] = t->byte_id[(unsigned char)word[at + i]];
        else if (m->unknown >= 0 && !(before && m->fuse_unknown)) id[made++] = m->unknown;
        before = unknown;
    }
    x->merge.n = made;
    return TN_OK;
}

tn_status tn__marked_show(tn_tokenizer *t, int32_t id, const char *text, size_t n)
{
    tn_marked *m = &t->marked;
    void *p = m->shown;
    const size_t at = t->vocab.text.n;
    if (m->n_shown == m->shown_capacity) {
        TN_RETURN_IF(tn_grow(&p, &m->shown_capacity, 2 * m->n_shown + 64, sizeof *m->shown));
        m->shown = p;
    }
    if (at + n > t->vocab.most_bytes) /* as in tn_vocab_put */
        return tn_error(TN_BAD_FILE, "the added tokens have %zu bytes, more than a real vocabulary's", at + n);
    TN_RETURN_IF(tn_text_append(&t->vocab.text, text, n));
    m->shown[m->n_shown++] = (tn_shown){ id, (uint32_t)at, (uint32_t)n };
    return TN_OK;
}

static int by_id(const void *a, const void *b)
{
    const tn_shown *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

void tn__marked_sort(tn_tokenizer *t)
{
    if (t->marked.n_shown) qsort(t->marked.shown, t->marked.n_shown, sizeof *t->marked.shown, by_id);
}

const tn_shown *tn__marked_shown(const tn_tokenizer *t, int32_t id)
{
    const tn_marked *m = &t->marked;
    const tn_shown key = { .id = id };
    return m->n_shown ? bsearch(&key, m->shown, m->n_shown, sizeof key, by_id) : NULL;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tn__marked_byte(const char *text, size_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex(text[3]) < 0 || hex(text[4]) < 0) return -1;
    return hex(text[3]) << 4 | hex(text[4]);
}

tn_status tn__marked_bytes(tn_tokenizer *t)
{
    char name[8];
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        t->byte_id[b] = tn_vocab_find(&t->vocab, name, 6);
        if (t->byte_id[b] < 0)
            return tn_error(TN_BAD_FILE,
                            "byte 0x%02x has no token %s; byte fallback is read from vocabularies with all 256 bytes",
                            b, name);
    }
    return TN_OK;
}
