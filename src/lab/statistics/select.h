/* Trials of a study as fronts, importance and charts take them. */
#ifndef TN_LAB_SELECT_H
#define TN_LAB_SELECT_H

#include "lab/study/records.h"
#include "lab/search/sampler.h"

enum { TN_ALL_SIDES = -1 };

typedef struct tn_selection {
    size_t n, objectives;
    const tn_trial **trial; /* (n) */
    double *y;              /* (n, objectives), all minimised; +infinity: unknown */
    bool *front;            /* (n): on the Pareto front of the finished trials */
} tn_selection;

/* Search trials of a side (TN_ALL_SIDES: of all, with one front for each) that have ended; all in `arena`. */
tn_status tn_select_ended(const tn_study *s, int side, tn_arena *arena, tn_selection *out);
/* A side as samplers read it: rows in the order of the selection. */
tn_status tn_select_observed(const tn_study *s, int side, const tn_selection *of, tn_arena *arena, tn_observed *out);
/* Sorted so that the best in an objective come first: done ones before others. Ties: the lower number. */
void tn_select_sort(const tn_study *s, size_t objective, const tn_trial **trials, size_t n);
/* The hypervolume of the front; NaN where an objective has no reference or nothing is finished. */
tn_status tn_select_volume(const tn_study *s, const tn_selection *of, double *out);
/* A trial by "12" (the only side) or "tep/12"; comparisons are "tep/12@SEED". TN_USAGE says how they are named. */
tn_status tn_select_named(const tn_study *s, const char *name, const tn_trial **out);
/* The same name, as text. */
void tn_trial_name(const tn_study *s, const tn_trial *t, char *out, size_t bytes);

#endif
