/* Held-out metrics that a row must leave as they are: how far apart two trainings may be. Ops of a row alone: which of them count. */
#include "report/ablate/ablate.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

static const tn_metric_row rows[] = {
    { "loss", "", TN_LOWER, .how = TN_MEAN_BY_COUNT }, { "accuracy", "", TN_HIGHER, TN_ADDED, .by_group = true },
    { "psnr", "dB", TN_HIGHER, .how = TN_FROM_SUMS },  { "bits", "b/B", TN_LOWER, .how = TN_MEAN_BY_COUNT },
    { "cosine", "", TN_LOWER, .how = TN_OF_WHOLE },
};
static const tn_metric_list metrics = { 5, { &rows[0], &rows[1], &rows[2], &rows[3], &rows[4] } };

static bool moves(const char *name, double plain, double fast, int64_t count, bool strict)
{
    tn_ablate_scores s = { .metrics = metrics, .count = count, .strict = strict };
    assert_true(tn_scores_put(&s.plain, name, plain) && tn_scores_put(&s.fast, name, fast));
    return tn_ablate_moved(&s, 0);
}

/* What rounding does in this training counts twice. */
static void noise_is_allowed(void **state)
{
    tn_scores noise = { .n = 0 };
    tn_ablate_scores s = { .metrics = metrics, .count = 1000, .strict = true, .noise = &noise };
    (void)state;
    assert_true(tn_scores_put(&s.plain, "accuracy", 0.8) && tn_scores_put(&s.fast, "accuracy", 0.82));
    assert_true(tn_ablate_moved(&s, 0));
    assert_true(tn_scores_put(&noise, "accuracy", 0.011));
    assert_false(tn_ablate_moved(&s, 0));
    assert_true(fabs(tn_ablate_allowed(&s, 0) - 0.022) < 1e-12);
    assert_true(tn_scores_put(&noise, "accuracy", 0.001));
    assert_true(tn_ablate_moved(&s, 0) && tn_ablate_allowed(&s, 0) == 0.005);
    assert_true(tn_scores_put(&noise, "accuracy", NAN));
    assert_true(tn_ablate_moved(&s, 0));
}

static void moved_metrics(void **state)
{
    (void)state;
    assert_true(moves("accuracy", 0.80, 0.806, 1000, true) && moves("accuracy", 0.80, 0.794, 1000, true));
    assert_false(moves("accuracy", 0.80, 0.804, 1000, true) || moves("accuracy", 0.80, 0.795, 1000, true));
    assert_true(moves("accuracy", 0.80, 0.82, 100, true));
    assert_false(moves("accuracy", 0.80, 0.81, 100, true)); /* one of them */
    assert_false(moves("accuracy_hard", 0.80, 0.9, 100, true));
    assert_true(moves("loss", 2.0, 2.011, 1000, true) && moves("loss", 2.0, NAN, 1000, true));
    assert_false(moves("loss", 2.0, 2.009, 10, true) || moves("loss", NAN, NAN, 10, true));
    assert_true(moves("psnr", 20, 20.6, 1000, true) && moves("bits", 4, 3.97, 1000, true));
    assert_false(moves("psnr", 20, 20.4, 1000, true) || moves("bits", 4, 4.01, 1000, true));
    assert_true(moves("cosine", 0.01, 0.016, 1000, true));
    assert_false(moves("cosine", 0.01, 0.014, 1000, true));
    assert_false(moves("accuracy", 0.80, 0.2, 1000, false)); /* a row that changes the training */
}

/* What both have alike is not counted, but for the component itself. */
static void ops_apart(void **state)
{
    static const tn_node_time plain[] = {
        { "linear", "layer0", .calls = 3, .ms = 100 },
        { "scan", "layer0", .calls = 1, .ms = 8 },
        { "unary", "layer0", .calls = 5, .ms = 2 },
        { "unary", "head", .calls = 1, .ms = 40 },
        { "readout", "layer0", .backward = true, .calls = 1, .ms = 1 },
    };
    static const tn_node_time fast[] = {
        { "linear", "layer0", .calls = 3, .ms = 90 },
        { "scan_gated", "layer0", .calls = 1, .ms = 3 },
        { "unary", "layer0", .calls = 1, .ms = 0.5 },
        { "unary", "head", .calls = 1, .ms = 40 },
        { "readout", "layer0", .backward = true, .calls = 1, .ms = 1 },
    };
    double ms[2];
    (void)state;
    tn_ops_apart(plain, 5, fast, 5, "recurrence", ms);
    assert_true(fabs(ms[0] - 11) < 1e-9 && fabs(ms[1] - 4.5) < 1e-9);
    tn_ops_apart(plain, 5, plain, 5, "recurrence", ms);
    assert_true(ms[0] == 9 && ms[1] == 9);
}

void tn_tests_ablate_heldout(tn_test_list *l)
{
    tn_test_add(l, moved_metrics, NULL, "ablate: held-out metrics that moved");
    tn_test_add(l, noise_is_allowed, NULL, "ablate: what rounding does to held-out metrics");
    tn_test_add(l, ops_apart, NULL, "ablate: ops that two sides do not have in common");
}
