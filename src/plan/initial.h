/* The first values of a tensor: the same numbers on any number of threads. */
#ifndef TN_PLAN_INITIAL_H
#define TN_PLAN_INITIAL_H

#include "backend/cpu/pool.h"
#include "base/rng.h"

#include <tenon/graph.h>

/* x: as many as dims say. pool: NULL: the caller alone. */
void tn_initial_fill(tn_pool *pool, float *x, tn_dims dims, const tn_init *init, tn_rng r);

#endif
