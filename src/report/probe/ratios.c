/* The interval of a median by ranks: the k-th smallest and k-th largest, where fewer than k of n fair coins show heads as rarely
 * as the tail says. */
#include "report/probe/ratios.h"

#include "report/bench/timing.h"

#include <math.h>
#include <string.h>

static int rank_of(int n, double tail)
{
    double term = ldexp(1, -n), sum = 0; /* P(i heads), P(at most i heads) */
    int k = 0;
    for (; k < n / 2; k++) {
        if ((sum += term) > tail) break;
        term *= (double)(n - k) / (double)(k + 1);
    }
    return k > 0 ? k : 1;
}

tn_ratio tn_ratio_of(const double *x, int n, double tail)
{
    double sorted[TN_RATIOS_MOST];
    if (n > TN_RATIOS_MOST) n = TN_RATIOS_MOST;
    if (n < 1) return (tn_ratio){ NAN, NAN, NAN, 0 };
    memcpy(sorted, x, sizeof *x * (size_t)n);
    const double median = tn_median(sorted, (size_t)n, 0);
    const int k = rank_of(n, tail);
    return (tn_ratio){ median, sorted[k - 1], sorted[n - k], n };
}
