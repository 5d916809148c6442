/* Decoding: tokens in, logits of the next one out, with the state carried from call to call (models/decode_cache.h). A prompt goes
 * through in pieces of many tokens whose logits nobody needs; its last token, and every one after it, goes alone.
 * Recurrent layers cost the same at every position; attention looks back on a cache of `capacity` tokens, or of its window.
 *
 * The decoder puts its caches into the store and takes them out again: one decoder at a time on a store. */
#ifndef TN_TRAIN_SAMPLE_DECODE_H
#define TN_TRAIN_SAMPLE_DECODE_H

#include "plan/plan.h"

#include <tenon/model.h>

typedef struct tn_decoder tn_decoder;

typedef struct tn_decoder_options {
    const tn_model *model;
    const tn_settings *settings; /* borrowed */
    tn_store *store;             /* borrowed; it has the parameters, or they are initialised */
    bool frozen;      /* the parameters are; those the store lacks are loaded by the caller before the first token */
    bool drawn;       /* ... but nobody loads them: they get random first values */
    tn_dtype weights; /* type of frozen matrices */
    int64_t batch;    /* sequences side by side */
    int64_t capacity; /* tokens that attention can look back on */
    int threads;      /* 0: as the settings say */
    bool greedy;      /* tn_decoder_greedy will be called */
    bool (*interrupted)(
        void *ctx); /* asked before each token, or piece of a prompt; true: TN_INTERRUPTED. NULL: nobody asks */
    void *ctx;
} tn_decoder_options;

/* TN_USAGE: the model keeps no state between calls, or puts out no logits. */
tn_status tn_decoder_new(const tn_decoder_options *o, tn_decoder **out);
void tn_decoder_free(tn_decoder *d); /* takes NULL */

int64_t tn_decoder_vocab(const tn_decoder *d);
/* Tokens that still fit into every row that has not ended; INT64_MAX for a model without attention. */
int64_t tn_decoder_tokens_left(const tn_decoder *d);

/* Forgets all that was fed. Between two calls of it the parameters stay as they are: what was packed of them is kept. */
void tn_decoder_clear(tn_decoder *d);
/* Takes n >= 1 more tokens (B,n), row stride n; *logits (B,vocab) are those after the last, until the next call. */
tn_status tn_decoder_feed(tn_decoder *d, const int32_t *tokens, int64_t n, const float **logits);

/* The same with rows of different length: row b begins with length[b] tokens, 1 to n. Each row's logits are those that it would have
 * alone. The first such call of a model with states makes its plans anew. */
tn_status tn_decoder_feed_rows(tn_decoder *d, const int32_t *tokens, int64_t n, const int64_t *length,
                               const float **logits);

/* Tokens that still fit into one row. */
int64_t tn_decoder_row_left(const tn_decoder *d, int64_t row);
/* The row has ended, until tn_decoder_clear: it goes along, but takes no more room, and its logits mean nothing. */
void tn_decoder_end_row(tn_decoder *d, int64_t row);

/* Whether the model answers a prompt instead of continuing it: it has a step "reply", which reads the prompt as "tokens" (B,n) at once,
 * leaves caches, and puts out "logits" (B,1,vocab) of the first token, "position" i32 (1) of that token, and "capacity" i32 (1), the
 * positions that there are. */
bool tn_decoder_replies(const tn_decoder *d);
/* Forgets all that was fed and runs that step; tokens that follow are fed one by one, as above. */
tn_status tn_decoder_reply(tn_decoder *d, const int32_t *tokens, int64_t n, const float **logits);

/* Feeds `tokens` (B), then n - 1 times the likeliest token of each row; out (B,n) gets the n likeliest tokens that came of it.
 * TN_DIVERGED: a logit is NaN. On a GPU with opt.decode_ahead the device chooses and the host only queues, so that nothing waits
 * until all n are there. */
tn_status tn_decoder_greedy(tn_decoder *d, const int32_t *tokens, int64_t n, int32_t *out);

/* --- for measuring ---------------------------------------------------------------------------------------------------- */

/* As if `position` tokens had been fed: caches and states get random numbers. From then on every token stands at this position,
 * however many are fed, and rows of caches of a window do not move. TN_USAGE: they do not fit. */
tn_status tn_decoder_fill_to(tn_decoder *d, int64_t position, uint64_t seed);
const tn_plan *tn_decoder_plan(const tn_decoder *d); /* of a single token */

#endif
