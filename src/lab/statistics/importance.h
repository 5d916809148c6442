/* How much each dimension of a search explains of an objective: functional ANOVA over a random forest (Hutter, Hoos and Leyton-Brown 2014),
 * main effects only, as parts of 1. */
#ifndef TN_LAB_IMPORTANCE_H
#define TN_LAB_IMPORTANCE_H

#include "lab/search/sampler.h"

/* part (dims): of the forest's variance under the prior; they add up to 1 less what dimensions do together (and noise that the trees took for that).
 * spread (dims, standard deviation over trees; or NULL). Trials that failed or were pruned are left out, of more than 1000 an even choice is taken;
 * a dimension that is switched off stands at its middle for all such trials, so that no cut along it parts them. TN_USAGE: fewer than 20 are left or y never
 * varies. */
tn_status tn_importance(const tn_space *s, const tn_observed *seen, size_t objective, uint64_t seed, double *part,
                        double *spread);

#endif
