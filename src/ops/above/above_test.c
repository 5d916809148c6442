/* above: rows (dim = n, live), NaN, and that the two kinds of flags part the live rows. */
#include "optest.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { COLUMN = 1, INVERT = 2, LIVE = 4 };

static const tn_case cases[] = {
    { "vector", { 37 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "column", { 37 }, COLUMN | TN_NO_GRAD, 1e-7f, 1e-7f },
    { "the others", { 37 }, COLUMN | INVERT | TN_NO_GRAD, 1e-7f, 1e-7f },
    { "empty", { 0 }, TN_NO_GRAD, 1e-7f, 0 },
    { "live", { 37, 11 }, COLUMN | LIVE | TN_NO_GRAD, 1e-7f, 1e-7f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    tn_ref x = tn_test_input(io, c->flags & COLUMN ? tn_shape(c->dim[0], 1) : tn_shape(c->dim[0]), (tn_fill_spec){ 0 });
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    const tn_ref keep = c->flags & INVERT ? tn_not_above(g, x, 0.25f) : tn_above(g, x, 0.25f);
    tn_ref index, count;
    tn_compact(g, keep, &index, &count); /* looks at live flags only */
    tn_test_output(io, index);
    tn_test_output(io, count);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == 1 && i < n; i++) x[i] = (double)c->dim[1];
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->dim[0]; i++) o->out[0][i] = -1;
    for (int64_t i = 0; i < (c->flags & LIVE ? c->dim[1] : c->dim[0]); i++)
        if ((o->in[0][i] > 0.25) != ((c->flags & INVERT) != 0)) o->out[0][n++] = (double)i;
    o->out[1][0] = (double)n;
}

static void each_row_once(void)
{
    const float x[6] = { 1, 0.25f, NAN, -1, INFINITY, 0.2500001f };
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref in = tn_input(g, "x", tn_shape(6), TN_F32);
    tn_output(g, "above", tn_above(g, in, 0.25f));
    tn_output(g, "not", tn_not_above(g, in, 0.25f));
    tn_bound *b = tn_world_add(&w, g, NULL);
    memcpy(tn_world_data(b, "x"), x, sizeof x);
    assert_ok(tn_run(b));
    const int32_t *above = tn_world_data(b, "above"), *not = tn_world_data(b, "not"), want[6] = { 1, 0, 0, 0, 1, 1 };
    for (int i = 0; i < 6; i++) assert_true(above[i] == want[i] && above[i] + not [i] == 1);
    tn_world_close(&w);
}

static void one_number_a_row(void)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_above(g, tn_input(g, "x", tn_shape(4, 3), TN_F32), 0.f);
    assert_fails(tn_graph_status(g), TN_USAGE, "above of (4,3): x must be floats of shape (n) or (n,1)");
    tn_graph_free(g);
}

static const tn_property properties[] = { { "each row is in one of the two", each_row_once },
                                          { "one number a row", one_number_a_row } };

static const tn_op_test test = {
    .op = "above",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_above(tn_test_list *l) { tn_optest_add(l, &test); }
