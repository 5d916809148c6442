/* Verdicts: the paired t-test and its bounds against scipy, the sign test against all 2^n ways of giving signs, Holm
 * and the words by hand. How often they are right is verdict_power_test.c's question. */
#include "lab/statistics/verdict.h"

#include "lab/search/draws.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- against scipy ------------------------------------------------------------------------------------------------ */

static const struct golden {
    size_t n;
    double p, lo, hi;
} golden[] = {
#define GOLDEN_PAIRS
#include "lab/golden_verdict.h"
#undef GOLDEN_PAIRS
};

static const struct bounds {
    size_t n;
    double level, bound, seen, most;
} bounds[] = {
#include "lab/golden_verdict.h"
};

/* The pairs of tests/lab/golden_verdict.py. */
static void golden_pairs(size_t c, size_t n, double *a, double *b)
{
    uint64_t s = c + 1;
    for (size_t i = 0; i < 2 * n; i++) {
        s = (s * 1103515245 + 12345) % (UINT64_C(1) << 31);
        const double u = ldexp((double)s, -31), v = c % 2 ? floor(u * 12) / 12 : u;
        if (i % 2) b[i / 2] = v;
        else a[i / 2] = v + 0.05 * (double)(c % 5);
    }
}

static void equals_scipy(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof golden / sizeof *golden; c++) {
        const struct golden *g = &golden[c];
        double a[200], b[200];
        tn_paired r;
        golden_pairs(c, g->n, a, b);
        assert_ok(tn_paired_compare(a, b, g->n, &r));
        if (fabs(r.p - g->p) > 1e-12 || fabs(r.lo - g->lo) > 1e-9 * fabs(g->lo) ||
            fabs(r.hi - g->hi) > 1e-9 * fabs(g->hi))
            fail_msg("case %zu: p %.12g in %.9f .. %.9f, scipy %.12g in %.9f .. %.9f", c, r.p, r.lo, r.hi, g->p, g->lo,
                     g->hi);
    }
}

static void bounds_equal_scipy(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof bounds / sizeof *bounds; c++) {
        const struct bounds *g = &bounds[c];
        const double bound = tn_student_critical(g->level, g->n - 1), seen = tn_student_detectable(g->level, 0.9, g->n),
                     most = tn_deviation_bound(g->n);
        if (fabs(bound / g->bound - 1) > 1e-6 || fabs(seen / g->seen - 1) > 1e-3 || fabs(most / g->most - 1) > 1e-9)
            fail_msg("%zu pairs at %g: %.9g %.9g %.9g, scipy %.9g %.9g %.9g", g->n, g->level, bound, seen, most,
                     g->bound, g->seen, g->most);
    }
}

/* --- pairs that differ in sign only ------------------------------------------------------------------------------- */

static void signs_by_enumeration(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < 200; t++) {
        tn_draws draws = tn_draws_open(1, "signs", t);
        const size_t n = 2 + t % 9;
        double a[12], b[12];
        size_t differ = 0, up = 0, as_far = 0;
        for (size_t i = 0; i < n; i++) {
            const size_t way = (size_t)tn_draws_below(&draws, 3);
            b[i] = 0.7 + 0.01 * (double)i, a[i] = b[i] + 0.1 * ((double)way - 1); /* rounding must not matter */
            differ += way != 1, up += way == 2;
        }
        const size_t far = up > differ - up ? up : differ - up;
        for (unsigned set = 0; set < 1u << differ; set++) {
            size_t ones = 0;
            for (size_t i = 0; i < differ; i++) ones += set >> i & 1;
            as_far += ones >= far || differ - ones >= far;
        }
        tn_paired r;
        assert_ok(tn_paired_compare(a, b, n, &r));
        assert_true(r.signs && r.identical == (differ == 0));
        if (fabs(r.p - (double)as_far / (double)(1u << differ)) > 1e-14) fail_msg("case %d: %.17g", (int)t, r.p);
    }
}

/* --- by hand ------------------------------------------------------------------------------------------------------ */

static tn_outcome word_of(const double *a, const double *b, size_t n, size_t comparisons, double effect, double *seen,
                          size_t *needed)
{
    tn_paired r;
    tn_power sight;
    assert_ok(tn_paired_compare(a, b, n, &r));
    tn_power_of(n, comparisons, &sight);
    *needed = tn_seeds_needed(&r, comparisons, effect);
    return tn_paired_judge(&r, fmin(1, r.p * (double)comparisons), &sight, effect, seen);
}

static void same_difference(void **state)
{
    (void)state;
    const double a[] = { 0.9, 0.8, 0.7, 0.95, 0.6, 0.85, 0.4 }, b[] = { 0.8, 0.7, 0.6, 0.85, 0.5, 0.75, 0.3 };
    double seen;
    size_t needed;
    tn_paired r;
    assert_ok(tn_paired_compare(a, b, 6, &r));
    assert_true(fabs(r.difference - 0.1) < 1e-15 && r.lo == r.difference && r.hi == r.difference && isinf(r.effect) &&
                r.effect > 0);
    assert_true(r.p == 2.0 / 64); /* without a spread only the signs speak: rounding of 0.9 - 0.8 must not matter */
    assert_int_equal(word_of(a, b, 6, 1, 0.005, &seen, &needed), TN_UNDECIDED);
    assert_true(needed == 7 && isnan(seen));
    assert_int_equal(word_of(a, b, 2, 36, 0.005, &seen, &needed), TN_UNDECIDED);
    assert_true(needed == 12); /* 36 / 2^11 is below 0.03 */
    assert_int_equal(word_of(a, b, 7, 1, 0.005, &seen, &needed), TN_A_LARGER);
    assert_int_equal(word_of(b, a, 7, 1, 0.005, &seen, &needed), TN_B_LARGER);
    assert_ok(tn_paired_compare(a, a, 6, &r));
    assert_true(r.p == 1 && r.lo == 0 && r.hi == 0 && r.effect == 0 && r.identical);
    assert_int_equal(word_of(a, a, 6, 1, 0.005, &seen, &needed), TN_IDENTICAL);
    assert_int_equal(word_of(a, a, 1, 1, 0.005, &seen, &needed), TN_IDENTICAL);
    assert_int_equal(word_of(a, b, 1, 1, 0.005, &seen, &needed), TN_UNDECIDED); /* one seed shows nothing */
    assert_int_equal(needed, 2);
}

/* Wilcoxon's p of five pairs is never below 0.0625, and Holm's correction for three times the same made it 0.19. */
static void five_seeds_decide(void **state)
{
    (void)state;
    const double good[] = { 0.9750, 0.9722, 0.9806, 0.9694, 0.9778 },
                 useless[] = { 0.1528, 0.1250, 0.1611, 0.1833, 0.1417 };
    double seen;
    size_t needed;
    for (size_t n = 2; n <= 5; n++) assert_int_equal(word_of(good, useless, n, 1, 0.005, &seen, &needed), TN_A_LARGER);
    assert_int_equal(word_of(good, useless, 5, 36, 0.005, &seen, &needed), TN_A_LARGER);
    assert_int_equal(word_of(useless, good, 3, 3, 0.005, &seen, &needed), TN_B_LARGER);
}

/* Differences of +-1: what would have been seen is what the word stands on, and the seeds that are asked for are
 * enough and no more. */
static void no_difference_by_hand(void **state)
{
    (void)state;
    double a[40], b[40] = { 0 }, seen;
    size_t needed;
    tn_paired r;
    tn_power at;
    for (size_t i = 0; i < 40; i++) a[i] = (i % 2 ? 1 : -1) * (1 + 0.1 * (double)(i / 2 % 2));
    assert_ok(tn_paired_compare(a, b, 12, &r));
    tn_power_of(12, 1, &at);
    assert_true(fabs(at.seen * sqrt(12) -
                     fmax(tn_student_detectable(0.03, 0.9, 12) * tn_deviation_bound(12), 2 * at.bound)) < 1e-12);
    const double size = at.seen * r.spread;
    assert_int_equal(word_of(a, b, 12, 1, size * 1.001, &seen, &needed), TN_NO_DIFFERENCE);
    assert_true(seen == size);
    assert_int_equal(word_of(a, b, 12, 1, size * 0.999, &seen, &needed), TN_UNDECIDED);
    assert_int_equal(needed, 13);
    assert_int_equal(word_of(a, b, 12, 3, size, &seen, &needed), TN_UNDECIDED); /* one of three has to show more */
    assert_true(seen > size && needed > 12);
    assert_int_equal(word_of(a, b, 12, 1, 0.01, &seen, &needed), TN_UNDECIDED);
    assert_int_equal(needed, 0); /* more than a thousand */
    assert_int_equal(word_of(a, b, 4, 1, size, &seen, &needed), TN_UNDECIDED);
    assert_ok(tn_paired_compare(a, b, 4, &r));
    tn_power_of(needed, 1, &at);
    assert_true(needed > 4 && at.seen * r.spread <= size);
    tn_power_of(needed - 1, 1, &at);
    assert_true(at.seen * r.spread > size);
}

/* Differences 1 2 3: mean 2, deviation 1, t = 2 sqrt 3 with two degrees of freedom, whose distribution is t / sqrt(2
 * + t^2). */
static void three_pairs(void **state)
{
    (void)state;
    const double a[] = { 4, 4, 8 }, b[] = { 3, 2, 5 }, bad[] = { 3, 2, NAN }, t = 2 * sqrt(3);
    double mean, half;
    tn_paired r;
    assert_ok(tn_paired_compare(a, b, 3, &r));
    assert_true(!r.signs && r.difference == 2 && fabs(r.effect - 2) < 1e-14 && r.spread == 1);
    assert_true(fabs(r.p - (1 - t / sqrt(2 + t * t))) < 1e-12);
    assert_true(fabs(r.hi - 2 - 4.302652729696 / sqrt(3)) < 1e-9 && fabs(r.lo + r.hi - 4) < 1e-12);
    tn_mean_interval(a, 3, &mean, &half);
    assert_true(fabs(mean - 16.0 / 3) < 1e-14 && fabs(half - 4.302652729696 * sqrt(16.0 / 3) / sqrt(3)) < 1e-8);
    assert_fails(tn_paired_compare(a, b, 0, &r), TN_USAGE, "no common seed");
    assert_fails(tn_paired_compare(a, bad, 3, &r), TN_USAGE, "pair 3 is not finite");
}

static void holm_by_hand(void **state)
{
    (void)state;
    const double p[] = { 0.01, 0.04, 0.03, 0.005, 0.9 }, want[] = { 0.04, 0.09, 0.09, 0.025, 0.9 };
    double got[5];
    assert_ok(tn_holm(p, 5, got));
    for (int i = 0; i < 5; i++) assert_true(fabs(got[i] - want[i]) < 1e-15);
    assert_ok(tn_holm((const double[]){ 0.5, 0.6 }, 2, got));
    assert_true(got[0] == 1 && got[1] == 1);
    assert_fails(tn_holm((const double[]){ 0.5, NAN }, 2, got), TN_USAGE, "p value 2");
    assert_ok(tn_holm(p, 0, got));
}

void tn_tests_verdict(tn_test_list *l)
{
    tn_test_add(l, equals_scipy, NULL, "lab/verdict: p and interval equal scipy's");
    tn_test_add(l, bounds_equal_scipy, NULL, "lab/verdict: bounds and power equal scipy's");
    tn_test_add(l, signs_by_enumeration, NULL, "lab/verdict: the sign test equals enumeration");
    tn_test_add(l, same_difference, NULL, "lab/verdict: pairs that differ by the same, or not at all");
    tn_test_add(l, five_seeds_decide, NULL, "lab/verdict: a useless side is worse on two seeds already");
    tn_test_add(l, no_difference_by_hand, NULL, "lab/verdict: no difference, and how many seeds are needed");
    tn_test_add(l, three_pairs, NULL, "lab/verdict: three pairs by hand, bad pairs");
    tn_test_add(l, holm_by_hand, NULL, "lab/verdict: Holm by hand");
}
