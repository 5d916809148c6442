/* Intervals of paired ratios: their ranks by the table of the binomial distribution, and how often they miss. */
#include "report/probe/ratios.h"
#include "base/rng.h"
#include "testlib.h"

#include <math.h>

/* Ranks of the 95 % interval of a median, as tables have them. */
static void ranks(void **state)
{
    static const int table[][2] = {
        { 6, 1 }, { 8, 1 }, { 9, 2 }, { 11, 2 }, { 12, 3 }, { 17, 5 }, { 20, 6 }, { 30, 10 }
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double x[TN_RATIOS_MOST];
        const int n = table[i][0];
        for (int k = 0; k < n; k++) x[k] = n - k; /* falling: the order does not matter */
        const tn_ratio r = tn_ratio_of(x, n, TN_RATIOS_TAIL);
        assert_int_equal(r.n, n);
        assert_true(r.low == table[i][1] && r.high == n + 1 - table[i][1]);
        assert_true(r.median == (n + 1) / 2.0);
    }
    static const int strict[][2] = { { 8, 1 }, { 11, 1 }, { 12, 2 }, { 18, 4 } };
    for (size_t i = 0; i < sizeof strict / sizeof *strict; i++) {
        double x[TN_RATIOS_MOST];
        for (int k = 0; k < strict[i][0]; k++) x[k] = k + 1;
        assert_true(tn_ratio_of(x, strict[i][0], TN_RATIOS_STRICT_TAIL).low == strict[i][1]);
    }
}

static void few(void **state)
{
    (void)state;
    tn_ratio r = tn_ratio_of((const double[]){ 3, 1, 2 }, 3, TN_RATIOS_TAIL);
    assert_true(r.low == 1 && r.high == 3 && r.median == 2);
    r = tn_ratio_of((const double[]){ 4 }, 1, TN_RATIOS_TAIL);
    assert_true(r.low == 4 && r.high == 4 && r.median == 4);
    r = tn_ratio_of(NULL, 0, TN_RATIOS_TAIL);
    assert_true(r.n == 0 && isnan(r.median));
}

/* Of 2,000 samples with wild outliers about one in twenty, or fewer, leave out the true median. */
static void covers(void **state)
{
    const tn_rng rng = { 3, 1 };
    int missed = 0;
    uint64_t at = 0;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        double x[12];
        for (int k = 0; k < 12; k++) {
            const double u = tn_rng_uniform(rng, at++);
            x[k] = 1.1 * exp((u - 0.5) * (u > 0.95 || u < 0.05 ? 10 : 0.1));
        }
        const tn_ratio r = tn_ratio_of(x, 12, TN_RATIOS_TAIL);
        missed += r.low > 1.1 || r.high < 1.1;
    }
    assert_in_range(missed, 20, 100);
}

void tn_tests_ratios(tn_test_list *l)
{
    tn_test_add(l, ranks, NULL, "ratios: ranks of the interval");
    tn_test_add(l, few, NULL, "ratios: fewer than an interval needs");
    tn_test_add(l, covers, NULL, "ratios: the interval holds the median");
}
