/* The vocabulary inside a GGUF file. tokenizer.ggml.model says the kind: "llama" is sentencepiece's BPE by scores, "gpt2"
 * byte-level BPE whose tokenizer.ggml.pre names how text is split. Files name that, they do not spell it: the table below has
 * the splits and what else the model's own tokenizer.json does (NFC, whole words first). A kind or a name that is not here is
 * refused by it, because its ids would be wrong without an error message.
 *
 * Token types: control tokens are special; user-defined ones are looked for in every text; unused ones (padding of the
 * vocabulary) have a text but no text becomes them. */
#include "token/load_hf.h"
#include "token/load_spm.h"

#include "base/alloc.h"
#include "io/gguf.h"

#include <stdio.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name
enum { UNDEFINED = 0, SPLITS = 4 };

#define GPT2 "gpt2", NULL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                                         \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER                                \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct pre {
    const char *names; /* with spaces between them */
    const char
        *split[SPLITS]; /* one after another: "digit", "digits", a known pattern or an expression; ends with NULL */
    bool nfc, whole_first, bos;
} pres[] = {
    { "llama-bpe llama3 llama-v3 falcon3 pixtral", { "llama3", NULL }, .whole_first = true, .bos = true },
    { "qwen2 deepseek-r1-qwen", { "qwen2", NULL }, .nfc = true },
    { "stablelm2", { "qwen2", NULL }, .nfc = false },
    { "gpt-2 phi-2 exaone4", { GPT2 }, .nfc = false },
    { "mpt olmo", { GPT2 }, .nfc = true },
    { "smollm starcoder refact codeshell", { "digit", GPT2 }, .nfc = false },
    { "command-r", { "digit", GPT2 }, .nfc = true },
    { "gpt-4o llama4", { "o200k", NULL }, .nfc = false },
    { "tekken", { TEKKEN, NULL }, .whole_first = true, .bos = true },
    { "falcon", { "[\\p{P}\\$\\+<=>\\^~\\|`]+", "gpt2", "[0-9][0-9][0-9]", NULL }, .nfc = false },
    { "default", { "[\\p{P}\\$\\+<=>\\^~\\|]+", "gpt2", "digits", "[0-9][0-9][0-9]" }, .nfc = false },
};

typedef struct loader {
    tn_gguf *file;
    const tn_gguf_value *tokens, *types, *scores, *merges; /* NULL: none */
    tn_spm_loader x;                                       /* the kind SPM; else only its t */
} loader;

static tn_status missing(const char *key)
{
    return tn_error(TN_BAD_FILE,
                    "it has no list %s: the file holds no vocabulary that can be read; name the tokenizer "
                    "with tokenizer=FILE",
                    key);
}

/* A list of `count` items (0: any number) that are texts or numbers. */
static tn_status find_list(const loader *l, const char *key, bool texts, uint64_t count, const tn_gguf_value **out)
{
    const tn_gguf_value *v = tn_gguf_key(l->file, key);
    if (!v || !v->is_list || (v->kind == TN_GGUF_TEXT) != texts) return missing(key);
    if (count && v->count != count)
        return tn_error(TN_BAD_FILE, "%s has %llu items for %llu tokens; the file is damaged", key,
                        (unsigned long long)v->count, (unsigned long long)count);
    *out = v;
    return TN_OK;
}

/* The id of a key, or -1 where it is absent. */
static tn_status find_id(const loader *l, const char *key, int32_t *out)
{
    int64_t id = -1;
    *out = -1;
    if (!tn_gguf_key(l->file, key)) return TN_OK;
    TN_RETURN_IF(tn_gguf_integer(l->file, key, &id));
    if (id < 0 || (uint64_t)id >= l->tokens->count)
        return tn_error(TN_BAD_FILE, "%s is %lld, and there are %llu tokens; the file is damaged", key, (long long)id,
                        (unsigned long long)l->tokens->count);
    *out = (int32_t)id;
    return TN_OK;
}

static tn_status find_flag(const loader *l, const char *key, bool *inout)
{
    int64_t x = *inout;
    if (tn_gguf_key(l->file, key)) TN_RETURN_IF(tn_gguf_integer(l->file, key, &x));
    *inout = x != 0;
    return TN_OK;
}

/* BOS only where texts begin with it: a file may name one that its model was never shown. */
static tn_status find_roles(const loader *l, bool bos)
{
    tn_tokenizer *t = l->x.t;
    int32_t id;
    TN_RETURN_IF(find_flag(l, KEY("add_bos_token"), &bos));
    TN_RETURN_IF(find_id(l, KEY("bos_token_id"), &id));
    t->role[TN_TOKEN_BOS] = bos ? id : -1;
    TN_RETURN_IF(find_id(l, KEY("eos_token_id"), &id));
    t->role[TN_TOKEN_EOS] = t->role[TN_TOKEN_END] = id;
    t->roles_given = true;
    return TN_OK;
}

/* --- sentencepiece ------------------------------------------------------------------------------------------------ */

static tn_status put_pieces(loader *l)
{
    size_t at = 0;
    int32_t unknown;
    tn_gguf_text text;
    TN_RETURN_IF(find_id(l, KEY("unknown_token_id"), &unknown));
    if (unknown < 0) unknown = 0;
    for (uint64_t i = 0; tn_gguf_text_next(l->tokens, &at, &text); i++) {
        const double type = tn_gguf_number_at(l->types, i);
        uint64_t as = type == UNDEFINED ? TN_SPM_NORMAL : type > 0 && type <= TN_SPM_BYTE ? (uint64_t)type : UINT64_MAX;
        if (i == (uint64_t)unknown) as = TN_SPM_UNKNOWN;
        else if (as == TN_SPM_UNKNOWN) as = TN_SPM_UNUSED; /* older files call padding unknown */
        TN_RETURN_IF(
            tn__spm_put(&l->x, (tn_spm_text){ text.data, text.bytes }, (float)tn_gguf_number_at(l->scores, i), as));
    }
    return TN_OK;
}

static tn_status load_scored(loader *l)
{
    tn_marked *m = &l->x.t->marked;
    TN_RETURN_IF(find_list(l, KEY("scores"), false, l->tokens->count, &l->scores));
    l->x.t->vocab.most_bytes = l->tokens->bytes + l->scores->bytes + TN_TABLES_BYTES / 2;
    m->squeeze = false;
    TN_RETURN_IF(find_flag(l, KEY("add_space_prefix"), &m->dummy_prefix));
    TN_RETURN_IF(find_flag(l, KEY("remove_extra_whitespaces"), &m->squeeze));
    const tn_gguf_value *rules = tn_gguf_key(l->file, KEY("precompiled_charsmap"));
    if (rules && (!rules->is_list || (rules->kind != TN_GGUF_U8 && rules->kind != TN_GGUF_I8)))
        return tn_error(TN_BAD_FILE, "%s is no list of bytes; the file is damaged", KEY("precompiled_charsmap"));
    if (rules) l->x.charsmap = (tn_spm_text){ (const char *)rules->data, rules->bytes };
    TN_RETURN_IF(put_pieces(l));
    m->fallback = l->x.t->byte_id[0] >= 0;
    TN_RETURN_IF(tn__spm_fill(&l->x));
    TN_RETURN_IF(find_roles(l, true));
    return tn__spm_pairs(&l->x, 0);
}

/* --- byte-level ----------------------------------------------------------------------------------------------------- */

static tn_status put_token(tn_tokenizer *t, int32_t id, tn_gguf_text text, double type)
{
    char bytes[2 * TN_PIECE_MAX_BYTES];
    size_t n = 0;
    if (!text.bytes || text.bytes > sizeof bytes)
        return tn_error(TN_BAD_FILE, "token %d is empty or too long; the file is damaged", id);
    const bool spelled = tn__bytes_from_alphabet(text.data, text.bytes, bytes, &n);
    if (type == TN_SPM_CONTROL || type == TN_SPM_USER_DEFINED) {
        const tn_added a = { .id = id, .special = type == TN_SPM_CONTROL };
        return tn__tokenizer_add(t, a, text.data, text.bytes);
    }
    if (type == TN_SPM_UNUSED || type == TN_SPM_UNKNOWN)
        return tn_vocab_put(&t->vocab, id, text.data, text.bytes, false);
    if (type != TN_SPM_NORMAL && type != UNDEFINED)
        return tn_error(TN_BAD_FILE, "token %d has the type %g, which byte-level BPE does not have", id, type);
    return tn_vocab_put(&t->vocab, id, spelled ? bytes : text.data, spelled ? n : text.bytes, spelled);
}

static bool has_name(const char *names, tn_gguf_text name)
{
    for (const char *at = names; *at;) {
        const size_t n = strcspn(at, " ");
        if (name.bytes == n && memcmp(at, name.data, n) == 0) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

static tn_status find_pre(const loader *l, const struct pre **out)
{
    tn_gguf_text name = { "default", 7 }; /* older files name none */
    if (tn_gguf_key(l->file, KEY("pre"))) TN_RETURN_IF(tn_gguf_text_of(l->file, KEY("pre"), &name));
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (has_name(pres[i].names, name)) return *out = &pres[i], TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%s is \"%s\", a way to split text that is not supported; name the model's tokenizer.json with "
                    "tokenizer=FILE",
                    KEY("pre"), tn_gguf_show(name).text);
}

static tn_status put_splits(tn_tokenizer *t, const struct pre *p)
{
    for (int i = 0; i < SPLITS && p->split[i]; i++) {
        const char *s = p->split[i];
        const tn_split_pattern *known = strcmp(s, "digit") == 0    ? &tn_split_digits[1]
                                        : strcmp(s, "digits") == 0 ? &tn_split_digits[0]
                                                                   : tn_split_named(s);
        TN_RETURN_IF(tn__tokenizer_split(t, known, s, false));
    }
    t->nfc = p->nfc;
    t->whole_first = p->whole_first;
    return TN_OK;
}

static tn_status put_merges(loader *l)
{
    size_t at = 0;
    tn_gguf_text text;
    if (l->merges->count > TN_PAIRS_MAX)
        return tn_error(TN_BAD_FILE, "%s has more than %d rows", KEY("merges"), TN_PAIRS_MAX);
    for (size_t i = 0; tn_gguf_text_next(l->merges, &at, &text); i++) {
        const tn_status s = tn__hf_put_merge(l->x.t, text.data, text.bytes, i);
        if (s == TN_BAD_FILE) tn_error_prefix("%s", KEY("merges"));
        TN_RETURN_IF(s);
    }
    return TN_OK;
}

static tn_status load_byte_level(loader *l)
{
    const struct pre *p = NULL;
    size_t at = 0;
    tn_gguf_text text;
    TN_RETURN_IF(find_pre(l, &p));
    TN_RETURN_IF(find_list(l, KEY("merges"), true, 0, &l->merges));
    TN_RETURN_IF(tn__tokenizer_new(TN_KIND_BPE, &l->x.t));
    l->x.t->vocab.most_bytes = l->tokens->bytes + l->merges->bytes + TN_TABLES_BYTES;
    l->x.t->skips_bytes = true;
    TN_RETURN_IF(find_flag(l, KEY("add_space_prefix"), &l->x.t->prefix_space));
    TN_RETURN_IF(put_splits(l->x.t, p));
    for (uint64_t i = 0; tn_gguf_text_next(l->tokens, &at, &text); i++)
        TN_RETURN_IF(put_token(l->x.t, (int32_t)i, text, tn_gguf_number_at(l->types, i)));
    TN_RETURN_IF(put_merges(l));
    return find_roles(l, p->bos);
}

/* --- the file ------------------------------------------------------------------------------------------------------- */

static tn_status load(loader *l)
{
    tn_gguf_text model = { 0 };
    if (!tn_gguf_key(l->file, KEY("model"))) return missing(KEY("tokens"));
    TN_RETURN_IF(tn_gguf_text_of(l->file, KEY("model"), &model));
    TN_RETURN_IF(find_list(l, KEY("tokens"), true, 0, &l->tokens));
    if (l->tokens->count == 0 || l->tokens->count > TN_VOCAB_MAX)
        return tn_error(TN_BAD_FILE, "%s has %llu tokens, outside 1 to %d; the file is damaged", KEY("tokens"),
                        (unsigned long long)l->tokens->count, TN_VOCAB_MAX);
    TN_RETURN_IF(find_list(l, KEY("token_type"), false, l->tokens->count, &l->types));
    if (tn_gguf_text_is(model, "gpt2")) return load_byte_level(l);
    if (!tn_gguf_text_is(model, "llama"))
        return tn_error(TN_BAD_FILE,
                        "%s is \"%s\", and only llama (sentencepiece's BPE) and gpt2 (byte-level BPE) are supported",
                        KEY("model"), tn_gguf_show(model).text);
    TN_RETURN_IF(tn__spm_begin(&l->x));
    return load_scored(l);
}

tn_status tn__load_gguf(const char *path, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    loader l = { 0 };
    TN_TRY(tn_gguf_open(path, &l.file));
    s = load(&l);
    if (s == TN_OK) s = tn__tokenizer_finish(l.x.t);
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), path)) tn_error_prefix("%.400s", path);
    if (s != TN_OK) goto done;
    *out = l.x.t;
    l.x.t = NULL;
done:
    tn_gguf_close(l.file);
    tn__spm_end(&l.x);
    return s;
}
