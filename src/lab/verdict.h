/* Two sides measured on common seeds: does one do better, by how much, and how sure is that? */
#ifndef TN_LAB_VERDICT_H
#define TN_LAB_VERDICT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_paired {
    size_t n;
    double mean_a, mean_b, difference; /* mean of a - b */
    double lo,
        hi; /* 95 % interval of it: bootstrap over pairs, 10,000 draws, bias corrected and accelerated, widened for
                                        * few pairs as Student's t is (Hesterberg 2015): plain ones hold 90 % of the time with 10 pairs */
    double
        p; /* Wilcoxon's signed ranks, two-sided, pairs without a difference left out; exact up to 50 pairs, with ties
                                        * too; beyond that normal with ties. 1 where no pair differs */
    double effect; /* Cohen's d of the differences (d_z); infinite where all differ by the same */
    bool student;  /* lo, hi and p are Student's of the paired differences: 3 or 4 pairs have too few ranks and too few draws for the above */
} tn_paired;

/* a and b (n): the same seeds in the same order. TN_USAGE: fewer than 3 pairs, or one that is not finite. */
tn_status tn_paired_compare(const double *a, const double *b, size_t n, uint64_t seed, tn_paired *out);
/* The mean of v (n, 2 or more) and half of Student's 95 % interval of it. */
void tn_mean_interval(const double *v, size_t n, double *mean, double *half);
/* Holm's correction of p (n) into adjusted (n). TN_USAGE: a p outside [0,1]. */
tn_status tn_holm(const double *p, size_t n, double *adjusted);
/* +1: a is larger; -1: b is; 0: no difference shown. One is said to be larger only where the interval leaves out 0 and p_adjusted (Holm's, or
 * r->p for a single comparison) is below 0.05. */
int tn_paired_larger(const tn_paired *r, double p_adjusted);

#endif
