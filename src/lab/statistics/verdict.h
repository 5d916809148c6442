/* Two sides on common seeds: is one better, by how much, and how certain is it? A comparison that could not have
 * detected an effect of the size that matters is undecided. */
#ifndef TN_LAB_VERDICT_H
#define TN_LAB_VERDICT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TN_SEEDS_MOST = 1000 }; /* of a comparison */

typedef struct tn_paired {
    size_t n;
    double mean_a, mean_b, difference; /* mean of a - b */
    double spread;                     /* deviation of the differences; NaN of one pair */
    double lo, hi;                     /* Student's 95 % interval of the mean difference; NaN of one pair */
    double p;              /* of the paired t-test, two-sided, or of the exact sign test (see signs); 1 of one pair */
    double effect;         /* Cohen's d of the differences (d_z); infinite where all differ by the same */
    bool identical, signs; /* no pair differs; all that differ do so by the same amount: no deviation to trust */
} tn_paired;

/* a and b (n, 1 or more): the same seeds in the same order. TN_USAGE: no pair, or one that is not finite. */
tn_status tn_paired_compare(const double *a, const double *b, size_t n, tn_paired *out);
/* The mean of v (n, 2 or more) and half of Student's 95 % interval of it. */
void tn_mean_interval(const double *v, size_t n, double *mean, double *half);
/* Holm's correction of p (n) into adjusted (n). TN_USAGE: a p outside [0,1]. */
tn_status tn_holm(const double *p, size_t n, double *adjusted);

/* What n pairs can detect, in one of so many simultaneous comparisons. */
typedef struct tn_power {
    size_t n, comparisons;
    double bound; /* critical value of t */
    double seen;  /* detectable true difference, in measured deviations; infinite of one pair */
} tn_power;
void tn_power_of(size_t n, size_t comparisons, tn_power *out);

typedef enum tn_outcome { TN_UNDECIDED = 0, TN_A_LARGER, TN_B_LARGER, TN_NO_DIFFERENCE, TN_IDENTICAL } tn_outcome;

/* Larger: p_adjusted (Holm's; r->p for a single comparison) is below 0.03, so that less than 5 % of such claims are
 * false, also with skewed, heavy-tailed and coarse errors. No difference: not larger, and *seen, the size detected
 * with 80 % power, is at most `effect`; the interval then lies within -effect and effect. */
tn_outcome tn_paired_judge(const tn_paired *r, double p_adjusted, const tn_power *sight, double effect, double *seen);
/* The least number of seeds above r->n that detects such an effect. 0: more than TN_SEEDS_MOST. */
size_t tn_seeds_needed(const tn_paired *r, size_t comparisons, double effect);

/* --- Student's t, for whole degrees of freedom -------------------------------------------------------------------- */

/* The two-sided critical value at `level`. */
double tn_student_critical(double level, size_t freedom);
/* The true mean of n normal differences, in standard errors, that a two-sided test at `level` detects with
 * probability `power` (0.5 or more). n is 2 or more. */
double tn_student_detectable(double level, double power, size_t n);
/* Factor from a measured standard deviation of n differences to its upper 95 % confidence bound. n is 2 or more. */
double tn_deviation_bound(size_t n);

#endif
