/* Converts weights through a small buffer, so files may be larger than memory. */
#include "train/run/checkpoint_convert.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/output.h"
#include "io/llama2c.h"
#include "io/packed.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/saved_model.h"

#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 << 10 }; /* numbers */

/* --- formats --------------------------------------------------------------------------------------------------------- */

/* What out->file holds as a list. */
static tn_status list_file(tn_tensors *out)
{
    const tn_safetensors *f = out->file.tensors;
    out->n = tn_safetensors_count(f);
    out->tensor = out->n ? tn_safetensors_at(f, 0) : NULL; /* one array */
    out->n_meta = tn_safetensors_meta_count(f);
    out->meta = out->n_meta ? tn_safetensors_meta_at(f, 0) : NULL;
    return TN_OK;
}

static tn_status read_safetensors(const char *path, tn_tensors *out)
{
    TN_RETURN_IF(tn_tensor_file_open(path, tn_packed_most(path), &out->file));
    return list_file(out);
}

typedef struct memory {
    unsigned char *data;
    size_t n, capacity;
} memory;

static tn_status append(void *ctx, const void *data, size_t bytes)
{
    memory *m = ctx;
    if (m->n + bytes > m->capacity) TN_RETURN_IF(tn_grow((void **)&m->data, &m->capacity, m->n + bytes + m->n / 2, 1));
    memcpy(m->data + m->n, data, bytes);
    m->n += bytes;
    return TN_OK;
}

/* Its tensors lie in other pieces than ours: they are put together in memory, as the file that convert would write. */
static tn_status read_llama2c(const char *path, tn_tensors *out)
{
    memory m = { 0 };
    tn_status s = tn_llama2c_convert_into(path, (tn_sink){ .write = append, .ctx = &m });
    out->memory = m.data;
    if (s == TN_OK) s = tn_safetensors_open_memory(m.data, m.n, path, &out->file.tensors);
    return s == TN_OK ? list_file(out) : s;
}

static tn_status read_gguf(const char *path, tn_tensors *out)
{
    TN_RETURN_IF(tn_gguf_model_open(path, &out->gguf));
    out->tensor = tn_gguf_model_tensors(out->gguf, &out->n);
    out->meta = tn_gguf_model_meta(out->gguf, &out->n_meta);
    return TN_OK;
}

static tn_dtype type_of(const tn_file_tensor *t, tn_dtype wanted)
{
    return wanted != TN_DTYPES && tn_dtype_is_float(t->dtype) ? wanted : t->dtype;
}

/* The bytes of t as `to`, in pieces. `aligned` holds CHUNK numbers of the widest type: files promise no alignment. */
static tn_status put_converted(tn_tensor_writer *w, const tn_tensors *in, const tn_file_tensor *t, tn_dtype to,
                               unsigned char *aligned, unsigned char *made)
{
    const size_t from_bytes = tn_dtype_bytes(t->dtype), to_bytes = tn_dtype_bytes(to), count = t->bytes / from_bytes;
    if (to == t->dtype && !in->gguf) return tn_tensor_writer_put(w, t->name, t->data, t->bytes);
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        if (in->gguf) tn_gguf_model_read(in->gguf, t, (int64_t)at, (int64_t)n, (float *)(void *)aligned);
        else memcpy(aligned, (const unsigned char *)t->data + at * from_bytes, n * from_bytes);
        tn_convert(made, to, aligned, in->gguf ? TN_F32 : t->dtype, (int64_t)n);
        TN_RETURN_IF(tn_tensor_writer_put(w, t->name, made, n * to_bytes));
    }
    return TN_OK;
}

static tn_status write_safetensors(const char *path, const tn_tensors *in, tn_dtype dtype)
{
    tn_status s = TN_OK;
    tn_tensor_writer *w = NULL;
    unsigned char *aligned = tn_alloc(CHUNK * 8), *made = tn_alloc(CHUNK * 8);
    if (!aligned || !made) TN_TRY(TN_MEMORY);
    TN_TRY(tn_tensor_writer_begin(path, in->meta, in->n_meta, &w));
    for (size_t i = 0; i < in->n; i++)
        TN_TRY(tn_tensor_writer_declare(w, in->tensor[i].name, type_of(&in->tensor[i], dtype), in->tensor[i].dims));
    for (size_t i = 0; i < in->n; i++)
        TN_TRY(put_converted(w, in, &in->tensor[i], type_of(&in->tensor[i], dtype), aligned, made));
    s = tn_tensor_writer_finish(w, NULL, NULL);
    w = NULL;
done:
    tn_tensor_writer_abort(w);
    tn_free(aligned);
    tn_free(made);
    return s;
}

/* The first row whose ending fits. */
static const struct format {
    const char *ending, *what;
    tn_status (*read)(const char *path, tn_tensors *out);
    tn_status (*write)(const char *path, const tn_tensors *in, tn_dtype dtype);
} formats[] = {
    { ".safetensors", "safetensors", read_safetensors, write_safetensors },
    { ".safetensors.zst", "packed safetensors", read_safetensors, write_safetensors },
    { ".bin", "llama2.c", read_llama2c, NULL },
    { ".gguf", "GGUF", read_gguf, NULL },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static tn_status format_of(const char *path, bool writing, const struct format **out)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < FORMATS; i++) {
        const size_t m = strlen(formats[i].ending);
        if (n < m || strcmp(path + n - m, formats[i].ending) != 0 ||
            !(writing ? (void *)formats[i].write : (void *)formats[i].read))
            continue;
        *out = &formats[i];
        return TN_OK;
    }
    return tn_error(TN_USAGE, "%.640s: a file of weights that can be %s ends in .safetensors%s .safetensors.zst%s",
                    path, writing ? "written" : "read", writing ? " or" : ",",
                    writing ? "" : ", .bin (llama2.c) or .gguf");
}

/* --- the whole of it ------------------------------------------------------------------------------------------------- */

static tn_status open_found(const char *found, bool is_file, tn_tensors *out)
{
    tn_status s = TN_OK;
    tn_tensors t = { 0 };
    char file[TN_PATH_BYTES];
    const struct format *f = NULL;
    if (is_file) TN_TRY(tn_path_join("", found, file, sizeof file));
    else {
        TN_TRY(tn_ckpt_verify(found));
        TN_TRY(tn_ckpt_tensors_path(found, "model", file));
    }
    TN_TRY(format_of(file, false, &f));
    TN_TRY(f->read(file, &t));
    *out = t;
    t = (tn_tensors){ 0 };
done:
    tn_tensors_close(&t);
    return s;
}

tn_status tn_tensors_open(const char *path, tn_tensors *out)
{
    char found[TN_PATH_BYTES];
    bool is_file;
    char note[TN_CKPT_NOTE];
    TN_RETURN_IF(tn_ckpt_resolve(path, "best", found, &is_file, note));
    tn_ckpt_id seen = tn_ckpt_id_of(found);
    tn_status s;
    do s = open_found(found, is_file, out);
    while (s == TN_BAD_FILE && tn_ckpt_replaced(path, "best", found, &seen));
    if (s == TN_OK) memcpy(out->note, note, sizeof note);
    return s;
}

void tn_tensors_close(tn_tensors *t)
{
    tn_tensor_file_close(&t->file);
    tn_gguf_model_close(t->gguf);
    tn_free(t->memory);
    *t = (tn_tensors){ 0 };
}

const tn_file_tensor *tn_tensors_find(const tn_tensors *t, const char *name)
{
    const tn_file_tensor *found = NULL;
    if (t->gguf) {
        for (size_t i = 0; i < t->n && !found; i++) /* a few thousand at most */
            if (strcmp(t->tensor[i].name, name) == 0) found = &t->tensor[i];
    } else if (tn_safetensors_has(t->file.tensors, name)) (void)tn_safetensors_find(t->file.tensors, name, &found);
    return found;
}

tn_status tn_tensors_floats(const tn_tensors *t, const tn_file_tensor *x, float *dst)
{
    if (!t->gguf) return tn_safetensors_copy_f32(x, dst);
    tn_gguf_model_read(t->gguf, x, 0, tn_dims_count(x->dims), dst);
    return TN_OK;
}

tn_status tn_ckpt_convert(const tn_user_args *user, const char *in, const char *out, tn_dtype dtype,
                          char note[TN_CKPT_NOTE])
{
    tn_status s = TN_OK;
    tn_tensors t = { 0 };
    tn_saved_model m = { .weights = "" };
    char text[TN_WEIGHTS_TEXT];
    tn_text_pair meta[TN_WEIGHTS_META];
    const struct format *f = NULL;
    TN_TRY(format_of(out, true, &f));
    TN_TRY(tn_output_file_check(out));
    TN_TRY(tn_tensors_open(in, &t));
    /* A checkpoint that was taken out of its run has no settings beside it: its weights are still weights. */
    const bool wanted = t.n_meta == 0 && !tn_is_weights_file(in);
    const tn_status found = wanted ? tn_saved_model_find(user, in, user->word, user->n, "best", &m) : TN_OK;
    if (found == TN_USAGE) TN_TRY(found);
    if (wanted && found == TN_OK) {
        TN_TRY(tn_weights_meta(m.model, m.settings, text, meta));
        t.meta = meta;
        t.n_meta = TN_WEIGHTS_META;
    }
    TN_TRY(f->write(out, &t, dtype));
    memcpy(note, t.note, sizeof t.note);
done:
    tn_saved_model_free(&m);
    tn_tensors_close(&t);
    return s;
}
