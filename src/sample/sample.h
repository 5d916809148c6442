/* Sampling: text from a model. A sampler is a decoder with a tokenizer; it takes a prompt, then draws token by token and
 * hands the text out as it comes, whole characters only. It keeps its state, so that prompt and answer can take turns.
 *
 * The same seed gives the same text whatever the number of threads: number i of sample b of a prompt is a function of (seed, b, i). */
#ifndef TN_TRAIN_SAMPLE_H
#define TN_TRAIN_SAMPLE_H

#include "token/tokenizer.h"
#include "sample/sample_decode.h"
#include "sample/sample_pick.h"

/* The keys of `tenon sample`, with their values: temperature, top_k, ... */
tn_status tn_sample_settings(tn_settings **out);
/* Those of them that say how a token is drawn and where a text ends, and `more` (n), which has max_tokens. */
tn_status tn_draw_settings(tn_settings **out, const tn_setting *more, size_t n, const char *owner);

typedef enum tn_sample_end {
    TN_SAMPLE_RUNNING = 0,
    TN_SAMPLE_LENGTH = 1,  /* max_tokens */
    TN_SAMPLE_ENDED = 2,   /* the model ended its text */
    TN_SAMPLE_STOPPED = 3, /* a stop string; it is not part of the text */
    TN_SAMPLE_FULL = 4,    /* attention's context is used up */
} tn_sample_end;

const char *tn_sample_end_name(tn_sample_end e); /* "length", "end", "stop", "context" */

typedef struct tn_sample_options {
    tn_pick_options pick;
    uint64_t seed;
    int64_t max_tokens;
    const char *const *stop; /* (n_stop) */
    size_t n_stop;
    void *ctx;
    /* More text of a sample, UTF-8 in whole characters; may be NULL. Any result but TN_OK ends sampling with it. */
    tn_status (*text)(void *ctx, int64_t sample, const char *text, size_t bytes);
} tn_sample_options;

tn_sample_options tn_sample_options_read(
    const tn_settings *st); /* of tn_sample_settings or tn_draw_settings; stop, ctx and text are empty */

typedef struct tn_sampler tn_sampler;

typedef struct tn_sampler_options {
    tn_decoder_options decoder;
    const tn_tokenizer *tokenizer; /* borrowed; its ids are below the model's vocabulary */
    int32_t start;                 /* what a text begins with (and one that is drawn ends it); -1: nothing */
    const int32_t *end;            /* (n_end) what ends a text beside the tokenizer's own roles; copied */
    size_t n_end;
} tn_sampler_options;

tn_status tn_sampler_new(const tn_sampler_options *o, tn_sampler **out);
void tn_sampler_free(tn_sampler *s); /* takes NULL */

/* Forgets prompts and answers; the draws begin anew too. */
void tn_sampler_clear(tn_sampler *s);
void tn_sampler_forget(tn_sampler *s); /* the same, but the draws go on */
/* More of the text, the same for every sample; the first begins with the start token. Where the model replies
 * (tn_decoder_replies) it is a prompt of its own, as it is. An empty first prompt where there
 * is no start token is a line's end. *tokens: how many it is. */
tn_status tn_sampler_prompt(tn_sampler *s, const char *text, size_t bytes, int64_t *tokens);
tn_status tn_sampler_prompt_tokens(tn_sampler *s, const int32_t *ids, int64_t n);

typedef struct tn_sample_prompt {
    const char *text;
    size_t bytes;
    const char *where; /* "FILE:3", for messages */
    int64_t tokens;    /* set: how many it is */
} tn_sample_prompt;

/* n prompts (n divides the batch) in the place of all that was said: samples [i batch / n, (i + 1) batch / n) continue prompt i, as they
 * would with it alone. The next prompt begins anew. TN_USAGE: the model replies, or a prompt does not fit. */
tn_status tn_sampler_prompts(tn_sampler *s, tn_sample_prompt *prompt, int64_t n);

typedef struct tn_sampled {
    const int32_t *ids; /* (n) drawn in the last run, without the one that ended it; until the next call */
    int64_t n;
    int32_t last; /* the token drawn last, that which ended it among them */
    tn_sample_end end;
} tn_sampled;

typedef struct tn_sample_report {
    int64_t tokens;          /* drawn, all samples together */
    double first_s, seconds; /* to the first token; in all */
} tn_sample_report;

/* Draws until every sample has ended. */
tn_status tn_sampler_run(tn_sampler *s, const tn_sample_options *o, tn_sample_report *out);
tn_sampled tn_sampler_result(const tn_sampler *s, int64_t sample);
int64_t tn_sampler_tokens_left(const tn_sampler *s);

#endif
