/* A study and its trials as loaded: plain records that every room of the lab reads. Unknown numbers are NaN. */
#ifndef TN_LAB_RECORDS_H
#define TN_LAB_RECORDS_H

#include "base/alloc.h"
#include "lab/search/space.h"

typedef enum tn_trial_state {
    TN_TRIAL_WAITING = 0, /* not started, or put back to resume from its checkpoint */
    TN_TRIAL_RUNNING = 1,
    TN_TRIAL_DONE = 2,    /* this and all below: it has ended */
    TN_TRIAL_PRUNED = 3,  /* y is what it had when it was stopped */
    TN_TRIAL_FAILED = 4,  /* also diverged; `error` says why */
    TN_TRIAL_TIMEOUT = 5, /* trial_seconds; y is what it had */
    TN_TRIAL_STATES = 6
} tn_trial_state;

typedef enum tn_trial_kind {
    TN_TRIAL_SEARCH = 0,   /* drawn by the sampler */
    TN_TRIAL_ENQUEUED = 1, /* given in advance (transfer); numbered with the search */
    TN_TRIAL_COMPARE = 2   /* a point on another seed; numbered separately */
} tn_trial_kind;

/* A metric of the model, a number of every trial (seconds, parameters, ...), or an instrument of the model. */
typedef struct tn_objective {
    const char *name;
    bool maximise;
    bool by_row;      /* the direction is that of a metric of its model; the database remembers it */
    double reference; /* of the hypervolume; NaN: none is given */
} tn_objective;

/* One of the algorithms that a study compares; a study without `sides` has one, named "". */
typedef struct tn_side {
    const char *name;
    tn_space space;
} tn_side;

/* Published figures that the study file quotes. */
typedef struct tn_published_point {
    const double *y;        /* (objectives); NaN: not given */
    const char *const *set; /* (n_set) "key=value", in our names */
    const size_t *set_line; /* (n_set) in the file */
    size_t n_set;
} tn_published_point;

typedef struct tn_published_side {
    const double *best;               /* (objectives): the best in each; NaN: not given */
    const bool *bound;                /* (objectives): it is the best of `points`, so theirs is at least as good */
    int64_t front;                    /* points of their front; 0: not given */
    double hours;                     /* their study took; 0: not given */
    const tn_published_point *points; /* (n_points) */
    size_t n_points;
} tn_published_side;

typedef struct tn_published {
    const char *source, *note;      /* where they are from; differences of protocol, or "" */
    int winner;                     /* a side, or -1: not given */
    double hours;                   /* of all sides; 0: not given */
    const tn_published_side *sides; /* (sides of the study) */
} tn_published;

typedef struct tn_trial {
    int64_t id;     /* in the database */
    int64_t number; /* within its side, from 0; comparisons are numbered apart */
    int side;       /* of the study's */
    tn_trial_state state;
    tn_trial_kind kind;
    int64_t config; /* comparisons: id of the trial whose point is run again; else 0 */
    uint64_t seed;
    const double *x;       /* (dims of its side); NULL: not drawn yet */
    const double *y;       /* (objectives) as the user names them, in their own direction; NaN: not known */
    double started, ended; /* unix seconds of the first begin and of the end; NaN */
    double seconds;        /* that all its attempts worked; NaN */
    int worker;            /* that has or had it last; 0: none */
    int attempt;           /* how often it was begun */
    const char *error;     /* of a failed one; "" */
} tn_trial;

typedef struct tn_study {
    int64_t id;
    const char *name, *path, *text; /* the file it was begun with: where it was, and all of it */
    const char *overrides;          /* key=value of the command, one a line; "" */
    const tn_objective *objectives; /* (n_objectives) */
    size_t n_objectives;
    const tn_side *sides; /* (n_sides), at least one */
    size_t n_sides;
    const char *sampler, *pruner;  /* names */
    int64_t planned;               /* trials a side */
    double created;                /* unix seconds */
    double spent;                  /* seconds that it has been run for */
    const tn_published *published; /* NULL: none are quoted */
    const tn_trial *trials;        /* (n) by kind (comparisons last), number, side */
    size_t n;
    tn_arena arena; /* of all the above */
} tn_study;

enum { TN_REPORT_METRICS = 256 }; /* that a trial reports at most: scores of an evaluation, and instruments */

/* What a trial reported, evaluation by evaluation. */
typedef struct tn_trial_curve {
    size_t n, metrics;
    const char *const *name; /* (metrics): those of the model, instruments */
    const int64_t *step;     /* (n) */
    const double *epoch;     /* (n) */
    const double *seconds;   /* (n), working */
    const double *value;     /* (n, metrics) */
} tn_trial_curve;

static inline bool tn_trial_ended(tn_trial_state s) { return s >= TN_TRIAL_DONE; }

#endif
