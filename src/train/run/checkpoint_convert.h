/* Weights from one file format to another. A format is a row of a table in checkpoint_convert.c: file ending, reader
 * and writer (either may be missing). */
#ifndef TN_TRAIN_CHECKPOINT_CONVERT_H
#define TN_TRAIN_CHECKPOINT_CONVERT_H

#include "io/gguf_model.h"
#include "io/tensor_file.h"
#include "models/models.h"
#include "train/checkpoint/checkpoint.h"

/* Tensors that are open, whatever they came from. Those of a GGUF file have no `data`: tn_tensors_floats decodes them. */
typedef struct tn_tensors {
    const tn_file_tensor *tensor; /* (n), of `file` or `gguf` */
    size_t n;
    const tn_text_pair *meta; /* (n_meta) */
    size_t n_meta;
    tn_tensor_file file;     /* what they lie in, */
    void *memory;            /* or this; freed with tn_free */
    tn_gguf_model *gguf;     /* or this */
    char note[TN_CKPT_NOTE]; /* as tn_ckpt_resolve's */
} tn_tensors;

/* A run (its best), a checkpoint, or a file that some row reads. */
tn_status tn_tensors_open(const char *path, tn_tensors *out);
void tn_tensors_close(tn_tensors *t);                                         /* takes a zeroed one */
const tn_file_tensor *tn_tensors_find(const tn_tensors *t, const char *name); /* NULL where there is none */
/* dst (count of x->dims) in f32, of a tensor of t of any floating type. */
tn_status tn_tensors_floats(const tn_tensors *t, const tn_file_tensor *x, float *dst);

/* dtype TN_DTYPES: as they are; else floating tensors become that type and others stay. Of a run, or a checkpoint that
 * stands in one, the model and its settings go with the weights, so that the file is a model (saved_model.h). The file
 * appears whole. `user` are words "model=PATH": where a run's model is a shared object. note: as tn_ckpt_resolve's. */
tn_status tn_ckpt_convert(const tn_user_args *user, const char *in, const char *out, tn_dtype dtype,
                          char note[TN_CKPT_NOTE]);

#endif
