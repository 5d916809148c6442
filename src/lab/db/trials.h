/* Trials in the database: how a study starts, and how its trials are claimed, report and end.
 *
 * One UPDATE claims a trial, for a registered worker with a live heartbeat. What a worker writes counts only while
 * the claim is its own, so a result is recorded once, whatever is killed when. Trials of a dead worker are claimed
 * again. */
#ifndef TN_LAB_TRIALS_H
#define TN_LAB_TRIALS_H

#include "lab/db/lab.h"
#include "lab/study/study.h"

/* Finds the study of this name or creates it, without trials. TN_USAGE: it exists with other settings. */
tn_status tn_lab_begin(tn_lab *lab, const tn_study_plan *p, const char *text, const char *const *overrides, size_t n,
                       int64_t *id, bool *found);
/* Adds trials until every side has 0 .. n-1, or as many as its sampler can draw. */
tn_status tn_lab_fill(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t n);
/* Adds a trial with a given point x (dims of the side), as the next number of its series. */
tn_status tn_lab_enqueue(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, tn_trial_kind kind,
                         int64_t config, uint64_t seed, const double *x);
/* Adds to the run time of the study; *spent: the total. */
tn_status tn_lab_spend(tn_lab *lab, int64_t study, double seconds, double *spent);

/* --- workers ------------------------------------------------------------------------------------------------------ */

/* Both also mark workers of this machine as dead whose process has ended. */
tn_status tn_lab_join(tn_lab *lab, int64_t *worker);
tn_status tn_lab_beat(tn_lab *lab, int64_t worker);
/* The worker is gone: its trials can be claimed at once. */
tn_status tn_lab_leave(tn_lab *lab, int64_t worker);
/* The same for every worker of a process of this machine that has ended. */
tn_status tn_lab_mark_dead(tn_lab *lab, int64_t pid);

/* --- claiming ----------------------------------------------------------------------------------------------------- */

typedef struct tn_claim {
    int64_t trial, number, worker, config;
    size_t side;
    tn_trial_kind kind;
    uint64_t seed;
    int attempt;    /* 1: the first */
    bool has_x;     /* the point was drawn before */
    double seconds; /* of work in earlier attempts */
    double begun;   /* unix seconds of this attempt */
} tn_claim;

typedef enum tn_claimed {
    TN_CLAIM_GOT,
    TN_CLAIM_WAIT,
    TN_CLAIM_OVER
} tn_claimed; /* WAIT: others have to end first; OVER: none is left */

/* Which trials of a study; zeroed: all of the search. */
typedef struct tn_trial_filter {
    bool compare;      /* comparisons instead, which wait for nothing */
    int64_t most;      /* numbers below it; 0: no limit */
    tn_side_set sides; /* of these */
} tn_trial_filter;

/* Claims the lowest number that may start: every trial that its sampler and pruner read has ended. x (most dims of
 * any side) is filled where the claim has a point. */
tn_status tn_lab_claim(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t worker, const tn_trial_filter *of,
                       tn_claim *out, double *x, tn_claimed *got);

/* The first n trials of a side for its sampler. Starts zeroed; what was read is cached. */
typedef struct tn_observed_store {
    size_t n, capacity_x, capacity_y, capacity_pruned;
    double *x, *y;
    bool *pruned;
} tn_observed_store;
tn_status tn_lab_observed(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, int64_t n,
                          tn_observed_store *store, tn_observed *out);
void tn_observed_free(tn_observed_store *store);

/* --- what a trial writes; *lost: the claim is no longer this worker's, and nothing was written -------------------- */

typedef struct tn_report {
    int64_t rung, step;           /* rung: 1, 2, ... */
    double epoch, seconds, score; /* score: what pruners minimise */
    const char *value;            /* a JSON object of metrics */
} tn_report;

typedef struct tn_ending {
    tn_trial_state state; /* WAITING: put back, to be resumed */
    const double *y;      /* (objectives), or NULL */
    double seconds, parameters;
    uint64_t seed; /* that it ended with */
    const char *error;
} tn_ending;

tn_status tn_lab_point(tn_lab *lab, const tn_claim *c, const double *x, size_t n, bool *lost);
/* Reports of a running trial, and its number of parameters (NaN: not known). */
tn_status tn_lab_report(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, double parameters,
                        bool *lost);
/* The last reports and the end, in one transaction. */
tn_status tn_lab_end(tn_lab *lab, const tn_claim *c, const tn_report *reports, size_t n, const tn_ending *e,
                     size_t objectives, bool *lost);
/* Deletes reports after `step`; *rungs: how many are left. */
tn_status tn_lab_rewind(tn_lab *lab, const tn_claim *c, int64_t step, int64_t *rungs);
/* Score and parameters at a rung, of trials below number `before` that reached it: *out (n, 2) (tn_free). cohort >
 * 0: only of trials whose parameters are within this factor. */
tn_status tn_lab_rung(tn_lab *lab, int64_t study, size_t side, int64_t before, int64_t rung, double parameters,
                      double cohort, double **out, size_t *n);

/* --- how far a study is ------------------------------------------------------------------------------------------- */

typedef struct tn_tally {
    int64_t count[TN_TRIAL_STATES];
    double best;   /* first objective of the best finished trial; NaN: none, or comparisons */
    double mean_s; /* of those that ended */
} tn_tally;

/* For each side (n_sides), the search or the comparisons; `most`: trials below that number only (0: all). */
tn_status tn_lab_tally(tn_lab *lab, int64_t study, const tn_study_plan *p, bool compare, int64_t most, tn_tally *out);
/* Running trials, the oldest first: at most `most`, *n of them. */
typedef struct tn_running {
    size_t side;
    int64_t number;
    double since, epoch; /* unix seconds; of the last report, NaN where there is none */
} tn_running;
tn_status tn_lab_running(tn_lab *lab, int64_t study, bool compare, tn_running *out, size_t most, size_t *n);
/* Running trials and their processes: at most `most`, *n of them. */
typedef struct tn_held {
    int64_t pid;
    tn_claim claim; /* as far as tn_lab_end needs it */
} tn_held;
tn_status tn_lab_held(tn_lab *lab, int64_t study, tn_held *out, size_t most, size_t *n);

/* --- common seeds ------------------------------------------------------------------------------------------------- */

/* Studies with `seeds`: every grid point runs on common seeds, as comparisons, which also measure the test split. A
 * trial of the search is then the mean over the seeds, on the validation split. */
enum { TN_FIRST_SEED = 1000 }; /* of comparisons: far from those of a search, which are seed + number */

/* After tn_lab_fill: draws every point, and adds the comparisons that are missing, seed by seed. */
tn_status tn_lab_seeds_fill(tn_lab *lab, const tn_study *s, const tn_study_plan *p);
/* Ends the trials of the search whose comparisons have all ended; one failed seed fails the point. */
tn_status tn_lab_seeds_settle(tn_lab *lab, const tn_study *s, const tn_study_plan *p);

/* The best, or else the last, value of a metric that a trial reported; NaN: none. */
tn_status tn_trial_reported(tn_lab *lab, const tn_trial *t, const char *metric, bool best, bool maximise, double *out);

/* --- transfer ----------------------------------------------------------------------------------------------------- */

/* Enqueues the best points of plan->from_study, by its first objective, for each side of the same name (or all, from
 * a study without sides). Dimensions of the same key take the value where it is allowed; the others are random.
 * Called before anything else is enqueued. */
tn_status tn_lab_transfer(tn_lab *lab, int64_t study, const tn_study_plan *p);

#endif
