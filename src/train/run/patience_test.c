/* Early stopping in hindsight: the patience that is suggested keeps the best step, and a smaller one would not; what it saves. */
#include "train/run/patience.h"

#include "base/rng.h"
#include "testlib.h"
#include "train/run/overfit_watch.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <string.h>

enum { EVERY = 50 };

static tn_patience_record patience_of(const double *x, int n)
{
    tn_patience_record p = { 0 };
    double best = INFINITY;
    for (int i = 0; i < n; i++) {
        tn_patience_add(&p, EVERY * (i + 1), x[i] < best);
        best = fmin(best, x[i]);
    }
    return p;
}

#define PATIENCE(...)                                                                                                  \
    patience_of((const double[]){ __VA_ARGS__ }, (int)(sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double)))

static void a_rise(void **state)
{
    (void)state;
    char text[TN_PATIENCE_TEXT];
    const tn_patience_record p = PATIENCE(3, 2, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7);
    assert_true(p.best_step == 150 && p.stale == 7 && p.stop == 300);
    assert_int_equal(tn_patience_least(&p), 3);
    assert_string_equal(tn_patience_text(&p, 500, EVERY, 2e6, true, text),
                        "train.stop_patience=3 would have stopped at step 300 and saved 800 k of 2.0 M tokens (40 %)");
    assert_string_equal(tn_patience_text(&p, 600, EVERY, 2.4e6, false, text),
                        "train.stop_patience=3 would stop at step 300 and save 1.2 M of 2.4 M tokens (50 %)");
    assert_string_equal(tn_patience_text(&p, 500, EVERY, NAN, true, text),
                        "train.stop_patience=3 would have stopped at step 300 and saved 200 of 500 steps (40 %)");
}

/* Four in a row that were not better and came back: three or four would have missed the best step. */
static void a_pause(void **state)
{
    (void)state;
    char text[TN_PATIENCE_TEXT];
    const tn_patience_record p = PATIENCE(3, 2, 2.1, 2.1, 2.1, 2.1, 1, 1.1, 1.2, 1.3, 1.4);
    assert_true(p.best_step == 350 && p.longest == 4 && p.stale == 4 && p.stop == 0);
    assert_int_equal(tn_patience_least(&p), 5);
    assert_string_equal(tn_patience_text(&p, 1000, EVERY, 1e6, false, text),
                        "train.stop_patience=5 would stop at step 600 and save 400 k of 1.0 M tokens (40 %)");
    assert_string_equal(tn_patience_text(&p, 550, EVERY, 1e6, true, text), ""); /* it ended before that */
    assert_string_equal(tn_patience_text(&p, 550, 0, 1e6, true, text), "");
    /* A resumed run knows the same of its checkpoint, but for where it would have stopped. */
    const tn_patience_record resumed = { .best_step = 350, .stale = 9, .longest = 4 };
    assert_int_equal(tn_patience_stop(&resumed, 1000, EVERY), 600);
}

static void nothing(void **state)
{
    (void)state;
    char text[TN_PATIENCE_TEXT];
    const tn_patience_record better = PATIENCE(3, 2, 1), none = { 0 }, at_the_end = PATIENCE(2, 1, 2, 2, 2);
    assert_string_equal(tn_patience_text(&better, 150, EVERY, 1e6, true, text), "");
    assert_string_equal(tn_patience_text(&none, 1000, EVERY, 1e6, false, text), "");
    assert_int_equal(at_the_end.stop, 250); /* the last evaluation: nothing is left to save */
    assert_string_equal(tn_patience_text(&at_the_end, 250, EVERY, 1e6, true, text), "");
}

/* Where early stopping with this patience ends: the evaluation, or n - 1. */
static int stops_at(const double *x, int n, int64_t patience)
{
    double best = INFINITY;
    int64_t stale = 0;
    for (int i = 0; i < n; i++) {
        stale = x[i] < best ? 0 : stale + 1;
        best = fmin(best, x[i]);
        if (stale >= patience) return i;
    }
    return n - 1;
}

/* 300 noisy curves: the rule itself, simulated, agrees. */
static void by_the_rule(void **state)
{
    (void)state;
    enum { N = 40 };
    double x[N];
    int smaller_loses = 0;
    for (int run = 0; run < 300; run++) {
        const tn_rng r = { 11, (uint64_t)run };
        for (int i = 0; i < N; i++)
            x[i] = 1 + 2 * exp(-i / 4.0) + 0.01 * i + 0.05 * (double)tn_rng_normal(r, (uint64_t)i);
        const tn_patience_record p = patience_of(x, N);
        const int64_t least = tn_patience_least(&p);
        const int at = stops_at(x, N, least), best = (int)(p.best_step / EVERY) - 1;
        assert_true(at >= best);
        if (p.stop) assert_int_equal(p.stop, EVERY * (at + 1));
        else assert_int_equal(at, N - 1);
        if (least == TN_OVERFIT_EVALUATIONS) continue;
        assert_true(stops_at(x, N, least - 1) < best);
        smaller_loses++;
    }
    assert_true(smaller_loses > 50);
}

/* Of a report: in tokens, in steps for tasks, and nothing where train.stop_patience is set. */
static void of_a_report(void **state)
{
    (void)state;
    tn_settings *st;
    const tn_model *m;
    char text[TN_PATIENCE_TEXT];
    const char *const set[] = { "train.eval_every=50" };
    assert_ok(tn_settings_resolve("ten", set, 1, &st, &m));
    tn_progress_report r = { .step = 300, .steps = 600, .tokens = 300000, .samples_per_s = NAN };
    r.patience = (tn_patience_record){ .best_step = 150, .stale = 3, .stop = 300 };
    assert_string_equal(tn_training_patience(&r, st, false, text),
                        "train.stop_patience=3 would stop at step 300 and save 300 k of 600 k tokens (50 %)");
    assert_string_equal(tn_training_patience(&r, st, true, text), "");
    r.samples_per_s = 5;
    assert_non_null(strstr(tn_training_patience(&r, st, false, text), "save 300 of 600 steps (50 %)"));
    assert_ok(tn_settings_set(st, "train.stop_patience", "9", "test"));
    assert_string_equal(tn_training_patience(&r, st, false, text), "");
    tn_settings_free(st);
}

void tn_tests_patience(tn_test_list *l)
{
    tn_test_add(l, a_rise, NULL, "patience: what it would have saved");
    tn_test_add(l, a_pause, NULL, "patience: the best step is kept");
    tn_test_add(l, nothing, NULL, "patience: nothing to save");
    tn_test_add(l, by_the_rule, NULL, "patience: agrees with early stopping");
    tn_test_add(l, of_a_report, NULL, "patience: of a report");
}
