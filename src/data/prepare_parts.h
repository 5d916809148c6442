/* Shared by prepare*.c. */
#ifndef TN_DATA_PREPARE_PARTS_H
#define TN_DATA_PREPARE_PARTS_H

#include "data/documents.h"
#include "data/prepare.h"
#include "data/sink.h"
#include "token/tokenizer.h"

/* Inputs of one part: the positional files are split by document, those of valid= and test= are not. */
typedef struct tn_prepare_part {
    tn_input_files in, labels;
    bool fixed;
    tn_data_split split;
} tn_prepare_part;

typedef struct tn_preparing {
    const tn_prepare *p;
    tn_prepare_part part[TN_SPLITS]; /* by split; part[TN_TRAIN] may fill all three */
    tn_data_kind kind;
    tn_tokenizer *tokenizer; /* NULL for arrays and for tokens without one */
    bool trains_tokenizer;
    int threads;
    tn_manifest manifest;
    tn_sink sink;
    tn_splitter splitter; /* at the first document */
    double start;
    uint64_t done_bytes, total_bytes; /* of parts that are through; of all */
    uint64_t written;                 /* tokens or samples */
} tn_preparing;

/* Tells the caller how far it is; TN_INTERRUPTED when it wants no more. */
tn_status tn__prepare_tell(tn_preparing *w, const char *phase, uint64_t done, uint64_t total);

tn_status tn__prepare_tokenizer(tn_preparing *w); /* opens or trains it */
tn_status tn__prepare_tokenizer_copy(tn_preparing *w, const char *dir);
tn_status tn__prepare_text(tn_preparing *w, const tn_prepare_part *part);
tn_status tn__prepare_tokens(tn_preparing *w, const tn_prepare_part *part);
tn_status tn__prepare_tokens_about(tn_preparing *w); /* vocab and eot of token files */
tn_status tn__prepare_arrays_about(tn_preparing *w); /* shape and type */
tn_status tn__prepare_arrays(tn_preparing *w, const tn_prepare_part *part);

#endif
