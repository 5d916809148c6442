/* What a model's files say about its tokens beside the vocabulary: what a text begins with, which tokens end one, and the
 * template of its talks.
 *
 *   MODEL.gguf   tokenizer.ggml.eos_token_id, eot_token_id, eom_token_id; tokenizer.chat_template
 *   a folder     generation_config.json and config.json: eos_token_id, a number or a list; tokenizer_config.json: eos_token,
 *                add_bos_token, chat_template; chat_template.jinja
 *
 * To these come the vocabulary's own special tokens that published models end texts and turns with (<|eot_id|>, </s>, ...). */
#ifndef TN_TOKEN_MODEL_TOKENS_H
#define TN_TOKEN_MODEL_TOKENS_H

#include "token/tokenizer.h"

enum { TN_END_TOKENS_MAX = 64 };

typedef struct tn_model_tokens {
    int32_t start;                  /* what a text begins with; -1: nothing */
    int32_t end[TN_END_TOKENS_MAX]; /* (n_end) */
    size_t n_end;
    char *chat_template; /* owned; NULL: none */
} tn_model_tokens;

/* Start and ends of the vocabulary alone. */
tn_model_tokens tn_model_tokens_of(const tn_tokenizer *t);
/* Adds what the place says: a GGUF file, a folder, or a tokenizer's file in one; any other says nothing. Ids that the
 * vocabulary does not have are refused. */
tn_status tn_model_tokens_read(const char *place, const tn_tokenizer *t, tn_model_tokens *inout);
void tn_model_tokens_free(tn_model_tokens *m); /* takes a zeroed one */

#endif
