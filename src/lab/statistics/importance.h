/* Importance of each dimension for an objective: functional ANOVA over a random forest (Hutter, Hoos and
 * Leyton-Brown 2014), main effects only, as fractions of the variance. */
#ifndef TN_LAB_IMPORTANCE_H
#define TN_LAB_IMPORTANCE_H

#include "base/alloc.h"
#include "lab/search/draws.h"
#include "lab/search/sampler.h"
#include "lab/search/sorted.h"

/* part (dims): fractions of the forest's variance under the prior; interactions (and noise) are what is missing to
 * 1. spread (dims, standard deviation over trees; or NULL). Failed and pruned trials are left out; more than 1000
 * are thinned evenly. A dimension that is off stands at its middle, so that no split separates such trials.
 * TN_USAGE: fewer than 20 trials are left, or y is constant. */
tn_status tn_importance(const tn_space *s, const tn_observed *seen, size_t objective, uint64_t seed, double *part,
                        double *spread);

/* --- trees -------------------------------------------------------------------------------------------------------- */

/* Regression trees over the unit cube, kept as the boxes of their leaves, which is all that variance needs. Not for
 * prediction. */
typedef struct tn_leaves {
    size_t dims, n;  /* leaves */
    double *value;   /* (n) */
    double *lo, *hi; /* (n, dims): the box */
} tn_leaves;

/* Work space for trees of up to `points` points. */
typedef struct tn_tree_maker {
    size_t points, dims;
    const double *u; /* (points, dims), in [0,1] */
    const double *y; /* (points) */
    size_t *at;      /* (points): drawn with replacement, then ordered by the splits */
    tn_keyed *order; /* (2 points) */
    double *lo, *hi; /* (dims) of the node at hand */
    tn_leaves leaves;
} tn_tree_maker;

/* Its arrays are in `arena`. */
tn_status tn_tree_maker_open(const double *u, const double *y, size_t points, size_t dims, tn_arena *arena,
                             tn_tree_maker *out);
/* A tree of as many points drawn with replacement, split until leaves are pure; into m->leaves. */
void tn_tree_make(tn_tree_maker *m, tn_draws *draws);

/* Under even draws from the cube: the tree's variance, and the part of it that is left when all other dimensions are
 * averaged over, part (dims). */
double tn_leaves_variance(const tn_leaves *l, double *mean);
double tn_leaves_main_variance(const tn_leaves *l, size_t d, double mean, tn_keyed *edges /* (2 n) */);

#endif
