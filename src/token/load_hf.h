/* Shared by the files that read tokenizer.json, and by load_gguf.c, whose merges are the same. */
#ifndef TN_TOKEN_LOAD_HF_H
#define TN_TOKEN_LOAD_HF_H

#include "token/tokenizer_impl.h"

#include <jansson.h>

tn_status tn__hf_unsupported(const char *part, const char *what); /* names what is not read */
const char *tn__hf_type(const json_t *x);                         /* "": none */
bool tn__hf_unset(const json_t *x);                               /* missing, null, false, 0 or "" */
bool tn__hf_flag(const json_t *x, const char *key, bool missing);
/* The merge of rank i, "left right" in the file's own letters; both and the whole are in the vocabulary. */
tn_status tn__hf_put_merge(tn_tokenizer *t, const char *text, size_t bytes, size_t i);

/* Whether a file is of the kind METASPACE: characters with U+2581 for a space, not bytes. */
bool tn__hf_is_marked(const json_t *root);
/* Its normalizer, pre-tokenizer and decoder; what is not understood is refused by its name. */
tn_status tn__hf_load_marked(tn_tokenizer *t, const json_t *root);

#endif
