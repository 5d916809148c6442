/* Anderson acceleration by itself: exact on a linear map after as many steps as it has dimensions, and what it does when a
 * step was wrong. */
#include "ops/anderson.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 11, SAMPLES = 2 };

static tn_anderson make(int memory)
{
    void *p = aligned_alloc(64, (tn_anderson_bytes(memory, SAMPLES, WIDTH) + 63) / 64 * 64);
    assert_non_null(p);
    const tn_anderson a = tn_anderson_at(p, memory, SAMPLES, WIDTH);
    assert_ptr_equal(a.r, p);
    for (int s = 0; s < SAMPLES; s++) tn_anderson_restart(&a, s);
    return a;
}

/* f(x) = d x + 1 with four different slopes: the fourth combination of residuals is 0. */
static void linear_map(void **state)
{
    (void)state;
    static const float slope[] = { 0.97f, 0.6f, -0.5f, 1.4f }; /* one of them would diverge */
    const tn_anderson a = make(6);
    float x[SAMPLES][WIDTH] = { { 0 } }, f[WIDTH];
    for (int t = 0; t < 6; t++)
        for (int s = 0; s < SAMPLES; s++) { /* the samples take turns, and do not meet */
            float before[WIDTH];
            double moved = 0;
            for (int i = 0; i < WIDTH; i++) f[i] = slope[i % 4] * x[s][i] + (float)(1 + s), before[i] = x[s][i];
            const double said = tn_anderson_step(&a, s, 0.9f, x[s], f);
            for (int i = 0; i < WIDTH; i++) moved += pow((double)x[s][i] - (double)before[i], 2);
            assert_true(fabs(said - moved) <= 1e-12 * moved);
        }
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < WIDTH; i++)
            assert_float_equal(x[s][i], (float)(1 + s) / (1 - slope[i % 4]), (i % 4 ? 2e-3f : 0.1f) * (float)(1 + s));
    free(a.r);
}

static void fill(float *x, float value)
{
    for (int i = 0; i < WIDTH; i++) x[i] = value;
}

/* 0 -> 1 -> 1.9 looks like a fixed point at 10; where the map has no value there, it goes back to 1.9. */
static void outside_the_map(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY };
    for (int k = 0; k < 2; k++) {
        const tn_anderson a = make(5);
        float x[WIDTH], f[WIDTH];
        fill(x, 0);
        fill(f, 1);
        tn_anderson_step(&a, 1, 1, x, f);
        assert_float_equal(x[0], 1, 0);
        fill(f, 1.9f);
        tn_anderson_step(&a, 1, 1, x, f);
        assert_float_equal(x[WIDTH - 1], 10, 0.01f);
        fill(f, bad[k]);
        tn_anderson_step(&a, 1, 1, x, f);
        for (int i = 0; i < WIDTH; i++) assert_float_equal(x[i], 1.9f, 0);
        fill(f, 2.5f);
        tn_anderson_step(&a, 1, 0.5f, x, f); /* a first step again */
        for (int i = 0; i < WIDTH; i++) assert_float_equal(x[i], 2.2f, 1e-6f);
        fill(f, bad[k]);
        tn_anderson_step(&a, 1, 0.5f, x, f); /* nothing to go back to: it stays with the map */
        assert_true(!isfinite(x[3]));
        free(a.r);
    }
}

static void residual_grows(void **state)
{
    (void)state;
    const tn_anderson a = make(5);
    float x[WIDTH], f[WIDTH];
    fill(x, 0);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < WIDTH; i++) f[i] = 0.5f * x[i] + 0.1f * sinf((float)(i + t));
        tn_anderson_step(&a, 0, 0.5f, x, f);
    }
    const float before = x[2];
    for (int i = 0; i < WIDTH; i++) f[i] = x[i] + 10;
    tn_anderson_step(&a, 0, 0.5f, x, f);
    assert_float_equal(x[2], before + 5, 1e-5f);
    assert_int_equal(a.kept[0], 1);
    free(a.r);
}

static void nothing_to_weigh(void **state)
{
    (void)state;
    const tn_anderson a = make(2);
    float x[WIDTH], f[WIDTH];
    fill(x, 3);
    for (int t = 0; t < 5; t++) {
        fill(f, 3);
        assert_true(tn_anderson_step(&a, 0, 0.7f, x, f) <= 1e-12);
        for (int i = 0; i < WIDTH; i++) assert_float_equal(x[i], 3, 1e-6f);
    }
    free(a.r);
}

void tn_tests_anderson(tn_test_list *l)
{
    tn_test_add(l, linear_map, NULL, "anderson: exact on a linear map, also where the iteration diverges");
    tn_test_add(l, outside_the_map, NULL, "anderson: a step to where the map is not finite is taken back");
    tn_test_add(l, residual_grows, NULL, "anderson: a residual that grows starts it afresh");
    tn_test_add(l, nothing_to_weigh, NULL, "anderson: residuals of 0");
}
