/* argmax: rows (dim = B, T, n; T 0: x is (B,n)), ties, NaN, infinities. */
#include "optest.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>

enum { TIES = 1 };

static const tn_case cases[] = {
    { "one number", { 3, 2, 1 }, TN_NO_GRAD | TN_NO_NAN, 1e-7f, 1e-7f },
    { "short", { 4, 3, 7 }, TN_NO_GRAD | TN_NO_NAN, 1e-7f, 1e-7f },
    { "blocks", { 2, 1, 1000 }, TN_NO_GRAD | TN_NO_NAN, 1e-7f, 1e-7f },
    { "matrix", { 5, 0, 513 }, TN_NO_GRAD | TN_NO_NAN, 1e-7f, 1e-7f },
    { "ties", { 9, 2, 600 }, TIES | TN_NO_GRAD | TN_NO_NAN, 1e-7f, 1e-7f },
    { "vocabulary", { 3, 1, 50257 }, TN_NO_GRAD | TN_NO_NAN, 1e-7f, 1e-7f },
    { "no rows", { 0, 3, 5 }, TN_NO_GRAD | TN_NO_NAN, 1e-7f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_dims d = c->dim[1] ? tn_shape(c->dim[0], c->dim[1], c->dim[2]) : tn_shape(c->dim[0], c->dim[2]);
    tn_test_output(io, tn_argmax(g, tn_test_input(io, d, (tn_fill_spec){ 0 })));
}

/* Few different numbers: most rows have several largest ones. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == 0 && c->flags & TIES && i < n; i++) x[i] = floor(2 * x[i]);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t n = c->dim[2], rows = c->dim[0] * (c->dim[1] ? c->dim[1] : 1);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = 0;
        for (int64_t i = 1; i < n; i++)
            if (o->in[0][r * n + i] > o->in[0][r * n + at]) at = i;
        o->out[0][r] = (double)at;
    }
}

enum { ROWS = 6, N = 40 };

/* A NaN anywhere gives -1, infinities are numbers, and the first of equals counts. */
static void odd_numbers(void)
{
    float x[ROWS][N];
    for (int i = 0; i < ROWS * N; i++) x[i / N][i % N] = (float)(i % 7);
    x[0][33] = NAN;
    x[1][0] = NAN;
    for (int i = 0; i < N; i++) x[2][i] = -INFINITY;
    x[3][35] = x[3][17] = INFINITY;
    x[4][5] = x[4][39] = 9;
    x[5][39] = NAN; /* behind the last whole vector */
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    tn_output(g, "at", tn_argmax(g, tn_input(g, "x", tn_shape(ROWS, N), TN_F32)));
    tn_bound *b = tn_world_add(&w, g, NULL);
    memcpy(tn_world_data(b, "x"), x, sizeof x);
    assert_ok(tn_run(b));
    const int32_t *at = tn_world_data(b, "at"), want[ROWS] = { -1, -1, 0, 17, 5, -1 };
    for (int i = 0; i < ROWS; i++) assert_int_equal(at[i], want[i]);
    tn_world_close(&w);
}

static void wrong_shapes(void)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_argmax(g, tn_input(g, "x", tn_shape(4), TN_F32));
    assert_fails(tn_graph_status(g), TN_USAGE, "argmax of (4): x must be floats of shape (...,n)");
    tn_graph_free(g);
    g = tn_world_graph(NULL);
    tn_argmax(g, tn_input(g, "x", tn_shape(4, 0), TN_F32));
    assert_fails(tn_graph_status(g), TN_USAGE, "n >= 1");
    tn_graph_free(g);
}

static const tn_property properties[] = { { "NaN, infinities and equals", odd_numbers },
                                          { "wrong shapes", wrong_shapes } };

static const tn_op_test test = {
    .op = "argmax",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_argmax(tn_test_list *l) { tn_optest_add(l, &test); }
