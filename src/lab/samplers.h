/* The rows of the samplers' table, one file each, and what they share. For sampler*.c only. */
#ifndef TN_LAB_SAMPLERS_H
#define TN_LAB_SAMPLERS_H

#include "lab/lots.h"
#include "lab/sampler.h"

extern const tn_sampler tn_sampler_random, tn_sampler_grid, tn_sampler_tpe, tn_sampler_nsga2;

/* A point from the prior: every dimension evenly, those switched off NaN. Takes one number a dimension whether or not it is there, so
 * that what a dimension gets does not depend on the others. */
void tn_prior_draw(const tn_space *s, tn_lots *lots, double *x);

/* For rows that have nothing to say. */
int64_t tn_sampler_needs_none(const tn_sampler_options *o, int64_t number);
int64_t tn_sampler_endless(const tn_space *s);
tn_status tn_sampler_takes_all(const tn_sampler_options *o, const tn_space *s);

#endif
