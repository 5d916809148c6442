/* Learning curves of runs, from their metrics.jsonl: held-out values as they are, the training loss smoothed. */
#ifndef TN_REPORT_CURVES_H
#define TN_REPORT_CURVES_H

#include "base/alloc.h"
#include "report/chart/plot.h"
#include "train/run/patience.h"

#include <stdint.h>

typedef enum tn_curves_axis { TN_CURVES_STEPS = 0, TN_CURVES_TOKENS = 1, TN_CURVES_SECONDS = 2 } tn_curves_axis;

/* One line of metrics.jsonl; what it does not have is NaN. */
typedef struct tn_curves_row {
    double step, seconds, loss, heldout, bits, named; /* bits: per byte, held out; named: tn_curves.metric */
} tn_curves_row;

/* A value and its step; NaN: there is none. */
typedef struct tn_curves_value {
    double value, step;
} tn_curves_value;

typedef struct tn_curves_run {
    const char *dir, *name; /* name: without what the directories of all have in common */
    tn_curves_row *row;     /* (n) */
    size_t n;
    int64_t damaged, first_damaged;         /* lines that are left out; the number of the first */
    double tokens_per_step;                 /* NaN: not known */
    int64_t step, steps;                    /* how far it is; steps 0: not known */
    tn_curves_value final, lowest, highest; /* of what is drawn */
    bool by_loss;                           /* the loss selects its best step: train.select */
    bool stops_early;                       /* train.stop_patience is set */
    bool worse;                  /* by_loss, and held-out losses have risen since the lowest (overfit_watch.h) */
    tn_patience_record patience; /* of its evaluations */
} tn_curves_run;

typedef struct tn_curves {
    const char *metric; /* the key that is drawn instead of the loss, or NULL */
    tn_curves_run *run; /* (n) */
    size_t n;
    bool evaluated;   /* some run has two held-out values; else the training loss stands for them */
    const char *unit; /* of the values: "bits per byte", "nats" or the metric's key */
} tn_curves;

/* dirs (n): runs. metric: a key of metrics.jsonl, or one of its held-out metrics without "heldout_"; NULL: the loss. All in `arena`.
 * Lines that are damaged are left out. TN_USAGE: no run has that metric, or --x=tokens is not known; TN_BAD_FILE: a run without
 * metrics.jsonl. */
tn_status tn_curves_read(const char *const *dirs, size_t n, const char *metric, tn_arena *arena, tn_curves *out);
/* A sentence on what it does not show, in `arena`, or NULL: lines that are damaged, or that there is nothing to draw (*none). */
const char *tn_curves_trouble(const tn_curves *c, tn_arena *arena, bool *none);
/* "held-out loss has risen since step 200 (0.7360 -> 0.8100); train.stop_patience=3 would have stopped at ...", "" where it has not. */
enum { TN_CURVES_RISE = 320 };
const char *tn_curves_rise(const tn_curves_run *r, char buf[TN_CURVES_RISE]);
/* The step at which the least train.stop_patience would have ended it; 0: it has not become worse, or nothing is saved. */
int64_t tn_curves_stop(const tn_curves_run *r);
/* The plot; a ring marks the best step of a held-out loss that has a later one. full: with the training losses behind the held-out
 * ones, for SVG. TN_USAGE: the axis is not known of some run. */
tn_status tn_curves_plot(const tn_curves *c, tn_curves_axis x, bool full, tn_arena *arena, tn_plot *out);
/* The same over steps, in full, as a picture of a page; nothing where there is no run. TN_MEMORY, TN_DISK. */
tn_status tn_curves_draw(const tn_curves *c, tn_arena *arena, FILE *out);

#endif
