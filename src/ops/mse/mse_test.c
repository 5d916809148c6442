/* mse: rows (dim = R, C) and properties. */
#include "losses.h"

#include <tenon/ops.h>

enum { ROW_WEIGHTS = 1, EACH_WEIGHTS = 2, ONE_WEIGHT = 4, LIVE = 8, ALONE = 16, ALIVE = 3 };

static const tn_case cases[] = {
    { "plain", { 5, 7 }, 0, 1e-6f, 2e-2f },
    { "large", { 300, 173 }, TN_FEW, 2e-6f, 2e-2f },
    { "weights of rows", { 6, 21 }, ROW_WEIGHTS, 2e-6f, 2e-2f },
    { "weights of rows, large", { 40, 1003 }, ROW_WEIGHTS | TN_FEW, 2e-6f, 2e-2f },
    { "weights of elements", { 9, 11 }, EACH_WEIGHTS, 2e-6f, 2e-2f },
    { "one weight", { 3, 4 }, ONE_WEIGHT | TN_NO_GRAD, 1e-6f, 2e-2f },
    { "of one", { 300, 173 }, ALONE | TN_FEW, 2e-6f, 2e-2f },
    { "of one, weights of rows", { 6, 21 }, ALONE | ROW_WEIGHTS, 2e-6f, 2e-2f },
    { "of one, live", { 5, 4 }, ALONE | LIVE | TN_NO_GRAD, 1e-6f, 2e-2f },
    { "of one, empty", { 0, 4 }, ALONE, 1e-6f, 2e-2f },
    { "empty", { 0, 4 }, ROW_WEIGHTS, 1e-6f, 2e-2f },
    { "empty rows", { 4, 0 }, ROW_WEIGHTS, 1e-6f, 2e-2f },
    { "live", { 5, 4 }, LIVE | ROW_WEIGHTS | TN_NO_GRAD, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t R = c->dim[0], C = c->dim[1];
    tn_graph *g = tn_test_graph(io);
    tn_ref a = tn_test_input(io, tn_shape(R, C), (tn_fill_spec){ 0 }), w = TN_NONE;
    const tn_ref b = c->flags & ALONE ? TN_NONE : tn_test_input(io, tn_shape(R, C), (tn_fill_spec){ 0 });
    if (c->flags & ROW_WEIGHTS) w = tn_test_input(io, tn_shape(R), losses_uniform(0.5, 2));
    if (c->flags & EACH_WEIGHTS) w = tn_test_input(io, tn_shape(R, C), losses_uniform(0.5, 2));
    if (c->flags & ONE_WEIGHT) w = tn_test_input(io, (tn_dims){ 0 }, losses_uniform(0.5, 2));
    if (c->flags & LIVE) a = tn_live(g, a, tn_test_input(io, tn_shape(1), losses_int(ALIVE, ALIVE + 1)));
    tn_test_output(io, tn_mse(g, a, b, .weights = w));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t R = c->flags & LIVE ? ALIVE : c->dim[0], C = c->dim[1];
    const bool alone = c->flags & ALONE;
    const double *weights = o->in[alone ? 1 : 2];
    double sum = 0, total = 0;
    for (int64_t i = 0; i < R * C; i++) {
        const double e = o->in[0][i] - (alone ? 0 : o->in[1][i]);
        const double w = c->flags & ROW_WEIGHTS    ? weights[i / C]
                         : c->flags & EACH_WEIGHTS ? weights[i]
                         : c->flags & ONE_WEIGHT   ? weights[0]
                                                   : 1;
        sum += w * e * e;
        total += w;
    }
    o->out[0][0] = total == 0 ? 0 : sum / total;
}

static const tn_op_test test;

enum { R = 3, C = 5 };

static void draw(float *x, int n, float step)
{
    for (int i = 0; i < n; i++) x[i] = sinf(step * (float)(i + 1));
}

static void equal_tensors_are_zero_apart(void)
{
    const tn_case c = { "", { R, C }, 0, 0, 0 };
    float a[R * C], loss, da[R * C], db[R * C];
    draw(a, R * C, 1.3f);
    tn_optest_run(&test, &c, 1, (const void *[]){ a, a }, (void *[]){ &loss }, (void *[]){ da, db }, NULL);
    assert_true(loss == 0);
    for (int i = 0; i < R * C; i++) assert_true(da[i] == 0 && db[i] == 0);
}

static void symmetric(void)
{
    const tn_case c = { "", { R, C }, 0, 0, 0 };
    float a[R * C], b[R * C], loss[2], da[2][R * C], db[2][R * C];
    draw(a, R * C, 1.3f);
    draw(b, R * C, 0.7f);
    tn_optest_run(&test, &c, 1, (const void *[]){ a, b }, (void *[]){ &loss[0] }, (void *[]){ da[0], db[0] }, NULL);
    tn_optest_run(&test, &c, 1, (const void *[]){ b, a }, (void *[]){ &loss[1] }, (void *[]){ da[1], db[1] }, NULL);
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(da[0], db[1], sizeof da[0]);
    for (int i = 0; i < R * C; i++) assert_true(da[0][i] == -db[0][i]);
}

static void scaling_all_weights_changes_nothing(void)
{
    const tn_case c = { "", { R, C }, ROW_WEIGHTS, 0, 0 };
    float a[R * C], b[R * C], w[R] = { 1, 2, 0.5f }, loss[2], d[2][R * C];
    draw(a, R * C, 1.3f);
    draw(b, R * C, 0.7f);
    for (int k = 0; k < 2; k++) {
        tn_optest_run(&test, &c, 1, (const void *[]){ a, b, w }, (void *[]){ &loss[k] }, (void *[]){ d[k], NULL, NULL },
                      NULL);
        for (int i = 0; i < R; i++) w[i] *= 8;
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(d[0], d[1], sizeof d[0]);
}

static void zero_weights_give_zero(void)
{
    const tn_case c = { "", { R, C }, ROW_WEIGHTS, 0, 0 };
    float a[R * C], b[R * C] = { 0 }, w[R] = { 0 }, loss, d[R * C];
    draw(a, R * C, 1.3f);
    tn_optest_run(&test, &c, 1, (const void *[]){ a, b, w }, (void *[]){ &loss }, (void *[]){ d, NULL, NULL }, NULL);
    assert_true(loss == 0 && d[0] == 0);
}

static void wrong_shapes_are_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    for (int k = 0; k < 2; k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        tn_mse(g, tn_input(g, "a", tn_shape(3, 4), TN_F32), tn_input(g, "b", tn_shape(3, k ? 4 : 5), TN_F32),
               .weights = tn_input(g, "w", tn_shape(4), TN_F32));
        assert_fails(tn_graph_status(g), TN_USAGE, k ? "first axes" : "same shape");
        tn_graph_free(g);
    }
}

static const tn_property properties[] = {
    { "equal tensors are 0 apart", equal_tensors_are_zero_apart },
    { "symmetric", symmetric },
    { "scaling all weights changes nothing", scaling_all_weights_changes_nothing },
    { "weights of 0 give 0", zero_weights_give_zero },
    { "wrong shapes are refused", wrong_shapes_are_refused },
};

static const tn_op_test test = { .op = "mse",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_mse(tn_test_list *l) { tn_optest_add(l, &test); }
