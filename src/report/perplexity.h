/* The loss of a language model on a text, in windows that overlap.
 *
 * The windows of `length` tokens begin `stride` tokens apart. Every token of the text but the first is scored once, by the first
 * window that has it: with all that stands before it in the first window, then with at least length - stride tokens before it. A small
 * stride gives each token more context and takes length / stride times as long. */
#ifndef TN_REPORT_PERPLEXITY_H
#define TN_REPORT_PERPLEXITY_H

#include "train/trainer/trainer.h"

typedef struct tn_perplexity_options {
    tn_trainer *trainer;   /* of evaluations; it has the weights */
    int64_t batch, length; /* as it was opened */
    int64_t stride;        /* 1 to length */
    const int32_t *ids;    /* (n) n >= 2 */
    int64_t n;
    int64_t bytes; /* of text that ids[1..n), which are scored, stand for; 0: not known */
    void *ctx;
    void (*progress)(void *ctx, int64_t tokens); /* scored so far; or NULL */
    bool (*interrupted)(void *ctx);              /* or NULL */
} tn_perplexity_options;

typedef struct tn_perplexity {
    int64_t tokens, windows; /* scored */
    double nats, bits;       /* a token; bits a byte of the text */
} tn_perplexity;

/* Of a text of n tokens. */
int64_t tn_perplexity_windows(int64_t n, int64_t length, int64_t stride);
tn_status tn_perplexity_measure(const tn_perplexity_options *o, tn_perplexity *out);

#endif
