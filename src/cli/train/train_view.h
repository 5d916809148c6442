/* What a person sees of a training run: one line that moves on a terminal, with the evaluations above it, plain lines elsewhere, and the curve. */
#ifndef TN_CLI_TRAIN_VIEW_H
#define TN_CLI_TRAIN_VIEW_H

#include "cli/cli.h"
#include "cli/view.h"
#include "cli/term.h"
#include "train/run/training.h"

typedef struct tn_curve {
    double *x, *y; /* (n): as the view's axis says; loss in bits per byte */
    size_t n, capacity;
} tn_curve;

typedef enum tn_curve_axis {
    TN_AXIS_STEPS = 0,
    TN_AXIS_TOKENS = 1,
    TN_AXIS_SECONDS = 2
} tn_curve_axis; /* seconds of training */

typedef struct tn_train_view {
    tn_progress progress;
    const char *label;  /* before the step, or "" */
    tn_curve_axis axis; /* of the curves */
    tn_curve train, heldout;
    size_t best;      /* 1 + the best point of `heldout`; 0: none */
    tn_status status; /* of keeping the curve */
    bool kept;        /* an evaluation was left on the terminal, */
    double kept_s;    /* the last of them then */
} tn_train_view;

void tn_train_view_start(tn_train_view *v, FILE *err, const char *label);
void tn_train_view_report(void *view, const tn_progress_report *r); /* for tn_training.report */
void tn_train_view_note(void *view, const char *text);              /* for tn_training.note */
void tn_train_view_warn(void *view, const char *text);              /* for tn_training.warn: a line that stays */
double tn_bits_of(const tn_progress_report *r);                     /* what the curves are in: see tn_score_scale */
void tn_train_view_end(tn_train_view *v); /* leaves the line; the curves stay until tn_train_view_free */
void tn_train_view_free(tn_train_view *v);

#endif
