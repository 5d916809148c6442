/* A chain of sinks: safetensors -> (packer) -> buffer -> checksum and file. Models have many small tensors: the buffer
 * saves system calls. */
#include "io/tensor_file.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/packed.h"

#include <string.h>

enum { BUFFER = 256 << 10 };

tn_status tn_tensor_file_open(const char *path, uint64_t max_bytes, tn_tensor_file *out)
{
    tn_tensor_file f = { 0 };
    if (!tn_packed_named(path)) {
        TN_RETURN_IF(tn_safetensors_open(path, &f.tensors));
    } else {
        TN_RETURN_IF(tn_packed_read(path, max_bytes, &f.memory, &f.bytes));
        const tn_status s = tn_safetensors_open_memory(f.memory, f.bytes, path, &f.tensors);
        if (s != TN_OK) {
            tn_free(f.memory);
            return s;
        }
    }
    *out = f;
    return TN_OK;
}

void tn_tensor_file_close(tn_tensor_file *f)
{
    tn_safetensors_close(f->tensors);
    tn_free(f->memory);
    *f = (tn_tensor_file){ 0 };
}

struct tn_tensor_writer {
    tn_atomic_file file;
    tn_hash *hash;
    tn_packer *packer; /* or NULL */
    tn_safetensors_writer *tensors;
    size_t n;
    unsigned char buffer[BUFFER];
};

static tn_status flush(tn_tensor_writer *w)
{
    const size_t n = w->n;
    w->n = 0;
    return n ? tn_atomic_write(&w->file, w->buffer, n) : TN_OK;
}

static tn_status to_file(void *writer, const void *data, size_t bytes)
{
    tn_tensor_writer *w = writer;
    tn_hash_add(w->hash, data, bytes);
    if (bytes > BUFFER - w->n) TN_RETURN_IF(flush(w));
    if (bytes > BUFFER) return tn_atomic_write(&w->file, data, bytes);
    memcpy(w->buffer + w->n, data, bytes);
    w->n += bytes;
    return TN_OK;
}

static tn_status to_packer(void *packer, const void *data, size_t bytes) { return tn_packer_add(packer, data, bytes); }

tn_status tn_tensor_writer_begin(const char *path, const tn_text_pair *meta, size_t meta_count, tn_tensor_writer **out)
{
    tn_status s = TN_OK;
    tn_tensor_writer *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    const tn_sink file = { to_file, w };
    TN_TRY(tn_hash_begin(&w->hash));
    TN_TRY(tn_atomic_open(path, &w->file));
    if (tn_packed_named(path)) TN_TRY(tn_packer_begin(file, &w->packer));
    TN_TRY(tn_safetensors_writer_begin_into(w->packer ? (tn_sink){ to_packer, w->packer } : file, path, meta,
                                            meta_count, &w->tensors));
    *out = w;
    w = NULL;
done:
    tn_tensor_writer_abort(w);
    return s;
}

tn_status tn_tensor_writer_declare(tn_tensor_writer *w, const char *name, tn_dtype dtype, tn_dims dims)
{
    return tn_safetensors_writer_declare(w->tensors, name, dtype, dims);
}

tn_status tn_tensor_writer_put(tn_tensor_writer *w, const char *name, const void *data, size_t bytes)
{
    return tn_safetensors_writer_put(w->tensors, name, data, bytes);
}

tn_status tn_tensor_writer_finish(tn_tensor_writer *w, char hash[TN_HASH_BYTES], uint64_t *bytes)
{
    tn_status s = TN_OK;
    tn_safetensors_writer *tensors = w->tensors;
    w->tensors = NULL; /* its finish frees it */
    TN_TRY(tn_safetensors_writer_finish(tensors));
    if (w->packer) TN_TRY(tn_packer_finish(w->packer));
    TN_TRY(flush(w));
    TN_TRY(tn_atomic_finish(&w->file));
    if (hash) tn_hash_text(w->hash, hash);
    if (bytes) *bytes = w->file.bytes;
done:
    tn_tensor_writer_abort(w); /* after a finish there is nothing left to remove */
    return s;
}

void tn_tensor_writer_abort(tn_tensor_writer *w)
{
    if (!w) return;
    tn_safetensors_writer_abort(w->tensors);
    tn_packer_free(w->packer);
    tn_atomic_abort(&w->file);
    tn_hash_free(w->hash);
    tn_free(w);
}
