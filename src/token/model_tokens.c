/* Reads the small files that stand beside a tokenizer. A file that is not there says nothing; one that is damaged is an error,
 * because a model without its end tokens talks on for ever. */
#include "token/model_tokens.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/gguf.h"
#include "io/json_read.h"
#include "token/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 4 << 20, TEMPLATE_BYTES = 1 << 20 };

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static void add_end(tn_model_tokens *m, int32_t id)
{
    for (size_t i = 0; i < m->n_end; i++)
        if (m->end[i] == id) return;
    if (id >= 0 && m->n_end < TN_END_TOKENS_MAX) m->end[m->n_end++] = id;
}

static tn_status add_checked(tn_model_tokens *m, const tn_tokenizer *t, const char *key, int64_t id)
{
    if (id < 0 || id >= tn_tokenizer_vocab(t))
        return tn_error(TN_BAD_FILE, "%s is %lld, and the vocabulary has %lld tokens; is it another model's file?", key,
                        (long long)id, (long long)tn_tokenizer_vocab(t));
    if (m->n_end == TN_END_TOKENS_MAX)
        return tn_error(TN_BAD_FILE, "%s: more than %d end tokens; the file is damaged", key, TN_END_TOKENS_MAX);
    add_end(m, (int32_t)id);
    return TN_OK;
}

/* A special token by its text; -1: none. */
static int32_t special_named(const tn_tokenizer *t, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < t->n_added; i++) {
        const tn_added *a = t->added + i;
        if (a->special && a->bytes == n && memcmp(tn_vocab_bytes(&t->vocab, a->id), name, n) == 0) return a->id;
    }
    return -1;
}

tn_model_tokens tn_model_tokens_of(const tn_tokenizer *t)
{
    static const char *const names[] = { "<|eot_id|>",    "<|eom_id|>", "<|im_end|>", "<|end_of_text|>",
                                         "<|endoftext|>", "</s>",       "<eos>",      "<end_of_turn>",
                                         "<|end|>",       "<|eot|>" };
    tn_model_tokens m = { .start = tn_tokenizer_special(t, TN_TOKEN_BOS) };
    add_end(&m, tn_tokenizer_special(t, TN_TOKEN_EOS));
    add_end(&m, tn_tokenizer_special(t, TN_TOKEN_END));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) add_end(&m, special_named(t, names[i]));
    return m;
}

void tn_model_tokens_free(tn_model_tokens *m)
{
    tn_free(m->chat_template);
    *m = (tn_model_tokens){ .start = -1 };
}

static tn_status keep_template(tn_model_tokens *m, const char *text, size_t bytes)
{
    char *copy;
    if (bytes > TEMPLATE_BYTES)
        return tn_error(TN_BAD_FILE, "the chat template has %zu bytes; at most %d are read", bytes, TEMPLATE_BYTES);
    if (!(copy = tn_alloc(bytes + 1))) return TN_MEMORY;
    memcpy(copy, text, bytes);
    tn_free(m->chat_template);
    m->chat_template = copy;
    return TN_OK;
}

/* --- GGUF --------------------------------------------------------------------------------------------------------- */

static tn_status read_gguf(const char *path, const tn_tokenizer *t, tn_model_tokens *m)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    tn_status s = TN_OK;
    tn_gguf *f = NULL;
    tn_gguf_text text;
    TN_TRY(tn_gguf_open(path, &f));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = 0;
        if (!tn_gguf_key(f, keys[i])) continue;
        TN_TRY(tn_gguf_integer(f, keys[i], &id));
        TN_TRY(add_checked(m, t, keys[i], id));
    }
    if (tn_gguf_key(f, "tokenizer.chat_template")) {
        TN_TRY(tn_gguf_text_of(f, "tokenizer.chat_template", &text));
        TN_TRY(keep_template(m, text.data, text.bytes));
    }
done:
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), path)) tn_error_prefix("%.400s", path);
    tn_gguf_close(f);
    return s;
}

/* --- a folder ----------------------------------------------------------------------------------------------------- */

/* *out is NULL where there is no such file. */
static tn_status read_text(const char *folder, const char *name, char path[TN_PATH_BYTES], char **out, size_t *bytes)
{
    *out = NULL;
    TN_RETURN_IF(tn_path_join(folder, name, path, TN_PATH_BYTES));
    return access(path, F_OK) == 0 ? tn_file_read_all(path, FILE_BYTES, out, bytes) : TN_OK;
}

static tn_status take_ids(tn_model_tokens *m, const tn_tokenizer *t, const json_t *v)
{
    static const char key[] = "eos_token_id";
    if (json_is_integer(v)) return add_checked(m, t, key, json_integer_value(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (!json_is_integer(json_array_get(v, i)))
            return tn_error(TN_BAD_FILE, "eos_token_id[%zu] is no integer; the file is damaged", i);
        TN_RETURN_IF(add_checked(m, t, key, json_integer_value(json_array_get(v, i))));
    }
    return TN_OK;
}

/* A text, or a list of {"name": , "template": } of which the one named default is taken. */
static const json_t *default_template(const json_t *v)
{
    if (json_is_string(v)) return v;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(one, "template");
    }
    return NULL;
}

static tn_status take_config(tn_model_tokens *m, const tn_tokenizer *t, const json_t *root)
{
    const json_t *eos = json_object_get(root, "eos_token"), *bos = json_object_get(root, "add_bos_token");
    const json_t *template = default_template(json_object_get(root, "chat_template"));
    if (json_is_object(eos)) eos = json_object_get(eos, "content");
    TN_RETURN_IF(take_ids(m, t, json_object_get(root, "eos_token_id")));
    if (json_is_string(eos)) add_end(m, tn_tokenizer_find(t, json_string_value(eos)));
    if (json_is_false(bos)) m->start = -1;
    if (json_is_string(template)) return keep_template(m, json_string_value(template), json_string_length(template));
    return TN_OK;
}

static tn_status read_config(const char *folder, const char *name, const tn_tokenizer *t, tn_model_tokens *m)
{
    char path[TN_PATH_BYTES], *text;
    size_t bytes = 0;
    json_error_t err;
    TN_RETURN_IF(read_text(folder, name, path, &text, &bytes));
    if (!text) return TN_OK;
    json_t *root = tn_json_tree(text, bytes, JSON_REJECT_DUPLICATES, &err);
    tn_status s = root ? take_config(m, t, root)
                       : tn_error(TN_BAD_FILE, "line %d: %s; download the file again", err.line, err.text);
    if (s == TN_BAD_FILE) tn_error_prefix("%.400s", path);
    json_decref(root);
    tn_free(text);
    return s;
}

static tn_status read_folder(const char *folder, const tn_tokenizer *t, tn_model_tokens *m)
{
    char path[TN_PATH_BYTES], *text;
    size_t bytes = 0;
    TN_RETURN_IF(read_config(folder, "config.json", t, m));
    TN_RETURN_IF(read_config(folder, "generation_config.json", t, m));
    TN_RETURN_IF(read_config(folder, "tokenizer_config.json", t, m));
    TN_RETURN_IF(read_text(folder, "chat_template.jinja", path, &text, &bytes));
    const tn_status s = text ? keep_template(m, text, bytes) : TN_OK;
    tn_free(text);
    return s;
}

tn_status tn_model_tokens_read(const char *place, const tn_tokenizer *t, tn_model_tokens *inout)
{
    struct stat st;
    char folder[TN_PATH_BYTES];
    const char *slash = strrchr(place, '/'), *name = slash ? slash + 1 : place;
    if (ends_with(place, ".gguf")) return read_gguf(place, t, inout);
    if (stat(place, &st) == 0 && S_ISDIR(st.st_mode)) return read_folder(place, t, inout);
    if (strcmp(name, "tokenizer.json") != 0 && strcmp(name, "tokenizer.model") != 0) return TN_OK;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - place) : 1, slash ? place : ".");
    return read_folder(folder[0] ? folder : "/", t, inout);
}
