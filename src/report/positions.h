/* Held-out loss by position in the context, in buckets that double: 0-1, 2-3, 4-7, ... A label's position is the
 * number of tokens before the one it is predicted from, in its row and its document: at position 0 a model has seen
 * one token. */
#ifndef TN_REPORT_POSITIONS_H
#define TN_REPORT_POSITIONS_H

#include "train/source/text.h"

enum { TN_POSITION_ROWS = 40 };

typedef struct tn_position_row {
    int64_t first, last;  /* positions, both inclusive */
    int64_t tokens, rows; /* labels counted, and the rows of a batch they stand in */
    double loss;          /* nats per token; NaN: none */
    double error;         /* of it, standard: rows are taken to be independent, not tokens. NaN: fewer than two rows */
} tn_position_row;

/* Sums by bucket, for whoever has batches of his own. */
typedef struct tn_position_sums {
    struct {
        double tokens, loss, rows;    /* over all labels */
        double loss2, cross, tokens2; /* over rows: s^2, s n, n^2 of a row's loss s and labels n */
    } bucket[TN_POSITION_ROWS];
} tn_position_sums;

typedef struct tn_positions_options {
    const tn_model *model;
    const tn_settings *settings; /* of the trained model; borrowed */
    tn_store *store;
    const tn_dataset *data;
    tn_loader_mode mode;
    tn_data_split split;
    int64_t context, batch; /* of the rows */
    int64_t tokens;         /* about so many are scored, whole batches of them; 0: all */
    void *ctx;
    void (*progress)(void *ctx, int64_t tokens); /* scored so far; or NULL */
    bool (*interrupted)(void *ctx);              /* or NULL */
} tn_positions_options;

typedef struct tn_positions {
    tn_position_row row[TN_POSITION_ROWS]; /* (n) */
    size_t n;
    int64_t tokens; /* in all */
    double loss;    /* of all, nats per token */
    double bits;    /* bits per byte of one; NaN: not known */
} tn_positions;

/* TN_USAGE: the model has no such context, or no loss by label. */
tn_status tn_positions_measure(const tn_positions_options *o, tn_positions *out);

#endif
