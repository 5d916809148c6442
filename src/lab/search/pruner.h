/* Pruners: whether an unpromising trial stops early. Like a draw, a decision depends only on the trial and on
 * finished trials before number - lag, not on the clock, so a study is reproducible. */
#ifndef TN_LAB_PRUNER_H
#define TN_LAB_PRUNER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_pruner_options {
    int64_t warmup_trials; /* median: none is pruned before so many have ended; 0: 5 */
    int64_t min_rung;      /* asha: first look, in epochs or evaluations; 0: 1. median: no look before it */
    int64_t eta;           /* asha: one in so many goes on at each rung; 0: 3 */
    int64_t lag;           /* as a sampler's */
} tn_pruner_options;

typedef struct tn_pruner {
    const char *name;
    /* Whether trials are compared after this many evaluations (1, 2, ...). */
    bool (*is_rung)(const tn_pruner_options *o, int64_t rung);
    /* Whether to stop the trial, by its value and those of the others (n) that reached this rung. Values are
     * minimised, NaN counts as infinity. `ended`: how many trials have ended, whether or not they reached it. */
    bool (*prune)(const tn_pruner_options *o, int64_t rung, double value, const double *others, size_t n, size_t ended);
} tn_pruner;

const tn_pruner *tn_pruner_find(const char *name); /* none, median, asha; NULL: no such */
const char *tn_pruner_name(size_t i);
tn_status tn_pruner_check(const tn_pruner_options *o); /* TN_USAGE: a negative number, eta below 2 */

/* Several objectives as one number for prune: y and the others' (n, m), all minimised, into value and values (n).
 * One objective stays as it is; several become the rank of non-domination plus at most a half for crowding, so that
 * the Pareto front survives first. */
tn_status tn_pruner_values(const double *y, const double *others, size_t n, size_t m, double *value, double *values);

/* A rule over instruments and metrics: "spectral_radius > 1.02 for 50 steps", "solver_iters at cap for 20 steps"
 * (cap: the value of the setting that bounds it, given by `cap`), "loss is nan", "loss > 2 after 5 epochs". */
typedef struct tn_rule {
    char metric[64];
    int compare; /* '<', '>', 'l' (<=), 'g' (>=), 'c' (at cap), 'n' (is nan or infinite) */
    double value;
    int64_t streak; /* steps it must hold without a break; 1 where nothing is said */
    int64_t after;  /* steps or epochs before which it is not asked */
    bool after_epochs;
    int64_t held;  /* state: how many steps it has held, the first and the last included */
    int64_t since; /* state: the first of them */
} tn_rule;

tn_status tn_rule_parse(const char *text, tn_rule *out); /* TN_USAGE names the form */
/* Feeds the value at a step at which the metric was measured, in order; true: the trial stops. NaN: "is nan" holds,
 * other rules wait. A metric measured every tenth step that holds twice in a row has held 11 steps. cap NaN: "at
 * cap" never holds. */
bool tn_rule_step(tn_rule *r, int64_t step, double epoch, double value, double cap);

#endif
