/* Parity: one number of one tensor is found and named, whatever else agrees; a switch that computes something else fails by the parameter. */
#include "report/ablate/side.h"
#include "mlp.h"

#include <math.h>
#include <stdio.h>

static void numbers(void **state)
{
    float a[] = { 1, -4, 0.5f }, b[] = { 1, -4, 0.5f };
    (void)state;
    tn_parity p = tn_parity_none();
    tn_parity_numbers(&p, "", "w", a, b, 3, 0);
    assert_true(p.identical && p.error == 0 && p.compared == 3 && !tn_parity_fails(&p, 0));
    b[2] = 0.502f; /* 0.002 of 4 */
    tn_parity_numbers(&p, "", "w", a, b, 3, 0);
    assert_true(!p.identical && fabs(p.error - 5e-4) < 1e-6);
    assert_true(tn_parity_fails(&p, 1e-4) && !tn_parity_fails(&p, 1e-3) && !tn_parity_fails(&p, NAN));
    tn_parity_numbers(&p, "gradient of ", "v", a, b, 3, 1000); /* small beside the rest of the model */
    assert_string_equal(p.worst, "w");
    b[0] = 1.1f;
    tn_parity_numbers(&p, "gradient of ", "v", a, b, 3, 0);
    assert_string_equal(p.worst, "gradient of v");
    assert_true(fabs(p.error - 0.025) < 1e-6);
}

static void not_finite(void **state)
{
    const float a[] = { 1, NAN }, b[] = { 1, NAN }, c[] = { 1, 2 }, d[] = { 1, INFINITY };
    (void)state;
    tn_parity p = tn_parity_none();
    tn_parity_numbers(&p, "", "w", a, b, 2, 0);
    assert_true(p.identical && p.error == 0);
    tn_parity_numbers(&p, "", "w", c, a, 2, 0);
    assert_true(isinf(p.error) && tn_parity_fails(&p, 1e30));
    p = tn_parity_none();
    tn_parity_numbers(&p, "", "x", c, d, 2, 0);
    assert_true(isinf(p.error));
    p = tn_parity_none();
    tn_parity_loss(&p, 2, 2);
    assert_true(p.identical);
    tn_parity_loss(&p, 2, NAN);
    assert_true(isinf(p.error));
    assert_string_equal(p.worst, "loss");
}

/* Signed zeros are equal, but not the same bits. */
static void zeros(void **state)
{
    const float a[] = { 0.f }, b[] = { -0.f };
    (void)state;
    tn_parity p = tn_parity_none();
    tn_parity_numbers(&p, "", "w", a, b, 1, 0);
    assert_true(!p.identical && p.error == 0 && !tn_parity_fails(&p, 0));
}

/* --- stores ---------------------------------------------------------------------------------------------------------------------- */

static const tn_setting wrong_rows[] = {
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e6), "", ""),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 1e6), "", ""),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "", ""),
    TN_SETTING_FLOAT("error", "0", TN_RANGE_ANY, "", "of the plain twin"),
    TN_SETTING_SWITCH("opt.twice", "on", "one op (off: another, which may be wrong)"),
};

/* y = W x + b, in one op or with a bias that is added behind it, and a factor that is not 1 where the twin is wrong. */
static tn_status build_wrong(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t B = b->batch, n = b->length * tn_settings_int(st, "inputs"), C = tn_settings_int(st, "classes");
    const tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(B, n));
    const tn_ref w = tn_param(g, "w", tn_shape(C, n), tn_normal(0.5f)), bias = tn_param(g, "b", tn_shape(C), tn_zeros);
    const bool on = tn_settings_on(st, "opt.twice");
    const float factor = 1 + (float)tn_settings_float(st, "error");
    const tn_ref y =
        on ? tn_linear(g, x, w, .bias = bias) : tn_add(g, tn_linear(g, x, w), tn_affine(g, bias, factor, 0));
    tn_output(g, "loss", tn_xent(g, y, tn_reshape(g, tn_in(b, "labels"), tn_shape(B))));
    return tn_graph_status(g);
}

static const tn_model wrong = { TN_MODEL_HEAD,   .name = "wrong",      .settings = wrong_rows,
                                .n_settings = 5, .build = build_wrong, TN_MLP_ROWS };

static tn_settings *wrong_settings(void)
{
    tn_settings *st = NULL;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, wrong_rows, 5, "wrong"));
    assert_ok(tn_settings_set(st, "threads", "1", "test"));
    assert_ok(tn_settings_set(st, "train.batch", "8", "test"));
    assert_ok(tn_settings_set(st, "train.warmup", "0", "test"));
    assert_ok(tn_settings_set(st, "train.eps", "0.01", "test"));
    return st;
}

static void *open_side(const tn_settings *st, const char *word, const char *error)
{
    void *side = NULL;
    const char *const words[] = { word, error };
    assert_ok(tn_side_step.open(&(tn_side_options){ .settings = st, .model = &wrong, .word = words, .n = 2 }, &side));
    return side;
}

static tn_parity parity_of(const tn_settings *st, const char *error)
{
    tn_parity p;
    int steps = 3;
    void *plain = open_side(st, "opt.twice=off", error), *fast = open_side(st, "opt.twice=on", error);
    assert_int_equal(tn_side_plans(plain, fast), TN_PLANS_DIFFER);
    assert_ok(tn_side_step.parity(plain, fast, 60, &steps, &p));
    assert_int_equal(steps, 3);
    tn_side_step.close(plain);
    tn_side_step.close(fast);
    return p;
}

/* 64 inputs and 10 classes: every parameter, its gradient, and the loss of each step. */
static void wrong_twin(void **state)
{
    (void)state;
    tn_settings *st = wrong_settings();
    tn_parity p = parity_of(st, "error=0");
    assert_int_equal(p.compared, 2 * (64 * 10 + 10) + 3);
    assert_false(tn_parity_fails(&p, TN_ABLATE_TOLERANCE));
    p = parity_of(st, "error=0.02");
    assert_true(tn_parity_fails(&p, TN_ABLATE_TOLERANCE));
    assert_string_equal(p.worst, "gradient of b");
    tn_settings_free(st);
}

static tn_store *store_of(void *side) { return tn_trainer_store(tn_side_session(side)->trainer); }

static void one_number(void **state)
{
    (void)state;
    tn_settings *st = wrong_settings();
    void *a = open_side(st, "opt.twice=on", "error=0"), *b = open_side(st, "opt.twice=on", "error=0");
    assert_int_not_equal(tn_side_plans(a, b), TN_PLANS_DIFFER);
    tn_parity p = tn_parity_none();
    assert_ok(tn_parity_stores(&p, store_of(a), store_of(b), false));
    assert_true(p.identical && p.compared == 650);
    const tn_entry *e = tn_store_find(store_of(b), "w");
    const float other = ((const float *)e->data)[77] + 1e-3f;
    assert_ok(tn_store_put(store_of(b), e, 77, 1, &other, TN_F32));
    assert_ok(tn_parity_stores(&p, store_of(a), store_of(b), false));
    assert_true(!p.identical && tn_parity_fails(&p, TN_ABLATE_TOLERANCE));
    assert_string_equal(p.worst, "w");
    tn_side_step.close(a);
    tn_side_step.close(b);
    tn_settings_free(st);
}

void tn_tests_ablate_parity(tn_test_list *l)
{
    tn_test_add(l, numbers, NULL, "ablate: the largest difference and whose it is");
    tn_test_add(l, not_finite, NULL, "ablate: NaN on one side");
    tn_test_add(l, zeros, NULL, "ablate: signed zeros");
    tn_test_add(l, one_number, NULL, "ablate: one number of one tensor");
    tn_test_add(l, wrong_twin, NULL, "ablate: a switch that computes something else");
}
