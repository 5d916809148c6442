/* The safetensors format: a u64 header length (little-endian), a JSON header
 *   { "name": { "dtype": "F32", "shape": [2,3], "data_offsets": [0,24] }, ..., "__metadata__": { "key": "text" } }
 * and the tensors' bytes, row-major, without gaps.
 *
 * The reader maps the file and checks all of the header before it hands anything out; it does not check the numbers
 * (no checksum in the format: see manifests). The writer streams and replaces the file atomically. */
#ifndef TN_IO_SAFETENSORS_H
#define TN_IO_SAFETENSORS_H

#include "io/sink.h"

#include <tenon/tensor.h>

enum {
    TN_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000, /* bytes: the limit other readers have */
    TN_SAFETENSORS_NAME_MAX = 1024,                /* bytes */
    TN_SAFETENSORS_COUNT_MAX = 100 * 1000,         /* tensors */
    TN_SAFETENSORS_META_MAX = 16 * 1000,           /* keys of the metadata, */
    TN_SAFETENSORS_META_BYTES = 4 << 20            /* and bytes of its texts */
};

typedef struct tn_text_pair {
    const char *key, *value;
} tn_text_pair;

/* A tensor of an open file; borrowed until tn_safetensors_close. The format promises no alignment: `data` may lie at
 * any address, so copy it (memcpy, tn_safetensors_copy_f32) unless its alignment has been tested. */
typedef struct tn_file_tensor {
    const char *name;
    tn_dtype dtype;
    unsigned char type; /* the reader's own */
    tn_dims dims;
    const void *data; /* (dims) of dtype, row-major, unaligned */
    size_t bytes;
} tn_file_tensor;

typedef struct tn_safetensors tn_safetensors;

tn_status tn_safetensors_open(const char *path, tn_safetensors **out);
/* The same on memory that stays borrowed until the close; `name` stands for the path in messages. */
tn_status tn_safetensors_open_memory(const void *data, size_t bytes, const char *name, tn_safetensors **out);
void tn_safetensors_close(tn_safetensors *f); /* takes NULL */

/* Tensors in the order of their data. Those of a type the library has no use for (I8, I16, U16, U32, U64, BOOL, F8_*)
 * are checked but not listed, so that a model with a stray mask still opens; asking for one by name says so. */
size_t tn_safetensors_count(const tn_safetensors *f);
const tn_file_tensor *tn_safetensors_at(const tn_safetensors *f, size_t i);
bool tn_safetensors_has(const tn_safetensors *f, const char *name);
tn_status tn_safetensors_find(const tn_safetensors *f, const char *name, const tn_file_tensor **out);

size_t tn_safetensors_meta_count(const tn_safetensors *f);
const tn_text_pair *tn_safetensors_meta_at(const tn_safetensors *f, size_t i);
const char *tn_safetensors_meta(const tn_safetensors *f, const char *key); /* NULL where there is none */

/* dst (count of t->dims) in f32 from any floating type; integers are refused, they would lose digits. */
tn_status tn_safetensors_copy_f32(const tn_file_tensor *t, float *dst);

/* Writer: begin, declare every tensor, put their bytes in the declared order (each in one or more pieces), finish.
 * Data begins at a multiple of 8 bytes; declare wide types first and every tensor is aligned to its type. */
typedef struct tn_safetensors_writer tn_safetensors_writer;

tn_status tn_safetensors_writer_begin(const char *path, const tn_text_pair *meta, size_t meta_count,
                                      tn_safetensors_writer **out);
/* The same, handing the file's bytes to a sink in their order; `name` stands for the path in messages. */
tn_status tn_safetensors_writer_begin_into(tn_sink into, const char *name, const tn_text_pair *meta, size_t meta_count,
                                           tn_safetensors_writer **out);
tn_status tn_safetensors_writer_declare(tn_safetensors_writer *w, const char *name, tn_dtype dtype, tn_dims dims);
tn_status tn_safetensors_writer_put(tn_safetensors_writer *w, const char *name, const void *data, size_t bytes);
/* Both free the writer. Only a successful finish leaves anything on the disk. */
tn_status tn_safetensors_writer_finish(tn_safetensors_writer *w);
void tn_safetensors_writer_abort(tn_safetensors_writer *w); /* takes NULL */

#endif
