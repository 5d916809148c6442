/* Converts weights through a small buffer, so files may be larger than memory. */
#include "train/run/checkpoint_convert.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/output.h"
#include "io/gguf_model.h"
#include "io/hf_model.h"
#include "io/llama2c.h"
#include "io/packed.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/saved_model.h"

#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 << 10 }; /* numbers */

/* --- sources --------------------------------------------------------------------------------------------------------- */

typedef struct tn_tensor_source {
    void (*close)(void *from);
    const tn_file_tensor *(*find)(const void *from, const char *name);
    tn_status (*read)(const void *from, const tn_file_tensor *x, int64_t first, int64_t n, float *dst);
    int (*pieces)(const void *from, const tn_file_tensor *x, tn_tensor_piece out[TN_PIECES]);
} tn_tensor_source;

/* A file of ours, or one that was put together in memory. */
typedef struct own_file {
    tn_tensor_file file;
    void *memory;
} own_file;

static void close_own(void *from)
{
    own_file *f = from;
    if (!f) return;
    tn_tensor_file_close(&f->file);
    tn_free(f->memory);
    tn_free(f);
}

static const tn_file_tensor *find_own(const void *from, const char *name)
{
    const own_file *f = from;
    const tn_file_tensor *found = NULL;
    if (tn_safetensors_has(f->file.tensors, name)) (void)tn_safetensors_find(f->file.tensors, name, &found);
    return found;
}

static tn_status read_own(const void *from, const tn_file_tensor *x, int64_t first, int64_t n, float *dst)
{
    (void)from;
    tn_file_tensor part = *x;
    part.dims = tn_shape(n);
    part.bytes = (size_t)n * tn_dtype_bytes(x->dtype);
    part.data = (const unsigned char *)x->data + (size_t)first * tn_dtype_bytes(x->dtype);
    return tn_safetensors_copy_f32(&part, dst);
}

static int own_pieces(const void *from, const tn_file_tensor *x, tn_tensor_piece out[TN_PIECES])
{
    (void)from;
    out[0] = (tn_tensor_piece){ x->data, x->dtype, tn_dims_count(x->dims) };
    return 1;
}

static const tn_tensor_source own_source = { close_own, find_own, read_own, own_pieces };

static void close_decoder(void *from) { tn_decoder_file_close(from); }

static const tn_file_tensor *find_decoder(const void *from, const char *name)
{
    return tn_decoder_file_find(from, name);
}

static tn_status read_decoder(const void *from, const tn_file_tensor *x, int64_t first, int64_t n, float *dst)
{
    tn_decoder_file_read(from, x, first, n, dst);
    return TN_OK;
}

static int decoder_pieces(const void *from, const tn_file_tensor *x, tn_tensor_piece out[TN_PIECES])
{
    tn_file_piece piece[TN_PIECES];
    const int n = tn_decoder_file_pieces(from, x, piece);
    for (int i = 0; i < n; i++) out[i] = (tn_tensor_piece){ piece[i].data, piece[i].type->dtype, piece[i].count };
    return n;
}

static const tn_tensor_source decoder_source = { close_decoder, find_decoder, read_decoder, decoder_pieces };

/* --- formats --------------------------------------------------------------------------------------------------------- */

static tn_status new_own(tn_tensors *out, own_file **f)
{
    *f = tn_alloc(sizeof **f);
    if (!*f) return TN_MEMORY;
    out->source = &own_source;
    out->from = *f;
    return TN_OK;
}

/* What the file holds as a list. */
static tn_status list_file(tn_tensors *out)
{
    const tn_safetensors *f = ((const own_file *)out->from)->file.tensors;
    out->n = tn_safetensors_count(f);
    out->tensor = out->n ? tn_safetensors_at(f, 0) : NULL; /* one array */
    out->n_meta = tn_safetensors_meta_count(f);
    out->meta = out->n_meta ? tn_safetensors_meta_at(f, 0) : NULL;
    return TN_OK;
}

static tn_status read_safetensors(const char *path, tn_tensors *out)
{
    own_file *f;
    TN_RETURN_IF(new_own(out, &f));
    TN_RETURN_IF(tn_tensor_file_open(path, tn_packed_most(path), &f->file));
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
    own_file *f;
    memory m = { 0 };
    TN_RETURN_IF(new_own(out, &f));
    tn_status s = tn_llama2c_convert_into(path, (tn_sink){ .write = append, .ctx = &m });
    f->memory = m.data;
    if (s == TN_OK) s = tn_safetensors_open_memory(m.data, m.n, path, &f->file.tensors);
    return s == TN_OK ? list_file(out) : s;
}

static tn_status list_decoder(tn_decoder_file *d, tn_tensors *out)
{
    out->source = &decoder_source;
    out->from = d;
    out->tensor = d->tensor;
    out->n = d->n;
    out->meta = d->meta;
    out->n_meta = TN_DECODER_META;
    return TN_OK;
}

static tn_status read_gguf(const char *path, tn_tensors *out)
{
    tn_decoder_file *d = NULL;
    TN_RETURN_IF(tn_gguf_model_open(path, &d));
    return list_decoder(d, out);
}

static tn_status read_hf(const char *path, tn_tensors *out)
{
    tn_decoder_file *d = NULL;
    TN_RETURN_IF(tn_hf_model_open(path, &d));
    return list_decoder(d, out);
}

static tn_dtype type_of(const tn_file_tensor *t, tn_dtype wanted)
{
    return wanted != TN_DTYPES && tn_dtype_is_float(t->dtype) ? wanted : t->dtype;
}

/* Numbers of one type become `to`, through `aligned`: files promise no alignment. */
static tn_status put_piece(tn_tensor_writer *w, const char *name, const tn_tensor_piece *p, tn_dtype to,
                           unsigned char *aligned, unsigned char *made)
{
    const size_t from_bytes = tn_dtype_bytes(p->dtype), to_bytes = tn_dtype_bytes(to), count = (size_t)p->count;
    if (to == p->dtype) return tn_tensor_writer_put(w, name, p->data, count * to_bytes);
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        memcpy(aligned, p->data + at * from_bytes, n * from_bytes);
        tn_convert(made, to, aligned, p->dtype, (int64_t)n);
        TN_RETURN_IF(tn_tensor_writer_put(w, name, made, n * to_bytes));
    }
    return TN_OK;
}

/* The bytes of t as `to`. Both buffers hold CHUNK numbers of the widest type. */
static tn_status put_converted(tn_tensor_writer *w, const tn_tensors *in, const tn_file_tensor *t, tn_dtype to,
                               unsigned char *aligned, unsigned char *made)
{
    tn_tensor_piece piece[TN_PIECES];
    int64_t first = 0;
    const int pieces = tn_tensors_pieces(in, t, piece);
    for (int i = 0; i < pieces; first += piece[i++].count) {
        if (piece[i].dtype != TN_DTYPES) {
            TN_RETURN_IF(put_piece(w, t->name, &piece[i], to, aligned, made));
            continue;
        }
        for (int64_t at = 0; at < piece[i].count; at += CHUNK) {
            const int64_t n = piece[i].count - at < CHUNK ? piece[i].count - at : CHUNK;
            TN_RETURN_IF(tn_tensors_read(in, t, first + at, n, (float *)(void *)aligned));
            tn_convert(made, to, aligned, TN_F32, n);
            TN_RETURN_IF(tn_tensor_writer_put(w, t->name, made, (size_t)n * tn_dtype_bytes(to)));
        }
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
    if (is_file && tn_is_hf_folder(file)) TN_TRY(read_hf(file, &t));
    else {
        TN_TRY(format_of(file, false, &f));
        TN_TRY(f->read(file, &t));
    }
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
    if (t->source) t->source->close(t->from);
    *t = (tn_tensors){ 0 };
}

const tn_file_tensor *tn_tensors_find(const tn_tensors *t, const char *name) { return t->source->find(t->from, name); }

tn_status tn_tensors_read(const tn_tensors *t, const tn_file_tensor *x, int64_t first, int64_t n, float *dst)
{
    return t->source->read(t->from, x, first, n, dst);
}

int tn_tensors_pieces(const tn_tensors *t, const tn_file_tensor *x, tn_tensor_piece out[TN_PIECES])
{
    return t->source->pieces(t->from, x, out);
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
