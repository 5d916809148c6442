/* Random numbers: the published test vector of Philox 4x32-10, moments, and independence of order. */
#include "base/rng.h"
#include "testlib.h"

#include <math.h>

static void known_answer(void **state)
{
    (void)state;
    uint32_t w[4];
    /* Random123's kat_vectors: all counters and keys ff..ff. */
    tn_rng_block((tn_rng){ .seed = UINT64_MAX, .stream = UINT64_MAX }, UINT64_MAX, w);
    assert_int_equal(w[0], 0x408f276d);
    assert_int_equal(w[1], 0x41c83b0e);
    assert_int_equal(w[2], 0xa20bc7c6);
    assert_int_equal(w[3], 0x6d5451fd);
}

static void moments(void **state)
{
    (void)state;
    const tn_rng r = { 7, 9 };
    enum { N = 200000 };
    double m1 = 0, m2 = 0, u1 = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double x = tn_rng_normal(r, i);
        m1 += x / N;
        m2 += x * x / N;
        u1 += (double)tn_rng_uniform(r, i) / N;
        assert_true(tn_rng_below(r, i, 7) < 7);
    }
    assert_true(fabs(m1) < 0.01 && fabs(m2 - 1) < 0.02 && fabs(u1 - 0.5) < 0.005);
}

static void many_blocks(void **state)
{
    (void)state;
    const tn_rng r = { 0x123456789abcdefu, 0xfedcba987654321u };
    const uint64_t first = 0xfffffff0u; /* the low half of the index wraps inside */
    uint32_t many[4 * 37], one[4];
    tn_rng_blocks(r, first, 37, many);
    for (int i = 0; i < 37; i++) {
        tn_rng_block(r, first + (uint64_t)i, one);
        for (int k = 0; k < 4; k++) assert_int_equal(many[4 * i + k], one[k]);
    }
}

static void many_equal_one(void **state)
{
    (void)state;
    const tn_rng r = { 3, 5 };
    float x[11];
    for (int64_t n = 0; n <= 11; n++) {
        tn_rng_normals(r, x, n);
        for (int64_t i = 0; i < n; i++) assert_true(x[i] == tn_rng_normal(r, (uint64_t)i));
    }
}

void tn_tests_rng(tn_test_list *l)
{
    tn_test_add(l, known_answer, NULL, "rng: known answer");
    tn_test_add(l, many_equal_one, NULL, "rng: many normals at once are the same");
    tn_test_add(l, moments, NULL, "rng: moments");
    tn_test_add(l, many_blocks, NULL, "rng: many blocks are the single ones");
}
