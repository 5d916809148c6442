/* Pruners: decisions against tables worked by hand, what places are looked at, several objectives as one number, and
 * a study of 243 curves in which halving keeps the best. */
#include "lab/search/pruner.h"

#include "lab/search/draws.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

typedef struct decision {
    const char *pruner;
    tn_pruner_options o;
    double value;
    double others[8];
    size_t n, ended;
    bool prune;
} decision;

static const decision table[] = {
    { "none", { 0 }, 99, { 1, 2, 3 }, 3, 50, false },
    /* median of 1..5 is 3; of 1..4 it is 2.5 */
    { "median", { 0 }, 3, { 5, 1, 4, 2, 3 }, 5, 5, false },
    { "median", { 0 }, 3.1, { 5, 1, 4, 2, 3 }, 5, 5, true },
    { "median", { 0 }, 2.5, { 4, 1, 3, 2 }, 4, 5, false },
    { "median", { 0 }, 2.6, { 4, 1, 3, 2 }, 4, 5, true },
    { "median", { 0 }, 9, { 1, 2, 3, 4 }, 4, 4, false }, /* four have ended, five are asked for */
    { "median", { .warmup_trials = 2 }, 9, { 1 }, 1, 2, true },
    { "median", { .warmup_trials = 2 }, 9, { 0 }, 0, 7, false }, /* none came so far */
    { "median", { 0 }, 7, { 7, 7, 7, 7, 1 }, 5, 5, false },
    { "median", { 0 }, 7.5, { 7, 7, 8, 8 }, 4, 5, false },
    { "median", { 0 }, NAN, { 1, 2, 3, 4, 5 }, 5, 5, true },
    { "median", { 0 }, NAN, { NAN, NAN, INFINITY, 4, 5 }, 5, 5, false }, /* as bad as the median */
    { "median", { 0 }, 6, { NAN, NAN, INFINITY, 4, 5 }, 5, 5, false },
    /* eta 3: of n + 1 trials (n + 1) / 3 go on, at least the best */
    { "asha", { 0 }, 9, { 0 }, 0, 0, false },
    { "asha", { 0 }, 9, { 8 }, 1, 1, true },
    { "asha", { 0 }, 7, { 8 }, 1, 1, false },
    { "asha", { 0 }, 2, { 1, 3, 4, 5 }, 4, 4, true },     /* 5 trials, one place */
    { "asha", { 0 }, 2, { 1, 3, 4, 5, 6 }, 5, 5, false }, /* 6 trials, two places */
    { "asha", { 0 }, 3, { 1, 2, 4, 5, 6 }, 5, 5, true },
    { "asha", { .eta = 2 }, 3, { 1, 2, 4, 5, 6 }, 5, 5, false },
    { "asha", { .eta = 4 }, 2, { 1, 3, 4, 5, 6 }, 5, 5, true },
    { "asha", { 0 }, 2, { 2, 2, 2, 2 }, 4, 4, false }, /* none is better */
    { "asha", { 0 }, NAN, { 1, NAN, 3 }, 3, 3, true },
    { "asha", { 0 }, 1, { NAN, NAN, NAN }, 3, 3, false },
};

static void decides(void **state)
{
    const decision *d = *state;
    const tn_pruner *p = tn_pruner_find(d->pruner);
    assert_non_null(p);
    assert_int_equal(p->prune(&d->o, 1, d->value, d->others, d->n, d->ended), d->prune);
}

static void places(void **state)
{
    (void)state;
    const tn_pruner *none = tn_pruner_find("none"), *median = tn_pruner_find("median"), *asha = tn_pruner_find("asha");
    const tn_pruner_options plain = { 0 }, late = { .min_rung = 2, .eta = 4 };
    for (int64_t rung = 1; rung <= 1000; rung++) {
        assert_false(none->is_rung(&plain, rung));
        assert_true(median->is_rung(&plain, rung));
        assert_int_equal(median->is_rung(&late, rung), rung >= 2);
        assert_int_equal(asha->is_rung(&plain, rung),
                         rung == 1 || rung == 3 || rung == 9 || rung == 27 || rung == 81 || rung == 243 || rung == 729);
        assert_int_equal(asha->is_rung(&late, rung),
                         rung == 2 || rung == 8 || rung == 32 || rung == 128 || rung == 512);
    }
    assert_false(asha->is_rung(&plain, INT64_MAX));
    assert_ok(tn_pruner_check(&late));
    assert_fails(tn_pruner_check(&(tn_pruner_options){ .eta = 1 }), TN_USAGE, "eta");
    assert_fails(tn_pruner_check(&(tn_pruner_options){ .lag = -1 }), TN_USAGE, "lag");
    assert_null(tn_pruner_find("hyperband"));
    assert_string_equal(tn_pruner_name(2), "asha");
    assert_null(tn_pruner_name(3));
}

static void several_objectives(void **state)
{
    (void)state;
    /* error and size: (0.1,9) (0.5,1) (0.3,5) are a front, (0.6,6) is beaten by two of them, (0.7,7) by that one too */
    const double others[] = { 0.1, 9, 0.5, 1, 0.6, 6, 0.7, 7 }, y[] = { 0.3, 5 }, failed[] = { INFINITY, 5 };
    double value, v[4];
    assert_ok(tn_pruner_values(y, others, 4, 2, &value, v));
    assert_true(v[0] == 0 && v[1] == 0);              /* the ends of the front */
    assert_true(fabs(value - 1 / (2 + 2.0)) < 1e-15); /* its middle: crowding 1 + 1 */
    assert_true(v[2] == 1 + 0.5 && v[3] == 2 + 0.5);  /* alone in their ranks: no width, so crowding 0 */
    assert_ok(tn_pruner_values(failed, others, 4, 2, &value, v));
    assert_true(value > v[0] && value > v[1] && value > v[2] && value > v[3]);
    assert_ok(tn_pruner_values(y, NULL, 0, 2, &value, NULL));
    assert_ok(tn_pruner_values(y, others, 4, 1, &value, v));
    assert_true(value == 0.3 && v[0] == 0.1 && v[3] == 1);
}

/* 243 curves (243 evaluations each) that settle at their own level: halving must spend a fifth of the evaluations at
 * most and still end with a trial among the best three. */
static void halving_keeps_the_best(void **state)
{
    (void)state;
    enum { TRIALS = 243, LENGTH = 243 };
    const tn_pruner *p = tn_pruner_find("asha");
    const tn_pruner_options o = { 0 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        tn_draws draws = tn_draws_open(seed, "curves", 0);
        static double at[LENGTH + 1][TRIALS];
        size_t reached[LENGTH + 1] = { 0 }, spent = 0, better = 0;
        double level[TRIALS], best = INFINITY;
        for (size_t t = 0; t < TRIALS; t++) {
            level[t] = tn_draws_uniform(&draws);
            bool stop = false;
            for (int64_t e = 1; e <= LENGTH && !stop; e++, spent++) {
                if (!p->is_rung(&o, e)) continue;
                const double v = level[t] + (1 + 0.2 * tn_draws_uniform(&draws)) / (double)e;
                stop = p->prune(&o, e, v, at[e], reached[e], t);
                at[e][reached[e]++] = v;
            }
            if (!stop) best = fmin(best, level[t]);
        }
        for (size_t t = 0; t < TRIALS; t++) better += level[t] < best;
        assert_true(spent < TRIALS * LENGTH / 5);
        assert_true(better < 3);
    }
}

void tn_tests_pruner(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        tn_test_add(l, decides, &table[i], "lab/pruner: decision %zu, %s", i, table[i].pruner);
    tn_test_add(l, places, NULL, "lab/pruner: where it looks, names and options");
    tn_test_add(l, several_objectives, NULL, "lab/pruner: several objectives as one number");
    tn_test_add(l, halving_keeps_the_best, NULL, "lab/pruner: halving keeps the best of 243 curves");
}
