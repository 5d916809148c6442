/* Hugging Face tokenizer.json: BPE and what stands around it (for vocabularies that are not byte-level: load_hf_marked.c). Every part that changes ids is either
 * understood or refused by its name; nothing is skipped in silence but truncation and padding, which are the caller's
 * business. What may be long (vocabulary, merges, added tokens) is read value by value; the small parts are trees. */
#include "token/load_hf.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "io/json_read.h"

#include <stdio.h>
#include <string.h>

enum { PARTS_BYTES = 64 << 10 }; /* most of all small parts together: a tree may take 80 times its text */

/* A value of the file that is read later; text is NULL where there is none. */
typedef struct span {
    const char *text;
    size_t bytes;
} span;

typedef struct loader {
    tn_tokenizer *t;
    json_t *root;              /* the small parts, by their names */
    size_t part_bytes;         /* of them */
    span vocab, merges, added; /* the others */
    bool byte_level;           /* a ByteLevel pre-tokenizer was seen */
} loader;

tn_status tn__hf_unsupported(const char *part, const char *what)
{
    char buf[80];
    return tn_error(TN_BAD_FILE,
                    "%s \"%s\" is not supported; this reads byte-level BPE and BPE with byte fallback or Metaspace",
                    part, tn_text_quote(what ? what : "(none)", buf, sizeof buf));
}

const char *tn__hf_type(const json_t *x)
{
    const char *s = json_string_value(json_object_get(x, "type"));
    return s ? s : "";
}

bool tn__hf_unset(const json_t *x)
{
    return !x || json_is_null(x) || json_is_false(x) || (json_is_string(x) && json_string_length(x) == 0) ||
           (json_is_number(x) && json_number_value(x) == 0);
}

bool tn__hf_flag(const json_t *x, const char *key, bool missing)
{
    const json_t *v = json_object_get(x, key);
    return v ? json_is_true(v) : missing;
}

/* --- the model: vocabulary and merges ----------------------------------------------------------------------------- */

static tn_status bad_number(const tn_json *r) { return tn_error(TN_BAD_FILE, "%s; download the file again", r->why); }

static tn_status put_token(tn_tokenizer *t, tn_json *r)
{
    char key[4 * TN_PIECE_MAX_BYTES + 1], bytes[2 * TN_PIECE_MAX_BYTES], buf[60];
    int64_t id = 0;
    const size_t r_bytes = r->bytes;
    size_t n = r_bytes;
    const bool fits = n <= sizeof bytes;
    if (fits) tn_json_copy(r, key);
    else snprintf(key, sizeof key, "%.*s", 64, r->raw);
    if (!tn_json_integer(r, &id) || !fits) {
        if (r->why) return bad_number(r);
        return tn_error(TN_BAD_FILE, "model.vocab: \"%s\" is too long or its id is not an integer; the file is damaged",
                        tn_text_quote(key, buf, sizeof buf));
    }
    const bool characters = t->kind == TN_KIND_METASPACE;
    const bool ours = !characters && tn__bytes_from_alphabet(key, n, bytes, &n);
    const tn_status s = tn_vocab_put(&t->vocab, id, ours ? bytes : key, ours ? n : r_bytes, ours || characters);
    if (s != TN_OK) tn_error_prefix("model.vocab \"%s\"", tn_text_quote(key, buf, sizeof buf));
    return s;
}

static tn_status load_vocab(tn_tokenizer *t, span text)
{
    tn_json r;
    tn_json_open(&r, text.text, text.bytes);
    r.nul = t->kind == TN_KIND_METASPACE; /* a character like any other */
    if (!text.text || !tn_json_enter(&r, '{'))
        return tn_error(TN_BAD_FILE, "model.vocab is not an object; the file is damaged");
    while (tn_json_key(&r)) TN_RETURN_IF(put_token(t, &r));
    return r.why ? bad_number(&r) : TN_OK; /* a NUL: all else was seen when the parts were found */
}

/* A merge: its two tokens one behind the other, the first of n bytes. */
typedef struct merge {
    char text[4 * TN_PIECE_MAX_BYTES];
    size_t n, bytes;
} merge;

/* One half of a merge behind what is there. */
static bool add_half(merge *m, const tn_json *r)
{
    if (r->bytes == 0 || m->bytes + r->bytes >= sizeof m->text) return false;
    tn_json_copy(r, m->text + m->bytes);
    m->n = m->bytes;
    m->bytes += r->bytes;
    return true;
}

/* "left right"; false where it is not two words. */
static bool halves_of(merge *m, const char *text, size_t bytes)
{
    const char *space = memchr(text, ' ', bytes), *end = text + bytes;
    if (!space || space == text || space + 1 == end || memchr(space + 1, ' ', (size_t)(end - space - 1))) return false;
    m->n = (size_t)(space - text);
    memmove(m->text, text, m->n);
    memmove(m->text + m->n, space + 1, (size_t)(end - space - 1));
    m->bytes = bytes - 1;
    return true;
}

/* "left right" or ["left", "right"]. */
static bool read_merge(tn_json *r, merge *m)
{
    bool ok = true;
    int n = 0;
    m->n = m->bytes = 0;
    if (tn_json_peek(r) == '"')
        return tn_json_text(r) && r->bytes < sizeof m->text && halves_of(m, tn_json_copy(r, m->text), r->bytes);
    if (!tn_json_enter(r, '[')) return tn_json_skip(r), false;
    for (; tn_json_item(r); n++) ok = tn_json_text(r) && n < 2 && add_half(m, r) && ok;
    return ok && n == 2;
}

/* The token whose text, in GPT-2's alphabet where it is byte-level, this is; -1: none. */
static int32_t id_of(const tn_tokenizer *t, const char *text, size_t bytes)
{
    char out[4 * TN_PIECE_MAX_BYTES];
    size_t n;
    if (t->kind == TN_KIND_METASPACE) return tn_vocab_find(&t->vocab, text, bytes);
    return tn__bytes_from_alphabet(text, bytes, out, &n) ? tn_vocab_find(&t->vocab, out, n) : -1;
}

static tn_status put_merge(tn_tokenizer *t, const merge *m, size_t i)
{
    char buf[60], text[80];
    const int32_t a = id_of(t, m->text, m->n), b = id_of(t, m->text + m->n, m->bytes - m->n),
                  c = id_of(t, m->text, m->bytes);
    if (a >= 0 && b >= 0 && c >= 0) return tn_vocab_pair_put(&t->vocab, a, b, (uint32_t)i, c);
    const char *from = a >= 0 && b < 0 ? m->text + m->n : m->text;
    const size_t n = a < 0 ? m->n : b < 0 ? m->bytes - m->n : m->bytes;
    snprintf(text, sizeof text, "%.*s", (int)(n < 64 ? n : 64), from);
    return tn_error(TN_BAD_FILE, "model.merges[%zu]: \"%s\" is not in the vocabulary; the file is damaged", i,
                    tn_text_quote(text, buf, sizeof buf));
}

tn_status tn__hf_put_merge(tn_tokenizer *t, const char *text, size_t bytes, size_t i)
{
    merge m;
    if (bytes >= sizeof m.text || !halves_of(&m, text, bytes))
        return tn_error(TN_BAD_FILE, "merges[%zu] is not two tokens; the file is damaged", i);
    return put_merge(t, &m, i);
}

static tn_status load_merges(tn_tokenizer *t, span text)
{
    tn_json r;
    merge m;
    size_t i = 0;
    tn_json_open(&r, text.text, text.bytes);
    r.nul = t->kind == TN_KIND_METASPACE;
    if (!text.text || !tn_json_enter(&r, '['))
        return tn_error(TN_BAD_FILE, "model.merges is not a list; the file is damaged");
    for (; tn_json_item(&r); i++) {
        if (i == TN_PAIRS_MAX) return tn_error(TN_BAD_FILE, "model.merges has more than %d rows", TN_PAIRS_MAX);
        if (!read_merge(&r, &m))
            return tn_error(TN_BAD_FILE, "model.merges[%zu] is not two tokens; the file is damaged", i);
        TN_RETURN_IF(put_merge(t, &m, i));
    }
    return TN_OK;
}

/* What becomes of characters that are no tokens. */
static tn_status load_unknown(tn_tokenizer *t, const json_t *model)
{
    const char *name = json_string_value(json_object_get(model, "unk_token"));
    tn_marked *m = &t->marked;
    t->skips_bytes = t->kind == TN_KIND_BPE && !(name && *name);
    if (t->kind != TN_KIND_METASPACE) return TN_OK;
    m->fallback = tn__hf_flag(model, "byte_fallback", false);
    m->fuse_unknown = tn__hf_flag(model, "fuse_unk", false);
    m->unknown = name && *name ? tn_vocab_find(&t->vocab, name, strlen(name)) : -1;
    if (name && *name && m->unknown < 0)
        return tn_error(TN_BAD_FILE, "model.unk_token is not in the vocabulary; the file is damaged");
    return TN_OK;
}

static tn_status load_model(const loader *l, const json_t *model)
{
    tn_tokenizer *t = l->t;
    static const char *const unset[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                         "byte_fallback" };
    const size_t n_unset = sizeof unset / sizeof *unset - (t->kind == TN_KIND_METASPACE);
    for (size_t i = 0; i < n_unset; i++)
        if (!tn__hf_unset(json_object_get(model, unset[i]))) return tn__hf_unsupported("model option", unset[i]);
    t->whole_first = tn__hf_flag(model, "ignore_merges", false);
    TN_RETURN_IF(load_vocab(t, l->vocab));
    TN_RETURN_IF(load_unknown(t, model));
    return load_merges(t, l->merges);
}

/* --- around the model --------------------------------------------------------------------------------------------- */

static tn_status load_normalizer(tn_tokenizer *t, const json_t *x)
{
    if (tn__hf_unset(x)) return TN_OK;
    if (strcmp(tn__hf_type(x), "NFC") == 0) return t->nfc = true, TN_OK;
    const json_t *list = json_object_get(x, "normalizers");
    if (strcmp(tn__hf_type(x), "Sequence") != 0 || json_array_size(list) > TN_SPLITS_MAX)
        return tn__hf_unsupported("normalizer", tn__hf_type(x));
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(tn__hf_type(json_array_get(list, i)), "NFC") != 0)
            return tn__hf_unsupported("normalizer", tn__hf_type(json_array_get(list, i)));
        t->nfc = true;
    }
    return TN_OK;
}

static tn_status load_byte_level(loader *l, const json_t *x)
{
    if (l->byte_level) return tn__hf_unsupported("pre_tokenizer", "ByteLevel, twice");
    l->byte_level = true;
    l->t->prefix_space = tn__hf_flag(x, "add_prefix_space", true);
    if (l->t->prefix_space && l->t->n_splits)
        return tn__hf_unsupported("pre_tokenizer", "ByteLevel with add_prefix_space after a split");
    return tn__hf_flag(x, "use_regex", true) ? tn__tokenizer_split(l->t, tn_split_named("gpt2"), NULL, false) : TN_OK;
}

/* A literal string as a regular expression. */
static tn_status split_on_string(tn_tokenizer *t, const char *text, bool drop_rest)
{
    char regex[3 * 256 + 1];
    size_t n = 0;
    if (strlen(text) > 256) return tn__hf_unsupported("Split pattern", "a string of more than 256 bytes");
    for (; *text; text++) {
        const bool plain = (unsigned char)*text >= 0x80 || *text == ' ' || (*text >= '0' && *text <= '9') ||
                           (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        if (!plain) regex[n++] = '\\';
        regex[n++] = *text;
    }
    regex[n] = 0;
    return tn__tokenizer_split(t, NULL, regex, drop_rest);
}

static tn_status load_split(loader *l, const json_t *x)
{
    const json_t *pattern = json_object_get(x, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *string = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = json_string_value(json_object_get(x, "behavior"));
    const bool invert = tn__hf_flag(x, "invert", false);
    const bool keep = behavior && strcmp(behavior, "Isolated") == 0; /* inverted or not: the same pieces */
    const bool drop = behavior && strcmp(behavior, "Removed") == 0 && invert;
    if (l->byte_level) return tn__hf_unsupported("pre_tokenizer", "Split after ByteLevel");
    if (!keep && !drop) return tn__hf_unsupported("Split behavior", behavior);
    if (string && *string) return split_on_string(l->t, string, drop);
    if (!regex) return tn__hf_unsupported("Split pattern", "neither Regex nor String");
    const tn_split_pattern *known = tn_split_known(regex);
    return tn__tokenizer_split(l->t, known, regex, drop);
}

static tn_status load_pre_tokenizer(loader *l, const json_t *x, int depth)
{
    const char *type = tn__hf_type(x);
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level(l, x);
    if (strcmp(type, "Split") == 0) return load_split(l, x);
    if (strcmp(type, "Digits") == 0 && !l->byte_level)
        return tn__tokenizer_split(l->t, &tn_split_digits[tn__hf_flag(x, "individual_digits", false)], NULL, false);
    const json_t *list = json_object_get(x, "pretokenizers");
    if (strcmp(type, "Sequence") != 0 || depth > 0 || json_array_size(list) > 2 * TN_SPLITS_MAX)
        return tn__hf_unsupported("pre_tokenizer", type);
    for (size_t i = 0; i < json_array_size(list); i++)
        TN_RETURN_IF(load_pre_tokenizer(l, json_array_get(list, i), depth + 1));
    return TN_OK;
}

static tn_status add_token(tn_tokenizer *t, tn_json *r, size_t i)
{
    char content[2 * TN_PIECE_MAX_BYTES];
    size_t bytes = 0;
    int64_t id = 0;
    tn_added a = { 0 };
    bool has_id = false, single_word = false;
    if (!tn_json_enter(r, '{')) (void)tn_json_skip(r);
    else
        while (tn_json_key(r)) {
            if (tn_json_is(r, "id")) has_id = tn_json_integer(r, &id);
            else if (tn_json_is(r, "content")) {
                bytes = tn_json_text(r) && r->bytes < sizeof content ? r->bytes : 0;
                if (bytes) tn_json_copy(r, content);
            } else if (tn_json_is(r, "special")) (void)tn_json_flag(r, &a.special);
            else if (tn_json_is(r, "normalized")) (void)tn_json_flag(r, &a.normalized);
            else if (tn_json_is(r, "lstrip")) (void)tn_json_flag(r, &a.lstrip);
            else if (tn_json_is(r, "rstrip")) (void)tn_json_flag(r, &a.rstrip);
            else if (tn_json_is(r, "single_word")) (void)tn_json_flag(r, &single_word);
            else (void)tn_json_skip(r);
        }
    if (r->why) return bad_number(r);
    if (!has_id || bytes == 0)
        return tn_error(TN_BAD_FILE, "added_tokens[%zu] has no id, or no content of 1 to %d bytes; the file is damaged",
                        i, TN_PIECE_MAX_BYTES);
    if (id < 0 || id >= TN_VOCAB_MAX)
        return tn_error(TN_BAD_FILE, "added_tokens[%zu]: its id is outside 0..%d; the file is damaged", i,
                        TN_VOCAB_MAX - 1);
    if (single_word) return tn__hf_unsupported("added token option", "single_word");
    a.id = (int32_t)id;
    return tn__tokenizer_add(t, a, content, bytes);
}

static tn_status load_added(tn_tokenizer *t, span text)
{
    tn_json r;
    if (!text.text) return TN_OK;
    tn_json_open(&r, text.text, text.bytes);
    if (tn_json_peek(&r) == 'n') return TN_OK;
    if (!tn_json_enter(&r, '[')) return tn_error(TN_BAD_FILE, "added_tokens is not a list; the file is damaged");
    for (size_t i = 0; tn_json_item(&r); i++) TN_RETURN_IF(add_token(t, &r, i));
    return TN_OK;
}

/* BOS is the special token that a template puts before the text. */
static tn_status load_template(tn_tokenizer *t, const json_t *x)
{
    const json_t *single = json_object_get(x, "single");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_object_get(json_array_get(single, i), "SpecialToken");
        const char *name = json_string_value(json_object_get(part, "id"));
        if (json_object_get(json_array_get(single, i), "Sequence")) return TN_OK;
        if (!name || i > 0)
            return tn__hf_unsupported("post_processor", "TemplateProcessing with more than one token before the text");
        t->template_bos = tn_tokenizer_find(t, name);
        if (t->template_bos < 0)
            return tn_error(TN_BAD_FILE, "post_processor: its first token is not in the vocabulary");
    }
    return TN_OK;
}

static tn_status load_post(tn_tokenizer *t, const json_t *x, int depth)
{
    const char *type = tn__hf_type(x);
    if (tn__hf_unset(x) || strcmp(type, "ByteLevel") == 0) return TN_OK; /* ByteLevel trims offsets, no ids */
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(t, x);
    const json_t *list = json_object_get(x, "processors");
    if (strcmp(type, "Sequence") != 0 || depth > 0) return tn__hf_unsupported("post_processor", type);
    for (size_t i = 0; i < json_array_size(list); i++) TN_RETURN_IF(load_post(t, json_array_get(list, i), depth + 1));
    return TN_OK;
}

static tn_status load_rest(const loader *l, const json_t *model)
{
    TN_RETURN_IF(load_model(l, model));
    TN_RETURN_IF(load_added(l->t, l->added));
    return load_post(l->t, json_object_get(l->root, "post_processor"), 0);
}

static tn_status load_all(loader *l)
{
    const json_t *root = l->root, *decoder = json_object_get(root, "decoder"), *model = json_object_get(root, "model");
    tn_tokenizer *t = l->t;
    if (!json_is_object(model)) return tn_error(TN_BAD_FILE, "there is no \"model\"; is this a tokenizer.json?");
    const char *type = tn__hf_type(model);
    if (strcmp(type, "BPE") != 0 && !(*type == 0 && l->merges.text)) return tn__hf_unsupported("model type", type);
    if (tn__hf_is_marked(root)) {
        t->kind = TN_KIND_METASPACE;
        TN_RETURN_IF(tn__hf_load_marked(t, root));
        return load_rest(l, model);
    }
    if (tn__hf_unset(json_object_get(root, "pre_tokenizer"))) return tn__hf_unsupported("pre_tokenizer", "none");
    TN_RETURN_IF(load_pre_tokenizer(l, json_object_get(root, "pre_tokenizer"), 0));
    if (!l->byte_level) return tn__hf_unsupported("pre_tokenizer", "one without ByteLevel");
    if (!tn__hf_unset(decoder) && strcmp(tn__hf_type(decoder), "ByteLevel") != 0)
        return tn__hf_unsupported("decoder", tn__hf_type(decoder));
    TN_RETURN_IF(load_normalizer(t, json_object_get(root, "normalizer")));
    return load_rest(l, model);
}

/* --- finding the parts ------------------------------------------------------------------------------------------------ */

typedef struct part {
    const char *name;
    span *later; /* NULL: a small part, which becomes a tree */
} part;

/* The value of a key that was just read, into `to` or where the row says; what no row names is passed over. */
static tn_status take_part(loader *l, tn_json *r, const part *rows, json_t *to)
{
    json_error_t err;
    char buf[160];
    span v = { 0 };
    while (rows->name && !tn_json_is(r, rows->name)) rows++;
    if (!tn_json_extent(r, &v.text, &v.bytes) || !rows->name) return TN_OK;
    if (json_object_get(to, rows->name) || (rows->later && rows->later->text))
        return tn_error(TN_BAD_FILE, "a duplicate key \"%s\"; download the file again", rows->name);
    if (rows->later) {
        *rows->later = v;
        return TN_OK;
    }
    l->part_bytes += v.bytes;
    if (l->part_bytes > PARTS_BYTES)
        return tn_error(TN_BAD_FILE, "\"%s\" is longer than any tokenizer's; download the file again", rows->name);
    json_t *tree = json_loadb(v.text, v.bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err);
    if (tree && json_object_set_new(to, rows->name, tree) == 0) return TN_OK;
    return tn_error(TN_BAD_FILE, "%s: %s; download the file again", rows->name,
                    tn_text_quote(err.text, buf, sizeof buf));
}

static tn_status find_model(loader *l, tn_json *r)
{
    const part rows[] = { { "vocab", &l->vocab },
                          { "merges", &l->merges },
                          { "type", NULL },
                          { "dropout", NULL },
                          { "ignore_merges", NULL },
                          { "continuing_subword_prefix", NULL },
                          { "byte_fallback", NULL },
                          { "end_of_word_suffix", NULL },
                          { "unk_token", NULL },
                          { "fuse_unk", NULL },
                          { NULL, NULL } };
    if (json_object_get(l->root, "model"))
        return tn_error(TN_BAD_FILE, "a duplicate key \"model\"; download the file again");
    json_t *model = json_object();
    if (!model || json_object_set_new(l->root, "model", model) != 0)
        return tn_error(TN_MEMORY, "out of memory for a tokenizer; free memory and try again");
    if (!tn_json_enter(r, '{')) {
        (void)tn_json_skip(r);
        return json_object_set_new(l->root, "model", json_null()) == 0 ? TN_OK : TN_MEMORY;
    }
    while (tn_json_key(r)) TN_RETURN_IF(take_part(l, r, rows, model));
    return TN_OK;
}

static tn_status bad_json(const char *path, const tn_json *r)
{
    return tn_error(TN_BAD_FILE, "%.400s:%zu: %s; download the file again", path, tn_json_line(r), r->why);
}

static tn_status find_parts(loader *l, const char *path, span text)
{
    const part rows[] = { { "added_tokens", &l->added }, { "normalizer", NULL },     { "pre_tokenizer", NULL },
                          { "decoder", NULL },           { "post_processor", NULL }, { NULL, NULL } };
    tn_json r;
    tn_status s = TN_OK;
    tn_json_open(&r, text.text, text.bytes);
    r.nul = true; /* who reads a part decides */
    if (!tn_json_enter(&r, '{')) (void)tn_json_skip(&r);
    else
        while (s == TN_OK && tn_json_key(&r))
            s = tn_json_is(&r, "model") ? find_model(l, &r) : take_part(l, &r, rows, l->root);
    if (s == TN_OK && !tn_json_end(&r)) return bad_json(path, &r);
    if (s == TN_BAD_FILE) tn_error_prefix("%.400s", path);
    return s;
}

tn_status tn__load_hf(const char *path, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    char *text = NULL;
    size_t bytes;
    loader l = { .root = json_object() };
    if (!l.root) TN_FAIL(TN_MEMORY, "out of memory for a tokenizer; free memory and try again");
    TN_TRY(tn__tokenizer_new(TN_KIND_BPE, &l.t));
    TN_TRY(tn_file_read_all(path, TN_TOKENIZER_FILE_MAX_BYTES, &text, &bytes));
    l.t->vocab.most_bytes = bytes + TN_TABLES_BYTES;
    TN_TRY(find_parts(&l, path, (span){ text, bytes }));
    s = load_all(&l);
    if (s == TN_OK) s = tn__tokenizer_finish(l.t);
    if (s == TN_BAD_FILE) tn_error_prefix("%.400s", path);
    if (s != TN_OK) goto done;
    *out = l.t;
    l.t = NULL;
done:
    json_decref(l.root);
    tn_free(text);
    tn_tokenizer_free(l.t);
    return s;
}

/* --- GPT-2's own files: the same vocabulary and merges, apart ----------------------------------------------------- */

/* vocab.bpe: a "#version" line, then "left right" a line. */
static tn_status merges_from_text(tn_tokenizer *t, const char *text, size_t bytes)
{
    merge m;
    size_t i = 0;
    const char *end = text + bytes;
    for (const char *line = text, *next; line < end; line = next) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((newline ? newline : end) - line);
        next = newline ? newline + 1 : end;
        if (n && line[n - 1] == '\r') n--;
        if (n == 0 || (line == text && n >= 8 && memcmp(line, "#version", 8) == 0)) continue;
        if (i == TN_PAIRS_MAX) return tn_error(TN_BAD_FILE, "more than %d merges", TN_PAIRS_MAX);
        bool ok = n < sizeof m.text;
        if (ok) {
            memcpy(m.text, line, n);
            m.text[n] = 0;
            ok = strlen(m.text) == n && tn_utf8_valid(m.text) && halves_of(&m, m.text, n);
        }
        if (!ok)
            return tn_error(TN_BAD_FILE, "merge %zu is not two tokens of UTF-8 text; download the file again", i + 1);
        TN_RETURN_IF(put_merge(t, &m, i++));
    }
    return TN_OK;
}

static tn_status add_end_of_text(tn_tokenizer *t)
{
    static const char end[] = "<|endoftext|>";
    const int32_t id = tn_vocab_find(&t->vocab, end, sizeof end - 1);
    const tn_added a = { .id = id, .special = true };
    return id < 0 ? TN_OK : tn__tokenizer_add(t, a, end, sizeof end - 1);
}

static tn_status load_encoder(const char *path, tn_tokenizer *t)
{
    tn_status s = TN_OK;
    tn_json r;
    char *text = NULL;
    size_t bytes;
    TN_TRY(tn_file_read_all(path, TN_TOKENIZER_FILE_MAX_BYTES, &text, &bytes));
    t->vocab.most_bytes = bytes + TN_TABLES_BYTES;
    tn_json_open(&r, text, bytes);
    if (!tn_json_skip(&r) || !tn_json_end(&r)) {
        s = bad_json(path, &r);
        goto done;
    }
    s = load_vocab(t, (span){ text, bytes });
    if (s == TN_BAD_FILE) tn_error_prefix("%.400s", path);
done:
    tn_free(text);
    return s;
}

tn_status tn__load_gpt2(const char *encoder, const char *merges, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    char *text = NULL;
    size_t bytes;
    tn_tokenizer *t = NULL;
    TN_TRY(tn__tokenizer_new(TN_KIND_BPE, &t));
    TN_TRY(load_encoder(encoder, t));
    TN_TRY(tn_file_read_all(merges, TN_TOKENIZER_FILE_MAX_BYTES, &text, &bytes));
    t->vocab.most_bytes += bytes;
    s = merges_from_text(t, text, bytes);
    if (s == TN_OK) s = add_end_of_text(t);
    if (s == TN_OK) s = tn__tokenizer_split(t, tn_split_named("gpt2"), NULL, false);
    if (s == TN_OK) s = tn__tokenizer_finish(t);
    if (s == TN_BAD_FILE) tn_error_prefix("%.400s", merges);
    if (s != TN_OK) goto done;
    *out = t;
    t = NULL;
done:
    tn_free(text);
    tn_tokenizer_free(t);
    return s;
}
