/* l2norm: dim = B, T, n; flag SHORT: eps is longer than every row. */
#include "optest.h"

#include <math.h>
#include <tenon/ops.h>

enum { SHORT = 1 };

static const tn_case cases[] = {
    { "rows", { 3, 5, 37 }, 0, 1e-6f, 2e-2f },     { "two", { 3, 5, 2 }, 0, 1e-6f, 2e-2f },
    { "short", { 3, 5, 9 }, SHORT, 1e-6f, 2e-2f }, { "large", { 2, 70, 515 }, TN_FEW, 1e-6f, 2e-2f },
    { "empty", { 0, 5, 7 }, 0, 1e-6f, 2e-2f },     { "no columns", { 2, 5, 0 }, 0, 1e-6f, 2e-2f },
};

static double eps_of(const tn_case *c) { return c->flags & SHORT ? 100 : (double)1e-6f; }

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[0], c->dim[1], c->dim[2]), (tn_fill_spec){ 0 });
    tn_test_output(io, tn_l2_normalize(tn_test_graph(io), x, (float)eps_of(c)));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t n = c->dim[2];
    for (int64_t r = 0; r < c->dim[0] * c->dim[1]; r++) {
        double s = 0;
        for (int64_t i = 0; i < n; i++) s += o->in[0][r * n + i] * o->in[0][r * n + i];
        const double d = sqrt(s) < eps_of(c) ? eps_of(c) : sqrt(s);
        for (int64_t i = 0; i < n; i++) o->out[0][r * n + i] = o->in[0][r * n + i] / d;
    }
}

static const tn_op_test test;

static void lengths(void)
{
    const tn_case c = { "", { 1, 3, 2 }, 0, 1, 0 };
    const float x[6] = { 3e25f, -4e25f, 0, 0, 3e-30f, 4e-30f };
    float y[6], dx[6];
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y }, (void *[]){ dx }, NULL);
    assert_true(fabsf(y[0] - 0.6f) < 1e-6f && fabsf(y[1] + 0.8f) < 1e-6f); /* squares would overflow f32 */
    assert_true(y[2] == 0 && y[3] == 0 && fabsf(dx[2] * 1e-6f - 1) < 1e-6f);
    assert_true(y[4] < 1e-20f);
}

static void gradient_is_tangent(void)
{
    enum { N = 33 };
    const tn_case c = { "", { 1, 1, N }, 0, 1, 0 };
    float x[N], y[N], dx[N], dy[N];
    double radial = 0, length = 0;
    for (int i = 0; i < N; i++) x[i] = sinf((float)i), dy[i] = cosf((float)(i * i));
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y }, (void *[]){ dx }, (const float *const[]){ dy });
    for (int i = 0; i < N; i++) radial += (double)dx[i] * (double)x[i], length += (double)y[i] * (double)y[i];
    assert_true(fabs(radial) < 1e-5 && fabs(length - 1) < 1e-6);
}

static const tn_property properties[] = {
    { "huge, zero and tiny rows", lengths },
    { "unit length, and gradients across it", gradient_is_tangent },
};

static const tn_op_test test = { .op = "l2norm",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_l2norm(tn_test_list *l) { tn_optest_add(l, &test); }
