/* Paired comparisons: bootstrap interval, signed ranks, Holm. All randomness comes from the seed that is given; sums run in the order of
 * the pairs. */
#include "lab/verdict.h"

#include "base/alloc.h"
#include "lab/lots.h"
#include "lab/sorted.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 10000, MOST_EXACT = 50, FEWEST = 3, FEWEST_RANKS = 5 };

static const double PI = 3.14159265358979323846;

static double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

/* P(-t < T < t) for whole degrees of freedom, a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4). */
static double student_inside(double t, size_t freedom)
{
    const double theta = atan(t / sqrt((double)freedom)), c = cos(theta), c2 = c * c;
    double term = freedom % 2 ? c : 1, sum = freedom == 1 ? 0 : term;
    for (size_t k = freedom % 2 ? 3 : 2; k < freedom; k += 2) {
        term *= c2 * (double)(k - 1) / (double)k;
        sum += term;
    }
    return freedom % 2 ? 2 / PI * (theta + sin(theta) * sum) : sin(theta) * sum;
}

/* By bisection: asked for a few times a comparison, so plain is better than fast. */
static double normal_quantile(double p)
{
    double lo = -40, hi = 40;
    for (int i = 0; i < 100; i++) {
        const double mid = (lo + hi) / 2;
        if (normal_cdf(mid) < p) lo = mid;
        else hi = mid;
    }
    return (lo + hi) / 2;
}

static double student_bound(size_t freedom) /* t that 95 % lie within */
{
    double lo = 0, hi = 1000;
    for (int i = 0; i < 100; i++) {
        const double mid = (lo + hi) / 2;
        if (student_inside(mid, freedom) < 0.95) lo = mid;
        else hi = mid;
    }
    return (lo + hi) / 2;
}

static double mean_of(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i];
    return sum / (double)n;
}

/* --- the interval ------------------------------------------------------------------------------------------------------------------ */

/* Words from the generator, many blocks at a time: they are most of a comparison's work. */
typedef struct words {
    tn_rng r;
    uint64_t block;
    size_t at;
    uint32_t w[256];
} words;

static double draw_mean(const double *d, size_t n, words *from)
{
    enum { COUNT = sizeof from->w / sizeof *from->w };
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (from->at == COUNT) {
            tn_rng_blocks(from->r, from->block, COUNT / 4, from->w);
            from->block += COUNT / 4;
            from->at = 0;
        }
        sum += d[(uint64_t)from->w[from->at++] * n >> 32];
    }
    return sum / (double)n;
}

/* Puts the k-th smallest of v (n) in its place, smaller ones before and larger ones behind it (Hoare). */
static double select_kth(double *v, size_t n, size_t k)
{
    for (size_t lo = 0, hi = n - 1; lo < hi;) {
        const double pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i >= j) break;
            const double t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (k <= j) hi = j;
        else lo = j + 1;
    }
    return v[k];
}

static double quantile(double *v, size_t n, double p)
{
    const double at = p * (double)(n - 1);
    const size_t i = (size_t)at;
    const double a = select_kth(v, n, i), b = i + 1 < n ? select_kth(v, n, i + 1) : a;
    return a + (at - (double)i) * (b - a);
}

/* Efron's interval. shift: how far the draws lie from the mean, in normal quantiles; lean: a sixth of the skewness of what each pair adds. */
static tn_status interval(const double *d, size_t n, double mean, double same, uint64_t seed, double *lo, double *hi)
{
    double square = 0, cube = 0, below = 0;
    for (size_t i = 0; i < n; i++) {
        const double e = d[i] - mean;
        square += e * e;
        cube += e * e * e;
    }
    if (!(sqrt(square / (double)n) > same)) {
        *lo = *hi = mean;
        return TN_OK;
    }
    double *means = tn_alloc(DRAWS * sizeof *means);
    if (!means) return TN_MEMORY;
    words from = { .r = tn_lots_open(seed, "lab.bootstrap", 0).r, .at = sizeof from.w / sizeof *from.w };
    for (size_t i = 0; i < DRAWS; i++) {
        means[i] = draw_mean(d, n, &from);
        below += fabs(means[i] - mean) <= same ? 0.5 : means[i] < mean;
    }
    const double shift = normal_quantile(fmin(fmax(below, 0.5), DRAWS - 0.5) / DRAWS),
                 lean = cube / (6 * pow(square, 1.5));
    const double z = sqrt((double)n / ((double)n - 1)) * student_bound(n - 1);
    const double under = shift - z, over = shift + z;
    *lo = quantile(means, DRAWS, normal_cdf(shift + under / (1 - lean * under)));
    *hi = quantile(means, DRAWS, normal_cdf(shift + over / (1 - lean * over)));
    tn_free(means);
    return TN_OK;
}

/* --- signed ranks ------------------------------------------------------------------------------------------------------------------- */

typedef struct signed_ranks {
    size_t n;        /* pairs that differ */
    size_t *twice;   /* (n): ranks times two, whole with ties too */
    size_t positive; /* sum of `twice` where a - b > 0 */
    double ties;     /* sum of t^3 - t over groups of t equal ones */
} signed_ranks;

static void rank_signs(const double *d, size_t n, double same, tn_keyed *order, signed_ranks *r)
{
    for (size_t i = 0; i < n; i++)
        if (fabs(d[i]) > same) order[r->n++] = (tn_keyed){ fabs(d[i]), i };
    tn_keyed_sort(order, r->n);
    for (size_t a = 0, b; a < r->n; a = b) {
        for (b = a + 1; b < r->n && order[b].key - order[b - 1].key <= same; b++) {
        }
        const double t = (double)(b - a);
        r->ties += t * t * t - t;
        for (size_t i = a; i < b; i++) {
            r->twice[i] = a + b + 1; /* ranks a+1 .. b */
            if (d[order[i].at] > 0) r->positive += r->twice[i];
        }
    }
}

/* Every way to give signs to the ranks is as likely: counts[s] of the 2^n ways have positive sum s. Whole numbers below 2^53. */
static tn_status exact_p(const signed_ranks *r, double *out)
{
    const size_t most = r->n * (r->n + 1);
    double *counts = tn_alloc((most + 1) * sizeof *counts), low = 0, high = 0;
    if (!counts) return TN_MEMORY;
    counts[0] = 1;
    for (size_t i = 0; i < r->n; i++)
        for (size_t s = most; s + 1 > r->twice[i]; s--) counts[s] += counts[s - r->twice[i]];
    for (size_t s = 0; s <= most; s++) {
        if (s <= r->positive) low += counts[s];
        if (s >= r->positive) high += counts[s];
    }
    *out = fmin(1, 2 * fmin(low, high) / ldexp(1, (int)r->n));
    tn_free(counts);
    return TN_OK;
}

static double normal_p(const signed_ranks *r)
{
    const double n = (double)r->n, mean = n * (n + 1) / 4, var = n * (n + 1) * (2 * n + 1) / 24 - r->ties / 48;
    return erfc(fabs((double)r->positive / 2 - mean) / sqrt(2 * var));
}

static tn_status wilcoxon(const double *d, size_t n, double same, double *p)
{
    tn_status s = TN_OK;
    tn_keyed *order = tn_alloc(n * sizeof *order);
    signed_ranks r = { .twice = tn_alloc(n * sizeof *r.twice) };
    double value = 1;
    if (!order || !r.twice) TN_FAIL(TN_MEMORY, "no memory to rank %zu pairs", n);
    rank_signs(d, n, same, order, &r);
    if (r.n > MOST_EXACT) value = normal_p(&r);
    else if (r.n > 0) TN_TRY(exact_p(&r, &value));
    *p = value;
done:
    tn_free(order);
    tn_free(r.twice);
    return s;
}

/* --- together ----------------------------------------------------------------------------------------------------------------------- */

static double deviation_of(const double *v, size_t n, double mean)
{
    double square = 0;
    for (size_t i = 0; i < n; i++) square += (v[i] - mean) * (v[i] - mean);
    return sqrt(square / (double)(n - 1));
}

static double effect_of(const double *d, size_t n, double mean, double same)
{
    const double spread = deviation_of(d, n, mean);
    if (spread > same) return mean / spread;
    return fabs(mean) <= same ? 0 : copysign(INFINITY, mean);
}

void tn_mean_interval(const double *v, size_t n, double *mean, double *half)
{
    *mean = mean_of(v, n);
    *half = student_bound(n - 1) * deviation_of(v, n, *mean) / sqrt((double)n);
}

/* The interval and the test of normal differences. */
static void student(const double *d, size_t n, double same, tn_paired *r)
{
    double mean, half;
    tn_mean_interval(d, n, &mean, &half);
    const double spread = deviation_of(d, n, mean);
    r->student = true;
    r->lo = mean - half;
    r->hi = mean + half;
    if (spread > same) r->p = 1 - student_inside(fabs(mean) * sqrt((double)n) / spread, n - 1);
    else r->p = fabs(mean) <= same ? 1 : 0;
}

tn_status tn_paired_compare(const double *a, const double *b, size_t n, uint64_t seed, tn_paired *out)
{
    tn_status s = TN_OK;
    double largest = 0;
    if (n < FEWEST)
        return tn_error(TN_USAGE, "%zu common seeds are too few to compare two sides: %d or more, better 10", n, FEWEST);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return tn_error(
                TN_USAGE, "pair %zu is not finite (%g and %g): run the trial that failed again, or leave its seed out",
                i + 1, a[i], b[i]);
        largest = fmax(largest, fmax(fabs(a[i]), fabs(b[i])));
    }
    double *d = tn_alloc(n * sizeof *d);
    if (!d) return TN_MEMORY;
    for (size_t i = 0; i < n; i++) d[i] = a[i] - b[i];
    /* Values on a lattice (a share of 360 samples) differ by the same in truth and by rounding in floats. */
    const double same = 1e-12 * largest;
    tn_paired r = { .n = n, .mean_a = mean_of(a, n), .mean_b = mean_of(b, n), .difference = mean_of(d, n) };
    if (n < FEWEST_RANKS) student(d, n, same, &r);
    else {
        TN_TRY(interval(d, n, r.difference, same, seed, &r.lo, &r.hi));
        TN_TRY(wilcoxon(d, n, same, &r.p));
    }
    r.effect = effect_of(d, n, r.difference, same);
    *out = r;
done:
    tn_free(d);
    return s;
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

int tn_paired_larger(const tn_paired *r, double p_adjusted)
{
    if (!(p_adjusted < 0.05)) return 0;
    return r->lo > 0 ? 1 : r->hi < 0 ? -1 : 0;
}
