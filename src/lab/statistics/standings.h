/* How the sides of a study stand against one of them, after its comparisons have run: one line a side, and how each learned. */
#ifndef TN_LAB_STANDINGS_H
#define TN_LAB_STANDINGS_H

#include "lab/statistics/compare.h"
#include "report/chart/plot.h"

typedef struct tn_standing {
    tn_side_runs runs; /* of the point that speaks for the side */
    double mean, half; /* of the first objective on the test part, and half of Student's 95 % interval over seeds */
    const double *y;   /* (objectives) means over seeds, as recorded: of the test part where there it was measured */
    tn_paired paired;  /* this one minus the other, seed by seed; n is 0 for the other itself */
    double p_adjusted; /* Holm's, over all sides */
    tn_judged judged;  /* a is this one, b the other */
} tn_standing;

/* out (n: the compared sides) in `arena`, the best mean first. against: a side. effect: as tn_compare_outcome has it. TN_USAGE: it is not one of
 * them; no common seed has ended. */
tn_status tn_standings(const tn_study *s, tn_lab *lab, const tn_comparison *c, int against, double effect,
                       tn_arena *arena, tn_standing **out, size_t *n);
/* The first objective on the validation part by steps, the mean over seeds of each side's speaker, v (n); parts of the plot are in `arena`. */
tn_status tn_standings_curves(const tn_study *s, tn_lab *lab, const tn_standing *v, size_t n, tn_arena *arena,
                              tn_plot *out);

#endif
