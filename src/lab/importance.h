/* How much each dimension of a search explains of an objective: functional ANOVA over a random forest (Hutter, Hoos and Leyton-Brown 2014),
 * main effects only, as parts of 1. */
#ifndef TN_LAB_IMPORTANCE_H
#define TN_LAB_IMPORTANCE_H

#include "lab/sampler.h"

/* part (dims), spread (dims, over trees; or NULL). Trials that failed or were pruned are left out; TN_USAGE: fewer than 20 are left or y never
 * varies. */
tn_status tn_importance(const tn_space *s, const tn_seen *seen, size_t objective, uint64_t seed, double *part, double *spread);

#endif
