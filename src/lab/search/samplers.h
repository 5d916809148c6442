/* The rows of the samplers' table, one file each, and what they share. For sampler*.c only. */
#ifndef TN_LAB_SAMPLERS_H
#define TN_LAB_SAMPLERS_H

#include "lab/search/draws.h"
#include "lab/search/sampler.h"

extern const tn_sampler tn_sampler_grid, tn_sampler_tpe, tn_sampler_nsga2;

/* A point from the prior: every dimension evenly, those switched off NaN. Takes one number a dimension whether or not it is there, so
 * that what a dimension gets does not depend on the others. */
void tn_prior_draw(const tn_space *s, tn_draws *draws, double *x);

/* How good trials are, for choosing among them: rank (n) counts from 0 over all of them, those that ran to their end before those that were
 * pruned (whose values look better than they are: a short trial is a fast one), and before those that failed; crowding (n) within a rank. which (n): trials of `seen`. */
tn_status tn_observed_ranks(const tn_observed *seen, const size_t *which, size_t n, int *rank, double *crowding);
/* The places 0 .. n-1 in the order of rank, then of crowding from the widest, then of place. */
tn_status tn_rank_order(const int *rank, const double *crowding, size_t n, size_t *order);

/* Whether a trial of `seen` was at x (dims) already. */
bool tn_observed_has(const tn_observed *seen, const double *x, size_t dims);

/* For rows that have nothing to say. */
int64_t tn_sampler_needs_none(const tn_sampler_options *o, int64_t number);
int64_t tn_sampler_endless(const tn_space *s);
tn_status tn_sampler_takes_all(const tn_sampler_options *o, const tn_space *s);

#endif
