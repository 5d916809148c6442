/* Tensor files, plain (.safetensors) or packed (.safetensors.zst), by name. Reading gives the same list either way;
 * writing also gives the file's size and checksum, computed from the bytes as they are written. */
#ifndef TN_IO_TENSOR_FILE_H
#define TN_IO_TENSOR_FILE_H

#include "base/hash.h"
#include "io/safetensors.h"

typedef struct tn_tensor_file {
    tn_safetensors *tensors;
    unsigned char *memory; /* what a packed file holds, or NULL */
    size_t bytes;          /* of `memory` */
} tn_tensor_file;

/* A packed file is refused beyond max_bytes. */
tn_status tn_tensor_file_open(const char *path, uint64_t max_bytes, tn_tensor_file *out);
void tn_tensor_file_close(tn_tensor_file *f); /* takes a zeroed one */

/* As tn_safetensors_writer: begin, declare all, put in that order, finish. Under the name only ever a whole file. */
typedef struct tn_tensor_writer tn_tensor_writer;

tn_status tn_tensor_writer_begin(const char *path, const tn_text_pair *meta, size_t meta_count, tn_tensor_writer **out);
tn_status tn_tensor_writer_declare(tn_tensor_writer *w, const char *name, tn_dtype dtype, tn_dims dims);
tn_status tn_tensor_writer_put(tn_tensor_writer *w, const char *name, const void *data, size_t bytes);
/* Both free the writer. hash and bytes may be NULL. */
tn_status tn_tensor_writer_finish(tn_tensor_writer *w, char hash[TN_HASH_BYTES], uint64_t *bytes);
void tn_tensor_writer_abort(tn_tensor_writer *w); /* takes NULL */

#endif
