/* concat: dim = A, B, C, axis: three tensors (A,B,C); the second is one longer along the axis, the third constant. */
#include "optest.h"

#include "plan/plan.h"

#include <math.h>
#include <string.h>
#include <tenon/ops.h>

static const tn_case cases[] = {
    { "axis 0", { 3, 4, 5, 0 }, 0, 1e-7f, 2e-2f }, { "axis 1", { 3, 4, 5, 1 }, 0, 1e-7f, 2e-2f },
    { "last", { 3, 4, 5, -1 }, 0, 1e-7f, 2e-2f },  { "large", { 30, 40, 51, 2 }, TN_FEW, 1e-7f, 2e-2f },
    { "empty", { 3, 0, 5, 1 }, 0, 1e-7f, 2e-2f },  { "empty rows", { 0, 4, 5, 1 }, 0, 1e-7f, 2e-2f },
};

static tn_dims dims_of(const tn_case *c, int input)
{
    tn_dims d = tn_shape(c->dim[0], c->dim[1], c->dim[2]);
    d.dim[c->dim[3] < 0 ? 2 : c->dim[3]] += input == 1;
    return d;
}

static void build(tn_op_io *io, const tn_case *c)
{
    tn_ref x[3];
    for (int i = 0; i < 3; i++) x[i] = tn_test_input(io, dims_of(c, i), (tn_fill_spec){ .constant = i == 2 });
    tn_test_output(io, tn_concat(tn_test_graph(io), x, 3, (int)c->dim[3]));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int axis = (int)(c->dim[3] < 0 ? 2 : c->dim[3]);
    int64_t outer = 1, at = 0;
    for (int k = 0; k < axis; k++) outer *= c->dim[k];
    for (int64_t u = 0; u < outer; u++)
        for (int i = 0; i < 3; i++) {
            const tn_dims d = dims_of(c, i);
            int64_t block = 1;
            for (int k = axis; k < 3; k++) block *= d.dim[k];
            for (int64_t v = 0; v < block; v++) o->out[0][at++] = o->in[i][u * block + v];
        }
}

/* What concat joins, slices give back; the same tensor twice gets both gradients. */
static void slices_undo(void)
{
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(2, 3), TN_F32));
    const tn_ref y = tn_concat(g, ((tn_ref[]){ x, x }), 2, 1);
    const tn_ref z = tn_add(g, tn_scale(g, tn_part(g, y, 0, 2), 2), tn_scale(g, tn_part(g, y, 1, 2), 5));
    tn_output(g, "z", z);
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1, .loss = tn_sum_all(g, z) }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    float *in = tn_bound_data(bound, "x");
    for (int i = 0; i < 6; i++) in[i] = (float)i;
    assert_ok(tn_run(bound));
    const float *out = tn_bound_data(bound, "z"), *dx = tn_bound_data(bound, "d.x");
    for (int i = 0; i < 6; i++) assert_true(out[i] == 7 * (float)i && dx[i] == 7);
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

/* Along axis 0, dead rows become zeros. */
static void dead_rows(void)
{
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref count = tn_input(g, "count", tn_shape(1), TN_I32);
    const tn_ref x = tn_live(g, tn_input(g, "x", tn_shape(3, 2), TN_F32), count);
    tn_output(g, "y", tn_concat(g, ((tn_ref[]){ x, tn_input(g, "z", tn_shape(1, 2), TN_F32) }), 2, 0));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    *(int32_t *)tn_bound_data(bound, "count") = 2;
    for (int i = 0; i < 6; i++) ((float *)tn_bound_data(bound, "x"))[i] = i < 4 ? 1 : NAN;
    for (int i = 0; i < 2; i++) ((float *)tn_bound_data(bound, "z"))[i] = 2;
    assert_ok(tn_run(bound));
    const float *y = tn_bound_data(bound, "y"), want[8] = { 1, 1, 1, 1, 0, 0, 2, 2 };
    for (int i = 0; i < 8; i++) assert_true(y[i] == want[i]);
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static void wrong_shapes(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x[2] = { tn_input(g, "a", tn_shape(2, 3), TN_F32), tn_input(g, "b", tn_shape(3, 3), TN_F32) };
    tn_concat(g, x, 2, 1);
    assert_fails(tn_graph_status(g), TN_USAGE, "tensor 1 differs");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "slices undo it; one tensor twice", slices_undo },
    { "dead rows become zeros along axis 0", dead_rows },
    { "shapes that do not fit are refused", wrong_shapes },
};

static const tn_op_test test = { .op = "concat",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_concat(tn_test_list *l) { tn_optest_add(l, &test); }
