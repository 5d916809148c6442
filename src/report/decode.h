/* The speed of decoding: models side by side at one batch and one context, token by token with their state or cache,
 * in alternating rounds. Caches and states are random numbers, and so are weights that no file has (on a GPU
 * they are frozen, as those of a file are): speed does not depend on what they say. A cache holds as many positions as the
 * context says and every token reads all of them; of a window it reads that window, and a recurrence has its state,
 * whatever the context. Or that of prefill: a whole prompt from nothing to the logits behind it. */
#ifndef TN_REPORT_DECODE_H
#define TN_REPORT_DECODE_H

#include "train/run/saved_model.h"

enum { TN_DECODE_MOST = 8, TN_DECODE_ROUNDS = 64 };

typedef struct tn_decode_side {
    const tn_model *model;
    const tn_settings *settings; /* borrowed, as is the store */
    tn_store *store;             /* the parameters are put into it when it is first measured */
    tn_saved_model *file;        /* whose weights they are, frozen and in its type; NULL: random numbers */
    bool loaded;                 /* they are in the store */
} tn_decode_side;

typedef struct tn_decode_point {
    int64_t batch, context;
    int64_t prompt;                 /* 0: token by token; else prefill of so many tokens, and no context but those */
    int rounds;                     /* at most TN_DECODE_ROUNDS */
    double seconds;                 /* for each side, about */
    double copy_gbs;                /* of the device: what the limit is made of */
    int threads;                    /* 0: as the settings say */
    bool (*interrupted)(void *ctx); /* as tn_decoder_options'; NULL: nobody asks */
    /* Called for each side after the rounds, to run n more tokens or prompts its own way: run(one, n). NULL: nobody does */
    tn_status (*more)(void *ctx, size_t side, tn_status (*run)(void *one, int64_t n), void *one);
    void *ctx;
} tn_decode_point;

typedef struct tn_decode_row {
    char why[512]; /* it was not measured: the reason; else empty */
    double ms,
        spread_ms; /* of one token (prefill: one prompt) in every row: median of the rounds, half the interquartile range */
    double cpu_ms;   /* the processor's time for it, all threads together: waiting for a core does not count */
    double tokens_s; /* of all rows together */
    double weight_bytes,
        state_bytes; /* read for a token: weights in the form they are read in; states or caches of all rows */
    double of_limit; /* the time that reading those bytes once takes at copy_gbs, as a part of ms; prefill: 0 */
    double ratio;    /* tokens_s over that of the first side that was measured */
    int64_t tokens;  /* timed in each round of one row */
} tn_decode_row;

/* rows (n). What does not fit, or is no model to decode, is left out with its reason and does not stop the others. */
tn_status tn_decode_measure(tn_decode_side *sides, size_t n, const tn_decode_point *at, tn_decode_row *rows);

#endif
