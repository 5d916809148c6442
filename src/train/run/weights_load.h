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

#endif
