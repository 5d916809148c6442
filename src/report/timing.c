/* Clocks and medians for measurements. */
#include "report/timing.h"

#include <stdlib.h>
#include <time.h>

double tn_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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
