/* Pruners: whether a trial that has come some way is worth going on with. Like a draw, a decision depends on trials before it that have
 * ended (those before number - lag) and on the trial itself, not on the clock, so a study repeats. */
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

/* One earlier trial's value at the rung that is looked at. */
typedef struct tn_pruner {
    const char *name;
    /* Whether this count of evaluations (1, 2, ...) is a place to look. */
    bool (*looks)(const tn_pruner_options *o, int64_t rung);
    /* `value` and the others' values there (n; to be made small; only of trials that came so far): true stops the trial. `ended`: how many
     * trials have ended, whether or not they came so far. */
    bool (*prune)(const tn_pruner_options *o, int64_t rung, double value, const double *others, size_t n, size_t ended);
} tn_pruner;

const tn_pruner *tn_pruner_find(const char *name); /* none, median, asha; NULL: no such */
const char *tn_pruner_name(size_t i);

/* A rule over instruments and metrics: "spectral_radius > 1.02 for 50 steps", "solver_iters at cap for 20 steps" (cap: the value of the setting
 * that bounds it, given by `cap`), "loss is nan", "accuracy < 0.2 after 5 epochs". */
typedef struct tn_rule {
    char metric[64];
    int compare;     /* '<', '>', 'l' (<=), 'g' (>=), 'c' (at cap), 'n' (is nan) */
    double value;
    int64_t streak;  /* steps in a row it must hold; 1 where nothing is said */
    int64_t after;   /* steps or epochs before which it is not asked */
    bool after_epochs;
    int64_t held;    /* state: how long it has held */
} tn_rule;

tn_status tn_rule_parse(const char *text, tn_rule *out); /* TN_USAGE names the form */
/* One more step's value (NaN: not known, the rule waits); true: the trial stops. */
bool tn_rule_step(tn_rule *r, int64_t step, double epoch, double value, double cap);

#endif
