/* xent: rows (dim = B, T, V), properties, and the exp and logsumexp it stands on. */
#include "losses.h"
#include "ops/logits.h"

#include "base/rng.h"

#include <tenon/ops.h>

static const tn_case cases[] = {
    { "small", { 2, 3, 7 }, L_NLL, 1e-6f, 2e-2f },
    { "one class", { 1, 4, 1 }, L_NLL, 1e-6f, 2e-2f },
    { "weights", { 2, 5, 9 }, L_WEIGHTS | L_Z, 2e-6f, 2e-2f },
    { "ignore", { 3, 5, 9 }, L_WEIGHTS | L_IGNORE | L_NLL, 2e-6f, 2e-2f },
    { "ignore zero", { 3, 5, 9 }, L_IGNORE_ZERO | L_Z | L_NLL, 2e-6f, 2e-2f },
    { "sum", { 3, 5, 17 }, L_SUM | L_WEIGHTS | L_Z, 2e-6f, 2e-2f },
    { "large", { 3, 67, 301 }, L_WEIGHTS | L_Z | L_IGNORE | TN_FEW, 5e-6f, 2e-2f },
    { "wide", { 1, 5, 5003 }, TN_FEW | L_NLL, 5e-6f, 2e-2f },
    { "all ignored", { 1, 6, 5 }, L_ALL_IGNORED | L_WEIGHTS | L_NLL, 1e-6f, 2e-2f },
    { "empty", { 0, 3, 5 }, L_WEIGHTS | L_NLL, 1e-6f, 2e-2f },
    { "live", { 5, 2, 6 }, L_LIVE | L_NLL | TN_NO_GRAD, 1e-6f, 2e-2f },
};

enum { ALIVE = 3 };

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], V = c->dim[2];
    tn_graph *g = tn_test_graph(io);
    tn_ref x = tn_test_input(io, tn_shape(B, T, V), losses_uniform(-3, 3));
    const tn_ref y = tn_test_input(io, tn_shape(B, T), losses_int(0, V));
    tn_ref w = TN_NONE, nll;
    if (c->flags & L_WEIGHTS) w = tn_test_input(io, tn_shape(B, T), losses_uniform(0.25, 2));
    if (c->flags & L_LIVE) x = tn_live(g, x, tn_test_input(io, tn_shape(1), losses_int(ALIVE, ALIVE + 1)));
    tn_test_output(io, tn_xent(g, x, y, .weights = w, .ignore = c->flags & L_IGNORE ? -100 : 0,
                               .ignore_zero = c->flags & L_IGNORE_ZERO, .z_loss = (float)losses_z(c),
                               .sum = c->flags & L_SUM, .nll = &nll));
    if (c->flags & L_NLL) tn_test_output(io, nll);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t V = c->dim[2], n = (c->flags & L_LIVE ? ALIVE : c->dim[0]) * c->dim[1];
    o->out[0][0] = losses_xent(c, o->in[0], o->in[1], c->flags & L_WEIGHTS ? o->in[2] : NULL, n, V, o->out[1]);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input == 1) losses_adjust_labels(c, x, n);
}

static const tn_op_test test;

enum { N = 6, V = 11 };

static void draw(float *x, int64_t n, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) x[i] = tn_rng_normal((tn_rng){ 5, stream }, (uint64_t)i);
}

static void shift_changes_nothing(void)
{
    const tn_case c = { "", { 1, N, V }, L_NLL, 0, 0 };
    float x[N * V], loss[2], nll[2][N], d[2][N * V];
    int32_t y[N] = { 0, 10, 3, 3, 7, 5 };
    draw(x, N * V, 1);
    for (int k = 0; k < 2; k++) {
        tn_optest_run(&test, &c, 1, (const void *[]){ x, y }, (void *[]){ &loss[k], nll[k] }, (void *[]){ d[k], NULL },
                      NULL);
        for (int i = 0; i < N * V; i++) x[i] += 40;
    }
    losses_close(&loss[0], &loss[1], 1, 1e-5);
    losses_close(nll[0], nll[1], N, 1e-5);
    losses_close(d[0], d[1], N * V, 1e-6);
    for (int t = 0; t < N; t++) { /* and so the gradient of a row adds up to 0 */
        double s = 0;
        for (int v = 0; v < V; v++) s += (double)d[0][t * V + v];
        assert_true(fabs(s) < 1e-6);
    }
}

static void ignored_rows_change_nothing(void)
{
    const tn_case few = { "", { 1, 4, V }, L_IGNORE, 0, 0 }, all = { "", { 1, N, V }, L_IGNORE, 0, 0 };
    float x[N * V], loss[2], d[2][N * V];
    const int32_t y[N] = { 1, 2, 9, 4, -100, -100 };
    draw(x, N * V, 2);
    x[4 * V] = NAN;
    x[5 * V + 3] = INFINITY;
    tn_optest_run(&test, &few, 1, (const void *[]){ x, y }, (void *[]){ &loss[0] }, (void *[]){ d[0], NULL }, NULL);
    tn_optest_run(&test, &all, 1, (const void *[]){ x, y }, (void *[]){ &loss[1] }, (void *[]){ d[1], NULL }, NULL);
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(d[0], d[1], sizeof(float) * 4 * V);
    for (int i = 4 * V; i < N * V; i++) assert_true(d[1][i] == 0);
}

static void weight_two_is_twice_the_token(void)
{
    const tn_case w = { "", { 1, 2, V }, L_WEIGHTS, 0, 0 }, twice = { "", { 1, 3, V }, 0, 0, 0 };
    float x[3 * V], loss[2], weight[2] = { 2, 1 };
    const int32_t y2[2] = { 4, 8 }, y3[3] = { 4, 8, 4 };
    draw(x, 3 * V, 3);
    memcpy(x + 2 * V, x, sizeof(float) * V);
    tn_optest_run(&test, &w, 1, (const void *[]){ x, y2, weight }, (void *[]){ &loss[0] }, NULL, NULL);
    tn_optest_run(&test, &twice, 1, (const void *[]){ x, y3 }, (void *[]){ &loss[1] }, NULL, NULL);
    losses_close(&loss[0], &loss[1], 1, 1e-6);
}

static void bad_label_is_named(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    float x[2 * V] = { 0 };
    int32_t y[2] = { 3, V };
    const losses_io in[] = { { "x", x, sizeof x }, { "y", y, sizeof y }, { 0 } }, none[] = { { 0 } };
    for (int k = 0; k < 2; k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref loss = tn_xent(g, tn_input(g, "x", tn_shape(2, V), TN_F32), tn_input(g, "y", tn_shape(2), TN_I32));
        tn_output(g, "loss", loss);
        assert_fails(losses_run(g, TN_NONE, 1, in, none), TN_USAGE, k ? "label -2 of token 1" : "label 11 of token 1");
        y[1] = -2;
    }
}

static void wrong_shapes_are_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    tn_graph *g;
    assert_ok(tn_graph_new(&o, &g));
    tn_xent(g, tn_input(g, "x", tn_shape(2, V), TN_F32), tn_input(g, "y", tn_shape(3), TN_I32));
    assert_fails(tn_graph_status(g), TN_USAGE, "one label per row");
    tn_graph_free(g);
}

static void exp_is_accurate(void)
{
    for (int i = -87300; i <= 88000; i += 7) {
        const float x = (float)i * 1e-3f;
        const double want = exp((double)x), e = fabs((double)tn_logit_exp(x) - want) / want;
        if (!(e < 2.5e-7)) fail_msg("exp(%g) is off by %g", (double)x, e);
    }
    assert_true(tn_logit_exp(-88.f) == 0 && tn_logit_exp(-INFINITY) == 0 && tn_logit_exp(0) == 1 &&
                tn_logit_exp(-1e30f) == 0);
    assert_true(isnan(tn_logit_exp(INFINITY)) && isnan(tn_logit_exp(NAN)));
}

static void lse_in_pieces(void)
{
    enum { n = 5000 };
    float x[n];
    double d[n];
    draw(x, n, 4);
    x[17] = -INFINITY;
    x[4444] = 30;
    for (int i = 0; i < n; i++) d[i] = (double)x[i];
    tn_lse s = { -INFINITY, 0 }, none = { -INFINITY, 0 };
    for (int i = 0, k = 1; i < n; i += k, k += 13) tn_lse_add(&s, x + i, tn_least(k, n - i), 1);
    assert_true(fabs((double)tn_lse_value(&s, 1) - losses_lse(d, n)) < 2e-6 * 30);
    tn_lse_add(&none, (const float[]){ -INFINITY, -INFINITY }, 2, 1);
    assert_true(tn_lse_value(&none, 1) == -INFINITY);
}

static const tn_property properties[] = {
    { "a shift of all logits changes nothing", shift_changes_nothing },
    { "ignored rows change nothing, NaN or not", ignored_rows_change_nothing },
    { "a weight of 2 is the token twice", weight_two_is_twice_the_token },
    { "a bad label is named", bad_label_is_named },
    { "wrong shapes are refused", wrong_shapes_are_refused },
    { "exp is accurate over its range", exp_is_accurate },
    { "logsumexp in pieces", lse_in_pieces },
};

static const tn_op_test test = { .op = "xent",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_xent(tn_test_list *l) { tn_optest_add(l, &test); }
