/* tokenizer.json of vocabularies with U+2581 for a space (Llama 2, Mistral, TinyLlama, Gemma): what stands around the
 * model. A normalizer of Prepend, Replace and NFC, a Metaspace pre-tokenizer or none, a decoder of Replace,
 * ByteFallback, Fuse and Strip, or Metaspace. */
#include "token/load_hf.h"

#include <string.h>

static bool is_type(const json_t *x, const char *type) { return strcmp(tn__hf_type(x), type) == 0; }

/* x is of the type, or a Sequence whose list under `key` has one that is. */
static bool mentions(const json_t *x, const char *key, const char *type)
{
    const json_t *list = json_object_get(x, key);
    if (is_type(x, type)) return true;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_type(json_array_get(list, i), type)) return true;
    return false;
}

bool tn__hf_is_marked(const json_t *root)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer"), *normalizer = json_object_get(root, "normalizer");
    if (mentions(pre, "pretokenizers", "ByteLevel")) return false;
    return tn__hf_flag(json_object_get(root, "model"), "byte_fallback", false) ||
           mentions(pre, "pretokenizers", "Metaspace") || mentions(normalizer, "normalizers", "Prepend") ||
           mentions(normalizer, "normalizers", "Replace");
}

static bool is_text(const json_t *x, const char *key, const char *want)
{
    const char *s = json_string_value(json_object_get(x, key));
    return s && strcmp(s, want) == 0;
}

static bool replaces(const json_t *x, const char *from, const char *to)
{
    return is_text(json_object_get(x, "pattern"), "String", from) && is_text(x, "content", to);
}

static tn_status put_step(tn_tokenizer *t, const json_t *x)
{
    tn_normal_step step;
    if (is_type(x, "NFC")) step = TN_NORMAL_NFC;
    else if (is_type(x, "Prepend") && is_text(x, "prepend", TN_SPACE_MARK)) step = TN_NORMAL_PREPEND;
    else if (is_type(x, "Replace") && replaces(x, " ", TN_SPACE_MARK)) step = TN_NORMAL_REPLACE;
    else if (is_type(x, "Prepend")) return tn__hf_unsupported("normalizer", "Prepend of another text than U+2581");
    else if (is_type(x, "Replace")) return tn__hf_unsupported("normalizer", "Replace other than a space by U+2581");
    else return tn__hf_unsupported("normalizer", tn__hf_type(x));
    if (t->marked.n_steps == TN_SPLITS_MAX) return tn__hf_unsupported("normalizer", "Sequence of more than 8");
    t->marked.step[t->marked.n_steps++] = step;
    return TN_OK;
}

static tn_status load_normalizer(tn_tokenizer *t, const json_t *x)
{
    const json_t *list = json_object_get(x, "normalizers");
    if (tn__hf_unset(x)) return TN_OK;
    if (!is_type(x, "Sequence")) return put_step(t, x);
    for (size_t i = 0; i < json_array_size(list); i++) TN_RETURN_IF(put_step(t, json_array_get(list, i)));
    return TN_OK;
}

static tn_status read_scheme(const json_t *x, const char *part, tn_prepend *out)
{
    const char *scheme = json_string_value(json_object_get(x, "prepend_scheme"));
    if (!is_text(x, "replacement", TN_SPACE_MARK)) return tn__hf_unsupported(part, "Metaspace of another character");
    if (!scheme) scheme = tn__hf_flag(x, "add_prefix_space", true) ? "always" : "never"; /* older files */
    if (strcmp(scheme, "always") == 0) *out = TN_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0) *out = TN_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0) *out = TN_PREPEND_NEVER;
    else return tn__hf_unsupported("prepend_scheme", scheme);
    return TN_OK;
}

/* Gemma splits at spaces after a normalizer that leaves none. */
static bool splits_nothing(const tn_tokenizer *t, const json_t *x)
{
    const tn_marked *m = &t->marked;
    if (!is_type(x, "Split") || !is_text(json_object_get(x, "pattern"), "String", " ")) return false;
    return m->n_steps && m->step[m->n_steps - 1] == TN_NORMAL_REPLACE;
}

static tn_status load_pre_tokenizer(tn_tokenizer *t, const json_t *x)
{
    const json_t *list = json_object_get(x, "pretokenizers");
    if (is_type(x, "Sequence") && json_array_size(list) == 1) x = json_array_get(list, 0);
    if (tn__hf_unset(x) || splits_nothing(t, x)) return TN_OK;
    if (is_type(x, "Sequence")) return tn__hf_unsupported("pre_tokenizer", "Sequence of Metaspace and others");
    if (!is_type(x, "Metaspace")) return tn__hf_unsupported("pre_tokenizer", tn__hf_type(x));
    t->marked.metaspace = true;
    t->marked.split = tn__hf_flag(x, "split", true);
    return read_scheme(x, "pre_tokenizer", &t->marked.prepend);
}

static tn_status load_metaspace_decoder(tn_marked *m, const json_t *x)
{
    tn_prepend scheme;
    TN_RETURN_IF(read_scheme(x, "decoder", &scheme));
    m->shows_spaces = true;
    if (scheme != TN_PREPEND_NEVER) m->strip = TN_STRIP_FIRST_TOKEN;
    return TN_OK;
}

/* One decoder of the chain. *place: how far the chain is; in another order they would give other texts. */
static tn_status put_decoder(tn_marked *m, const json_t *x, int *place)
{
    static const char *const order[] = { "", "Replace", "ByteFallback", "Fuse", "Strip" };
    enum { CHAIN = sizeof order / sizeof *order };
    int at = 1;
    while (at < CHAIN && !is_type(x, order[at])) at++;
    if (is_type(x, "Metaspace")) at = 1; /* in the place of Replace */
    if (at == CHAIN) return tn__hf_unsupported("decoder", tn__hf_type(x));
    if (at <= *place || (at == 4 && *place != 3))
        return tn__hf_unsupported("decoder", "Sequence in another order than Replace, ByteFallback, Fuse, Strip");
    *place = at;
    if (is_type(x, "Metaspace")) return load_metaspace_decoder(m, x);
    if (at == 1 && !replaces(x, TN_SPACE_MARK, " "))
        return tn__hf_unsupported("decoder", "Replace other than U+2581 by a space");
    if (at == 1) m->shows_spaces = true;
    if (at == 2) m->shows_bytes = true;
    if (at < 4) return TN_OK;
    const json_int_t start = json_integer_value(json_object_get(x, "start"));
    if (!is_text(x, "content", " ") || start < 0 || start > 1 || !tn__hf_unset(json_object_get(x, "stop")))
        return tn__hf_unsupported("decoder", "Strip other than of one space at the start");
    if (start == 1) m->strip = TN_STRIP_ONE;
    return TN_OK;
}

static tn_status load_decoder(tn_marked *m, const json_t *x)
{
    const json_t *list = json_object_get(x, "decoders");
    int place = 0;
    if (tn__hf_unset(x)) return tn__hf_unsupported("decoder", "none");
    if (!is_type(x, "Sequence")) return put_decoder(m, x, &place);
    for (size_t i = 0; i < json_array_size(list); i++) TN_RETURN_IF(put_decoder(m, json_array_get(list, i), &place));
    return TN_OK;
}

tn_status tn__hf_load_marked(tn_tokenizer *t, const json_t *root)
{
    TN_RETURN_IF(load_normalizer(t, json_object_get(root, "normalizer")));
    TN_RETURN_IF(load_pre_tokenizer(t, json_object_get(root, "pre_tokenizer")));
    return load_decoder(&t->marked, json_object_get(root, "decoder"));
}
