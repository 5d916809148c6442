/* Sides across studies: three sides in four studies, worked out by hand. */
#include "lab/statistics/across.h"
#include "testlib.h"

#include <math.h>

enum { STUDIES = 4, SIDES = 3 };

/* Side 1 is what the others are compared with. Side 0: -0.1, -0.2, -0.3, -0.2; side 2: +0.1, 0, +0.1, -0.2. */
static const tn_across_value values[STUDIES][SIDES] = {
    { { 0.9, -0.1, -0.15, -0.05 }, { 1.0, NAN, NAN, NAN }, { 1.1, 0.1, 0.05, 0.15 } },
    { { 1.8, -0.2, -0.5, 0.1 }, { 2.0, NAN, NAN, NAN }, { 2.0, 0, -0.1, 0.1 } },
    { { 0.7, -0.3, -0.4, -0.2 }, { 1.0, NAN, NAN, NAN }, { 1.1, 0.1, -0.1, 0.3 } },
    { { 1.3, -0.2, -0.3, -0.1 }, { 1.5, NAN, NAN, NAN }, { 1.3, -0.2, -0.3, -0.1 } },
};

static void losses(void **state)
{
    (void)state;
    tn_arena arena = { 0 };
    tn_across_side out[SIDES];
    assert_ok(tn_across(&values[0][0], STUDIES, SIDES, 1, false, &arena, out));
    assert_true(fabs((out[0].rank) - ((1 + 1 + 1 + 1.5) / 4)) <= 1e-12);
    assert_true(fabs((out[1].rank) - ((2 + 2.5 + 2 + 3) / 4)) <= 1e-12);
    assert_true(fabs((out[2].rank) - ((3 + 2.5 + 3 + 1.5) / 4)) <= 1e-12);
    assert_int_equal(out[0].better, 3);
    assert_int_equal(out[0].worse, 0);
    assert_int_equal(out[1].better + out[1].worse, 0);
    assert_int_equal(out[2].better, 1);
    assert_int_equal(out[2].worse, 1);
    /* mean -0.2, deviation sqrt(0.02 / 3), so t = -0.2 / (0.08165 / 2) = -4.899 with 3 degrees of freedom */
    assert_true(fabs((out[0].paired.difference) - (-0.2)) <= 1e-12);
    assert_true(fabs((out[0].paired.hi) - (-0.2 + 3.182446 * sqrt(0.02 / 3) / 2)) <= 1e-5);
    assert_true(fabs((out[0].paired.p) - (0.01628)) <= 1e-4);
    assert_true(fabs((out[0].p_adjusted) - (2 * out[0].paired.p)) <= 1e-12);
    assert_true(fabs((out[2].p_adjusted) - (out[2].paired.p)) <= 1e-12);
    assert_int_equal(out[1].paired.n, 0);
    assert_true(isnan(out[1].p_adjusted));
    tn_arena_free(&arena);
}

/* The same numbers as accuracies: ranks and words turn round. */
static void accuracies(void **state)
{
    (void)state;
    tn_arena arena = { 0 };
    tn_across_side out[SIDES];
    assert_ok(tn_across(&values[0][0], STUDIES, SIDES, 1, true, &arena, out));
    assert_true(fabs((out[0].rank) - ((3 + 3 + 3 + 2.5) / 4)) <= 1e-12);
    assert_true(fabs((out[1].rank) - ((2 + 1.5 + 2 + 1) / 4)) <= 1e-12);
    assert_int_equal(out[0].better, 0);
    assert_int_equal(out[0].worse, 3);
    tn_arena_free(&arena);
}

static void one_study(void **state)
{
    (void)state;
    tn_arena arena = { 0 };
    tn_across_side out[SIDES];
    assert_ok(tn_across(&values[0][0], 1, SIDES, 1, false, &arena, out));
    assert_true(fabs((out[0].rank) - (1)) <= 0);
    assert_true(isnan(out[0].paired.lo)); /* one difference has no interval */
    assert_true(fabs((out[0].paired.p) - (1)) <= 0);
    tn_arena_free(&arena);
}

static void unknown(void **state)
{
    (void)state;
    tn_arena arena = { 0 };
    tn_across_side out[2];
    const tn_across_value v[2] = { { 1, NAN, NAN, NAN }, { NAN, NAN, NAN, NAN } };
    assert_int_equal(tn_across(v, 1, 2, 0, false, &arena, out), TN_USAGE);
    tn_arena_free(&arena);
}

void tn_tests_across(tn_test_list *l)
{
    tn_test_add(l, losses, NULL, "lab/across: ranks, wins, differences");
    tn_test_add(l, accuracies, NULL, "lab/across: where larger is better");
    tn_test_add(l, one_study, NULL, "lab/across: one study");
    tn_test_add(l, unknown, NULL, "lab/across: a result that is missing");
}
