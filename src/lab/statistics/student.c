/* By finite sums, bisection and one quadrature: asked for a few times a comparison, so plain is better than fast. */
#include "lab/statistics/student.h"

#include <math.h>
#include <stdbool.h>

static const double PI = 3.14159265358979323846;

static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

/* Abramowitz and Stegun 26.7.3 and 26.7.4. */
double tn_student_inside(double t, size_t freedom)
{
    const double f = (double)freedom, c2 = f / (f + t * t),
                 sine = t / sqrt(f + t * t); /* of the angle atan(t / sqrt f) */
    double term = freedom % 2 ? sqrt(c2) : 1, sum = freedom == 1 ? 0 : term;
    for (size_t k = freedom % 2 ? 3 : 2; k < freedom; k += 2) {
        term *= c2 * (double)(k - 1) / (double)k;
        sum += term;
    }
    return freedom % 2 ? 2 / PI * (atan(t / sqrt(f)) + sine * sum) : sine * sum;
}

double tn_student_critical(double level, size_t freedom)
{
    double lo = 0, hi = 4;
    while (tn_student_inside(hi, freedom) < 1 - level && hi < 1e12) lo = hi, hi *= 4;
    for (int i = 0; i < 50; i++) {
        const double mid = (lo + hi) / 2;
        if (tn_student_inside(mid, freedom) < 1 - level) lo = mid;
        else hi = mid;
    }
    return (lo + hi) / 2;
}

/* P(Z + shift > bound S), S the deviation of n measurements over the true one: a sum over S by midpoints, whose density is
 * s^(f-1) exp(-f s^2 / 2) but for a factor. What lies beyond the other bound is left out: it is the wrong side. */
static double power_at(double shift, double bound, size_t n)
{
    const int steps = n < 4 ? 4096 : 512; /* few degrees of freedom: the normal's edge is narrow beside the density */
    const double f = (double)(n - 1), range = 7 / sqrt(2 * f), from = fmax(0, 1 - range),
                 h = (1 + range - from) / steps;
    double sum = 0, all = 0;
    for (int i = 0; i < steps; i++) {
        const double s = from + (i + 0.5) * h, weight = exp((f - 1) * log(s) - f * (s * s - 1) / 2);
        sum += weight * normal_cdf(shift - bound * s);
        all += weight;
    }
    return sum / all;
}

double tn_student_detectable(double level, double power, size_t n)
{
    const double bound = tn_student_critical(level, n - 1);
    double lo = 0, hi = bound + 4;
    while (power_at(hi, bound, n) < power) lo = hi, hi *= 2;
    for (int i = 0; i < 30; i++) {
        const double mid = (lo + hi) / 2;
        if (power_at(mid, bound, n) < power) lo = mid;
        else hi = mid;
    }
    return hi;
}

/* P(chi^2 > 2 y), finite sums again (26.4.4 and 26.4.5). */
static double chi_square_above(double y, size_t freedom)
{
    const bool odd = freedom % 2;
    double term = odd ? 2 * sqrt(y / PI) : 1, sum = 0;
    for (size_t i = 0; i < freedom / 2; i++) {
        sum += term;
        term *= y / ((double)i + (odd ? 1.5 : 1));
    }
    return exp(-y) * sum + (odd ? erfc(sqrt(y)) : 0);
}

double tn_deviation_bound(size_t n)
{
    const size_t freedom = n - 1;
    double lo = 0, hi = (double)freedom / 2;
    for (int i = 0; i < 60; i++) {
        const double mid = (lo + hi) / 2;
        if (chi_square_above(mid, freedom) > 0.95) lo = mid;
        else hi = mid;
    }
    return sqrt((double)freedom / (2 * hi));
}
