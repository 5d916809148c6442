/* The numbers of a model's weights from a file into a store, part by part: besides the store only one part is held, and pages of the file
 * are given back as soon as they are copied. They are copied, not used where they lie in the file: a file that somebody shortens would
 * end a program that has been running for hours, most files do not have the tensors of our models in one piece, and copying takes a
 * tenth of a second for 300 MB. */
#ifndef TN_TRAIN_WEIGHTS_LOAD_H
#define TN_TRAIN_WEIGHTS_LOAD_H

#include "plan/store.h"
#include "train/checkpoint/checkpoint.h"

struct tn_tensors;

/* The matrices of a file (tensors of two axes and more). */
typedef struct tn_matrices {
    tn_dtype
        type; /* that all of them have; TN_F32 where they differ, TN_BF16 where some are in blocks that share scales */
    bool expanded;  /* some are in blocks: in memory they are larger than in the file */
    double numbers; /* how many there are */
} tn_matrices;

tn_matrices tn_weights_matrices(const struct tn_tensors *t);

/* Fills the store's parameters from a run (its best checkpoint), a checkpoint or a file of weights; numbers of any floating type become
 * those of the store's. All is checked before the first number moves. note: as tn_ckpt_resolve's, where the path is that of a run. */
tn_status tn_weights_load(const char *path, tn_store *store, char note[TN_CKPT_NOTE]);

/* A file for a part of the store: its parameters SCOPE.NAME are the file's NAME. */
typedef struct tn_weights_part {
    const char *path, *scope; /* scope NULL: the whole store */
    const char *but;          /* a parameter that is not of the file, or NULL */
    bool own;                 /* it is SCOPE.NAME in the file too */
} tn_weights_part;

/* The entry's name in the part's file; NULL: it is no parameter of the part. */
const char *tn_weights_part_name(const tn_weights_part *p, const tn_entry *e);
/* The same for n parts (at most TN_PARTS_MAX), all of which are checked before the first number of any moves. note is that of the last part
 * that has one. */
tn_status tn_weights_load_parts(const tn_weights_part *part, size_t n, tn_store *store, char note[TN_CKPT_NOTE]);

#endif
