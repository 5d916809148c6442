/* The optimizer's plan as the training loop uses it: names, accumulation, exact clipping, refusals. The arithmetic of
 * the rules is tested beside them (ops/adamw, ops/sgd). */
#include "apply.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tn_optim_options adamw = { .kind = TN_ADAMW }, sgd = { .kind = TN_SGD };

static void names(void **state)
{
    (void)state;
    static const char *const both[] = { "lr", "decay", "clip", "scale", "loss", "grad_norm", "ok" };
    static const char *const only[2][4] = { { "beta1", "beta2", "eps", "opt_step" }, { "momentum" } };
    for (int kind = 0; kind < 2; kind++) {
        tn_apply a;
        tn_apply_open(&a, kind ? &sgd : &adamw, 1);
        for (size_t i = 0; i < sizeof both / sizeof *both; i++) assert_non_null(tn_bound_data(a.bound, both[i]));
        for (int i = 0; i < 4 && only[kind][i]; i++) assert_non_null(tn_bound_data(a.bound, only[kind][i]));
        for (int i = 0; i < 4 && only[!kind][i]; i++) assert_null(tn_bound_data(a.bound, only[!kind][i]));
        assert_true(!tn_store_bucket(a.store, 0)->v == !!kind); /* sgd has one moment */
        tn_apply_close(&a);
    }
}

/* Plain descent with lr 1: the parameters move by the clipped gradient itself. */
static double moved(tn_apply *a, float size, float clip, float scale, double *norm)
{
    const tn_optim_scalars s = { .lr = 1, .clip = clip, .scale = scale };
    const size_t n = (size_t)tn_apply_count(a);
    double *p = calloc(3 * n, sizeof *p), *lr = p + n, *decay = lr + n, sum = 0;
    assert_non_null(p);
    const tn_store *st = a->store;
    for (int i = 0; i < tn_store_buckets(st); i++) /* from 0, so that nothing is rounded away */
        assert_ok(
            tn_store_clear(st, tn_store_bucket(st, i)->param, sizeof(float) * (size_t)tn_store_bucket(st, i)->count));
    tn_apply_draw(a, 9, size);
    assert_true(tn_apply_run(a, &s, 1));
    *norm = (double)tn_apply_norm(a);
    tn_apply_groups(a, lr, decay);
    tn_apply_read(a, TN_APPLY_PARAM, p);
    for (size_t i = 0; i < n; i++) sum += p[i] / lr[i] * (p[i] / lr[i]);
    free(p);
    return sqrt(sum);
}

static void clipping(void **state)
{
    (void)state;
    double norm;
    tn_apply a;
    tn_apply_open(&a, &sgd, 1);
    const double full = moved(&a, 1, 0, 1, &norm);
    assert_true(full > 10 && fabs(full / norm - 1) < 1e-6);
    assert_true(fabs(moved(&a, 1, 0.5f, 1, &norm) / 0.5 - 1) < 1e-6); /* cut to the limit */
    assert_true(fabs(norm / full - 1) < 1e-6);                        /* reported as it was */
    assert_true(fabs(moved(&a, 1, 0.5f, 0.25f, &norm) / 0.5 - 1) < 1e-6);
    assert_true(fabs(norm / (full / 4) - 1) < 1e-6);                                /* after the scale */
    assert_true(fabs(moved(&a, 1e-4f, 0.5f, 1, &norm) / (full * 1e-4) - 1) < 1e-6); /* below: left alone */
    tn_apply_close(&a);
}

/* A model of one number whose loss is that number: gradient 1. */
static void make_number(tn_store *st, tn_plan **grad)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref loss = tn_copy(g, tn_param(g, "x", tn_shape(1), tn_constant(2)));
    tn_output(g, "loss", loss);
    assert_ok(tn_store_adopt(st, g));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .loss = loss }, grad));
}

/* Two batches accumulated under a loss scale of 8: one step by the mean gradient; the next starts clean. */
static void whole_step(void **state)
{
    (void)state;
    tn_store *st;
    tn_plan *grad, *apply;
    tn_context *c;
    tn_bound *first, *second;
    assert_ok(tn_store_new(TN_CPU, 1, &st));
    make_number(st, &grad);
    assert_ok(tn_optim_plan(st, &sgd, TN_CPU, 1, &apply));
    assert_ok(tn_context_new(TN_CPU, 1, &c));
    assert_ok(tn_bind(grad, c, st, &first));
    assert_ok(tn_bind(apply, c, st, &second));
    assert_ok(tn_bound_set(first, "loss_scale", 8));
    assert_ok(tn_optim_set(second, &(tn_optim_scalars){ .lr = 0.25f, .scale = 1.f / 16 }));
    const float *x = tn_store_find(st, "x")->data;
    for (int step = 1; step <= 3; step++) {
        for (int batch = 0; batch < 2; batch++) assert_ok(tn_run(first));
        memcpy(tn_bound_data(second, "loss"), tn_bound_data(first, "loss"), sizeof(float));
        assert_ok(tn_run(second));
        assert_int_equal(*(int32_t *)tn_bound_data(second, "ok"), 1);
        assert_true(*(float *)tn_bound_data(second, "grad_norm") == 1);
        assert_true(*x == 2 - 0.25f * (float)step);
    }
    tn_bound_free(second);
    tn_bound_free(first);
    tn_context_free(c);
    tn_plan_free(apply);
    tn_plan_free(grad);
    tn_store_free(st);
}

static void bad_scalars(void **state)
{
    (void)state;
    tn_apply a;
    const tn_optim_scalars good = {
        .lr = 0.5f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .scale = 1, .opt_step = 1
    };
    tn_optim_scalars s = good;
    tn_apply_open(&a, &adamw, 1);
    assert_ok(tn_optim_set(a.bound, &good));
    s.lr = 0.125f;
    s.beta2 = 1;
    assert_fails(tn_optim_set(a.bound, &s), TN_USAGE, "beta2 is 1");
    s = good, s.lr = NAN;
    assert_fails(tn_optim_set(a.bound, &s), TN_USAGE, "lr is");
    s = good, s.scale = INFINITY;
    assert_fails(tn_optim_set(a.bound, &s), TN_USAGE, "scale is inf");
    s = good, s.eps = 0; /* 0 / 0 where nothing ever moved */
    assert_fails(tn_optim_set(a.bound, &s), TN_USAGE, "eps is 0");
    s = good, s.opt_step = 0;
    assert_fails(tn_optim_set(a.bound, &s), TN_USAGE, "opt_step is 0");
    assert_true(*(float *)tn_bound_data(a.bound, "lr") == 0.5f); /* nothing was set */
    s = good, s.momentum = NAN;                                  /* not adamw's */
    assert_ok(tn_optim_set(a.bound, &s));
    tn_apply_close(&a);
}

static void nothing_to_train(void **state)
{
    (void)state;
    tn_store *st;
    tn_plan *p = NULL;
    assert_ok(tn_store_new(TN_CPU, 1, &st));
    assert_fails(tn_optim_plan(st, &adamw, TN_CPU, 1, &p), TN_USAGE, "no trainable tensors");
    assert_null(p);
    tn_store_free(st);
}

/* Every allocation in turn fails; the plan is not made, the store stays usable. */
static void out_of_memory(void **state)
{
    (void)state;
    tn_store *st;
    tn_plan *grad, *p = NULL;
    assert_ok(tn_store_new(TN_CPU, 1, &st));
    make_number(st, &grad);
    int failures = 0;
    for (uint64_t n = 1; !p; n++) {
        tn_alloc_fail_at(n);
        const tn_status s = tn_optim_plan(st, &adamw, TN_CPU, 1, &p);
        tn_alloc_fail_at(0);
        assert_int_equal(s, p ? TN_OK : TN_MEMORY);
        failures += !p;
    }
    assert_true(failures > 5);
    tn_plan_free(p);
    tn_plan_free(grad);
    tn_store_free(st);
}

void tn_tests_optim(tn_test_list *l)
{
    tn_test_add(l, names, NULL, "optim: scalars and outputs by name");
    tn_test_add(l, clipping, NULL, "optim: clipping is exact");
    tn_test_add(l, whole_step, NULL, "optim: accumulated and scaled gradients make one step");
    tn_test_add(l, bad_scalars, NULL, "optim: scalars that would ruin the parameters are refused");
    tn_test_add(l, nothing_to_train, NULL, "optim: a store without trainable tensors");
    tn_test_add(l, out_of_memory, NULL, "optim: out of memory anywhere");
}
