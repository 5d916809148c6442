/* Two sides measured on common seeds: does one do better, by how much, and how sure is that? */
#ifndef TN_LAB_VERDICT_H
#define TN_LAB_VERDICT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tn_paired {
    size_t n;
    double mean_a, mean_b, difference; /* mean of a - b */
    double lo, hi;                     /* 95 % interval of it: bootstrap over pairs, 10,000 draws, bias corrected and accelerated */
    double p;                          /* Wilcoxon's signed ranks, two-sided; exact up to 50 pairs without ties, else normal with ties */
    double effect;                     /* Cohen's d of the differences (d_z) */
} tn_paired;

/* a and b (n): the same seeds in the same order. TN_USAGE: fewer than 5 pairs. */
tn_status tn_paired_compare(const double *a, const double *b, size_t n, uint64_t seed, tn_paired *out);
/* Holm's correction of p (n) into adjusted (n). */
tn_status tn_holm(const double *p, size_t n, double *adjusted);

#endif
