/* Medians for measurements. */
#include "report/bench/timing.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tn_median(double *x, size_t n, double *spread)
{
    if (!n) return 0;
    qsort(x, n, sizeof *x, ascending);
    if (spread) *spread = (x[n - 1 - n / 4] - x[n / 4]) / 2;
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}
