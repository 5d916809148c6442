/* When results count as having become worse: smooth rises, noise, single outliers, a later best. */
#include "train/run/overfit_watch.h"
#include "train/run/training.h"

#include "base/rng.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

/* The evaluation (from 0) that shows it, or -1. */
static int shown_at(const double *x, int n, bool by_accuracy, tn_overfit_watch *w)
{
    int at = -1;
    double best = NAN;
    bool said = false;
    tn_overfit_watch_begin(w, by_accuracy, NAN, 0);
    for (int i = 0; i < n; i++) {
        const bool is_best = isnan(best) || (by_accuracy ? x[i] > best : x[i] < best);
        if (is_best) best = x[i];
        if (is_best) said = false;
        if (!tn_overfit_watch_add(w, 50 * (i + 1), x[i], is_best)) continue;
        assert_false(said); /* once for a best one */
        said = true;
        if (at < 0) at = i;
    }
    return at;
}

#define SHOWN(w, by_accuracy, ...)                                                                                     \
    shown_at((const double[]){ __VA_ARGS__ }, (int)(sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double)),         \
             by_accuracy, w)

static void a_rise(void **state)
{
    (void)state;
    tn_overfit_watch w;
    assert_int_equal(SHOWN(&w, false, 2.5, 1.5, 0.9, 0.736, 0.745, 0.76, 0.773, 0.79, 0.81), 6);
    assert_true(w.worse);
    assert_int_equal(w.best_step, 200);
    assert_true(w.best == 0.736 && w.now == 0.81);
    assert_int_equal(SHOWN(&w, true, 0.5, 0.7, 0.9, 0.88, 0.86, 0.85), 5);
    assert_true(w.best == 0.9 && w.now == 0.85 && w.best_step == 150);
    assert_int_equal(SHOWN(&w, false, 1, 2, 3, (double)INFINITY),
                     3); /* from the first on; infinity is worse than anything */
}

static void in_words(void **state)
{
    (void)state;
    static const tn_metric_row rows[] = { { "loss", "nats", TN_LOWER, .how = TN_MEAN_BY_COUNT },
                                          { "hits", "", TN_HIGHER, .how = TN_ADDED } };
    char text[TN_RISE_TEXT];
    tn_progress_report r = { .metrics = { 2, { &rows[0], &rows[1] } }, .select = &rows[0], .best_step = 200 };
    tn_scores_put(&r.best, "loss", 0.736);
    tn_scores_put(&r.best, "hits", 0.9);
    tn_scores_put(&r.last, "loss", 0.81);
    tn_scores_put(&r.last, "hits", 0.85);
    assert_string_equal(tn_training_rise(&r, 1, text), "held-out loss has risen since step 200 (0.7360 -> 0.8100)");
    assert_string_equal(tn_training_rise(&r, 2, text), "held-out loss has risen since step 200 (1.4720 -> 1.6200)");
    r.select = &rows[1];
    assert_string_equal(tn_training_rise(&r, 2, text), "held-out hits has fallen since step 200 (0.9000 -> 0.8500)");
}

static void no_rise(void **state)
{
    (void)state;
    tn_overfit_watch w;
    assert_int_equal(SHOWN(&w, false, 3, 2.5, 2.2, 2.1, 2.05), -1);
    assert_int_equal(SHOWN(&w, false, 3, 2, 2.1, 2.2), -1);                     /* two are not several */
    assert_int_equal(SHOWN(&w, false, 3, 2, 2.005, 2.008, 2.01, 2.015), -1);    /* within 1 % */
    assert_int_equal(SHOWN(&w, false, 3, 2, 2.3, 2.01, 2.3, 2.05, 2.2), -1);    /* jumps by more than it rises */
    assert_int_equal(SHOWN(&w, false, 3, 2, NAN, NAN, NAN, NAN, 2.1, 2.2), -1); /* not evaluations */
    assert_int_equal(SHOWN(&w, false, NAN, NAN, 2), -1);
    double x[60]; /* an early jump is not held against a late rise */
    for (int i = 0; i < 60; i++) x[i] = i == 3 ? 4 : i < 50 ? 3 - 0.04 * i : 1 + 0.06 * (i - 49);
    assert_int_equal(shown_at(x, 60, false, &w), 56);
}

/* What went up and came down again was noise: later rises have to be larger. */
static void a_later_best(void **state)
{
    (void)state;
    tn_overfit_watch w;
    assert_int_equal(SHOWN(&w, false, 2, 2.1, 2.2, 2.3, 1.9), 3);
    assert_false(w.worse);
    tn_overfit_watch_begin(&w, false, 1.0, 300); /* a run that goes on knows its best one alone */
    assert_false(tn_overfit_watch_add(&w, 350, 1.1, false));
    assert_false(tn_overfit_watch_add(&w, 400, 1.2, false));
    assert_true(tn_overfit_watch_add(&w, 450, 1.3, false));
    assert_int_equal(w.best_step, 300);
    assert_false(
        tn_overfit_watch_add(&w, 500, 1.005, false)); /* back beside the best one: not worse now, and not said twice */
    assert_false(w.worse);
    for (int i = 0; i < 4; i++) assert_false(tn_overfit_watch_add(&w, 550 + 50 * i, 1.9, false));
    assert_true(w.worse);
}

/* 200 runs of 50 evaluations that fall and then stay, with noise of 1 %: few may be called worse. Of runs that rise by 2 % an
 * evaluation, in the same noise, nearly all must be. */
static void in_noise(void **state)
{
    (void)state;
    int wrong = 0, found = 0;
    double x[50];
    tn_overfit_watch w;
    for (int run = 0; run < 200; run++) {
        const tn_rng r = { 7, (uint64_t)run };
        for (int i = 0; i < 50; i++) x[i] = 1 + 2 * exp(-i / 5.0) + 0.01 * (double)tn_rng_normal(r, (uint64_t)i);
        wrong += shown_at(x, 50, false, &w) >= 0;
        for (int i = 0; i < 20; i++)
            x[i] = 0.7 + 2 * exp(-i / 3.0) + 0.014 * fmax(0, i - 6) + 0.007 * (double)tn_rng_normal(r, (uint64_t)i);
        found += shown_at(x, 20, false, &w) >= 0;
    }
    assert_true(wrong <= 20);
    assert_true(found >= 180);
}

void tn_tests_overfit_watch(tn_test_list *l)
{
    tn_test_add(l, a_rise, NULL, "overfit watch: a rise shows after three evaluations");
    tn_test_add(l, in_words, NULL, "overfit watch: in words");
    tn_test_add(l, no_rise, NULL, "overfit watch: falls, single outliers, noise");
    tn_test_add(l, a_later_best, NULL, "overfit watch: a later best takes it back");
    tn_test_add(l, in_noise, NULL, "overfit watch: in noise");
}
