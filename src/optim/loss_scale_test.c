/* Loss scaling: growth, halving, limits, and what is told about an overflow. */
#include "optim/loss_scale.h"
#include "testlib.h"

#include <math.h>

static void grows_and_halves(void **state)
{
    (void)state;
    tn_loss_scale s = tn_loss_scale_start(&(tn_loss_scale_options){ .first = 1024, .grow_after = 3 });
    for (int i = 0; i < 2; i++) assert_true(tn_loss_scale_update(&s, true));
    assert_true(s.scale == 1024);
    assert_true(tn_loss_scale_update(&s, true));
    assert_true(s.scale == 2048);
    for (int i = 0; i < 2; i++) tn_loss_scale_update(&s, true);
    assert_true(tn_loss_scale_update(&s, false)); /* starts the count again */
    assert_true(s.scale == 1024);
    for (int i = 0; i < 2; i++) tn_loss_scale_update(&s, true);
    assert_true(s.scale == 1024);
    tn_loss_scale_update(&s, true);
    assert_true(s.scale == 2048);
}

static void limits(void **state)
{
    (void)state;
    tn_loss_scale s =
        tn_loss_scale_start(&(tn_loss_scale_options){ .first = 4, .lowest = 2, .highest = 8, .grow_after = 1 });
    for (int i = 0; i < 5; i++) tn_loss_scale_update(&s, true);
    assert_true(s.scale == 8);
    assert_true(tn_loss_scale_update(&s, false));
    assert_true(tn_loss_scale_update(&s, false));
    assert_true(s.scale == 2);
    assert_false(tn_loss_scale_update(&s, false)); /* no smaller scale can help */
    assert_true(s.scale == 2);
    assert_true(tn_loss_scale_update(&s, true));
    assert_true(s.scale == 4);
}

static void powers_of_two(void **state)
{
    (void)state;
    tn_loss_scale s = tn_loss_scale_start(&(tn_loss_scale_options){ 0 });
    assert_true(s.scale == 65536 && s.lowest == 1 && s.highest == 16777216 && s.grow_after == 2000);
    s = tn_loss_scale_start(&(tn_loss_scale_options){ .first = 1000, .lowest = 3 });
    assert_true(s.scale == 512 && s.lowest == 2);
    s = tn_loss_scale_start(&(tn_loss_scale_options){ .first = INFINITY, .lowest = NAN, .highest = 16 });
    assert_true(s.scale == 16 && s.lowest == 1);
    s = tn_loss_scale_start(&(tn_loss_scale_options){ .first = 0x1p40f });
    assert_true(s.scale == 0x1p40f && s.highest == 0x1p40f);
}

void tn_tests_loss_scale(tn_test_list *l)
{
    tn_test_add(l, grows_and_halves, NULL, "loss scale: grows after good steps, halves on overflow");
    tn_test_add(l, limits, NULL, "loss scale: limits");
    tn_test_add(l, powers_of_two, NULL, "loss scale: powers of two");
}
