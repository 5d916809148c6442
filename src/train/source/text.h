/* A data set of tokens as a source. */
#ifndef TN_TRAIN_SOURCES_TEXT_H
#define TN_TRAIN_SOURCES_TEXT_H

#include "train/source/source.h"

typedef struct tn_source_text_options {
    const tn_dataset *data; /* borrowed */
    const char *path;       /* of it, for people; or NULL */
    tn_loader_mode mode;
    uint64_t seed;
    int workers,
        prefetch; /* threads that fill batches, and batches they may be ahead; -1: as many as their memory allows, 4 at most */
} tn_source_text_options;

/* Opened and started. */
tn_status tn_source_text_open(const tn_source_text_options *o, const tn_source_start *how, tn_source *out);

/* Whether rows may hold several documents, so that marks say where they start. */
static inline bool tn_source_marks_documents(tn_loader_mode mode) { return mode == TN_LOADER_PACK; }

#endif
