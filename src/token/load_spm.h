/* Building a tokenizer of the kind SPM, shared by its two files: sentencepiece's .model and GGUF. */
#ifndef TN_TOKEN_LOAD_SPM_H
#define TN_TOKEN_LOAD_SPM_H

#include "token/tokenizer_impl.h"

typedef struct tn_spm_text {
    const char *text; /* of the file; NULL: none */
    size_t bytes;
} tn_spm_text;

typedef struct tn_spm_loader {
    tn_tokenizer *t;
    tn_scored *list; /* (vocab.n) */
    size_t capacity, type_capacity;
    tn_spm_text unknown_text, normalizer, charsmap;
} tn_spm_loader;

tn_status tn__spm_begin(tn_spm_loader *l); /* a tokenizer without pieces; settings are sentencepiece's own */
/* The piece of the next id. Only normal pieces are made by merging; user-defined ones are looked for in the text itself. */
tn_status tn__spm_put(tn_spm_loader *l, tn_spm_text text, float score, uint64_t type);
/* After all pieces: whether they fit together, and what decoding needs; `charsmap` is copied. */
tn_status tn__spm_fill(tn_spm_loader *l);
/* Pairs from the scores, which are freed before; more_bytes: what the tables may take beyond what they might before. */
tn_status tn__spm_pairs(tn_spm_loader *l, size_t more_bytes);
void tn__spm_end(tn_spm_loader *l); /* frees all that is left in it */

#endif
