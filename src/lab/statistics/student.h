/* Student's t for whole degrees of freedom: its bounds, and what a paired test of n differences can see. */
#ifndef TN_LAB_STUDENT_H
#define TN_LAB_STUDENT_H

#include <stddef.h>

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
