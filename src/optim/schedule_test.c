/* Schedules: exact end points, shapes in between, and runs too short for them. */
#include "optim/schedule.h"
#include "testlib.h"

#include <math.h>

static const tn_schedule cosine = {
    .kind = TN_SCHEDULE_COSINE, .lr = 3e-4, .lr_min_frac = 0.1, .warmup = 10, .steps = 111
};
static const tn_schedule wsd = {
    .kind = TN_SCHEDULE_WSD, .lr = 3e-4, .lr_min_frac = 0.1, .warmup = 10, .steps = 100, .cooldown_frac = 0.2
};

static void warm_up(void **state)
{
    (void)state;
    tn_schedule all[] = { cosine, wsd, cosine };
    all[2].kind = TN_SCHEDULE_CONSTANT;
    for (int k = 0; k < 3; k++) {
        assert_true(tn_schedule_lr(&all[k], 0) == 3e-4 * 1 / 11); /* the first step already moves */
        assert_true(tn_schedule_lr(&all[k], 9) == 3e-4 * 10 / 11);
        assert_true(tn_schedule_lr(&all[k], 10) == 3e-4);
        all[k].warmup = 0;
        assert_true(tn_schedule_lr(&all[k], 0) == 3e-4);
    }
}

static void cosine_shape(void **state)
{
    (void)state;
    assert_true(tn_schedule_lr(&cosine, 110) == 3e-4 * 0.1); /* the last step */
    assert_true(tn_schedule_lr(&cosine, 111) == 3e-4 * 0.1);
    assert_true(tn_schedule_lr(&cosine, INT64_MAX) == 3e-4 * 0.1);
    assert_true(fabs(tn_schedule_lr(&cosine, 60) / (3e-4 * 0.55) - 1) < 1e-12); /* half way */
    assert_true(fabs(tn_schedule_lr(&cosine, 35) / (3e-4 * (0.1 + 0.45 * (1 + sqrt(0.5)))) - 1) < 1e-12);
    for (int64_t s = 10; s < 110; s++) assert_true(tn_schedule_lr(&cosine, s + 1) < tn_schedule_lr(&cosine, s));
    tn_schedule to_zero = cosine;
    to_zero.lr_min_frac = 0;
    assert_true(tn_schedule_lr(&to_zero, 110) == 0);
    assert_true(tn_schedule_lr(&to_zero, 109) > 0);
}

static void wsd_shape(void **state)
{
    (void)state;
    assert_int_equal(tn_schedule_cooldown_start(&wsd), 80);
    assert_true(tn_schedule_lr(&wsd, 79) == 3e-4);
    assert_true(fabs(tn_schedule_lr(&wsd, 80) - 3e-4 * (1 - 0.9 / 20)) < 1e-18);
    assert_true(fabs(tn_schedule_lr(&wsd, 89) - 3e-4 * 0.55) < 1e-18);
    assert_true(tn_schedule_lr(&wsd, 99) == 3e-4 * 0.1);
    assert_true(tn_schedule_lr(&wsd, 1000) == 3e-4 * 0.1);
    tn_schedule root = wsd;
    root.cooldown = TN_COOLDOWN_SQRT;
    assert_true(tn_schedule_lr(&root, 79) == 3e-4);
    assert_true(fabs(tn_schedule_lr(&root, 84) - 3e-4 * (0.1 + 0.9 * (1 - 0.5))) < 1e-18); /* a quarter of the way */
    assert_true(tn_schedule_lr(&root, 99) == 3e-4 * 0.1);
    for (int64_t s = 79; s < 99; s++) assert_true(tn_schedule_lr(&root, s + 1) < tn_schedule_lr(&root, s));
}

/* Cool-downs of nothing or of everything, runs of one step, warm-ups longer than the run. */
static void odd_lengths(void **state)
{
    (void)state;
    tn_schedule c = wsd;
    c.cooldown_frac = 0;
    assert_true(tn_schedule_lr(&c, 99) == 3e-4);
    c.cooldown_frac = 1; /* starts when the warm-up ends */
    assert_int_equal(tn_schedule_cooldown_start(&c), 10);
    assert_true(tn_schedule_lr(&c, 9) == 3e-4 * 10 / 11);
    assert_true(tn_schedule_lr(&c, 10) < 3e-4);
    assert_true(tn_schedule_lr(&c, 99) == 3e-4 * 0.1);
    c = (tn_schedule){ .lr = 1, .lr_min_frac = 0.5, .steps = 1 };
    for (int kind = 0; kind < 3; kind++) {
        c.kind = (tn_schedule_kind)kind;
        assert_true(tn_schedule_lr(&c, 0) == 1);
    }
    c = cosine;
    c.steps = 5;
    for (int64_t s = 0; s < 5; s++) assert_true(tn_schedule_lr(&c, s) == 3e-4 * (double)(s + 1) / 11);
}

void tn_tests_schedule(tn_test_list *l)
{
    tn_test_add(l, warm_up, NULL, "schedule: warm-up");
    tn_test_add(l, cosine_shape, NULL, "schedule: cosine");
    tn_test_add(l, wsd_shape, NULL, "schedule: wsd");
    tn_test_add(l, odd_lengths, NULL, "schedule: odd lengths");
}
