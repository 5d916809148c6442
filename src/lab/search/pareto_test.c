/* Ranks against peeling by hand with every pair compared, on random sets with many ties; crowding against Deb's
 * definition on a set worked by hand. */
#include "lab/search/pareto.h"

#include "lab/search/draws.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 200 };

/* Whole numbers from a small range: ties and equal points in plenty. */
static void tied(tn_draws *draws, double *y, size_t n, size_t m, uint64_t values)
{
    for (size_t i = 0; i < n * m; i++) y[i] = (double)tn_draws_below(draws, values);
}

static bool plain_dominates(const double *a, const double *b, size_t m)
{
    bool fine_a = true, fine_b = true, no_worse = true, better = false;
    for (size_t k = 0; k < m; k++) {
        fine_a &= isfinite(a[k]) != 0;
        fine_b &= isfinite(b[k]) != 0;
        no_worse &= a[k] <= b[k];
        better |= a[k] < b[k];
    }
    return fine_a && (!fine_b || (no_worse && better));
}

static void peel(const double *y, size_t n, size_t m, int *rank)
{
    bool gone[MOST] = { false };
    size_t left = n;
    for (size_t i = 0; i < n; i++) rank[i] = -1;
    for (int r = 0; left > 0; r++) {
        for (size_t i = 0; i < n; i++) {
            if (gone[i]) continue;
            bool beaten = false;
            for (size_t j = 0; j < n; j++) beaten |= !gone[j] && plain_dominates(y + j * m, y + i * m, m);
            if (!beaten) rank[i] = r;
        }
        for (size_t i = 0; i < n; i++)
            if (!gone[i] && rank[i] == r) gone[i] = true, left--;
    }
}

static void ranks_equal_peeling(void **state)
{
    (void)state;
    static const double odd[] = { INFINITY, -INFINITY, NAN };
    for (uint64_t t = 0; t < 400; t++) {
        tn_draws draws = tn_draws_open(1, "pareto", t);
        const size_t m = 1 + t % 5, n = tn_draws_below(&draws, t % 10 == 0 ? MOST : 40);
        double y[MOST * 5];
        int rank[MOST], want[MOST];
        bool on[MOST];
        tied(&draws, y, n, m, 2 + tn_draws_below(&draws, 12));
        for (size_t i = 0; t % 3 == 0 && i < n * m; i++)
            if (tn_draws_below(&draws, 20) == 0) y[i] = odd[tn_draws_below(&draws, 3)];
        assert_ok(tn_pareto_ranks(y, n, m, rank));
        assert_ok(tn_pareto_front(y, n, m, on));
        peel(y, n, m, want);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(rank[i], want[i]);
            assert_int_equal(on[i], want[i] == 0);
            for (size_t j = 0; j < n; j++)
                assert_int_equal(tn_dominates(y + i * m, y + j * m, m), plain_dominates(y + i * m, y + j * m, m));
        }
    }
}

static void crowding_by_hand(void **state)
{
    (void)state;
    /* Front 0: (0,10) (1,6) (4,2) (10,0); front 1: (2,10) (10,6); one alone: (10,10); and one that failed. Widths 10
     * and 10, then 8 and 4. */
    static const double y[] = { 4, 2, 10, 0, 0, 10, 1, 6, 2, 10, 10, 6, 10, 10, INFINITY, 1 };
    const int rank[] = { 0, 0, 0, 0, 1, 1, 2, 3 };
    int got[8];
    double c[8];
    assert_ok(tn_pareto_ranks(y, 8, 2, got));
    assert_memory_equal(got, rank, sizeof rank);
    assert_ok(tn_crowding(y, 8, 2, rank, c));
    assert_true(fabs(c[0] - ((10 - 1) / 10.0 + (6 - 0) / 10.0)) < 1e-15);
    assert_true(isinf(c[1]) && isinf(c[2]) && isinf(c[4]) && isinf(c[5]));
    assert_true(fabs(c[3] - ((4 - 0) / 10.0 + (10 - 2) / 10.0)) < 1e-15);
    assert_true(c[6] == 0 && c[7] == 0);
}

static void nothing_and_one(void **state)
{
    (void)state;
    const double y[] = { NAN, 1 };
    int rank[2];
    double c[2];
    bool on[2];
    assert_ok(tn_pareto_ranks(y, 0, 3, rank));
    assert_ok(tn_pareto_ranks(y, 1, 2, rank));
    assert_int_equal(rank[0], 0);
    assert_ok(tn_pareto_front(y, 1, 2, on));
    assert_true(on[0]);
    assert_ok(tn_crowding(y, 1, 2, rank, c));
    assert_fails(tn_pareto_ranks(y, 1, 0, rank), TN_USAGE, "one objective");
}

/* 100,000 points of four objectives: a study of that size is listed with its front at once. */
static void many_points(void **state)
{
    (void)state;
    enum { N = 100000, M = 4 };
    double *y = malloc(sizeof *y * N * M);
    bool *on = malloc(N);
    tn_draws draws = tn_draws_open(2, "pareto", 0);
    for (size_t i = 0; i < N * M; i++) y[i] = tn_draws_uniform(&draws);
    assert_ok(tn_pareto_front(y, N, M, on));
    size_t count = 0;
    for (size_t i = 0; i < N; i++) count += on[i];
    assert_true(count > 150 && count < 700); /* about ln(n)^3 / 3! = 254 are expected */
    free(y);
    free(on);
}

void tn_tests_pareto(tn_test_list *l)
{
    tn_test_add(l, ranks_equal_peeling, NULL, "lab/pareto: ranks equal peeling, with ties and failures");
    tn_test_add(l, crowding_by_hand, NULL, "lab/pareto: crowding worked by hand");
    tn_test_add(l, nothing_and_one, NULL, "lab/pareto: no point, one point, no objective");
    tn_test_add(l, many_points, NULL, "lab/pareto: the front of 100,000 points");
}
