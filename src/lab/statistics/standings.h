/* The sides of a study against one of them, after its comparisons have run: a line per side, and their learning
 * curves. */
#ifndef TN_LAB_STANDINGS_H
#define TN_LAB_STANDINGS_H

#include "lab/statistics/compare.h"
#include "report/chart/plot.h"

typedef struct tn_standing {
    tn_side_runs runs; /* of the point that represents the side */
    double mean, half; /* of the first objective on the test split; half of its 95 % interval */
    const double *y;   /* (objectives) means over seeds, on the test split where measured */
    tn_paired paired;  /* this one minus the other, seed by seed; n is 0 for the other itself */
    double p_adjusted; /* Holm's, over all sides */
    tn_judged judged;  /* a is this one, b the other */
} tn_standing;

/* out (n: the compared sides) in `arena`, the best mean first. effect: see tn_compare_outcome. TN_USAGE: `against`
 * is not compared, or no common seed finished. */
tn_status tn_standings(const tn_study *s, tn_lab *lab, const tn_comparison *c, int against, double effect,
                       tn_arena *arena, tn_standing **out, size_t *n);
/* The learning curve of each side's representative, v (n): first objective on validation, mean over seeds; in
 * `arena`. */
tn_status tn_standings_curves(const tn_study *s, tn_lab *lab, const tn_standing *v, size_t n, tn_arena *arena,
                              tn_plot *out);

#endif
