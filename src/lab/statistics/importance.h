/* How much each dimension of a search explains of an objective: functional ANOVA over a random forest (Hutter, Hoos and Leyton-Brown 2014),
 * main effects only, as parts of 1. */
#ifndef TN_LAB_IMPORTANCE_H
#define TN_LAB_IMPORTANCE_H

#include "base/alloc.h"
#include "lab/search/draws.h"
#include "lab/search/sampler.h"
#include "lab/search/sorted.h"

/* part (dims): of the forest's variance under the prior; they add up to 1 less what dimensions do together (and noise that the trees took for that).
 * spread (dims, standard deviation over trees; or NULL). Trials that failed or were pruned are left out, of more than 1000 an even choice is taken;
 * a dimension that is switched off stands at its middle for all such trials, so that no cut along it parts them. TN_USAGE: fewer than 20 are left or y never
 * varies. */
tn_status tn_importance(const tn_space *s, const tn_observed *seen, size_t objective, uint64_t seed, double *part,
                        double *spread);

/* --- trees --- */

/* Regression trees over the unit cube, kept as the boxes of their leaves: that is all that is needed to say how much of a tree's variance each dimension
 * makes. Not for predicting. */
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

/* Under even draws from the cube: the tree's variance, and the part of it that is left when all other dimensions are averaged over, part (dims). */
double tn_leaves_variance(const tn_leaves *l, double *mean);
double tn_leaves_main_variance(const tn_leaves *l, size_t d, double mean, tn_keyed *edges /* (2 n) */);

#endif
