/* model.safetensors.index.json of a Hugging Face folder: in which file each tensor lies.
 *   { "metadata": { ... }, "weight_map": { "model.norm.weight": "model-00003-of-00003.safetensors", ... } }
 * File names are plain names of files beside it: none has a path in it. */
#ifndef TN_IO_HF_INDEX_H
#define TN_IO_HF_INDEX_H

#include "base/status.h"

#include <stddef.h>

enum {
    TN_HF_INDEX_BYTES = 32 << 20,
    TN_HF_INDEX_TENSORS = 100 * 1000, /* as many as a file may have */
    TN_HF_INDEX_FILES = 1000
};

typedef struct tn_hf_place {
    const char *tensor, *file;
} tn_hf_place;

typedef struct tn_hf_index {
    tn_hf_place *place; /* (n), by the names of tensors, which are unique */
    size_t n;
    const char **file; /* (files), by name, unique */
    size_t files;
} tn_hf_index;

/* text (bytes) is changed, and names lie in it; it stays borrowed until tn_hf_index_free. `name` stands for the path in messages. */
tn_status tn_hf_index_read(char *text, size_t bytes, const char *name, tn_hf_index *out);
void tn_hf_index_free(tn_hf_index *x);                                         /* takes a zeroed one */
const tn_hf_place *tn_hf_index_find(const tn_hf_index *x, const char *tensor); /* NULL where there is none */

#endif
