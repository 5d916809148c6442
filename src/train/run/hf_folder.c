/* A model becomes a Hugging Face folder, through a small buffer. */
#include "train/run/hf_folder.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/hf_config.h"
#include "io/hf_model.h"
#include "train/run/saved_model.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, COPIED_BYTES = 64 << 20 }; /* numbers; the largest file beside the weights */

bool tn_names_folder(const char *path)
{
    struct stat st;
    const char *last = strrchr(path, '/');
    if (!*path || (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))) return false;
    return stat(path, &st) == 0 || (last && !last[1]) || !strchr(last ? last : path, '.');
}

/* --- what is computed -------------------------------------------------------------------------------------------------- */

static tn_status refuse(const char *key, const char *value)
{
    return tn_error(TN_USAGE,
                    "%s=%s: no architecture of transformers that is written here has it; write OUT.safetensors", key,
                    value);
}

/* Settings that are auto are taken from the tensors. */
static tn_status read_sizes(const tn_settings *st, const tn_tensors *t, tn_decoder_config *c)
{
    const tn_file_tensor *embed = tn_tensors_find(t, "embed"), *w1 = tn_tensors_find(t, "layer0.ffn.w1");
    if (!embed || !w1 || embed->dims.rank != 2 || w1->dims.rank != 2)
        return tn_error(TN_BAD_FILE, "tensor %s is missing: these are not the weights of a gpt",
                        embed ? "layer0.ffn.w1" : "embed");
    const int64_t kv = tn_settings_int(st, "kv_heads"), head_dim = tn_settings_int(st, "head_dim");
    c->dim = tn_settings_int(st, "dim");
    c->layers = tn_settings_int(st, "layers");
    c->heads = tn_settings_int(st, "heads");
    c->kv_heads = kv ? kv : c->heads;
    c->head_dim = head_dim ? head_dim : c->dim / c->heads;
    c->vocab = embed->dims.dim[0];
    c->ffn = w1->dims.dim[0] / 2;
    c->context = tn_settings_int(st, "train.context");
    return TN_OK;
}

static tn_status config_of(const tn_saved_model *m, const tn_tensors *t, tn_decoder_config *c)
{
    static const tn_decoder_scaling scalings[] = { TN_SCALED_LLAMA3, TN_SCALED_LINEAR, TN_SCALED_YARN };
    static const struct {
        const char *key, *value;
    } needs[] = { { "shape", "llama" }, { "conv", "0" }, { "gate", "none" } };
    const tn_settings *st = m->settings;
    if (strcmp(m->model->name, "gpt") != 0)
        return tn_error(TN_USAGE, "a %s model cannot be a Hugging Face folder, only gpt can: write OUT.safetensors",
                        m->model->name);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(tn_settings_text(st, needs[i].key), needs[i].value) != 0)
            return refuse(needs[i].key, tn_settings_text(st, needs[i].key));
    TN_RETURN_IF(read_sizes(st, t, c));
    c->tied = tn_settings_on(st, "tied");
    c->bias = tn_settings_on(st, "qkv_bias");
    c->qk_norm = tn_settings_on(st, "qk_norm");
    c->interleaved = strcmp(tn_settings_text(st, "rope_pairs"), "interleaved") == 0;
    c->eps = tn_settings_float(st, "norm_eps");
    if (c->eps == 0) c->eps = 1e-6;
    c->base = tn_settings_float(st, "rope_base");
    c->stretch = tn_settings_float(st, "rope_stretch");
    c->stretch_context = tn_settings_float(st, "rope_stretch_context");
    c->beta_fast = tn_settings_float(st, "rope_beta_fast");
    c->beta_slow = tn_settings_float(st, "rope_beta_slow");
    c->attention_factor = tn_settings_float(st, "rope_attention_factor");
    const tn_decoder_scaling scaling = scalings[tn_settings_choice(st, "rope_scaling")];
    const bool louder = scaling == TN_SCALED_YARN && c->stretch > 0 && c->attention_factor > 0;
    if (c->stretch > 1 || louder) c->scaling = scaling;
    if (c->stretch < 1) c->stretch = 1; /* which scales no frequency, either */
    return TN_OK;
}

/* --- weights ----------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const tn_tensors *in;
    const tn_decoder_config *c;
    tn_dtype dtype; /* TN_DTYPES: as they are */
    tn_tensor_writer *w;
    bool put; /* the second pass: numbers; the first declares */
    size_t seen;
    float *read; /* (CHUNK) */
    void *made;  /* (CHUNK) of any type */
} writer;

static tn_dtype type_of(const writer *x, const tn_file_tensor *t)
{
    if (x->dtype != TN_DTYPES) return x->dtype;
    return t->dtype == TN_BF16 || t->dtype == TN_F16 ? t->dtype : TN_F32;
}

static tn_status put_range(writer *x, const tn_file_tensor *t, const char *name, int64_t first, int64_t n)
{
    const tn_dtype to = type_of(x, t);
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t k = n - at < CHUNK ? n - at : CHUNK;
        TN_RETURN_IF(tn_tensors_read(x->in, t, first + at, k, x->read));
        tn_convert(x->made, to, x->read, TN_F32, k);
        TN_RETURN_IF(tn_tensor_writer_put(x->w, name, x->made, (size_t)k * tn_dtype_bytes(to)));
    }
    return TN_OK;
}

/* Rows of heads, (2j, 2j+1) to (j, j+D/2). */
static tn_status put_heads(writer *x, const tn_file_tensor *t, const char *name, int64_t first, int64_t rows,
                           int64_t columns)
{
    const int64_t D = x->c->head_dim;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t j = r % D, from = r - j + (j < D / 2 ? 2 * j : 2 * (j - D / 2) + 1);
        TN_RETURN_IF(put_range(x, t, name, (first + from) * columns, columns));
    }
    return TN_OK;
}

/* Queries and keys, and their norms. */
static bool is_turned(const char *name, int piece)
{
    const char *dot = strstr(name, ".attn.");
    if (!dot) return false;
    return (strstr(dot, "_qkv") && piece < 2) || strstr(dot, ".norm_");
}

static tn_status write_tensor(void *ctx, const tn_decoder_tensor *d)
{
    writer *x = ctx;
    char has[128];
    const tn_file_tensor *t = tn_tensors_find(x->in, d->name);
    const int64_t columns = d->columns ? d->columns : 1;
    int64_t rows = 0;
    for (int i = 0; i < d->n; i++) rows += d->rows[i];
    if (!t)
        return tn_error(TN_BAD_FILE, "tensor %s is missing: it belongs to another model or other settings", d->name);
    if (!tn_dims_equal(t->dims, d->columns ? tn_shape(rows, columns) : tn_shape(rows)) || !tn_dtype_is_float(t->dtype))
        return tn_error(TN_BAD_FILE, "%s is %s %s: it belongs to another model or other settings", d->name,
                        tn_dtype_name(t->dtype), tn_dims_text(t->dims, has, sizeof has));
    x->seen += x->put;
    rows = 0;
    for (int i = 0; i < d->n; rows += d->rows[i++]) {
        const tn_dims dims = d->columns ? tn_shape(d->rows[i], columns) : tn_shape(d->rows[i]);
        if (!x->put) TN_RETURN_IF(tn_tensor_writer_declare(x->w, d->piece[i], type_of(x, t), dims));
        else if (x->c->interleaved && is_turned(d->name, i))
            TN_RETURN_IF(put_heads(x, t, d->piece[i], rows, d->rows[i], columns));
        else TN_RETURN_IF(put_range(x, t, d->piece[i], rows * columns, d->rows[i] * columns));
    }
    return TN_OK;
}

static tn_status write_weights(const char *dir, writer *x)
{
    static const tn_text_pair meta = { "format", "pt" }; /* transformers asks for it */
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES];
    x->read = tn_alloc(CHUNK * sizeof(float));
    x->made = tn_alloc(CHUNK * sizeof(float));
    if (!x->read || !x->made) TN_TRY(TN_MEMORY);
    TN_TRY(tn_path_join(dir, TN_HF_WEIGHTS, path, sizeof path));
    TN_TRY(tn_tensor_writer_begin(path, &meta, 1, &x->w));
    TN_TRY(tn_decoder_each(x->c, TN_NAMES_HF, write_tensor, x));
    x->put = true;
    TN_TRY(tn_decoder_each(x->c, TN_NAMES_HF, write_tensor, x));
    if (x->seen != x->in->n)
        TN_FAIL(TN_BAD_FILE,
                "it has %zu tensors, and such a model has %zu: it belongs to another model or other settings", x->in->n,
                x->seen);
    s = tn_tensor_writer_finish(x->w, NULL, NULL);
    x->w = NULL;
done:
    tn_tensor_writer_abort(x->w);
    tn_free(x->read);
    tn_free(x->made);
    return s;
}

/* --- texts ------------------------------------------------------------------------------------------------------------- */

static tn_status write_text(const char *dir, const char *name, char *text)
{
    char path[TN_PATH_BYTES];
    tn_status s = tn_path_join(dir, name, path, sizeof path);
    if (s == TN_OK) s = tn_file_write_atomic(path, text, strlen(text));
    tn_free(text);
    return s;
}

static tn_status copy_file(const char *from, const char *to, const char *name, bool *copied)
{
    char path[TN_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    TN_RETURN_IF(tn_path_join(from, name, path, sizeof path));
    *copied = access(path, F_OK) == 0;
    if (!*copied) return TN_OK;
    TN_RETURN_IF(tn_file_read_all(path, COPIED_BYTES, &text, &bytes));
    tn_status s = tn_path_join(to, name, path, sizeof path);
    if (s == TN_OK) s = tn_file_write_atomic(path, text, bytes);
    tn_free(text);
    return s;
}

/* tokenizer.json from the model's tokenizer, where that is of such a kind. */
static tn_status save_tokenizer(const tn_saved_model *m, const char *dir, tn_hf_tokens *tokens, char note[TN_CKPT_NOTE])
{
    char path[TN_PATH_BYTES];
    tn_tokenizer *t = NULL;
    tn_model_tokens of = { 0 };
    tn_status s = tn_saved_model_tokenizer(m, NULL, &t, &of);
    if (s == TN_OK) {
        tokens->bos = of.start;
        tokens->eos = tn_tokenizer_special(t, TN_TOKEN_EOS);
        if (tokens->eos < 0) tokens->eos = tn_tokenizer_special(t, TN_TOKEN_END);
        s = tn_path_join(dir, "tokenizer.json", path, sizeof path);
        if (s == TN_OK) s = tn_tokenizer_save(t, path);
    }
    tn_tokenizer_free(t);
    tn_model_tokens_free(&of);
    if (s == TN_DISK || s == TN_MEMORY) return s;
    if (s != TN_OK && !note[0])
        snprintf(note, TN_CKPT_NOTE, "the folder has no tokenizer.json: %.300s", tn_error_text());
    return TN_OK;
}

static tn_status write_texts(const tn_saved_model *m, const char *dir, const tn_decoder_config *c, tn_dtype dtype,
                             char note[TN_CKPT_NOTE])
{
    static const char *const own[] = { "tokenizer.json",          "tokenizer.model",     "tokenizer_config.json",
                                       "special_tokens_map.json", "chat_template.jinja", "generation_config.json" };
    enum { OWN = sizeof own / sizeof *own };
    tn_hf_tokens tokens = { -1, -1 };
    bool copied = false;
    char *text = NULL;
    const bool folder = tn_is_hf_folder(m->weights);
    for (size_t i = 0; folder && i < OWN; i++) TN_RETURN_IF(copy_file(m->weights, dir, own[i], &copied));
    if (!folder) TN_RETURN_IF(save_tokenizer(m, dir, &tokens, note));
    if (!copied) { /* the last of the list */
        TN_RETURN_IF(tn_hf_generation_write(tokens, &text));
        TN_RETURN_IF(write_text(dir, own[OWN - 1], text));
    }
    TN_RETURN_IF(tn_hf_config_write(c, dtype, tokens, &text));
    return write_text(dir, TN_HF_CONFIG, text);
}

/* --- the folder -------------------------------------------------------------------------------------------------------- */

static bool is_own(const char *name, mode_t mode) { return S_ISREG(mode) && !strchr(name, '/'); }

static tn_status check_place(const char *path)
{
    DIR *d = opendir(path);
    if (!d && errno == ENOENT) return TN_OK;
    if (!d) return tn_fs_error(TN_DISK, errno, "open", path);
    bool empty = true;
    for (struct dirent *e; empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(d);
    return empty ? TN_OK : tn_error(TN_USAGE, "%.640s is not empty: name a folder that does not exist yet", path);
}

/* Where it is made: beside its place, so that one rename shows it. */
static tn_status temp_of(const char *path, char temp[TN_PATH_BYTES], char parent[TN_PATH_BYTES])
{
    const char *last = strrchr(path, '/');
    const int n = last ? (int)(last - path) + 1 : 0;
    if (snprintf(temp, TN_PATH_BYTES, "%.*s.tmp-%s-%ld", n, path, path + n, (long)getpid()) >= TN_PATH_BYTES)
        return tn_error(TN_USAGE, "%.640s...: the name is too long", path);
    snprintf(parent, TN_PATH_BYTES, "%.*s", n ? n : 1, n ? path : ".");
    return TN_OK;
}

static tn_status write_all(const tn_saved_model *m, const tn_tensors *t, const char *path, tn_dtype dtype,
                           char note[TN_CKPT_NOTE])
{
    tn_status s = TN_OK;
    tn_decoder_config c = { 0 };
    char temp[TN_PATH_BYTES], parent[TN_PATH_BYTES];
    TN_RETURN_IF(config_of(m, t, &c));
    TN_RETURN_IF(temp_of(path, temp, parent));
    writer x = { .in = t, .c = &c, .dtype = dtype };
    TN_RETURN_IF(tn_tree_remove(temp, "", is_own)); /* of a process that died */
    TN_RETURN_IF(tn_dir_make(temp));
    TN_TRY(write_texts(m, temp, &c, type_of(&x, tn_tensors_find(t, "embed")), note));
    TN_TRY(write_weights(temp, &x));
    TN_TRY(tn_dir_sync(temp));
    if (rename(temp, path) != 0) TN_TRY(tn_fs_error(TN_DISK, errno, "write", path));
    return tn_dir_sync(parent);
done:
    (void)tn_tree_remove(temp, "", is_own);
    return s;
}

tn_status tn_hf_folder_write(const tn_user_args *user, const char *in, const char *out, tn_dtype dtype,
                             char note[TN_CKPT_NOTE])
{
    tn_status s = TN_OK;
    tn_saved_model m = { .weights = "" };
    tn_tensors t = { 0 };
    char path[TN_PATH_BYTES], made[TN_CKPT_NOTE] = "";
    TN_TRY(tn_path_join("", out, path, sizeof path));
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';) path[--n] = 0;
    TN_TRY(check_place(path));
    TN_TRY(tn_saved_model_find(user, in, user->word, user->n, "best", &m));
    if (!m.weights[0]) TN_FAIL(TN_USAGE, "%.640s has no weights", in);
    TN_TRY(tn_tensors_open(in, &t));
    memcpy(made, t.note, sizeof made);
    TN_TRY(write_all(&m, &t, path, dtype, made));
    memcpy(note, made, sizeof made);
done:
    tn_tensors_close(&t);
    tn_saved_model_free(&m);
    return s;
}
