/* Paired ratios: what they say about the true one, whatever the noise looks like. */
#ifndef TN_REPORT_RATIOS_H
#define TN_REPORT_RATIOS_H

enum { TN_RATIOS_MOST = 192 };
/* What an interval may leave out on either side, and the fewest ratios that have one. */
#define TN_RATIOS_TAIL 0.025
enum { TN_RATIOS_LEAST = 6 };
#define TN_RATIOS_STRICT_TAIL 0.005
enum { TN_RATIOS_STRICT_LEAST = 8 };

typedef struct tn_ratio {
    double median, low, high; /* the interval of the median; of fewer ratios than it needs: the extremes */
    int n;
} tn_ratio;

/* Of n ratios in any order, TN_RATIOS_MOST at most; NaN, and n = 0, of none. By ranks, so that a pair which somebody else's load
 * disturbed counts as one pair and no more. */
tn_ratio tn_ratio_of(const double *x, int n, double tail);

#endif
