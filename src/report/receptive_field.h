/* How far back predictions depend on the text: the loss at the same tokens when only the last n of the text before them
 * are given, for n = 1, 2, 4, ... up to a whole context. The least n whose loss is within a tolerance of the whole's is
 * the effective context.
 *
 * The tokens are the last eighth of windows of a whole context, each inside one document, spread evenly over the
 * held-out part. For n, rows of n tokens end at or behind them and the last eighth of a row is scored: such a label
 * is predicted from n tokens or up to an eighth fewer, never more. */
#ifndef TN_REPORT_RECEPTIVE_FIELD_H
#define TN_REPORT_RECEPTIVE_FIELD_H

#include "data/dataset.h"
#include "plan/store.h"

#include <tenon/model.h>

enum { TN_RECEPTIVE_FIELD_ROWS = 40 };
#define TN_RECEPTIVE_FIELD_TOLERANCE 0.01 /* nats */

typedef struct tn_receptive_field_options {
    const tn_model *model;
    const tn_settings *settings; /* of the trained model; borrowed */
    tn_store *store;
    const tn_dataset *data;
    tn_data_split split;
    int64_t whole;   /* the whole context, 8 or more */
    int64_t targets; /* labels to score, about; fewer where the text has fewer */
    int64_t tokens;  /* of a batch, about */
    void *ctx;
    void (*progress)(void *ctx, int64_t given); /* or NULL */
    bool (*interrupted)(void *ctx);             /* or NULL */
} tn_receptive_field_options;

typedef struct tn_receptive_field_row {
    int64_t given; /* n */
    double loss;   /* nats per token; NaN: the model refused */
    double more;   /* than with the whole context, */
    double error;  /* and its standard error over windows; NaN: fewer than two of them */
    char why[256]; /* it cannot be measured: the reason */
} tn_receptive_field_row;

typedef struct tn_receptive_field {
    tn_receptive_field_row row[TN_RECEPTIVE_FIELD_ROWS]; /* (n), the last is the whole context */
    size_t n;
    int64_t targets, windows, documents; /* labels scored at each n, in so many windows of so many documents */
    int64_t effective;                   /* context: the least n with more <= TN_RECEPTIVE_FIELD_TOLERANCE */
} tn_receptive_field;

/* TN_USAGE: no document is longer than the whole context, or the model has no such context. */
tn_status tn_receptive_field_measure(const tn_receptive_field_options *o, tn_receptive_field *out);

#endif
