/* Hugging Face tokenizer.json: byte-level BPE and what stands around it. Every part that changes ids is either
 * understood or refused by its name; nothing is skipped in silence but truncation and padding, which are the caller's
 * business. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"

#include <jansson.h>
#include <string.h>

typedef struct loader {
    tn_tokenizer *t;
    bool byte_level; /* a ByteLevel pre-tokenizer was seen */
} loader;

static tn_status unsupported(const char *part, const char *what)
{
    char buf[80];
    return tn_error(TN_BAD_FILE,
                    "%s \"%s\" is not supported; this reads byte-level BPE (see docs of tn_tokenizer_open)", part,
                    tn_text_quote(what ? what : "(none)", buf, sizeof buf));
}

static const char *type_of(const json_t *x)
{
    const char *s = json_string_value(json_object_get(x, "type"));
    return s ? s : "";
}

static bool is_unset(const json_t *x) /* missing, null, false, 0 or "" */
{
    return !x || json_is_null(x) || json_is_false(x) || (json_is_string(x) && json_string_length(x) == 0) ||
           (json_is_number(x) && json_number_value(x) == 0);
}

static bool flag(const json_t *x, const char *key, bool missing)
{
    const json_t *v = json_object_get(x, key);
    return v ? json_is_true(v) : missing;
}

/* --- the model: vocabulary and merges ----------------------------------------------------------------------------- */

static tn_status load_vocab(tn_tokenizer *t, json_t *vocab)
{
    const char *key;
    json_t *id;
    char bytes[2 * TN_PIECE_MAX_BYTES], buf[60];
    if (!json_is_object(vocab)) return tn_error(TN_BAD_FILE, "model.vocab is not an object; the file is damaged");
    if (json_object_size(vocab) > TN_VOCAB_MAX)
        return tn_error(TN_BAD_FILE, "model.vocab has %zu tokens; at most %d are read", json_object_size(vocab),
                        TN_VOCAB_MAX);
    json_object_foreach(vocab, key, id)
    {
        size_t n = strlen(key);
        if (!json_is_integer(id) || n > sizeof bytes)
            return tn_error(TN_BAD_FILE,
                            "model.vocab: \"%s\" is too long or its id is no whole number; the file is damaged",
                            tn_text_quote(key, buf, sizeof buf));
        const bool ours = tn__bytes_from_alphabet(key, n, bytes, &n);
        const tn_status s =
            tn_vocab_put(&t->vocab, json_integer_value(id), ours ? bytes : key, ours ? n : strlen(key), ours);
        if (s != TN_OK) {
            tn_error_prefix("model.vocab \"%s\"", tn_text_quote(key, buf, sizeof buf));
            return s;
        }
    }
    return TN_OK;
}

/* "left right", or [left, right], as two NUL-terminated halves of one buffer; false where it is neither. */
static bool halves(const json_t *merge, char *buf, size_t bytes, const char **left, const char **right)
{
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    const bool pair = json_is_string(a) && json_is_string(b) && json_array_size(merge) == 2;
    const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
    if (!pair && (!space || strchr(space + 1, ' '))) return false;
    const size_t n = pair ? json_string_length(a) : (size_t)(space - text);
    const char *second = pair ? json_string_value(b) : space + 1;
    const size_t m = strlen(second);
    if (n == 0 || m == 0 || n + m + 2 > bytes) return false;
    memcpy(buf, pair ? json_string_value(a) : text, n);
    buf[n] = 0;
    memcpy(buf + n + 1, second, m + 1);
    *left = buf;
    *right = buf + n + 1;
    return true;
}

static int32_t id_of(const json_t *vocab, const char *token)
{
    const json_t *id = json_object_get(vocab, token);
    return id ? (int32_t)json_integer_value(id) : -1; /* load_vocab has checked its range */
}

static tn_status load_merges(tn_tokenizer *t, const json_t *vocab, const json_t *merges)
{
    char two[4 * TN_PIECE_MAX_BYTES], whole[4 * TN_PIECE_MAX_BYTES], buf[60];
    if (!json_is_array(merges)) return tn_error(TN_BAD_FILE, "model.merges is not a list; the file is damaged");
    if (json_array_size(merges) > TN_PAIRS_MAX)
        return tn_error(TN_BAD_FILE, "model.merges has more than %d rows", TN_PAIRS_MAX);
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *left, *right;
        if (!halves(json_array_get(merges, i), two, sizeof two, &left, &right))
            return tn_error(TN_BAD_FILE, "model.merges[%zu] is not two tokens; the file is damaged", i);
        const size_t n = strlen(left);
        memcpy(whole, left, n);
        memcpy(whole + n, right, strlen(right) + 1);
        const int32_t a = id_of(vocab, left), b = id_of(vocab, right), c = id_of(vocab, whole);
        if (a < 0 || b < 0 || c < 0)
            return tn_error(TN_BAD_FILE, "model.merges[%zu]: \"%s\" is not in the vocabulary; the file is damaged", i,
                            tn_text_quote(a < 0   ? left
                                          : b < 0 ? right
                                                  : whole,
                                          buf, sizeof buf));
        TN_RETURN_IF(tn_vocab_pair_put(&t->vocab, a, b, (uint32_t)i, c));
    }
    return TN_OK;
}

static tn_status load_model(tn_tokenizer *t, const json_t *model)
{
    static const char *const unset[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                         "byte_fallback" };
    json_t *vocab = json_object_get(model, "vocab");
    const char *type = type_of(model);
    if (strcmp(type, "BPE") != 0 && !(*type == 0 && json_object_get(model, "merges")))
        return unsupported("model type", type);
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
        if (!is_unset(json_object_get(model, unset[i]))) return unsupported("model option", unset[i]);
    t->whole_first = flag(model, "ignore_merges", false);
    TN_RETURN_IF(load_vocab(t, vocab));
    return load_merges(t, vocab, json_object_get(model, "merges"));
}

/* --- around the model --------------------------------------------------------------------------------------------- */

static tn_status load_normalizer(tn_tokenizer *t, const json_t *x)
{
    if (is_unset(x)) return TN_OK;
    if (strcmp(type_of(x), "NFC") == 0) return t->nfc = true, TN_OK;
    const json_t *list = json_object_get(x, "normalizers");
    if (strcmp(type_of(x), "Sequence") != 0 || json_array_size(list) > TN_SPLITS_MAX)
        return unsupported("normalizer", type_of(x));
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(type_of(json_array_get(list, i)), "NFC") != 0)
            return unsupported("normalizer", type_of(json_array_get(list, i)));
        t->nfc = true;
    }
    return TN_OK;
}

static tn_status load_byte_level(loader *l, const json_t *x)
{
    if (l->byte_level) return unsupported("pre_tokenizer", "ByteLevel, twice");
    l->byte_level = true;
    l->t->prefix_space = flag(x, "add_prefix_space", true);
    if (l->t->prefix_space && l->t->n_splits)
        return unsupported("pre_tokenizer", "ByteLevel with add_prefix_space after a split");
    return flag(x, "use_regex", true) ? tn__tokenizer_split(l->t, tn_split_named("gpt2"), NULL, false) : TN_OK;
}

/* A literal string as a regular expression. */
static tn_status split_on_string(tn_tokenizer *t, const char *text, bool drop_rest)
{
    char regex[3 * 256 + 1];
    size_t n = 0;
    if (strlen(text) > 256) return unsupported("Split pattern", "a string of more than 256 bytes");
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
    const bool invert = flag(x, "invert", false);
    const bool keep = behavior && strcmp(behavior, "Isolated") == 0; /* inverted or not: the same pieces */
    const bool drop = behavior && strcmp(behavior, "Removed") == 0 && invert;
    if (l->byte_level) return unsupported("pre_tokenizer", "Split after ByteLevel");
    if (!keep && !drop) return unsupported("Split behavior", behavior);
    if (string && *string) return split_on_string(l->t, string, drop);
    if (!regex) return unsupported("Split pattern", "neither Regex nor String");
    const tn_split_pattern *known = tn_split_known(regex);
    return tn__tokenizer_split(l->t, known, regex, drop);
}

static tn_status load_pre_tokenizer(loader *l, const json_t *x, int depth)
{
    const char *type = type_of(x);
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level(l, x);
    if (strcmp(type, "Split") == 0) return load_split(l, x);
    if (strcmp(type, "Digits") == 0 && !l->byte_level)
        return tn__tokenizer_split(l->t, &tn_split_digits[flag(x, "individual_digits", false)], NULL, false);
    const json_t *list = json_object_get(x, "pretokenizers");
    if (strcmp(type, "Sequence") != 0 || depth > 0 || json_array_size(list) > 2 * TN_SPLITS_MAX)
        return unsupported("pre_tokenizer", type);
    for (size_t i = 0; i < json_array_size(list); i++)
        TN_RETURN_IF(load_pre_tokenizer(l, json_array_get(list, i), depth + 1));
    return TN_OK;
}

static tn_status load_added(tn_tokenizer *t, const json_t *list)
{
    if (list && !json_is_null(list) && !json_is_array(list))
        return tn_error(TN_BAD_FILE, "added_tokens is not a list; the file is damaged");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i), *id = json_object_get(x, "id"),
                     *content = json_object_get(x, "content");
        if (!json_is_integer(id) || !json_is_string(content) || json_string_length(content) == 0)
            return tn_error(TN_BAD_FILE, "added_tokens[%zu] has no id or no content; the file is damaged", i);
        if (json_integer_value(id) < 0 || json_integer_value(id) >= TN_VOCAB_MAX)
            return tn_error(TN_BAD_FILE, "added_tokens[%zu]: its id is outside 0..%d; the file is damaged", i,
                            TN_VOCAB_MAX - 1);
        if (flag(x, "single_word", false)) return unsupported("added token option", "single_word");
        const tn_added a = { .id = (int32_t)json_integer_value(id),
                             .special = flag(x, "special", false),
                             .normalized = flag(x, "normalized", false),
                             .lstrip = flag(x, "lstrip", false),
                             .rstrip = flag(x, "rstrip", false) };
        TN_RETURN_IF(tn__tokenizer_add(t, a, json_string_value(content), json_string_length(content)));
    }
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
            return unsupported("post_processor", "TemplateProcessing with more than one token before the text");
        t->template_bos = tn_tokenizer_find(t, name);
        if (t->template_bos < 0)
            return tn_error(TN_BAD_FILE, "post_processor: its first token is not in the vocabulary");
    }
    return TN_OK;
}

static tn_status load_post(tn_tokenizer *t, const json_t *x, int depth)
{
    const char *type = type_of(x);
    if (is_unset(x) || strcmp(type, "ByteLevel") == 0) return TN_OK; /* ByteLevel trims offsets, no ids */
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(t, x);
    const json_t *list = json_object_get(x, "processors");
    if (strcmp(type, "Sequence") != 0 || depth > 0) return unsupported("post_processor", type);
    for (size_t i = 0; i < json_array_size(list); i++) TN_RETURN_IF(load_post(t, json_array_get(list, i), depth + 1));
    return TN_OK;
}

static tn_status load_all(tn_tokenizer *t, const json_t *root)
{
    loader l = { .t = t };
    const json_t *decoder = json_object_get(root, "decoder");
    if (!json_is_object(json_object_get(root, "model")))
        return tn_error(TN_BAD_FILE, "there is no \"model\"; is this a tokenizer.json?");
    if (is_unset(json_object_get(root, "pre_tokenizer"))) return unsupported("pre_tokenizer", "none");
    TN_RETURN_IF(load_pre_tokenizer(&l, json_object_get(root, "pre_tokenizer"), 0));
    if (!l.byte_level) return unsupported("pre_tokenizer", "one without ByteLevel");
    if (!is_unset(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0)
        return unsupported("decoder", type_of(decoder));
    TN_RETURN_IF(load_normalizer(t, json_object_get(root, "normalizer")));
    TN_RETURN_IF(load_model(t, json_object_get(root, "model")));
    TN_RETURN_IF(load_added(t, json_object_get(root, "added_tokens")));
    return load_post(t, json_object_get(root, "post_processor"), 0);
}

static tn_status read_json(const char *path, json_t **out)
{
    json_error_t err;
    char *text = NULL, buf[160];
    size_t bytes;
    TN_RETURN_IF(tn_file_read_all(path, TN_TOKENIZER_FILE_MAX_BYTES, &text, &bytes));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    tn_free(text);
    if (!root)
        return tn_error(TN_BAD_FILE, "%.400s:%d: %s; get the file again", path, err.line,
                        tn_text_quote(err.text, buf, sizeof buf));
    *out = root;
    return TN_OK;
}

tn_status tn__load_hf(const char *path, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    json_t *root = NULL;
    tn_tokenizer *t = NULL;
    TN_TRY(tn__tokenizer_new(TN_KIND_BPE, &t));
    TN_TRY(read_json(path, &root));
    TN_TRY(load_all(t, root));
    TN_TRY(tn__tokenizer_finish(t));
    *out = t;
    t = NULL;
done:
    if (s == TN_BAD_FILE && root) tn_error_prefix("%.400s", path);
    json_decref(root);
    tn_tokenizer_free(t);
    return s;
}

/* --- GPT-2's own files: the same vocabulary and merges, apart ----------------------------------------------------- */

/* vocab.bpe: a "#version" line, then "left right" a line. */
static tn_status merges_from_text(char *text, json_t **out)
{
    tn_status s = TN_OK;
    json_t *list = json_array();
    for (char *line = text, *end; list && *line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = 0;
        else end = line + strlen(line);
        const size_t n = strlen(line);
        if (n && line[n - 1] == '\r') line[n - 1] = 0;
        if (*line == 0 || (line == text && strncmp(line, "#version", 8) == 0)) continue;
        json_t *row = json_string(line);
        if (!row) TN_FAIL(TN_BAD_FILE, "line %zu is not UTF-8; get the file again", json_array_size(list) + 2);
        if (json_array_append_new(list, row) != 0)
            TN_FAIL(TN_MEMORY, "out of memory for merges; end other programs and try again");
    }
    if (!list) TN_FAIL(TN_MEMORY, "out of memory for merges; end other programs and try again");
    *out = list;
    list = NULL;
done:
    json_decref(list);
    return s;
}

static tn_status add_end_of_text(tn_tokenizer *t, const json_t *vocab)
{
    static const char end[] = "<|endoftext|>";
    const int32_t id = id_of(vocab, end);
    const tn_added a = { .id = id, .special = true };
    return id < 0 ? TN_OK : tn__tokenizer_add(t, a, end, sizeof end - 1);
}

tn_status tn__load_gpt2(const char *encoder, const char *merges, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    json_t *vocab = NULL, *list = NULL;
    char *text = NULL;
    size_t bytes;
    const char *path = NULL; /* the file that is read and looked at */
    tn_tokenizer *t = NULL;
    TN_TRY(tn__tokenizer_new(TN_KIND_BPE, &t));
    TN_TRY(read_json(encoder, &vocab));
    path = encoder;
    TN_TRY(load_vocab(t, vocab));
    path = NULL;
    TN_TRY(tn_file_read_all(merges, TN_TOKENIZER_FILE_MAX_BYTES, &text, &bytes));
    path = merges;
    if (strlen(text) != bytes) TN_FAIL(TN_BAD_FILE, "byte %zu is NUL; get the file again", strlen(text));
    TN_TRY(merges_from_text(text, &list));
    TN_TRY(load_merges(t, vocab, list));
    TN_TRY(add_end_of_text(t, vocab));
    TN_TRY(tn__tokenizer_split(t, tn_split_named("gpt2"), NULL, false));
    TN_TRY(tn__tokenizer_finish(t));
    *out = t;
    t = NULL;
done:
    if (s == TN_BAD_FILE && path) tn_error_prefix("%.400s", path);
    json_decref(list);
    json_decref(vocab);
    tn_free(text);
    tn_tokenizer_free(t);
    return s;
}
