/* masked_mean: dim = B, T, d; flag REAL: weights are floats. */
#include "optest.h"

#include <math.h>
#include <string.h>
#include <tenon/ops.h>

enum { REAL = 1 };

static const tn_case cases[] = {
    { "bits", { 3, 5, 7 }, 0, 1e-6f, 2e-2f },          { "weights", { 3, 5, 7 }, REAL, 1e-6f, 2e-2f },
    { "large", { 5, 41, 300 }, TN_FEW, 1e-6f, 2e-2f }, { "no time", { 3, 0, 7 }, 0, 1e-6f, 2e-2f },
    { "empty", { 0, 5, 7 }, 0, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_fill_spec bits = { .kind = TN_FILL_INT, .lo = 0, .hi = 2 };
    const tn_fill_spec real = { .kind = TN_FILL_UNIFORM, .lo = 0.25, .hi = 2, .constant = true };
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[0], c->dim[1], c->dim[2]), (tn_fill_spec){ 0 });
    const tn_ref m = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), c->flags & REAL ? real : bits);
    tn_test_output(io, tn_masked_mean(tn_test_graph(io), x, m));
}

/* The first sequence is all masked where weights are bits. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == 1 && !(c->flags & REAL) && i < n && i < c->dim[1]; i++) x[i] = 0;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t B = c->dim[0], T = c->dim[1], d = c->dim[2];
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < d; i++) {
            double s = 0, y = 0;
            for (int64_t t = 0; t < T; t++) {
                const double m = o->in[1][b * T + t];
                s += m;
                if (m != 0) y += m * o->in[0][(b * T + t) * d + i];
            }
            o->out[0][b * d + i] = s == 0 ? 0 : y / s;
        }
}

static const tn_op_test test;

static void masked_nan(void)
{
    const tn_case c = { "", { 2, 3, 1 }, 0, 1, 0 };
    const float x[6] = { 1, NAN, 3, NAN, NAN, NAN };
    const int32_t m[6] = { 1, 0, 1, 0, 0, 0 };
    float y[2], dx[6];
    tn_optest_run(&test, &c, 1, (const void *[]){ x, m }, (void *[]){ y }, (void *[]){ dx, NULL }, NULL);
    assert_true(y[0] == 2 && y[1] == 0);
    assert_true(dx[0] == 0.5f && dx[1] == 0 && dx[2] == 0.5f && dx[3] == 0 && dx[4] == 0 && dx[5] == 0);
}

static void wrong_mask(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_masked_mean(g, tn_input(g, "x", tn_shape(2, 3, 4), TN_F32), tn_input(g, "m", tn_shape(2, 4), TN_I32));
    assert_fails(tn_graph_status(g), TN_USAGE, "(2,3)");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "what is masked is not read; nothing left gives 0", masked_nan },
    { "a mask of another shape is refused", wrong_mask },
};

static const tn_op_test test = { .op = "masked_mean",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_masked_mean(tn_test_list *l) { tn_optest_add(l, &test); }
