/* binary: every function with every way to broadcast. dim = kind, shapes (an index into `shapes`). */
#include "optest.h"

#include "plan/plan.h"

#include <math.h>
#include <string.h>
#include <tenon/ops.h>

enum {
    EQUAL,
    VECTOR,
    VECTOR_FIRST,
    SCALAR,
    COLUMN,
    ROW_BOTH,
    MIDDLE,
    LARGE,
    LARGE_SCALAR,
    LARGE_MIDDLE,
    RANK0,
    EMPTY,
    NO_ROWS
};

static const struct {
    tn_dims a, b;
} shapes[] = {
    [EQUAL] = { { 2, { 5, 37 } }, { 2, { 5, 37 } } },
    [VECTOR] = { { 3, { 2, 3, 11 } }, { 1, { 11 } } },
    [VECTOR_FIRST] = { { 1, { 11 } }, { 3, { 2, 3, 11 } } },
    [SCALAR] = { { 2, { 5, 7 } }, { 1, { 1 } } },
    [COLUMN] = { { 3, { 2, 3, 7 } }, { 3, { 2, 3, 1 } } },
    [ROW_BOTH] = { { 2, { 1, 7 } }, { 2, { 5, 1 } } },
    [MIDDLE] = { { 3, { 3, 4, 5 } }, { 3, { 3, 1, 5 } } },
    [LARGE] = { { 2, { 301, 517 } }, { 1, { 517 } } },
    [LARGE_SCALAR] = { { 2, { 251, 333 } }, { 0, { 0 } } },
    [LARGE_MIDDLE] = { { 4, { 3, 50, 41, 9 } }, { 4, { 3, 1, 41, 1 } } },
    [RANK0] = { { 0, { 0 } }, { 0, { 0 } } },
    [EMPTY] = { { 2, { 4, 0 } }, { 2, { 4, 1 } } },
    [NO_ROWS] = { { 2, { 0, 6 } }, { 1, { 6 } } },
};

static const tn_case cases[] = {
    { "add", { TN_BINARY_ADD, EQUAL }, 0, 1e-6f, 2e-2f },
    { "sub", { TN_BINARY_SUB, EQUAL }, 0, 1e-6f, 2e-2f },
    { "mul", { TN_BINARY_MUL, EQUAL }, 0, 1e-6f, 2e-2f },
    { "div", { TN_BINARY_DIV, EQUAL }, 0, 1e-6f, 2e-2f },
    { "maximum", { TN_BINARY_MAXIMUM, EQUAL }, 0, 1e-6f, 2e-2f },
    { "minimum", { TN_BINARY_MINIMUM, EQUAL }, 0, 1e-6f, 2e-2f },
    { "add vector", { TN_BINARY_ADD, VECTOR }, 0, 1e-6f, 2e-2f },
    { "sub vector", { TN_BINARY_SUB, VECTOR }, 0, 1e-6f, 2e-2f },
    { "vector sub", { TN_BINARY_SUB, VECTOR_FIRST }, 0, 1e-6f, 2e-2f },
    { "vector div", { TN_BINARY_DIV, VECTOR_FIRST }, 0, 1e-6f, 2e-2f },
    { "vector max", { TN_BINARY_MAXIMUM, VECTOR_FIRST }, 0, 1e-6f, 2e-2f },
    { "div vector", { TN_BINARY_DIV, VECTOR }, 0, 1e-6f, 2e-2f },
    { "mul scalar", { TN_BINARY_MUL, SCALAR }, 0, 1e-6f, 2e-2f },
    { "mul column", { TN_BINARY_MUL, COLUMN }, 0, 1e-6f, 2e-2f },
    { "sub both", { TN_BINARY_SUB, ROW_BOTH }, 0, 1e-6f, 2e-2f },
    { "mul both", { TN_BINARY_MUL, ROW_BOTH }, 0, 1e-6f, 2e-2f },
    { "mul middle", { TN_BINARY_MUL, MIDDLE }, 0, 1e-6f, 2e-2f },
    { "large vector", { TN_BINARY_MUL, LARGE }, TN_FEW, 1e-6f, 2e-2f },
    { "large scalar", { TN_BINARY_DIV, LARGE_SCALAR }, TN_FEW, 2e-6f, 2e-2f },
    { "large middle", { TN_BINARY_MUL, LARGE_MIDDLE }, TN_FEW, 1e-6f, 2e-2f },
    { "rank 0", { TN_BINARY_SUB, RANK0 }, 0, 1e-6f, 2e-2f },
    { "empty", { TN_BINARY_MUL, EMPTY }, 0, 1e-6f, 2e-2f },
    { "no rows", { TN_BINARY_MUL, NO_ROWS }, 0, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_fill_spec normal = { 0 }, above = { .kind = TN_FILL_UNIFORM, .lo = 0.5, .hi = 2 };
    const tn_ref a = tn_test_input(io, shapes[c->dim[1]].a, normal);
    const tn_ref b = tn_test_input(io, shapes[c->dim[1]].b, c->dim[0] == TN_BINARY_DIV ? above : normal);
    tn_test_output(io, tn_binary(tn_test_graph(io), (tn_binary_kind)c->dim[0], a, b));
}

static double reference(int64_t kind, double a, double b)
{
    switch (kind) {
    case TN_BINARY_ADD: return a + b;
    case TN_BINARY_SUB: return a - b;
    case TN_BINARY_MUL: return a * b;
    case TN_BINARY_DIV: return a / b;
    case TN_BINARY_MAXIMUM: return isnan(a) || isnan(b) ? (double)NAN : fmax(a, b);
    default: return isnan(a) || isnan(b) ? (double)NAN : fmin(a, b);
    }
}

/* Index in a tensor of shape d for the element of the result (shape y) at row-major position i. */
static int64_t source(tn_dims d, tn_dims y, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int k = 1; k <= y.rank; k++) {
        const int64_t j = i % y.dim[y.rank - k];
        i /= y.dim[y.rank - k];
        if (k > d.rank) continue;
        if (d.dim[d.rank - k] != 1) at += j * stride;
        stride *= d.dim[d.rank - k];
    }
    return at;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const tn_dims a = shapes[c->dim[1]].a, b = shapes[c->dim[1]].b;
    tn_dims y = a.rank > b.rank ? a : b;
    for (int k = 1; k <= y.rank; k++) {
        if (k <= a.rank && a.dim[a.rank - k] != 1) y.dim[y.rank - k] = a.dim[a.rank - k];
        if (k <= b.rank && b.dim[b.rank - k] != 1) y.dim[y.rank - k] = b.dim[b.rank - k];
    }
    for (int64_t i = 0; i < o->n_out[0]; i++)
        o->out[0][i] = reference(c->dim[0], o->in[0][source(a, y, i)], o->in[1][source(b, y, i)]);
}

/* x - x[0] must not overwrite x while x[0] is still read. */
static void difference_from_first_row(void)
{
    enum { R = 40, C = 64 };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_scale(g, tn_input(g, "x", tn_shape(R, C), TN_F32), 1);
    tn_output(g, "y", tn_sub(g, x, tn_slice(g, x, 0, 0, 1)));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    float *in = tn_bound_data(bound, "x");
    for (int i = 0; i < R * C; i++) in[i] = (float)(i / C) + 10;
    assert_ok(tn_run(bound));
    const float *y = tn_bound_data(bound, "y");
    for (int i = 0; i < R * C; i++)
        if (y[i] != (float)(i / C)) fail_msg("row %d: %g", i / C, (double)y[i]);
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

/* With three of five rows alive, a vector's gradient sums three rows, and the dead rows get none. */
static void live_rows_only(void)
{
    enum { R = 5, C = 3 };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref count = tn_input(g, "count", tn_shape(1), TN_I32);
    const tn_ref x = tn_live(g, tn_want_gradient(g, tn_input(g, "x", tn_shape(R, C), TN_F32)), count);
    const tn_ref w = tn_want_gradient(g, tn_input(g, "w", tn_shape(C), TN_F32));
    const tn_ref y = tn_mul(g, w, x); /* the vector first: x's live extent must still reach y */
    tn_output(g, "y", y);
    const tn_seed seed = { .y = y, .dy = tn_input(g, "dy", tn_shape(R, C), TN_F32) };
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1, .seeds = &seed, .n_seeds = 1 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    *(int32_t *)tn_bound_data(bound, "count") = 3;
    for (int i = 0; i < R * C; i++) {
        ((float *)tn_bound_data(bound, "x"))[i] = i / C < 3 ? 2 : NAN;
        ((float *)tn_bound_data(bound, "dy"))[i] = i / C < 3 ? 1 : NAN;
    }
    for (int i = 0; i < C; i++) ((float *)tn_bound_data(bound, "w"))[i] = 5;
    assert_ok(tn_run(bound));
    const float *dw = tn_bound_data(bound, "d.w"), *dx = tn_bound_data(bound, "d.x");
    for (int i = 0; i < C; i++) assert_true(dw[i] == 6);
    for (int i = 0; i < R * C; i++) assert_true(dx[i] == (i / C < 3 ? 5 : 0));
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static void shapes_that_do_not_fit(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_add(g, tn_input(g, "a", tn_shape(2, 3), TN_F32), tn_input(g, "b", tn_shape(2), TN_F32));
    assert_fails(tn_graph_status(g), TN_USAGE, "(2,3) (2)");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "x - x[0] is not spoilt in place", difference_from_first_row },
    { "live rows only", live_rows_only },
    { "shapes that do not broadcast are refused", shapes_that_do_not_fit },
};

static const tn_op_test test = { .op = "binary",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_binary(tn_test_list *l) { tn_optest_add(l, &test); }
