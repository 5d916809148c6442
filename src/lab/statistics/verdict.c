/* Paired comparisons. The nominal levels are stricter than the promise (5 % false verdicts, 80 % power), so that it
 * also holds for errors that are not normal; verdict_power_test.c simulates this. */
#include "lab/statistics/verdict.h"

#include "base/alloc.h"
#include "lab/search/sorted.h"

#include <math.h>
#include <string.h>

static const double LEVEL = 0.03, POWER = 0.9;

/* --- Student's t: finite sums, bisection and one quadrature, asked for a few times a comparison ------------------- */

static const double PI = 3.14159265358979323846;

static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

/* Abramowitz and Stegun 26.7.3 and 26.7.4. */
static double student_inside(double t, size_t freedom)
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
    while (student_inside(hi, freedom) < 1 - level && hi < 1e12) lo = hi, hi *= 4;
    for (int i = 0; i < 50; i++) {
        const double mid = (lo + hi) / 2;
        if (student_inside(mid, freedom) < 1 - level) lo = mid;
        else hi = mid;
    }
    return (lo + hi) / 2;
}

/* P(Z + shift > bound S), S the deviation of n measurements over the true one: a sum over S by midpoints, whose
 * density is s^(f-1) exp(-f s^2 / 2) but for a factor. What lies beyond the other bound is left out: it is the wrong
 * side. */
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

/* --- intervals ---------------------------------------------------------------------------------------------------- */

static double mean_of(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i];
    return sum / (double)n;
}

void tn_mean_interval(const double *v, size_t n, double *mean, double *half)
{
    const double m = mean_of(v, n);
    double square = 0;
    for (size_t i = 0; i < n; i++) square += (v[i] - m) * (v[i] - m);
    *mean = m;
    *half = tn_student_critical(0.05, n - 1) * sqrt(square / (double)(n - 1) / (double)n);
}

/* --- the test ----------------------------------------------------------------------------------------------------- */

/* Of `differ` fair coins, at least so many on one side, or as many on the other. */
static double sign_test(size_t positive, size_t differ)
{
    const size_t more = positive > differ - positive ? positive : differ - positive;
    double ways = 1, sum = 0; /* of choosing k, over 2^differ */
    for (size_t i = 0; i < differ; i++) ways /= 2;
    for (size_t k = 0; k <= differ; k++) {
        if (k >= more) sum += ways;
        ways *= (double)(differ - k) / (double)(k + 1);
    }
    return fmin(1, 2 * sum);
}

static void look(const double *a, const double *b, double same, tn_paired *r)
{
    size_t positive = 0, differ = 0;
    double square = 0, least = INFINITY, most = 0;
    for (size_t i = 0; i < r->n; i++) {
        const double d = a[i] - b[i], e = d - r->difference;
        square += e * e;
        if (fabs(d) <= same) continue;
        differ++;
        positive += d > 0;
        least = fmin(least, fabs(d));
        most = fmax(most, fabs(d));
    }
    r->identical = !differ;
    r->signs = r->n > 1 && (!differ || most - least <= same);
    r->spread = r->n > 1 ? sqrt(square / (double)(r->n - 1)) : NAN;
    if (r->spread <= same) r->spread = 0;
    if (r->identical) r->difference = 0;
    if (r->signs) r->p = differ ? sign_test(positive, differ) : 1;
    else if (r->n > 1) r->p = 1 - student_inside(fabs(r->difference) * sqrt((double)r->n) / r->spread, r->n - 1);
    else r->p = 1;
}

tn_status tn_paired_compare(const double *a, const double *b, size_t n, tn_paired *out)
{
    double largest = 0, sum = 0;
    if (!n) return tn_error(TN_USAGE, "the two sides have no common seed: run them on the same seeds");
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return tn_error(TN_USAGE, "pair %zu is not finite (%g and %g): rerun the failed trial, or exclude its seed",
                            i + 1, a[i], b[i]);
        largest = fmax(largest, fmax(fabs(a[i]), fabs(b[i])));
        sum += a[i] - b[i];
    }
    tn_paired r = { .n = n, .mean_a = mean_of(a, n), .mean_b = mean_of(b, n), .difference = sum / (double)n };
    look(a, b, 1e-12 * largest,
         &r); /* values on a lattice (a share of 360 samples) differ by rounding where they are the same */
    const double half = n > 1 ? tn_student_critical(0.05, n - 1) * r.spread / sqrt((double)n) : NAN;
    r.lo = r.difference - half;
    r.hi = r.difference + half;
    r.effect = r.spread != 0 ? r.difference / r.spread : r.identical ? 0 : copysign(INFINITY, r.difference);
    *out = r;
    return TN_OK;
}

tn_status tn_holm(const double *p, size_t n, double *adjusted)
{
    for (size_t i = 0; i < n; i++)
        if (!(p[i] >= 0 && p[i] <= 1))
            return tn_error(TN_USAGE, "p value %zu is %g, which is not between 0 and 1", i + 1, p[i]);
    tn_keyed *order = tn_alloc((n + 1) * sizeof *order);
    if (!order) return TN_MEMORY;
    for (size_t i = 0; i < n; i++) order[i] = (tn_keyed){ p[i], i };
    tn_keyed_sort(order, n);
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fmin(1, (double)(n - i) * order[i].key));
        adjusted[order[i].at] = most;
    }
    tn_free(order);
    return TN_OK;
}

/* --- the word ----------------------------------------------------------------------------------------------------- */

/* The deviation of few pairs is often too small, so its upper bound counts. Twice the critical value: then the interval
 * of a mean that is not significant ends before the effect. */
void tn_power_of(size_t n, size_t comparisons, tn_power *out)
{
    tn_power s = { .n = n, .comparisons = comparisons, .bound = INFINITY, .seen = INFINITY };
    if (n > 1) {
        const double level = LEVEL / (double)comparisons;
        s.bound = tn_student_critical(level, n - 1);
        s.seen = fmax(tn_student_detectable(level, POWER, n) * tn_deviation_bound(n), 2 * s.bound) / sqrt((double)n);
    }
    *out = s;
}

tn_outcome tn_paired_judge(const tn_paired *r, double p_adjusted, const tn_power *sight, double effect, double *seen)
{
    *seen = r->n > 1 && r->spread > 0 ? sight->seen * r->spread : NAN;
    if (r->identical) return TN_IDENTICAL;
    if (p_adjusted < LEVEL) return r->difference > 0 ? TN_A_LARGER : TN_B_LARGER;
    const bool near =
        fabs(r->difference) * sqrt((double)r->n) <= sight->bound * r->spread; /* the sign test may be blind to more */
    return *seen <= effect && near ? TN_NO_DIFFERENCE : TN_UNDECIDED;
}

static bool would_see(const tn_paired *r, size_t n, size_t comparisons, double effect)
{
    tn_power s;
    if (r->signs && 2 * ldexp(1, -(int)n) * (double)comparisons >= LEVEL) return false; /* not if all signs were one */
    tn_power_of(n, comparisons, &s);
    return !(r->spread > 0) || s.seen * r->spread <= effect;
}

size_t tn_seeds_needed(const tn_paired *r, size_t comparisons, double effect)
{
    size_t lo = r->n, hi = TN_SEEDS_MOST;
    if (hi <= lo || !would_see(r, hi, comparisons, effect)) return 0;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (would_see(r, mid, comparisons, effect)) hi = mid;
        else lo = mid;
    }
    return hi;
}
