/* A fair comparison of a study's sides at equal effort: equally many trials, seconds, or evaluations of the
 * network's block. The best points that each side found with that effort are run again on common seeds. Each side is
 * represented by its best point on validation, and the results on the test split are compared seed by seed. */
#ifndef TN_LAB_COMPARE_H
#define TN_LAB_COMPARE_H

#include "lab/db/lab.h"
#include "lab/study/side_set.h"
#include "lab/statistics/verdict.h"

enum { TN_COMPARE_TOP = 16 };

typedef enum tn_effort {
    TN_EFFORT_TRIALS = 0,
    TN_EFFORT_SECONDS = 1,
    TN_EFFORT_EVALUATIONS = 2,
    TN_EFFORTS = 3
} tn_effort;
const char *tn_effort_name(tn_effort e); /* "trials", "seconds", "block evaluations" */

/* The best of one side at an effort. */
typedef struct tn_contenders {
    size_t n;
    const tn_trial *trial[TN_COMPARE_TOP];
    size_t considered; /* trials that the effort paid for */
} tn_contenders;

typedef struct tn_comparison {
    size_t top;                /* of each side, at most */
    tn_side_set sides;         /* that are compared; not 0 */
    double effort[TN_EFFORTS]; /* of each side; NaN: not known, so not compared */
    tn_contenders *contenders; /* (TN_EFFORTS, sides) */
} tn_comparison;

/* Chooses the points to run again. Sides without a finished trial are left out. TN_USAGE: fewer than two sides in
 * the study, or no finished trial. lab: for the block evaluations. */
tn_status tn_compare_pick(const tn_study *s, tn_lab *lab, tn_side_set sides, size_t top, tn_arena *arena,
                          tn_comparison *out);

/* Sides of which a comparison has finished; 0: none has. */
tn_side_set tn_compare_finished(const tn_study *s);

/* The finished comparisons of one point. */
typedef struct tn_side_runs {
    int side;
    const tn_trial *of; /* the point */
    size_t n;
    const tn_trial **trial; /* (n), seeds ascending */
    double validation;      /* mean of the best there */
} tn_side_runs;

/* The contender that represents its side: the best on validation, of those with the most seeds. */
tn_status tn_compare_representative(const tn_study *s, tn_lab *lab, const tn_contenders *c, tn_arena *arena,
                                    tn_side_runs *out);
/* a - b of the first objective, seed by seed. TN_USAGE: no common seed. */
tn_status tn_compare_pair(const tn_study *s, const tn_side_runs *a, const tn_side_runs *b, tn_arena *arena,
                          tn_paired *out);

/* What a comparison says. */
typedef struct tn_judged {
    tn_outcome word;
    int better;         /* +1: a, -1: b, 0: neither is shown to be */
    double effect;      /* the smallest that matters, in the objective's unit */
    double seen;        /* one of this size would have been seen with 80 % power; NaN: not known */
    double aim;         /* undecided: the measured difference where it is larger than `effect`, else that */
    size_t seeds;       /* undecided: at least so many are needed to see `aim`; 0: more than TN_SEEDS_MOST */
    size_t comparisons; /* made together */
} tn_judged;

/* effect: the smallest that matters; NaN: 0.005 of a fraction (0 to 1), 0.5 % of the means of any other objective.
 * comparisons: distinct. */
void tn_compare_outcome(const tn_study *s, const tn_paired *r, double p_adjusted, size_t comparisons, double effect,
                        tn_judged *out);

typedef struct tn_verdict {
    tn_effort effort;
    int a, b;                    /* sides, a < b */
    const tn_trial *of_a, *of_b; /* their representatives */
    size_t first;                /* of the verdicts that compare the same two points */
    tn_paired paired;            /* of the first objective, as the user names it */
    double p_adjusted;           /* Holm's, over the distinct comparisons of the study */
    tn_judged judged;
} tn_verdict;

/* After the comparisons have run: every pair of sides at every effort, out (n) in `arena`. TN_USAGE: fewer than two
 * sides, or no common seed that finished. */
tn_status tn_compare_judge(const tn_study *s, tn_lab *lab, const tn_comparison *c, double effect, tn_arena *arena,
                           tn_verdict **out, size_t *n);

/* "ten is better", "undecided: at least 12 seeds are needed to see an effect of 0.0050": of sides named a and b. */
const char *tn_verdict_text(const tn_paired *r, const tn_judged *v, const char *a, const char *b, char *buf,
                            size_t size);

#endif
