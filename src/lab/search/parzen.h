/* A Parzen estimator over a search space: a mixture of one product of kernels for each point, and the prior.
 * Dimensions are mapped to [0,1], where the prior is uniform, so a density is a ratio to the prior's. A dimension
 * that is off in a point has the prior's kernel. */
#ifndef TN_LAB_PARZEN_H
#define TN_LAB_PARZEN_H

#include "base/alloc.h"
#include "lab/search/draws.h"
#include "lab/search/space.h"

typedef struct tn_parzen {
    const tn_space *s;
    size_t n;
    double *u;      /* (n, dims): places, or numbers of choices; NaN where off */
    double *log_k;  /* (n, dims): logarithm of a normal kernel's factor */
    double *weight; /* (n + 1), sum 1; the last is the prior's */
    double *sigma;  /* (dims) */
    double *terms;  /* (n + 1) */
} tn_parzen;

/* x (n, dims), with weights (n) next to the prior's 1; the arrays are in `arena`. least: no kernel is narrower. */
tn_status tn_parzen_make(const tn_space *s, const double *x, const double *weight, size_t n, double least,
                         tn_arena *arena, tn_parzen *out);
void tn_parzen_draw(const tn_parzen *p, tn_draws *draws, double *x);
double tn_parzen_log(const tn_parzen *p, const double *x); /* logarithm of the density at x over the prior's */

#endif
