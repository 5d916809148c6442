/* Points that no other is better than in everything. Objectives are all to be made small; a point with an infinity or NaN is dominated by
 * every finite one. */
#ifndef TN_LAB_PARETO_H
#define TN_LAB_PARETO_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

bool tn_dominates(const double *a, const double *b, size_t m);
/* rank (n): 0 for the front, 1 for the front without those, ... */
tn_status tn_pareto_ranks(const double *y, size_t n, size_t m, int *rank);
/* crowding (n): Deb's distance within a rank; +infinity at its ends. */
tn_status tn_crowding(const double *y, size_t n, size_t m, const int *rank, double *crowding);
/* The exact volume that the points dominate below `reference` (m). */
tn_status tn_hypervolume(const double *y, size_t n, size_t m, const double *reference, double *out);

#endif
