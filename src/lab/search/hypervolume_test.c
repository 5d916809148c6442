/* Hypervolumes against inclusion and exclusion over all subsets, against counting the cells of a grid, and against
 * volumes known in closed form. */
#include "lab/search/pareto.h"

#include "base/clock.h"
#include "lab/search/draws.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

enum { MOST = 12, M = 5 };

/* The sum over all non-empty subsets, with signs, of the box above the worst values of the subset. */
static double by_subsets(const double *y, size_t n, size_t m, const double *reference)
{
    double sum = 0;
    for (unsigned set = 1; set < 1u << n; set++) {
        double box = 1;
        for (size_t k = 0; k < m; k++) {
            double worst = -INFINITY;
            for (size_t i = 0; i < n; i++)
                if (set >> i & 1) worst = fmax(worst, y[i * m + k]);
            box *= fmax(reference[k] - worst, 0);
        }
        sum += __builtin_popcount(set) % 2 ? box : -box;
    }
    return sum;
}

/* Points on whole numbers 0..side: cells of size 1 that some point covers. */
static double by_cells(const double *y, size_t n, size_t m, int side)
{
    size_t cells = 1, count = 0;
    for (size_t k = 0; k < m; k++) cells *= (size_t)side;
    for (size_t c = 0; c < cells; c++) {
        bool inside = false;
        for (size_t i = 0; i < n && !inside; i++) {
            size_t rest = c;
            inside = true;
            for (size_t k = 0; k < m; k++, rest /= (size_t)side)
                inside &= y[i * m + k] <= (double)(rest % (size_t)side);
        }
        count += inside;
    }
    return (double)count;
}

static void equals_subsets(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < 150; t++) {
        tn_draws draws = tn_draws_open(1, "hypervolume", t);
        const size_t m = 1 + t % M, n = tn_draws_below(&draws, MOST + 1);
        double y[MOST * M], reference[M], got;
        for (size_t i = 0; i < n * m; i++) y[i] = 2 * tn_draws_uniform(&draws) - 1;
        for (size_t k = 0; k < m; k++)
            reference[k] = 0.4 + 0.6 * tn_draws_uniform(&draws); /* some points lie outside */
        assert_ok(tn_hypervolume(y, n, m, reference, &got));
        const double want = by_subsets(y, n, m, reference);
        if (fabs(got - want) > 1e-11 * (1 + want)) fail_msg("m=%zu n=%zu: %.17g instead of %.17g", m, n, got, want);
    }
}

static void equals_cells(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < 120; t++) {
        enum { SIDE = 7, N = 60 };
        tn_draws draws = tn_draws_open(2, "hypervolume", t);
        const size_t m = 2 + t % 4, n = 1 + tn_draws_below(&draws, N);
        double y[N * M], got;
        const double reference[M] = { SIDE, SIDE, SIDE, SIDE, SIDE };
        for (size_t i = 0; i < n * m; i++)
            y[i] = (double)tn_draws_below(&draws, SIDE + 1); /* ties, equal points, points on the reference */
        assert_ok(tn_hypervolume(y, n, m, reference, &got));
        assert_true(got == by_cells(y, n, m, SIDE)); /* whole numbers: exact */
    }
}

/* The staircase (i, n-1-i) under (n, n) covers n (n+1) / 2; a failed trial and one beyond the reference add nothing. */
static void known(void **state)
{
    (void)state;
    double y[102 * 2], got;
    const double reference[] = { 100, 100 }, bad[] = { NAN, 1 };
    for (int i = 0; i < 100; i++) y[2 * i] = i, y[2 * i + 1] = 99 - i;
    y[200] = -INFINITY;
    y[201] = 0;
    y[202] = -5;
    y[203] = 100;
    assert_ok(tn_hypervolume(y, 102, 2, reference, &got));
    assert_true(got == 100 * 101 / 2);
    assert_ok(tn_hypervolume(y, 0, 2, reference, &got));
    assert_true(got == 0);
    assert_fails(tn_hypervolume(y, 1, 2, bad, &got), TN_USAGE, "reference of objective 1");
    assert_fails(tn_hypervolume(y, 1, 0, reference, &got), TN_USAGE, "objectives");
}

/* The part of the unit cube that the points cover, by throwing darts. */
static double by_darts(const double *y, size_t n, size_t m, int darts)
{
    tn_draws draws = tn_draws_open(4, "darts", 0);
    int hits = 0;
    for (int t = 0; t < darts; t++) {
        double dart[M];
        bool hit = false;
        for (size_t k = 0; k < m; k++) dart[k] = tn_draws_uniform(&draws);
        for (size_t i = 0; i < n && !hit; i++) {
            hit = true;
            for (size_t k = 0; k < m; k++) hit &= y[i * m + k] <= dart[k];
        }
        hits += hit;
    }
    return (double)hits / darts;
}

/* A front of 100 points on the sphere: in time, and within four standard errors of 50,000 darts. */
static void large_front(void **state)
{
    (void)state;
    enum { N = 100, D = 4 };
    double y[N * D], got;
    const double reference[D] = { 1, 1, 1, 1 };
    tn_draws draws = tn_draws_open(3, "hypervolume", 0);
    for (size_t i = 0; i < N; i++) {
        double sum = 0;
        for (size_t k = 0; k < D; k++)
            y[i * D + k] = -log(1 - tn_draws_uniform(&draws)), sum += y[i * D + k] * y[i * D + k];
        for (size_t k = 0; k < D; k++) y[i * D + k] /= sqrt(sum);
    }
    const double start = tn_clock_cpu_s();
    assert_ok(tn_hypervolume(y, N, D, reference, &got));
    const double took = tn_clock_cpu_s() - start;
    assert_true(fabs(got - by_darts(y, N, D, 50000)) < 4 * sqrt(got * (1 - got) / 50000));
    if (took > 1.5) fail_msg("took %.3f s", took);
}

/* Each pick against trying every point in its place. */
static void picks_the_largest(void **state)
{
    (void)state;
    for (uint64_t t = 0; t < 30; t++) {
        enum { N = 25, K = 8 };
        tn_draws draws = tn_draws_open(5, "hypervolume", t);
        const size_t m = 1 + t % M;
        double y[N * M], set[K * M], reference[M], volume[K + 1] = { 0 }, v;
        size_t picked[K];
        for (size_t i = 0; i < N * m; i++) y[i] = t % 2 ? tn_draws_uniform(&draws) : (double)tn_draws_below(&draws, 5);
        for (size_t k = 0; k < m; k++) {
            double lo = y[k], hi = y[k];
            for (size_t i = 0; i < N; i++) lo = fmin(lo, y[i * m + k]), hi = fmax(hi, y[i * m + k]);
            reference[k] = hi + 0.1 * (hi - lo);
        }
        assert_ok(tn_hypervolume_pick(y, N, m, K, picked));
        for (size_t k = 0; k < K; k++) {
            for (size_t j = 0; j < k; j++) assert_true(picked[j] != picked[k]);
            for (size_t i = 0; i < N; i++) { /* the picked one last, so that it stays in set */
                memcpy(set + k * m, y + (i + 1 < N ? i : picked[k]) * m, m * sizeof *set);
                assert_ok(tn_hypervolume(set, k + 1, m, reference, &v));
                volume[k] = fmax(volume[k], v);
            }
            assert_true(v > volume[k] - 1e-12);
        }
    }
    size_t none[1];
    assert_fails(tn_hypervolume_pick((const double[]){ 1, 2 }, 1, 2, 2, none), TN_INTERNAL, "cannot be picked");
}

void tn_tests_hypervolume(tn_test_list *l)
{
    tn_test_add(l, equals_subsets, NULL, "lab/hypervolume: equals inclusion and exclusion");
    tn_test_add(l, equals_cells, NULL, "lab/hypervolume: equals counted cells, with ties");
    tn_test_add(l, known, NULL, "lab/hypervolume: known volumes, failed trials, bad references");
    tn_test_add(l, large_front, NULL, "lab/hypervolume: 100 points of four objectives in time");
    tn_test_add(l, picks_the_largest, NULL, "lab/hypervolume: picks what adds most");
}
