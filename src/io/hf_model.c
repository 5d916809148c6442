/* Opens a Hugging Face folder. All files are mapped and all headers checked before anything is handed out. */
#include "io/hf_model.h"

#include "base/fs.h"
#include "io/hf_config.h"
#include "io/hf_index.h"
#include "io/safetensors_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct folder {
    const char *path; /* while it is opened */
    char *index_text;
    tn_hf_index index;     /* n 0: all is in one file */
    tn_safetensors **file; /* (files), in the order of the index */
    size_t files;
    bool **used; /* (files, tensors of the file) */
} folder;

static bool is_there(const char *dir, const char *name)
{
    char path[TN_PATH_BYTES];
    struct stat st;
    return tn_path_join(dir, name, path, sizeof path) == TN_OK && stat(path, &st) == 0;
}

bool tn_hf_model_is(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && is_there(path, TN_HF_CONFIG);
}

static void close_folder(void *ctx)
{
    folder *f = ctx;
    for (size_t i = 0; i < f->files; i++) {
        if (f->file) tn_safetensors_close(f->file[i]);
        if (f->used) tn_free(f->used[i]);
    }
    tn_free(f->file);
    tn_free(f->used);
    tn_hf_index_free(&f->index);
    tn_free(f->index_text);
    tn_free(f);
}

/* --- files ------------------------------------------------------------------------------------------------------------- */

static tn_status read_config(const char *dir, tn_decoder_config *out)
{
    char path[TN_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    TN_RETURN_IF(tn_path_join(dir, TN_HF_CONFIG, path, sizeof path));
    TN_RETURN_IF(tn_file_read_all(path, TN_HF_CONFIG_BYTES, &text, &bytes));
    const tn_status s = tn_hf_config_read(text, bytes, path, out);
    tn_free(text);
    return s;
}

static tn_status read_index(folder *f)
{
    char path[TN_PATH_BYTES];
    size_t bytes = 0;
    if (!is_there(f->path, TN_HF_INDEX)) {
        if (is_there(f->path, "pytorch_model.bin") || is_there(f->path, "pytorch_model.bin.index.json"))
            return tn_error(TN_BAD_FILE,
                            "%.640s has its weights in pytorch_model.bin, which may contain code: save them as "
                            "safetensors (save_pretrained)",
                            f->path);
        return tn_error(TN_BAD_FILE, "%.640s has neither " TN_HF_WEIGHTS " nor " TN_HF_INDEX, f->path);
    }
    TN_RETURN_IF(tn_path_join(f->path, TN_HF_INDEX, path, sizeof path));
    TN_RETURN_IF(tn_file_read_all(path, TN_HF_INDEX_BYTES, &f->index_text, &bytes));
    return tn_hf_index_read(f->index_text, bytes, path, &f->index);
}

static tn_status open_files(folder *f)
{
    char path[TN_PATH_BYTES];
    const bool one = is_there(f->path, TN_HF_WEIGHTS);
    if (!one) TN_RETURN_IF(read_index(f));
    f->files = one ? 1 : f->index.files;
    f->file = tn_alloc(f->files * sizeof *f->file);
    f->used = tn_alloc(f->files * sizeof *f->used);
    if (!f->file || !f->used) return TN_MEMORY;
    for (size_t i = 0; i < f->files; i++) {
        TN_RETURN_IF(tn_path_join(f->path, one ? TN_HF_WEIGHTS : f->index.file[i], path, sizeof path));
        TN_RETURN_IF(tn_safetensors_open(path, &f->file[i]));
        if (!(f->used[i] = tn_alloc(tn_safetensors_count(f->file[i]) + 1))) return TN_MEMORY;
    }
    return TN_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(a, *(const char *const *)b); }

static size_t file_of(const folder *f, const tn_hf_place *p)
{
    const char **at = p ? bsearch(p->file, f->index.file, f->files, sizeof *f->index.file, by_name) : NULL;
    return at ? (size_t)(at - f->index.file) : 0;
}

/* The index and the files say the same of every tensor. */
static tn_status check_index(const folder *f)
{
    const tn_file_tensor *t;
    for (size_t i = 0; i < f->index.n; i++)
        TN_RETURN_IF(tn_safetensors_find(f->file[file_of(f, &f->index.place[i])], f->index.place[i].tensor, &t));
    for (size_t i = 0, k; f->index.n && i < f->files; i++)
        for (k = 0; k < tn_safetensors_count(f->file[i]); k++) {
            const char *name = tn_safetensors_at(f->file[i], k)->name;
            const tn_hf_place *p = tn_hf_index_find(&f->index, name);
            if (p && strcmp(p->file, f->index.file[i]) == 0) continue;
            return tn_error(TN_BAD_FILE, "%.640s: tensor \"%s\" is in %.200s, and " TN_HF_INDEX " says %s%.200s",
                            f->path, tn__shown(name).text, f->index.file[i], p ? "it is in " : "nothing of it",
                            p ? p->file : "");
        }
    return TN_OK;
}

/* --- tensors ----------------------------------------------------------------------------------------------------------- */

static tn_status find(void *ctx, const char *name, tn_dims dims, tn_file_piece *out)
{
    folder *f = ctx;
    static const struct {
        tn_dtype dtype;
        uint32_t id;
    } types[] = { { TN_F32, 0 }, { TN_F16, 1 }, { TN_BF16, 30 } };
    const tn_file_tensor *t = NULL;
    const tn_gguf_type *type = NULL;
    char has[128], wants[128];
    const tn_hf_place *p = tn_hf_index_find(&f->index, name);
    if (f->index.n && !p) return tn_error(TN_BAD_FILE, "%.640s: " TN_HF_INDEX " lists no tensor \"%s\"", f->path, name);
    const size_t i = file_of(f, p);
    TN_RETURN_IF(tn_safetensors_find(f->file[i], name, &t));
    if (!tn_dims_equal(t->dims, dims))
        return tn_error(TN_BAD_FILE, "%.640s: tensor \"%s\" is %s, and " TN_HF_CONFIG " says %s", f->path, name,
                        tn_dims_text(t->dims, has, sizeof has), tn_dims_text(dims, wants, sizeof wants));
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (types[k].dtype == t->dtype) type = tn_gguf_type_of(types[k].id);
    if (!type)
        return tn_error(TN_BAD_FILE, "%.640s: tensor \"%s\" is %s, and only f32, bf16 and f16 are supported", f->path,
                        name, tn_dtype_name(t->dtype));
    f->used[i][t - tn_safetensors_at(f->file[i], 0)] = true;
    *out = (tn_file_piece){ type, t->data, tn_dims_count(dims) };
    return TN_OK;
}

/* Folders whose head is tied may have it all the same. */
static tn_status check_tied_head(folder *f, const tn_decoder_file *d, const tn_file_tensor *head, bool *same)
{
    tn_file_piece embed[TN_PIECES], copy;
    (void)tn_decoder_file_pieces(d, tn_decoder_file_find(d, "embed"), embed);
    TN_RETURN_IF(find(f, head->name, tn_shape(d->config.vocab, d->config.dim), &copy));
    *same = copy.type == embed[0].type && memcmp(copy.data, embed[0].data, head->bytes) == 0;
    if (*same) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.640s: tie_word_embeddings is true, and \"lm_head.weight\" is another matrix than the embedding: "
                    "which is meant?",
                    f->path);
}

static bool is_frequencies(const char *name)
{
    static const char ending[] = "rotary_emb.inv_freq";
    const size_t n = strlen(name), m = sizeof ending - 1;
    return n >= m && strcmp(name + n - m, ending) == 0;
}

static tn_status check_used(folder *f, const tn_decoder_file *d)
{
    for (size_t i = 0; i < f->files; i++)
        for (size_t k = 0; k < tn_safetensors_count(f->file[i]); k++) {
            const tn_file_tensor *t = tn_safetensors_at(f->file[i], k);
            bool known = f->used[i][k] || is_frequencies(t->name);
            if (!known && d->config.tied && strcmp(t->name, "lm_head.weight") == 0)
                TN_RETURN_IF(check_tied_head(f, d, t, &known));
            if (!known)
                return tn_error(TN_BAD_FILE,
                                "%.640s: tensor \"%s\" is none that such a model has here: it is not supported",
                                f->path, tn__shown(t->name).text);
        }
    return TN_OK;
}

tn_status tn_hf_model_open(const char *path, tn_decoder_file **out)
{
    tn_status s = TN_OK;
    tn_decoder_file *d = tn_alloc(sizeof *d);
    folder *f = tn_alloc(sizeof *f);
    if (!d || !f) {
        tn_free(d);
        tn_free(f);
        return TN_MEMORY;
    }
    f->path = path;
    d->close = close_folder;
    d->ctx = f;
    TN_TRY(read_config(path, &d->config));
    TN_TRY(open_files(f));
    TN_TRY(check_index(f));
    TN_TRY(tn_decoder_file_list(d, TN_NAMES_HF, find, f));
    TN_TRY(check_used(f, d));
    f->path = NULL;
    *out = d;
    d = NULL;
done:
    tn_decoder_file_close(d);
    return s;
}
