/* sentencepiece's .model, a protobuf message: pieces with scores and types, how it was trained, its normalizer. Read
 * are models of type BPE; what else would change ids is refused by its name. Fields are those of
 * sentencepiece_model.proto. */
#include "token/load_spm.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "io/proto_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNIGRAM = 1, BPE = 2, WORD = 3, CHAR = 4 };
enum { MOST_PIECES = 1 << 19 }; /* as in llama2.c: what a piece takes while scores are sorted stays small */

typedef tn_spm_text span;

typedef struct loader {
    tn_spm_loader x;
    uint64_t model_type;
    bool suffix, read; /* treat_whitespace_as_suffix; the file was read, so that messages are about what is in it */
    span bos, eos, denormalizer;
} loader;

static tn_status unsupported(const char *what)
{
    return tn_error(TN_BAD_FILE, "%s is not supported; this reads sentencepiece models of type BPE", what);
}

static tn_status damaged(const tn_proto *r)
{
    return tn_error(TN_BAD_FILE, "%s at byte %zu; is this a sentencepiece model? Download the file again", r->why,
                    tn_proto_at(r));
}

static bool one_char(const char *text, size_t n)
{
    size_t k;
    return n && tn_utf8_first((const unsigned char *)text, n, &k) == TN_UTF8_CHAR && k == n;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static tn_status bad_piece(size_t id, const char *what)
{
    return tn_error(TN_BAD_FILE, "piece %zu %s; is this a sentencepiece model?", id, what);
}

tn_status tn__spm_begin(tn_spm_loader *l)
{
    TN_RETURN_IF(tn__tokenizer_new(TN_KIND_SPM, &l->t));
    l->t->marked = (tn_marked){ .unknown = -1, .dummy_prefix = true, .squeeze = true, .escape = true };
    for (int b = 0; b < 256; b++) l->t->byte_id[b] = -1;
    return TN_OK;
}

void tn__spm_end(tn_spm_loader *l)
{
    tn_free(l->list);
    tn_tokenizer_free(l->t);
    *l = (tn_spm_loader){ 0 };
}

tn_status tn__spm_put(tn_spm_loader *l, span text, float score, uint64_t type)
{
    tn_tokenizer *t = l->t;
    tn_marked *m = &t->marked;
    const size_t id = t->vocab.n;
    void *list = l->list, *types = m->type;
    if (id == MOST_PIECES)
        return tn_error(TN_BAD_FILE, "more than %d pieces; is this a sentencepiece model?", MOST_PIECES);
    if (!text.bytes || text.bytes > TN_PIECE_MAX_BYTES) return bad_piece(id, "is empty or too long");
    if (tn_utf8_prefix(text.text, text.bytes) < text.bytes) return bad_piece(id, "is no UTF-8 text");
    if (!isfinite(score)) return bad_piece(id, "has no finite score");
    if (type < TN_SPM_NORMAL || type > TN_SPM_BYTE) return bad_piece(id, "has an unknown type");
    TN_RETURN_IF(tn_vocab_put(&t->vocab, (int64_t)id, text.text, text.bytes, type == TN_SPM_NORMAL));
    if (id >= l->capacity) {
        TN_RETURN_IF(tn_grow(&list, &l->capacity, 2 * id + 1024, sizeof *l->list));
        l->list = list;
    }
    if (id >= l->type_capacity) {
        TN_RETURN_IF(tn_grow(&types, &l->type_capacity, 2 * id + 1024, sizeof *m->type));
        m->type = types;
    }
    l->list[id] = (tn_scored){ score, (uint32_t)id };
    m->type[id] = (uint8_t)type;
    if (type == TN_SPM_UNKNOWN) {
        if (m->unknown >= 0) return bad_piece(id, "is a second unknown piece");
        m->unknown = (int32_t)id;
    } else if (type == TN_SPM_BYTE) {
        const int byte = tn__marked_byte(text.text, text.bytes);
        if (byte < 0 || t->byte_id[byte] >= 0) return bad_piece(id, "is no byte, or one that was there already");
        t->byte_id[byte] = (int32_t)id;
    } else if (type != TN_SPM_NORMAL && type != TN_SPM_UNUSED) {
        const tn_added a = { .id = (int32_t)id,
                             .special = type == TN_SPM_CONTROL,
                             .normalized = type == TN_SPM_USER_DEFINED };
        return tn__tokenizer_add(t, a, text.text, text.bytes);
    }
    return TN_OK;
}

static tn_status read_piece(loader *l, span message)
{
    tn_proto r;
    span text = { 0 };
    float score = 0;
    uint64_t type = TN_SPM_NORMAL;
    tn_proto_open(&r, message.text, message.bytes);
    while (tn_proto_next(&r)) {
        if (r.field == 1 && r.wire == TN_PROTO_BYTES) text = (span){ r.data, r.bytes };
        else if (r.field == 2 && r.wire == TN_PROTO_4) score = tn_proto_float(&r);
        else if (r.field == 3 && r.wire == TN_PROTO_NUMBER) type = r.value;
    }
    if (r.why) return bad_piece(l->x.t->vocab.n, "is damaged");
    if (type == TN_SPM_UNUSED) return unsupported("a piece of type UNUSED");
    return tn__spm_put(&l->x, text, score, type);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static tn_status read_trainer(loader *l, span message)
{
    tn_proto r;
    tn_proto_open(&r, message.text, message.bytes);
    while (tn_proto_next(&r)) {
        const span text = { r.data, r.bytes };
        if (r.wire == TN_PROTO_NUMBER) {
            if (r.field == 3) l->model_type = r.value;
            else if (r.field == 24) l->suffix = r.value != 0;
            else if (r.field == 35) l->x.t->marked.fallback = r.value != 0;
        } else if (r.wire == TN_PROTO_BYTES) {
            if (r.field == 44) l->x.unknown_text = text;
            else if (r.field == 46) l->bos = text;
            else if (r.field == 47) l->eos = text;
        }
    }
    return r.why ? damaged(&r) : TN_OK;
}

static tn_status read_normalizer(loader *l, span message)
{
    tn_marked *m = &l->x.t->marked;
    tn_proto r;
    tn_proto_open(&r, message.text, message.bytes);
    while (tn_proto_next(&r)) {
        const span text = { r.data, r.bytes };
        if (r.wire == TN_PROTO_NUMBER) {
            if (r.field == 3) m->dummy_prefix = r.value != 0;
            else if (r.field == 4) m->squeeze = r.value != 0;
            else if (r.field == 5) m->escape = r.value != 0;
        } else if (r.wire == TN_PROTO_BYTES) {
            if (r.field == 1) l->x.normalizer = text;
            else if (r.field == 2) l->x.charsmap = text;
        }
    }
    return r.why ? damaged(&r) : TN_OK;
}

static tn_status read_denormalizer(loader *l, span message)
{
    tn_proto r;
    tn_proto_open(&r, message.text, message.bytes);
    while (tn_proto_next(&r))
        if (r.field == 2 && r.wire == TN_PROTO_BYTES) l->denormalizer = (span){ r.data, r.bytes };
    return r.why ? damaged(&r) : TN_OK;
}

static tn_status read_model(loader *l, const char *data, size_t bytes)
{
    tn_proto r;
    tn_proto_open(&r, data, bytes);
    while (tn_proto_next(&r)) {
        const span message = { r.data, r.bytes };
        if (r.wire != TN_PROTO_BYTES) continue;
        if (r.field == 1) TN_RETURN_IF(read_piece(l, message));
        else if (r.field == 2) TN_RETURN_IF(read_trainer(l, message));
        else if (r.field == 3) TN_RETURN_IF(read_normalizer(l, message));
        else if (r.field == 5) TN_RETURN_IF(read_denormalizer(l, message));
    }
    if (r.why) return damaged(&r);
    if (l->x.t->vocab.n == 0) return tn_error(TN_BAD_FILE, "it has no pieces; is this a sentencepiece model?");
    return TN_OK;
}

/* --- what follows from them --------------------------------------------------------------------------------------- */

static tn_status check_settings(const loader *l)
{
    if (l->model_type == UNIGRAM) return unsupported("model type \"Unigram\"");
    if (l->model_type == WORD) return unsupported("model type \"Word\"");
    if (l->model_type == CHAR) return unsupported("model type \"Char\"");
    if (l->model_type != BPE) return unsupported("an unknown model type");
    if (l->suffix) return unsupported("treat_whitespace_as_suffix");
    if (l->denormalizer.bytes) return unsupported("a denormalizer");
    return TN_OK;
}

static tn_status check_pieces(const tn_tokenizer *t)
{
    const tn_marked *m = &t->marked;
    if (m->unknown < 0) return tn_error(TN_BAD_FILE, "it has no unknown piece; is this a sentencepiece model?");
    for (int b = 0; b < 256; b++)
        if ((t->byte_id[b] >= 0) != m->fallback)
            return tn_error(TN_BAD_FILE, "byte_fallback is %s, but byte 0x%02x has %s piece; the file is damaged",
                            m->fallback ? "on" : "off", b, m->fallback ? "no" : "a");
    return TN_OK;
}

/* A reserved piece (control, byte, unknown) with the text of a normal one would win over it in sentencepiece. */
static tn_status check_reserved(const tn_tokenizer *t)
{
    for (size_t id = 0; id < t->vocab.n; id++) {
        const int32_t other =
            tn_vocab_find(&t->vocab, tn_vocab_bytes(&t->vocab, (int32_t)id), t->vocab.piece[id].bytes);
        if (t->marked.type[id] != TN_SPM_NORMAL && other >= 0 && other != (int32_t)id)
            return tn_error(TN_BAD_FILE, "pieces %zu and %d have the same text; the file is damaged", id, other);
    }
    return TN_OK;
}

/* The rules: bytes of the trie, the trie, texts that end in NUL. */
static tn_status keep_charsmap(tn_spm_loader *l)
{
    tn_marked *m = &l->t->marked;
    char buf[60], name[48];
    const span c = l->charsmap;
    if (!c.bytes) return TN_OK;
    const unsigned char *u = (const unsigned char *)c.text;
    const size_t trie = c.bytes < 4 ? 0 : (size_t)u[0] | (size_t)u[1] << 8 | (size_t)u[2] << 16 | (size_t)u[3] << 24;
    if (trie < 4 || trie % 4 || trie >= c.bytes - 4 || c.text[c.bytes - 1] != 0) {
        snprintf(name, sizeof name, "%.*s", (int)(l->normalizer.bytes < 40 ? l->normalizer.bytes : 40),
                 l->normalizer.bytes ? l->normalizer.text : "");
        return tn_error(TN_BAD_FILE, "the rules of the normalizer \"%s\" are damaged; download the file again",
                        tn_text_quote(name, buf, sizeof buf));
    }
    if (tn_utf8_prefix(c.text + 4 + trie, c.bytes - 4 - trie) < c.bytes - 4 - trie)
        return tn_error(TN_BAD_FILE, "the texts of the normalizer's rules are no UTF-8; download the file again");
    if (!(m->charsmap = tn_alloc(c.bytes - 4))) return TN_MEMORY;
    memcpy(m->charsmap, c.text + 4, c.bytes - 4);
    m->charsmap_bytes = c.bytes - 4;
    m->trie_units = trie / 4;
    return TN_OK;
}

/* A half of a piece: a piece, or a character that is none. false: neither. */
static bool half(const tn_vocab *v, const char *text, size_t n, int32_t *id, bool *unknown)
{
    size_t k;
    *id = tn_vocab_find(v, text, n);
    *unknown = *id < 0;
    if (*id >= 0 || !one_char(text, n)) return *id >= 0;
    *id = (int32_t)(TN_UNKNOWN_CHAR | tn_utf8_get((const unsigned char *)text, &k));
    return true;
}

/* Pieces may be made of characters that are no pieces; only a first or a last character can be such a half. */
static tn_status put_unknown_pairs(tn_tokenizer *t, const uint32_t *rank)
{
    for (size_t id = 0; id < t->vocab.n; id++) {
        const char *text = tn_vocab_bytes(&t->vocab, (int32_t)id);
        const size_t n = t->vocab.piece[id].bytes;
        size_t cut[2];
        if (t->marked.type[id] != TN_SPM_NORMAL || one_char(text, n)) continue;
        (void)tn_utf8_get((const unsigned char *)text, &cut[0]);
        for (cut[1] = n - 1; ((unsigned char)text[cut[1]] & 0xc0) == 0x80;) cut[1]--;
        for (int i = 0; i < 2 && (i == 0 || cut[1] != cut[0]); i++) {
            int32_t left, right;
            bool a, b;
            if (half(&t->vocab, text, cut[i], &left, &a) && half(&t->vocab, text + cut[i], n - cut[i], &right, &b) &&
                (a || b))
                TN_RETURN_IF(tn_vocab_pair_put(&t->vocab, left, right, rank[id], (int32_t)id));
        }
    }
    return TN_OK;
}

tn_status tn__spm_pairs(tn_spm_loader *l, size_t more_bytes)
{
    tn_tokenizer *t = l->t;
    uint32_t *rank = tn_alloc(t->vocab.n * sizeof *rank);
    if (!rank) return TN_MEMORY;
    tn__rank_scores(l->list, t->vocab.n, rank);
    tn_free(l->list);
    l->list = NULL;
    for (size_t id = 0; id < t->vocab.n; id++)
        if (t->marked.type[id] != TN_SPM_NORMAL) rank[id] = UINT32_MAX;
    t->vocab.most_bytes += more_bytes + TN_TABLES_BYTES / 4;
    tn_status s = tn_vocab_pairs_from_pieces(&t->vocab, rank);
    if (s == TN_OK) s = put_unknown_pairs(t, rank);
    tn_free(rank);
    return s;
}

/* A control piece by its name; -1: none. */
static int32_t control(const tn_tokenizer *t, span name, const char *usual)
{
    if (!name.bytes) name = (span){ usual, strlen(usual) };
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].special && t->added[i].bytes == name.bytes &&
            memcmp(tn_vocab_bytes(&t->vocab, t->added[i].id), name.text, name.bytes) == 0)
            return t->added[i].id;
    return -1;
}

tn_status tn__spm_fill(tn_spm_loader *l)
{
    tn_tokenizer *t = l->t;
    tn_marked *m = &t->marked;
    TN_RETURN_IF(check_pieces(t));
    TN_RETURN_IF(check_reserved(t));
    TN_RETURN_IF(keep_charsmap(l));
    const span shown = l->unknown_text.text ? l->unknown_text : (span){ " \xe2\x81\x87 ", 5 };
    if (!(m->unknown_text = tn_alloc(shown.bytes + 1))) return TN_MEMORY;
    memcpy(m->unknown_text, shown.text, shown.bytes);
    m->strip = m->dummy_prefix || m->squeeze ? TN_STRIP_PIECE : TN_STRIP_NONE;
    t->from_pieces = m->shows_spaces = m->shows_bytes = true;
    return TN_OK;
}

/* All that points into the file. */
static tn_status fill(loader *l)
{
    tn_tokenizer *t = l->x.t;
    TN_RETURN_IF(check_settings(l));
    TN_RETURN_IF(tn__spm_fill(&l->x));
    t->role[TN_TOKEN_BOS] = control(t, l->bos, "<s>");
    t->role[TN_TOKEN_EOS] = t->role[TN_TOKEN_END] = control(t, l->eos, "</s>");
    return TN_OK;
}

tn_status tn__load_spm(const char *path, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    char *data = NULL;
    size_t bytes;
    loader l = { .model_type = UNIGRAM }; /* what protobuf's defaults say */
    TN_TRY(tn__spm_begin(&l.x));
    TN_TRY(tn_file_read_all(path, TN_TOKENIZER_FILE_MAX_BYTES, &data, &bytes));
    l.read = true;
    l.x.t->vocab.most_bytes = bytes + TN_TABLES_BYTES / 2;
    TN_TRY(read_model(&l, data, bytes));
    TN_TRY(fill(&l));
    tn_free(data);
    data = NULL;
    TN_TRY(tn__spm_pairs(&l.x, bytes)); /* the file's own bytes are free by now */
    TN_TRY(tn__tokenizer_finish(l.x.t));
    *out = l.x.t;
    l.x.t = NULL;
done:
    if (s == TN_BAD_FILE && l.read) tn_error_prefix("%.400s", path);
    tn_free(data);
    tn__spm_end(&l.x);
    return s;
}
