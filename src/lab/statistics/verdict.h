/* Two sides measured on common seeds: does one do better, by how much, and how sure is that? Nothing here is said that few
 * seeds cannot carry: a comparison that could not have seen an effect of the size that matters is undecided. */
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
    double
        p; /* Student's paired test, two-sided; where the pairs differ in sign only, the exact sign test. 1 of one pair */
    double effect; /* Cohen's d of the differences (d_z); infinite where all differ by the same */
    bool identical,
        signs; /* no pair differs; those that differ do so by one size, so that there is no spread to trust */
} tn_paired;

/* a and b (n, 1 or more): the same seeds in the same order. TN_USAGE: no pair, or one that is not finite. */
tn_status tn_paired_compare(const double *a, const double *b, size_t n, tn_paired *out);
/* The mean of v (n, 2 or more) and half of Student's 95 % interval of it. */
void tn_mean_interval(const double *v, size_t n, double *mean, double *half);
/* Holm's correction of p (n) into adjusted (n). TN_USAGE: a p outside [0,1]. */
tn_status tn_holm(const double *p, size_t n, double *adjusted);

/* What n pairs can show, in one of so many comparisons that are made together. */
typedef struct tn_power {
    size_t n, comparisons;
    double bound; /* t that decides by itself */
    double seen;  /* a true difference of so many measured deviations would have been seen; infinite of one pair */
} tn_power;
void tn_power_of(size_t n, size_t comparisons, tn_power *out);

typedef enum tn_outcome { TN_UNDECIDED = 0, TN_A_LARGER, TN_B_LARGER, TN_NO_DIFFERENCE, TN_IDENTICAL } tn_outcome;

/* Larger: p_adjusted (Holm's over distinct comparisons; r->p for a single one) is below 0.03, so that the claim is false in less than
 * 5 of 100 studies with skewed, heavy-tailed and coarse errors, too. No difference: not that, and `*seen`, the size that would have
 * been seen with 80 % power whatever the difference turned out to be, is `effect` or less; by then the interval lies between -effect and
 * effect. */
tn_outcome tn_paired_judge(const tn_paired *r, double p_adjusted, const tn_power *sight, double effect, double *seen);
/* At least so many seeds are needed to see an effect of that size with this spread; more than r->n. 0: more than TN_SEEDS_MOST. */
size_t tn_seeds_needed(const tn_paired *r, size_t comparisons, double effect);

/* --- Student's t, for whole degrees of freedom --- */

/* P(-t < T < t); t is 0 or more, freedom 1 or more. */
double tn_student_inside(double t, size_t freedom);
/* The t that T is beyond, on either side, with probability `level`. */
double tn_student_critical(double level, size_t freedom);
/* How far from 0, in standard errors, the mean of n normal differences must truly lie so that the two-sided test at
 * `level` sees it with probability `power` (0.5 or more). n is 2 or more. */
double tn_student_detectable(double level, double power, size_t n);
/* What a measured deviation of n differences is multiplied by to get a bound that the true one is below in 95 of 100
 * studies. n is 2 or more. */
double tn_deviation_bound(size_t n);

#endif
