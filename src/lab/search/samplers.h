/* The samplers and what they share. Private to sampler*.c. */
#ifndef TN_LAB_SAMPLERS_H
#define TN_LAB_SAMPLERS_H

#include "lab/search/draws.h"
#include "lab/search/sampler.h"

extern const tn_sampler tn_sampler_grid, tn_sampler_tpe, tn_sampler_nsga2;

/* A point from the prior; dimensions that are off are NaN. Every dimension takes one random number, on or off, so
 * that its value does not depend on the others. */
void tn_prior_draw(const tn_space *s, tn_draws *draws, double *x);

/* Ranks trials which (n) of `seen`: finished ones before pruned ones (whose values look too good: a short trial is a
 * fast one) before failed ones; crowding (n) within a rank. */
tn_status tn_observed_ranks(const tn_observed *seen, const size_t *which, size_t n, int *rank, double *crowding);
/* The places 0 .. n-1 in the order of rank, then of crowding from the widest, then of place. */
tn_status tn_rank_order(const int *rank, const double *crowding, size_t n, size_t *order);

/* Whether a trial of `seen` was at x (dims) already. */
bool tn_observed_has(const tn_observed *seen, const double *x, size_t dims);

/* Defaults for the table. */
int64_t tn_sampler_needs_none(const tn_sampler_options *o, int64_t number);
int64_t tn_sampler_endless(const tn_space *s);

#endif
