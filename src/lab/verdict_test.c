/* Verdicts: Wilcoxon against all 2^n ways of giving signs and against scipy, intervals against scipy's and by how often they hold on simulated pairs, Holm by
 * hand, and how often a difference is claimed where there is none. TENON_LONG=1 simulates sixteen times as many studies. */
#include "lab/verdict.h"

#include "lab/lots.h"
#include "optest.h"
#include "testlib.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- Wilcoxon ----------------------------------------------------------------------------------------------------------------------- */

/* The definition: the share of sign patterns whose sum of ranks is as far out, on the nearer side, doubled. */
static double enumerate(const double *d, size_t n)
{
    double rank[12], seen = 0, v[12];
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (d[i] != 0) v[m++] = d[i];
    for (size_t i = 0; i < m; i++) {
        double below = 0, equal = 0;
        for (size_t j = 0; j < m; j++) below += fabs(v[j]) < fabs(v[i]), equal += fabs(v[j]) == fabs(v[i]);
        rank[i] = below + (equal + 1) / 2;
        if (v[i] > 0) seen += rank[i];
    }
    size_t low = 0, high = 0;
    for (unsigned set = 0; set < 1u << m; set++) {
        double sum = 0;
        for (size_t i = 0; i < m; i++) sum += set >> i & 1 ? rank[i] : 0;
        low += sum <= seen;
        high += sum >= seen;
    }
    return m ? fmin(1, 2.0 * (double)(low < high ? low : high) / (double)(1u << m)) : 1;
}

static void equals_enumeration(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < 200; t++) {
        tn_lots lots = tn_lots_open(1, "wilcoxon", t);
        const size_t n = 5 + t % 8;
        double a[12], b[12] = { 0 };
        for (size_t i = 0; i < n; i++)
            a[i] = t % 2 ? tn_lots_uniform(&lots) - 0.3 : (double)tn_lots_below(&lots, 9) - 3; /* ties and zeros */
        tn_paired r;
        assert_ok(tn_paired_compare(a, b, n, t, &r));
        if (fabs(r.p - enumerate(a, n)) > 1e-14)
            fail_msg("case %d: %.17g instead of %.17g", (int)t, r.p, enumerate(a, n));
    }
}

static const struct golden {
    size_t n;
    double p, lo, hi;
} golden[] = {
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
        assert_ok(tn_paired_compare(a, b, g->n, 3, &r));
        if (!isnan(g->p) && fabs(r.p - g->p) > 1e-9) fail_msg("case %zu: p %.12g, scipy %.12g", c, r.p, g->p);
        const double slack = 0.05 * (g->hi - g->lo); /* 10,000 draws against 300,000, at the far ends */
        if (fabs(r.lo - g->lo) > slack || fabs(r.hi - g->hi) > slack)
            fail_msg("case %zu: %.6f .. %.6f, scipy %.6f .. %.6f", c, r.lo, r.hi, g->lo, g->hi);
    }
}

/* --- simulated studies ------------------------------------------------------------------------------------------------------------- */

static double normal(tn_lots *lots)
{
    return sqrt(-2 * log(1 - tn_lots_uniform(lots))) * cos(6.283185307179586 * tn_lots_uniform(lots));
}
static double skewed(tn_lots *lots)
{
    return 1 - 0.5 * log(1 - tn_lots_uniform(lots)) + 0.5 * normal(lots);
} /* mean 1.5, of accuracies' kind: one long tail */
static double lattice(tn_lots *lots) { return round(3 * normal(lots)) / 360; } /* mean 0 */

typedef struct simulation {
    const char *name;
    double (*difference)(tn_lots *);
    double mean;
    size_t n;
} simulation;

static const simulation simulations[] = {
    { "normal", normal, 0, 3 },
    { "normal", normal, 0, 10 },
    { "normal", normal, 0, 30 },
    { "skewed", skewed, 1.5, 20 },
    { "shares of 360", lattice, 0, 12 },
};

/* 95 % intervals hold the truth 93 to 97 times in a hundred, and where the truth is 0 a difference is claimed 5 times or less. */
static void holds_as_often_as_it_says(void **state)
{
    const simulation *m = *state;
    const bool is_long = getenv("TENON_LONG") != NULL;
    const int studies = is_long ? 4000 : 250;
    int inside = 0, claimed = 0;
    for (int t = 0; t < studies; t++) {
        tn_lots lots = tn_lots_open(7, m->name, (uint64_t)t);
        double a[30], b[30];
        tn_paired r;
        for (size_t i = 0; i < m->n; i++) b[i] = round(8 * normal(&lots)) / 16, a[i] = b[i] + m->difference(&lots);
        assert_ok(tn_paired_compare(a, b, m->n, (uint64_t)t, &r));
        assert_true(r.lo <= r.difference && r.difference <= r.hi && r.p > 0 && r.p <= 1);
        inside += r.lo <= m->mean && m->mean <= r.hi;
        claimed += tn_paired_larger(&r, r.p) != 0;
    }
    if (is_long)
        print_message("%s, %zu pairs: %.2f %% of %d intervals hold\n", m->name, m->n, 100.0 * inside / studies,
                      studies);
    assert_true(inside >= 0.93 * studies && inside <= 0.97 * studies);
    if (m->mean == 0) assert_true(claimed <= (is_long ? 0.055 : 0.08) * studies);
    else assert_true(claimed >= 0.9 * studies); /* 1.5 with a spread of 0.7 is plain to see */
}

/* --- by hand ----------------------------------------------------------------------------------------------------------------------- */

static void same_difference(void **state)
{
    (void)state;
    const double a[] = { 0.9, 0.8, 0.7, 0.95, 0.6, 0.85 }, b[] = { 0.8, 0.7, 0.6, 0.85, 0.5, 0.75 };
    tn_paired r, back;
    assert_ok(tn_paired_compare(a, b, 6, 1, &r));
    assert_true(fabs(r.difference - 0.1) < 1e-15 && r.lo == r.difference && r.hi == r.difference && isinf(r.effect) &&
                r.effect > 0);
    assert_true(r.p == 2.0 / 64); /* all ranks tie, all signs agree: rounding of 0.9 - 0.8 must not matter */
    assert_int_equal(tn_paired_larger(&r, r.p), 1);
    assert_int_equal(tn_paired_larger(&r, 0.06), 0);
    assert_ok(tn_paired_compare(b, a, 6, 1, &back));
    assert_int_equal(tn_paired_larger(&back, back.p), -1);
    assert_ok(tn_paired_compare(a, a, 6, 1, &r));
    assert_true(r.p == 1 && r.lo == 0 && r.hi == 0 && r.effect == 0);
    assert_int_equal(tn_paired_larger(&r, r.p), 0);
}

static void effect_and_bits(void **state)
{
    (void)state;
    const double a[] = { 3, 5, 4, 8, 6 }, b[] = { 2, 2, 4, 6, 1 }; /* differences 1 3 0 2 5: mean 2.2, variance 3.7 */
    tn_paired r, again;
    assert_ok(tn_paired_compare(a, b, 5, 1, &r));
    assert_true(fabs(r.effect - 2.2 / sqrt(3.7)) < 1e-14 && r.mean_a == 5.2 && r.mean_b == 3);
    assert_true(r.p == 0.125); /* four differ, all one way: 2 of 16 */
    assert_ok(tn_paired_compare(a, b, 5, 1, &again));
    assert_memory_equal(&r, &again, offsetof(tn_paired, student));
    assert_false(r.student);
    const double bad[] = { 3, 5, NAN, 8, 6 };
    assert_fails(tn_paired_compare(a, b, 2, 1, &r), TN_USAGE, "2 common seeds are too few");
    assert_fails(tn_paired_compare(a, bad, 5, 1, &r), TN_USAGE, "pair 3 is not finite");
}

/* Differences 1 2 3: mean 2, deviation 1, t = 2 sqrt 3 with two degrees of freedom, whose distribution is t / sqrt(2 + t^2). */
static void three_pairs(void **state)
{
    (void)state;
    const double a[] = { 4, 4, 8 }, b[] = { 3, 2, 5 }, t = 2 * sqrt(3);
    double mean, half;
    tn_paired r;
    assert_ok(tn_paired_compare(a, b, 3, 1, &r));
    assert_true(r.student && r.difference == 2 && fabs(r.effect - 2) < 1e-14);
    assert_true(fabs(r.p - (1 - t / sqrt(2 + t * t))) < 1e-12);
    assert_true(fabs(r.hi - 2 - 4.302652729696 / sqrt(3)) < 1e-9 && fabs(r.lo + r.hi - 4) < 1e-12);
    assert_int_equal(tn_paired_larger(&r, r.p), 0);
    tn_mean_interval(a, 3, &mean, &half);
    assert_true(fabs(mean - 16.0 / 3) < 1e-14 && fabs(half - 4.302652729696 * sqrt(16.0 / 3) / sqrt(3)) < 1e-8);
    assert_ok(tn_paired_compare(a, a, 3, 1, &r));
    assert_true(r.p == 1 && r.lo == 0 && r.hi == 0);
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
    tn_test_add(l, equals_enumeration, NULL, "lab/verdict: Wilcoxon equals enumeration, with ties and zeros");
    tn_test_add(l, equals_scipy, NULL, "lab/verdict: p and interval equal scipy's");
    for (size_t i = 0; !TN_SANITIZED && i < sizeof simulations / sizeof *simulations; i++)
        tn_test_add(l, holds_as_often_as_it_says, &simulations[i], "lab/verdict: intervals hold, %s, %zu pairs",
                    simulations[i].name, simulations[i].n);
    tn_test_add(l, same_difference, NULL, "lab/verdict: pairs that differ by the same, or not at all");
    tn_test_add(l, effect_and_bits, NULL, "lab/verdict: effect by hand, the same bits, bad pairs");
    tn_test_add(l, three_pairs, NULL, "lab/verdict: three pairs, by Student's t");
    tn_test_add(l, holm_by_hand, NULL, "lab/verdict: Holm by hand");
}
