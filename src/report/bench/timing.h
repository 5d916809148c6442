/* Medians for measurements. */
#ifndef TN_REPORT_TIMING_H
#define TN_REPORT_TIMING_H

#include <stddef.h>

/* Median of n numbers and half the distance between the quartiles; x is sorted. */
double tn_median(double *x, size_t n, double *spread);

#endif
