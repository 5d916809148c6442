/* Pareto fronts, ranks, crowding and hypervolume. Every objective is minimised. A point with an infinity or NaN is
 * dominated by every finite one. */
#ifndef TN_LAB_PARETO_H
#define TN_LAB_PARETO_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

bool tn_dominates(const double *a, const double *b, size_t m);
/* on (n): whether the point is on the front. Much cheaper than all ranks where points are many. */
tn_status tn_pareto_front(const double *y, size_t n, size_t m, bool *on);
/* rank (n): 0 for the front, 1 for the front of the rest, ... Equal points have equal ranks; points that are not
 * finite share the last. */
tn_status tn_pareto_ranks(const double *y, size_t n, size_t m, int *rank);
/* crowding (n): Deb's distance within a rank; +infinity at its ends, 0 for what is not finite. */
tn_status tn_crowding(const double *y, size_t n, size_t m, const int *rank, double *crowding);
/* The exact hypervolume up to `reference` (m). Time grows with n^(m-1): fronts of hundreds for m = 4 take up to
 * tenths of a second. */
tn_status tn_hypervolume(const double *y, size_t n, size_t m, const double *reference, double *out);
/* Greedy subset selection by hypervolume: k of n finite points, each adding the most to those before. The reference
 * is the worst value of each objective plus a tenth of its range. picked (k): indices. */
tn_status tn_hypervolume_pick(const double *y, size_t n, size_t m, size_t k, size_t *picked);

#endif
