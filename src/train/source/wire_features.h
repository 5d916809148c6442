/* What a frozen sender gives an encoder for each training text, kept (sender_features=cached): the input "features" of training steps, and its
 * file features-KEY.bin. The model's step "teach" puts it out under the same name. */
#ifndef TN_TRAIN_SOURCE_WIRE_FEATURES_H
#define TN_TRAIN_SOURCE_WIRE_FEATURES_H

#include "tasks/wire/wire_kept.h"
#include "tasks/wire/wire_sizes.h"
#include "train/source/source.h"

typedef struct tn_wire_features {
    const tn_wire_store *store;
    size_t sender; /* which of the store's readers */
    int64_t *
        asked_at; /* (training questions + 1): tokens before each, where the encoder sees questions; NULL: it does not */
    int64_t width; /* numbers of a token; 0: nothing is kept */
    tn_dtype type; /* in the file */
    char path[TN_PATH_BYTES];
    char key[TN_HASH_BYTES];
    tn_wire_kept file;
    tn_wire_kept_writer *to; /* while it is made */
} tn_wire_features;

/* Sizes of a gpt from the setting `shape` that holds its settings. */
tn_status tn_wire_model_sizes(const tn_settings *st, const char *shape, int64_t *vocab, int64_t *dim, int64_t *layers);
/* A hash of the weights and the shape of reader x ('a', ...), how it is computed, and more. */
tn_status tn_wire_model_key(const tn_settings *st, char x, const char *more, char hex[TN_HASH_BYTES]);

/* What the settings ask for. */
tn_status tn_wire_features_open(const tn_source_open *o, const tn_wire_store *store, tn_wire_features *out);
void tn_wire_features_close(tn_wire_features *f); /* its file */
void tn_wire_features_free(tn_wire_features *f);
/* Key and path for the weights that are loaded now. *missing: there is no such file. */
tn_status tn_wire_features_find(tn_wire_features *f, const tn_settings *st, tn_dtype type, const char *folder,
                                bool *missing);
uint64_t tn_wire_features_bytes(const tn_wire_features *f); /* of the file */
tn_status tn_wire_features_begin(tn_wire_features *f);
/* Texts, or questions where the encoder sees these: what there is one of for each. */
int64_t tn_wire_features_count(const tn_wire_features *f);
int64_t tn_wire_features_tokens(const tn_wire_features *f); /* of the longest */
/* x (tokens,width) of a context of the training split with this question (of all; where the encoder does not see it: any), in their order. */
tn_status tn_wire_features_add(tn_wire_features *f, int64_t context, int64_t question, const float *x);
tn_status tn_wire_features_finish(tn_wire_features *f);
tn_status tn_wire_features_take(tn_wire_features *f);
/* Into to (tokens,width), 0 behind its own. */
tn_status tn_wire_features_read(const tn_wire_features *f, int64_t context, int64_t question, int64_t tokens,
                                float *to);

#endif
