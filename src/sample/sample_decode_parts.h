/* Inside of a decoder: its plans, and what its files share. */
#ifndef TN_SAMPLE_SAMPLE_DECODE_PARTS_H
#define TN_SAMPLE_SAMPLE_DECODE_PARTS_H

#include "models/decode_cache.h"
#include "sample/sample_decode.h"
#include "train/trainer/graph_setup.h"

enum { TN_DECODER_PLANS = 12 }; /* the last is that of a single token */

typedef struct tn_decoder_piece {
    tn_plan *plan;
    tn_bound *bound;
    tn_batch batch;
} tn_decoder_piece;

struct tn_decoder {
    tn_decoder_options o;
    tn_graph_setup setup;
    tn_context *context;
    tn_decoder_piece piece[TN_DECODER_PLANS];
    tn_decoder_piece move;  /* moves the rows of caches of a window */
    tn_decoder_piece reply; /* for the last prompt's length, where the model replies */
    int longest;            /* the first length that may be used */
    int64_t rest;           /* the length of the piece for what is left of a prompt */
    int64_t *position;      /* (B) tokens fed so far; 0 where a row has ended */
    int64_t *slot;          /* (B) tokens that stand in caches of a window; 0 where a row has ended */
    int64_t window;         /* which all of those have; 0: there are none */
    bool *ended;            /* (B) */
    int64_t vocab;
    bool attends, keeps; /* it has keys and values; a state besides, which every token changes */
    bool pads;           /* pieces may be longer than what is left of a prompt */
    bool commits;        /* plans leave the states of some rows alone, as "commit" (B) says */
    bool stays;          /* position is that of every token: tn_decoder_fill_to */
    bool warm;           /* parameters are as they were when a plan ran last */
    bool chooses;        /* the plan of a token puts out "next" */
    bool ahead;          /* ... and feeds it to the next run without the host */
    int32_t *history;    /* (1 + n B) device memory for what was chosen ahead (tn_chain), or NULL */
    int64_t history_n;
};

/* Runs the plan of a single token on what is in its input; the rows stay where they are. */
tn_status tn__decoder_run_token(tn_decoder *d);
/* Compiles what a model built and adopts its tensors; takes the graph, also where it fails. */
tn_status tn__decoder_make_plan(tn_decoder *d, tn_graph *g, const tn_compile_options *how, tn_decoder_piece *p);
/* All rows have so many tokens more, unless they stay or have ended. */
void tn__decoder_move(tn_decoder *d, int64_t further);
/* Whether n tokens more, (B,n), are ids and fit. */
tn_status tn__decoder_check(const tn_decoder *d, const int32_t *tokens, int64_t n);

/* --- caches of a window (sample_decode_window.c) --- */

/* How many tokens every row can take before rows of caches move; INT64_MAX: they never do. */
int64_t tn__decoder_room(const tn_decoder *d);
/* Where a row stands that has come to this position. */
void tn__decoder_put_slot(tn_decoder *d, int64_t row, int64_t position);
/* Afterwards there is room for so many tokens, tn_decode_window_room at most. */
tn_status tn__decoder_make_room(tn_decoder *d, int64_t tokens);

#endif
