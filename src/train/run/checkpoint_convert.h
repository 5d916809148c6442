/* Weights from one file format to another. A format is a row of a table in checkpoint_convert.c: file ending, reader
 * and writer (either may be missing). */
#ifndef TN_TRAIN_CHECKPOINT_CONVERT_H
#define TN_TRAIN_CHECKPOINT_CONVERT_H

#include "io/decoder_file.h"
#include "io/tensor_file.h"
#include "models/models.h"
#include "train/checkpoint/checkpoint.h"

/* Tensors that are open, whatever they came from. */
typedef struct tn_tensors {
    const tn_file_tensor *tensor; /* (n). `data` is NULL where the tensor lies in several pieces, or in blocks */
    size_t n;
    const tn_text_pair *meta; /* (n_meta) */
    size_t n_meta;
    const struct tn_tensor_source *source; /* a row for each kind: tensors of ours, decoders of others */
    void *from;                            /* the source's */
    char note[TN_CKPT_NOTE];               /* as tn_ckpt_resolve's */
} tn_tensors;

/* A run (its best), a checkpoint, a Hugging Face folder, or a file that some row reads. */
tn_status tn_tensors_open(const char *path, tn_tensors *out);
void tn_tensors_close(tn_tensors *t);                                         /* takes a zeroed one */
const tn_file_tensor *tn_tensors_find(const tn_tensors *t, const char *name); /* NULL where there is none */
/* dst (n) in f32: the numbers first .. first+n-1 of a tensor of t of any floating type. */
tn_status tn_tensors_read(const tn_tensors *t, const tn_file_tensor *x, int64_t first, int64_t n, float *dst);

/* A tensor's bytes where they lie, in the type they have. */
typedef struct tn_tensor_piece {
    const unsigned char *data; /* unaligned */
    tn_dtype dtype;            /* TN_DTYPES: blocks that share scales, which only tn_tensors_read decodes */
    int64_t count;             /* numbers */
} tn_tensor_piece;
/* Its pieces, which follow one another; returns how many. */
int tn_tensors_pieces(const tn_tensors *t, const tn_file_tensor *x, tn_tensor_piece out[TN_PIECES]);

/* dtype TN_DTYPES: as they are; else floating tensors become that type and others stay. Of a run, or a checkpoint that
 * stands in one, the model and its settings go with the weights, so that the file is a model (saved_model.h). The file
 * appears whole. `user` are words "model=PATH": where a run's model is a shared object. note: as tn_ckpt_resolve's. */
tn_status tn_ckpt_convert(const tn_user_args *user, const char *in, const char *out, tn_dtype dtype,
                          char note[TN_CKPT_NOTE]);

#endif
