/* sin and cos of rows of doubles in a form the compiler turns into vector code (the C library's are one number a call,
 * ten times the cost of the recurrence they feed). Absolute error below 1e-15. NaN gives NaN. */
#ifndef TN_OPS_SCAN_MATH_H
#define TN_OPS_SCAN_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Added to a double below 2^51 in size, it leaves the nearest integer in the low bits. */
#define TN_ROUNDER 6755399441055744.0

static inline int64_t tn_double_bits(double x)
{
    int64_t i;
    memcpy(&i, &x, sizeof i);
    return i;
}

/* One reduced argument: quadrant q = round(x / (pi/2)), r = x - q pi/2 with pi/2 in three parts (the first two have
 * so few bits that q times them is exact), then the Taylor series on |r| <= pi/4. */
static inline void tn_sincos_one(double x, double *sn, double *cs)
{
    const double shifted = x * 0x1.45f306dc9c883p-1 + TN_ROUNDER, q = shifted - TN_ROUNDER;
    const double r = ((x - q * 0x1.921fb544p+0) - q * 0x1.0b4611a6p-34) - q * 0x1.3198a2e037073p-69;
    const double z = r * r;
    double s = -1. / 1307674368000., c = 1. / 20922789888000.;
    s = s * z + 1. / 6227020800.;
    s = s * z - 1. / 39916800;
    s = s * z + 1. / 362880;
    s = s * z - 1. / 5040;
    s = s * z + 1. / 120;
    s = s * z - 1. / 6;
    s = r + r * z * s;
    c = c * z - 1. / 87178291200.;
    c = c * z + 1. / 479001600;
    c = c * z - 1. / 3628800;
    c = c * z + 1. / 40320;
    c = c * z - 1. / 720;
    c = c * z + 1. / 24;
    c = c * z - 1. / 2;
    c = 1 + z * c;
    const int64_t quadrant = tn_double_bits(shifted);
    const double a = quadrant & 1 ? c : s, b = quadrant & 1 ? s : c;
    *sn = quadrant & 2 ? -a : a;
    *cs = (quadrant + 1) & 2 ? -b : b;
}

static inline void tn_sincos_rows(int64_t n, const double *restrict x, double *restrict sn, double *restrict cs)
{
    for (int64_t i = 0; i < n; i++) tn_sincos_one(x[i], &sn[i], &cs[i]);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i]) < 65536)) { /* so many turns need the C library's reduction */
            sn[i] = sin(x[i]);
            cs[i] = cos(x[i]);
        }
}

#endif
