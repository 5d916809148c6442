/* gate: dim = kind, R, C, layout. */
#include "optest.h"

#include "plan/plan.h"

#include <math.h>
#include <string.h>
#include <tenon/ops.h>

enum { APART, PARTS, GATE_ONLY, INPUT_ONLY, SAME }; /* two tensors; halves of one; one of the two constant; z = x */

static const tn_case cases[] = {
    { "silu", { TN_GATE_SILU, 5, 37 }, 0, 1e-6f, 2e-2f },
    { "sigmoid", { TN_GATE_SIGMOID, 5, 37 }, 0, 1e-6f, 2e-2f },
    { "gelu", { TN_GATE_GELU, 5, 37 }, 0, 1e-6f, 2e-2f },
    { "parts", { TN_GATE_SILU, 7, 11, PARTS }, 0, 1e-6f, 2e-2f },
    { "same", { TN_GATE_SILU, 7, 11, SAME }, 0, 1e-6f, 2e-2f },
    { "gate only", { TN_GATE_GELU, 7, 11, GATE_ONLY }, 0, 1e-6f, 2e-2f },
    { "input only", { TN_GATE_SIGMOID, 7, 11, INPUT_ONLY }, 0, 1e-6f, 2e-2f },
    { "large", { TN_GATE_SILU, 211, 300, PARTS }, TN_FEW, 1e-6f, 2e-2f },
    { "empty", { TN_GATE_SILU, 0, 4 }, 0, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const int64_t R = c->dim[1], C = c->dim[2], layout = c->dim[3];
    const tn_fill_spec x_fill = { .constant = layout == GATE_ONLY }, z_fill = { .constant = layout == INPUT_ONLY };
    tn_ref x, z;
    if (layout == PARTS) {
        const tn_ref both = tn_scale(g, tn_test_input(io, tn_shape(R, 2 * C), x_fill), 1);
        x = tn_part(g, both, 0, 2);
        z = tn_part(g, both, 1, 2);
    } else {
        x = tn_test_input(io, tn_shape(R, C), x_fill);
        z = layout == SAME ? x : tn_test_input(io, tn_shape(R, C), z_fill);
    }
    tn_test_output(io, tn_gate(g, (tn_gate_kind)c->dim[0], x, z));
}

static double act(int64_t kind, double z)
{
    switch (kind) {
    case TN_GATE_SILU: return z / (1 + exp(-z));
    case TN_GATE_SIGMOID: return 1 / (1 + exp(-z));
    default: return 0.5 * z * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
    }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t R = c->dim[1], C = c->dim[2], layout = c->dim[3];
    for (int64_t i = 0; i < R * C; i++) {
        const int64_t at = layout == PARTS ? i / C * 2 * C + i % C : i;
        const double x = o->in[0][at], z = layout == PARTS ? o->in[0][at + C] : o->in[layout == SAME ? 0 : 1][i];
        o->out[0][i] = x * act(c->dim[0], z);
    }
}

/* Output and gradients of one graph; the halves of one projection, squared so that the gradient is not trivial. */
static void run_graph(const char *const *off, float *y, float *dx, size_t *arena)
{
    enum { R = 9, C = 40 };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(&(tn_graph_options){ .training = true, .off = off }, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(R, 2 * C), TN_F32));
    const tn_ref out = tn_swiglu(g, tn_part(g, x, 0, 2), tn_part(g, x, 1, 2));
    tn_output(g, "y", out);
    const tn_seed seed = { .y = out, .dy = tn_input(g, "dy", tn_shape(R, C), TN_F32) };
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1, .seeds = &seed, .n_seeds = 1 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    for (int i = 0; i < 2 * R * C; i++) ((float *)tn_bound_data(bound, "x"))[i] = sinf((float)i) * 4;
    for (int i = 0; i < R * C; i++) ((float *)tn_bound_data(bound, "dy"))[i] = cosf((float)i);
    assert_ok(tn_run(bound));
    memcpy(y, tn_bound_data(bound, "y"), sizeof *y * R * C);
    memcpy(dx, tn_bound_data(bound, "d.x"), sizeof *dx * 2 * R * C);
    *arena = tn_plan_memory(plan).arena;
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static void equals_twin(void)
{
    static float y[2][360], dx[2][720];
    size_t arena[2];
    run_graph(NULL, y[0], dx[0], &arena[0]);
    run_graph((const char *const[]){ "opt.gate", NULL }, y[1], dx[1], &arena[1]);
    for (int i = 0; i < 360; i++) assert_true(fabsf(y[0][i] - y[1][i]) <= 2e-6f);
    for (int i = 0; i < 720; i++) assert_true(fabsf(dx[0][i] - dx[1][i]) <= 4e-6f);
    assert_true(arena[0] < arena[1]); /* act(z) is not stored */
}

static void infinite_gates(void)
{
    const float x[4] = { 2, 2, 2, 2 }, z[4] = { -INFINITY, INFINITY, -300, 300 };
    const float want[TN_GATE_KINDS][4] = { [TN_GATE_SILU] = { 0, INFINITY, 0, 600 },
                                           [TN_GATE_SIGMOID] = { 0, 2, 0, 2 },
                                           [TN_GATE_GELU] = { 0, INFINITY, 0, 600 } };
    const float slope[TN_GATE_KINDS][4] = { [TN_GATE_SILU] = { 0, 2, 0, 2 }, [TN_GATE_GELU] = { 0, 2, 0, 2 } };
    const tn_op_test t = { .op = "gate", .build = build };
    for (int k = 0; k < TN_GATE_KINDS; k++) {
        const tn_case c = { "tails", { k, 1, 4 }, 0, 1, 0 };
        float y[4], dx[4], dz[4];
        tn_optest_run(&t, &c, 1, (const void *[]){ x, z }, (void *[]){ y }, (void *[]){ dx, dz }, NULL);
        for (int i = 0; i < 4; i++) {
            assert_true(y[i] == want[k][i] || fabsf(y[i] - want[k][i]) < 1e-30f);
            assert_true(fabsf(dz[i] - slope[k][i]) < 1e-30f);
        }
    }
}

static const tn_property properties[] = {
    { "equals activation and product, in less memory", equals_twin },
    { "infinite gates are open or shut", infinite_gates },
};

static const tn_op_test test = { .op = "gate",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_gate(tn_test_list *l) { tn_optest_add(l, &test); }
