/* Verdicts on made-up ratios: noise is no gain, one busy round is none, and a real one is found. */
#include "report/ablate/paired.h"
#include "base/rng.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

enum { SEEDS = 400, PAIRS = 16 };

/* Ratios around `truth`; one pair in ten is disturbed by others, and a round as a whole is off by what `round` says. */
static tn_paired made(uint64_t seed, double truth, double noise, double first, double second)
{
    const tn_rng rng = { .seed = seed, .stream = 3 };
    const double off[] = { first, second };
    tn_paired p = { .n = { PAIRS, PAIRS } };
    uint64_t at = 0;
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < PAIRS; i++, at += 2) {
            const double u = (double)tn_rng_uniform(rng, at);
            const double load = u > 0.95 ? 2 : u < 0.05 ? 0.5 : 1;
            p.ratio[r][i] = truth * off[r] * load * exp(noise * (double)tn_rng_normal((tn_rng){ seed, 4 }, at));
        }
    return p;
}

static int count(tn_gain of, double truth, double noise, double first, double second)
{
    int n = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const tn_paired p = made(seed, truth, noise, first, second);
        n += tn_paired_gain(&p) == of;
    }
    return n;
}

static void noise_is_none(void **state)
{
    static const double levels[] = { 0.02, 0.1, 0.3 };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_in_range(count(TN_GAIN_SHOWN, 1, levels[i], 1, 1), 0, 2);
        assert_in_range(count(TN_GAIN_NEGATIVE, 1, levels[i], 1, 1), 0, 2);
    }
}

/* A machine that is busy for one round, whichever, makes neither; rounds of opposite signs do not either. */
static void one_round_is_none(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        assert_in_range(count(TN_GAIN_SHOWN, 1, 0.03, k ? 1.3 : 1, k ? 1 : 1.3), 0, SEEDS / 20);
        assert_in_range(count(TN_GAIN_NEGATIVE, 1, 0.03, k ? 0.7 : 1, k ? 1 : 0.7), 0, SEEDS / 20);
    }
    assert_int_equal(count(TN_GAIN_NONE, 1, 0.03, 1.3, 0.7), SEEDS);
}

static void gains_and_losses(void **state)
{
    (void)state;
    assert_true(count(TN_GAIN_SHOWN, 1.10, 0.03, 1, 1) >= SEEDS * 95 / 100);
    assert_true(count(TN_GAIN_NEGATIVE, 1 / 1.10, 0.03, 1, 1) >= SEEDS * 95 / 100);
    assert_true(count(TN_GAIN_SHOWN, 2, 0.1, 1, 1) >= SEEDS * 99 / 100);
    assert_int_equal(count(TN_GAIN_NEGATIVE, 1.10, 0.05, 1, 1), 0);
    assert_int_equal(count(TN_GAIN_SHOWN, 1 / 1.10, 0.05, 1, 1), 0);
}

/* However surely it is there, half a percent is no difference. */
static void too_small(void **state)
{
    (void)state;
    assert_int_equal(count(TN_GAIN_NONE, 1.005, 0.0005, 1, 1), SEEDS);
}

static void too_few(void **state)
{
    (void)state;
    tn_paired p = made(1, 2, 0.01, 1, 1);
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_SHOWN);
    p.n[1] = TN_RATIOS_LEAST - 1;
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_SHORT);
    p.n[0] = p.n[1] = 0;
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_SHORT);
    assert_int_equal(tn_paired_all(&p).n, 0);
    assert_int_equal(tn_paired_rounds(&p), 0);
    p.n[0] = p.n[1] = p.n[2] = TN_ABLATE_PAIRS; /* as many as there may be */
    for (int i = 0; i < TN_ABLATE_PAIRS; i++) p.ratio[0][i] = p.ratio[1][i] = p.ratio[2][i] = 3;
    assert_int_equal(tn_paired_all(&p).n, TN_ABLATE_ROUNDS * TN_ABLATE_PAIRS);
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_SHOWN);
}

/* The third round decides where one of two shows something; a round that says the opposite leaves nothing. */
static void third_round(void **state)
{
    (void)state;
    tn_paired p = made(1, 1.2, 0.02, 1, 1 / 1.2);
    assert_true(tn_paired_undecided(&p));
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_NONE);
    assert_int_equal(tn_paired_rounds(&p), 2);
    p.n[2] = PAIRS;
    assert_int_equal(tn_paired_rounds(&p), 3);
    memcpy(p.ratio[2], p.ratio[0], sizeof p.ratio[0]);
    assert_false(tn_paired_undecided(&p));
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_SHOWN);
    for (int i = 0; i < PAIRS; i++) p.ratio[1][i] /= 1.2;
    assert_int_equal(tn_paired_gain(&p), TN_GAIN_NONE);
    p = made(1, 1.2, 0.02, 1, 1);
    assert_false(tn_paired_undecided(&p));
    p = made(2, 1, 0.02, 1, 1);
    assert_false(tn_paired_undecided(&p));
}

void tn_tests_ablate_paired(tn_test_list *l)
{
    tn_test_add(l, noise_is_none, NULL, "ablate: noise is no gain");
    tn_test_add(l, one_round_is_none, NULL, "ablate: one round is no gain");
    tn_test_add(l, gains_and_losses, NULL, "ablate: gains and losses are found");
    tn_test_add(l, too_small, NULL, "ablate: half a percent is no difference");
    tn_test_add(l, third_round, NULL, "ablate: a third round decides");
    tn_test_add(l, too_few, NULL, "ablate: a round of too few pairs");
}
