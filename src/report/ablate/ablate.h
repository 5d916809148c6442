/* Ablation: what each optimisation and setting is worth for a configuration, and whether it computes the same.
 *
 * A row (table.h) has a plain side and a fast one. Both train the same steps, and every parameter is compared (parity.h); then they run in
 * turn, in rounds: the first of all rows, then the second of all rows, each with sides that are opened anew (paired.h). Then everything is
 * turned on one after the other, and what rows cost in held-out metrics is seen after some training. */
#ifndef TN_REPORT_ABLATE_H
#define TN_REPORT_ABLATE_H

#include "report/ablate/ops_alone.h"
#include "report/ablate/parity.h"
#include "report/ablate/table.h"
#include "report/ablate/paired.h"
#include "train/run/training.h"

typedef struct tn_ablation {
    const tn_ablate_row *row;
    const char *what;                                  /* is timed: "step", "token", "save" */
    char why[256];                                     /* it could not be measured; else "" */
    double plain_ms, fast_ms, plain_bytes, fast_bytes; /* bytes: of the memory plans, or as table.h says */
    double plain_peak,
        fast_peak; /* what the process had resident more than before, from opening a side to its first steps; NaN: not known */
    tn_ops_alone alone; /* where the row has a component */
    tn_paired pairs;
    tn_ratio ratio; /* of all rounds together */
    tn_gain verdict;
    tn_parity parity; /* after `steps` steps */
    int steps;        /* 0: not compared */
    bool failed;      /* beyond the row's tolerance */
} tn_ablation;

/* Everything plain (name NULL), then with one row after the other on. */
typedef struct tn_ablate_turn {
    const char *name;
    double ms, bytes, times; /* times: as fast as all plain, by the ratios of neighbours in turn */
} tn_ablate_turn;

/* Held-out metrics of both sides after `steps` steps of training. */
typedef struct tn_ablate_scores {
    const tn_ablate_row *row;
    tn_scores plain, fast;
    tn_metric_list metrics;
    int64_t steps, count; /* count: what held-out metrics are means of */
    bool strict;          /* the row must leave them as they are */
    const tn_scores
        *noise; /* how far rounding alone moves them: trainings from weights that differ by 1e-5; NULL: not known */
} tn_ablate_scores;

/* By how much two trainings that differ by rounding may differ in score i of the plain side: half a point of parts (accuracy, cosine), 0.5 dB,
 * 0.5 % of losses and all else; of fewer than 200 rows, one row; and twice what rounding alone does. */
double tn_ablate_allowed(const tn_ablate_scores *s, size_t i);
/* It is further apart than that, or NaN on one side. */
bool tn_ablate_moved(const tn_ablate_scores *s, size_t i);

typedef struct tn_ablate_base {
    const tn_session *session;
    double ms, bytes, items; /* items: tokens or samples of a step */
} tn_ablate_base;

typedef struct tn_ablate_options {
    const tn_user_args *user;
    const tn_settings *settings; /* resolved, not yet filled by data */
    const tn_model *model;
    double seconds; /* for all of it; the first steps of a slow side may take longer */
    int steps;      /* of parity */
    int64_t
        eval; /* steps of training before each held-out metric; 0: only for rows that change the training, and briefly */
    const char *only;     /* "opt.scan,precision"; NULL: all rows, and all of them together */
    const char *dir;      /* a folder of its own for files */
    const char *prepared; /* the text as a prepared folder, or NULL */
    void *ctx;
    void (*begun)(void *ctx, const tn_ablate_base *b);
    void (*row)(void *ctx, const tn_ablation *a);
    void (*turn)(void *ctx, const tn_ablate_turn *t);
    void (*scores)(void *ctx, const tn_ablate_scores *s);
    void (*progress)(void *ctx, const char *what, double part); /* 0..1 of the time */
    bool (*interrupted)(void *ctx);                             /* or NULL */
} tn_ablate_options;

typedef struct tn_ablate_result {
    int rows, gains, losses, failed, unmeasured;
    int moved; /* rows that move a held-out metric although they must not */
    char worst[200],
        furthest[200]; /* the first row that failed, and of which parameter; that moved, and of which metric */
} tn_ablate_result;

/* TN_USAGE: a row that is not there. TN_MEMORY: the configuration does not fit. A row that failed is no error here. */
tn_status tn_ablate_run(const tn_ablate_options *o, tn_ablate_result *out);

#endif
