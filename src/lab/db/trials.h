/* Trials in the database: how a study begins, how its trials are claimed, report and end.
 *
 * A trial is claimed by one UPDATE, by a worker that is registered and whose heart beats; what a worker writes counts only while the claim is
 * still its own, so a result is recorded once whatever is killed when. Trials of a dead worker are claimed again. */
#ifndef TN_LAB_TRIALS_H
#define TN_LAB_TRIALS_H

#include "lab/db/lab.h"
#include "lab/study/study.h"

/* Finds the study of this name or writes it (its trials are not made here). TN_USAGE: one of that name was begun with other words. */
tn_status tn_lab_begin(tn_lab *lab, const tn_study_plan *p, const char *text, const char *const *overrides, size_t n,
                       int64_t *id, bool *found);
/* Sees to it that every side has trials 0 .. n-1, or as many as its sampler can draw. */
tn_status tn_lab_fill(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t n);
/* One that is given: as the next number of its series. x (dims of the side). */
tn_status tn_lab_enqueue(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, tn_trial_kind kind,
                         int64_t config, uint64_t seed, const double *x);
/* Adds to the seconds that the study has been run for; *spent: in all. */
tn_status tn_lab_spend(tn_lab *lab, int64_t study, double seconds, double *spent);

/* --- workers ---------------------------------------------------------------------------------------------------------- */

/* Both also bury workers of this machine whose process is no more. */
tn_status tn_lab_join(tn_lab *lab, int64_t *worker);
tn_status tn_lab_beat(tn_lab *lab, int64_t worker);
/* It is gone: what it had can be claimed at once. */
tn_status tn_lab_leave(tn_lab *lab, int64_t worker);
/* The same for all of a process of this machine that has ended. */
tn_status tn_lab_mark_dead(tn_lab *lab, int64_t pid);

/* --- claiming --------------------------------------------------------------------------------------------------------- */

typedef struct tn_claim {
    int64_t trial, number, worker, config;
    size_t side;
    tn_trial_kind kind;
    uint64_t seed;
    int attempt;    /* 1: nobody had it before */
    bool has_x;     /* the point is there already */
    double seconds; /* that earlier attempts worked */
    double begun;   /* unix seconds of this attempt */
} tn_claim;

typedef enum tn_claimed {
    TN_CLAIM_GOT,
    TN_CLAIM_WAIT,
    TN_CLAIM_OVER
} tn_claimed; /* WAIT: others have to end first; OVER: none is left */

/* Which trials of a study are meant; zeroed: all that its search has. */
typedef struct tn_trial_filter {
    bool compare;      /* of that series instead, which waits for nothing */
    int64_t most;      /* numbers below it; 0: no limit */
    tn_side_set sides; /* of these */
} tn_trial_filter;

/* The lowest number of the portion that may start: everything its sampler and pruner look at has ended. x (most dims of the study's sides) is
 * filled where the claim has one. */
tn_status tn_lab_claim(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t worker, const tn_trial_filter *of,
                       tn_claim *out, double *x, tn_claimed *got);

/* The first n trials of a side as samplers see them. Starts zeroed; what was read is kept. */
typedef struct tn_observed_store {
    size_t n, capacity_x, capacity_y, capacity_pruned;
    double *x, *y;
    bool *pruned;
} tn_observed_store;
tn_status tn_lab_observed(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, int64_t n,
                          tn_observed_store *store, tn_observed *out);
void tn_observed_free(tn_observed_store *store);

/* --- what a trial writes; *lost: the claim is no longer this worker's, and nothing was written ------------------------------ */

typedef struct tn_report {
    int64_t rung, step;           /* rung: 1, 2, ... */
    double epoch, seconds, score; /* score: what pruners compare, to be made small */
    const char *value;            /* a JSON object of metrics */
} tn_report;

typedef struct tn_ending {
    tn_trial_state state; /* WAITING: put back, to be gone on with */
    const double *y;      /* (objectives), or NULL */
    double seconds, parameters;
    uint64_t seed; /* that it ended with */
    const char *error;
} tn_ending;

tn_status tn_lab_point(tn_lab *lab, const tn_claim *c, const double *x, size_t n, bool *lost);
/* Reports of a trial that goes on; its number of parameters (NaN: not known). */
tn_status tn_lab_report(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, double parameters,
                        bool *lost);
/* The last reports and the end, in one transaction. */
tn_status tn_lab_end(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, const tn_ending *e,
                     size_t objectives, bool *lost);
/* Forgets what was reported after `step`; *rungs: what is left. */
tn_status tn_lab_rewind(tn_lab *lab, const tn_claim *c, int64_t step, int64_t *rungs);
/* Score and parameters at a rung of trials with numbers below `before` that came so far: *out (n, 2) (tn_free). Within the factor `cohort` of
 * `parameters` where that is above 0. */
tn_status tn_lab_rung(tn_lab *lab, int64_t study, size_t side, int64_t before, int64_t rung, double parameters,
                      double cohort, double **out, size_t *n);

/* --- how far a study is ----------------------------------------------------------------------------------------------- */

typedef struct tn_tally {
    int64_t count[TN_TRIAL_STATES];
    double
        best; /* first objective of the best one that is done; NaN; of comparisons not told: it is of the test part */
    double mean_s; /* of those that ended */
} tn_tally;

/* By side (n_sides), of the search or of the comparisons; `most`: trials below that number only (0: all). */
tn_status tn_lab_tally(tn_lab *lab, int64_t study, const tn_study_plan *p, bool compare, int64_t most, tn_tally *out);
/* Trials that run now, the longest first: at most `most`, *n of them. */
typedef struct tn_running {
    size_t side;
    int64_t number;
    double since, epoch; /* unix seconds; of the last report, NaN where there is none */
} tn_running;
tn_status tn_lab_running(tn_lab *lab, int64_t study, bool compare, tn_running *out, size_t most, size_t *n);
/* Trials that run, and the process that has each: at most `most`, *n of them. */
typedef struct tn_held {
    int64_t pid;
    tn_claim claim; /* as far as tn_lab_end needs it */
} tn_held;
tn_status tn_lab_held(tn_lab *lab, int64_t study, tn_held *out, size_t most, size_t *n);

/* --- common seeds --- */

/* Studies with `seeds`: nothing is searched, every point of the grid is run on common seeds, as comparisons (so with their test part
 * measured, which stays with them). A trial of the search is then the mean of its point over the seeds, on the validation part. */
enum { TN_FIRST_SEED = 1000 }; /* of comparisons: far from those of a search, which are seed + number */

/* After tn_lab_fill: gives every trial of the search its point, and the comparisons that it does not have yet, seed by seed. */
tn_status tn_lab_seeds_fill(tn_lab *lab, const tn_study *s, const tn_study_plan *p);
/* Ends those trials of the search whose comparisons have all ended; a point that failed on one seed has failed. */
tn_status tn_lab_seeds_settle(tn_lab *lab, const tn_study *s, const tn_study_plan *p);

/* The best, or else the last, value that a trial reported of a metric; NaN: it never did. */
tn_status tn_trial_reported(tn_lab *lab, const tn_trial *t, const char *metric, bool best, bool maximise, double *out);

/* --- transfer --- */

/* Enqueues the best of plan->from_study, by its first objective, in each side of the same name (or in all, from a study without sides):
 * dimensions of the same key take the value where they allow it, the others that of a random point. Before anything else is enqueued. */
tn_status tn_lab_transfer(tn_lab *lab, int64_t study, const tn_study_plan *p);

#endif
