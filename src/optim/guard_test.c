/* The non-finite policies, with NaN injected into real steps. */
#include "optim/guard.h"

#include "apply.h"
#include "device_memory.h"

#include <math.h>
#include <string.h>

static const tn_optim_options adamw = { .kind = TN_ADAMW };
static const tn_optim_scalars usual = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .clip = 1, .scale = 1
};

/* One step, with a NaN in one gradient when it is to be bad, and the guard's answer. */
static tn_status step(tn_apply *a, tn_guard *g, int64_t number, bool bad, tn_guard_action *action)
{
    tn_optim_scalars s = usual;
    s.opt_step = tn_guard_applied(g) + 1;
    s.lr *= tn_guard_lr_factor(g);
    tn_apply_draw(a, (int)number, 1);
    if (bad) {
        tn_memory_set(a->store, &tn_store_find(a->store, "gain")->grad[5], NAN);
        *(float *)tn_store_find(a->store, "carried")->data = NAN; /* what a bad forward pass leaves in a state */
    } else {
        *(float *)tn_store_find(a->store, "carried")->data = (float)number;
    }
    const bool ok = tn_apply_run(a, &s, 1);
    assert_true(ok == !bad);
    return tn_guard_after_step(g, ok, number, action);
}

static void open_guard(tn_apply *a, tn_guard **g, tn_guard_options o)
{
    tn_apply_open(a, &adamw, 1);
    assert_ok(tn_guard_new(a->store, &o, g));
}

static void close_guard(tn_apply *a, tn_guard *g)
{
    tn_guard_free(g);
    tn_apply_close(a);
}

static void stops(void **state)
{
    (void)state;
    tn_apply a;
    tn_guard *g;
    tn_guard_action action = TN_GUARD_SKIPPED;
    open_guard(&a, &g, (tn_guard_options){ .policy = TN_NONFINITE_STOP });
    assert_int_equal(tn_guard_bytes(g), 0);
    assert_ok(step(&a, g, 1, false, &action));
    assert_int_equal(action, TN_GUARD_CONTINUE);
    tn_apply_copy before = tn_apply_save(&a);
    assert_fails(step(&a, g, 2, true, &action), TN_DIVERGED, "step 2");
    assert_non_null(strstr(tn_error_text(), "train.lr"));
    assert_non_null(strstr(tn_error_text(), "train.nonfinite=skip"));
    assert_int_equal(action, TN_GUARD_CONTINUE); /* untouched on failure */
    assert_true(tn_apply_same(&a, before));
    close_guard(&a, g);
}

static void skips(void **state)
{
    (void)state;
    tn_apply a;
    tn_guard *g;
    tn_guard_action action;
    open_guard(&a, &g, (tn_guard_options){ .policy = TN_NONFINITE_SKIP, .applied = 10 });
    assert_int_equal(tn_guard_bytes(g), 0);
    int64_t number = 0;
    for (int round = 0; round < 3; round++) { /* two bad steps in a row are borne, again and again */
        assert_ok(step(&a, g, ++number, false, &action));
        assert_int_equal(action, TN_GUARD_CONTINUE);
        tn_apply_copy before = tn_apply_save(&a);
        for (int i = 0; i < 2; i++) {
            assert_ok(step(&a, g, ++number, true, &action));
            assert_int_equal(action, TN_GUARD_SKIPPED);
        }
        assert_true(tn_apply_same(&a, before));
    }
    assert_int_equal(tn_guard_applied(g), 13);
    assert_true(tn_guard_lr_factor(g) == 1);
    assert_fails(step(&a, g, ++number, true, &action), TN_DIVERGED, "step 10");
    assert_non_null(strstr(tn_error_text(), "3 steps in a row although train.nonfinite=skip"));
    close_guard(&a, g);
}

static void rolls_back(void **state)
{
    (void)state;
    tn_apply a;
    tn_guard *g;
    tn_guard_action action;
    open_guard(&a, &g, (tn_guard_options){ .policy = TN_NONFINITE_ROLLBACK, .every = 3 });
    size_t bytes = 6 * sizeof(float); /* the state */
    for (int i = 0; i < 2; i++) bytes += 3 * sizeof(float) * (size_t)tn_store_bucket(a.store, i)->count;
    assert_int_equal(tn_guard_bytes(g), bytes);
    for (int64_t s = 1; s <= 6; s++) assert_ok(step(&a, g, s, false, &action));
    assert_int_equal(tn_guard_snapshot_step(g), 6);
    tn_apply_copy six = tn_apply_save(&a);
    for (int64_t s = 7; s <= 8; s++) assert_ok(step(&a, g, s, false, &action));
    assert_int_equal(tn_guard_applied(g), 8);
    const uint64_t count = tn_alloc_count();
    assert_ok(step(&a, g, 9, true, &action));
    assert_int_equal(tn_alloc_count(), count);
    assert_int_equal(action, TN_GUARD_ROLLED_BACK);
    assert_true(tn_apply_same(&a, six));
    assert_true(*(const float *)tn_store_find(a.store, "carried")->data == 6);
    assert_int_equal(tn_guard_applied(g), 6);
    assert_true(tn_guard_lr_factor(g) == 0.5f);
    close_guard(&a, g);
}

/* A bad step before any snapshot was due leads to the start; three in a row end the run there. */
static void gives_up(void **state)
{
    (void)state;
    tn_apply a;
    tn_guard *g;
    tn_guard_action action;
    open_guard(&a, &g,
               (tn_guard_options){
                   .policy = TN_NONFINITE_ROLLBACK, .every = 50, .step = 40, .applied = 37, .lr_factor = 0.5f });
    tn_apply_copy start = tn_apply_save(&a);
    assert_ok(step(&a, g, 41, false, &action));
    for (int64_t s = 42; s <= 43; s++) {
        assert_ok(step(&a, g, s, true, &action));
        assert_int_equal(action, TN_GUARD_ROLLED_BACK);
    }
    assert_int_equal(tn_guard_snapshot_step(g), 40);
    assert_int_equal(tn_guard_applied(g), 37);
    assert_true(tn_guard_lr_factor(g) == 0.125f);
    assert_fails(step(&a, g, 44, true, &action), TN_DIVERGED, "step 44");
    assert_non_null(strstr(tn_error_text(), "train.nonfinite=rollback"));
    assert_true(tn_apply_same(&a, start));
    assert_true(*(const float *)tn_store_find(a.store, "carried")->data == 0); /* what is saved now is whole */
    close_guard(&a, g);
}

static void out_of_memory(void **state)
{
    (void)state;
    tn_apply a;
    tn_guard *g = NULL;
    tn_apply_open(&a, &adamw, 1);
    const tn_guard_options o = { .policy = TN_NONFINITE_ROLLBACK };
    for (uint64_t n = 1; !g; n++) {
        tn_alloc_fail_at(n);
        const tn_status s = tn_guard_new(a.store, &o, &g);
        tn_alloc_fail_at(0);
        assert_int_equal(s, g ? TN_OK : TN_MEMORY);
    }
    close_guard(&a, g);
}

void tn_tests_guard(tn_test_list *l)
{
    tn_test_add(l, stops, NULL, "guard: stop");
    tn_test_add(l, skips, NULL, "guard: skip, at most two in a row");
    tn_test_add(l, rolls_back, NULL, "guard: rollback to the last snapshot at half the rate");
    tn_test_add(l, gives_up, NULL, "guard: rollback to the start, then the end");
    tn_test_add(l, out_of_memory, NULL, "guard: out of memory anywhere");
}
