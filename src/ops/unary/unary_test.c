/* unary: every function (dim = R, C, kind), its tails, and running in place. */
#include "optest.h"

#include "plan/plan.h"

#include <math.h>
#include <string.h>
#include <tenon/ops.h>

#define ROW(name, kind)                                                                                                \
    {                                                                                                                  \
        name, { 5, 37, TN_UNARY_##kind }, 0, 1e-6f, 2e-2f                                                              \
    }

static const tn_case cases[] = {
    ROW("gelu", GELU),
    ROW("gelu_erf", GELU_ERF),
    ROW("silu", SILU),
    ROW("tanh", TANH),
    ROW("sigmoid", SIGMOID),
    ROW("relu", RELU),
    ROW("exp", EXP),
    ROW("expm1", EXPM1),
    ROW("log", LOG),
    ROW("sqrt", SQRT),
    ROW("square", SQUARE),
    ROW("abs", ABS),
    ROW("softplus", SOFTPLUS),
    ROW("logcosh", LOGCOSH),
    ROW("sin", SIN),
    ROW("cos", COS),
    ROW("reciprocal", RECIPROCAL),
    ROW("clamp_min", CLAMP_MIN),
    ROW("scale", SCALE),
    ROW("affine", AFFINE),
    { "large", { 301, 257, TN_UNARY_GELU }, TN_FEW, 1e-6f, 2e-2f },
    { "vector", { 1, 70001, TN_UNARY_TANH }, TN_FEW, 1e-6f, 2e-2f },
    { "empty", { 0, 7, TN_UNARY_SILU }, 0, 1e-6f, 2e-2f },
    { "empty rows", { 3, 0, TN_UNARY_SILU }, 0, 1e-6f, 2e-2f },
};

static bool positive(int64_t kind)
{
    return kind == TN_UNARY_LOG || kind == TN_UNARY_SQRT || kind == TN_UNARY_RECIPROCAL;
}

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_fill_spec normal = { 0 }, above = { .kind = TN_FILL_UNIFORM, .lo = 0.5, .hi = 3 };
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), positive(c->dim[2]) ? above : normal);
    tn_test_output(io, tn_unary(tn_test_graph(io), (tn_unary_kind)c->dim[2], x, -0.75f, 0.5f));
}

static double reference(int64_t kind, double x)
{
    switch (kind) {
    case TN_UNARY_GELU: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case TN_UNARY_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case TN_UNARY_SILU: return x / (1 + exp(-x));
    case TN_UNARY_TANH: return tanh(x);
    case TN_UNARY_SIGMOID: return 1 / (1 + exp(-x));
    case TN_UNARY_RELU: return x < 0 ? 0 : x;
    case TN_UNARY_EXP: return exp(x);
    case TN_UNARY_EXPM1: return expm1(x);
    case TN_UNARY_LOG: return log(x);
    case TN_UNARY_SQRT: return sqrt(x);
    case TN_UNARY_SQUARE: return x * x;
    case TN_UNARY_ABS: return fabs(x);
    case TN_UNARY_SOFTPLUS: return x > 30 ? x : log1p(exp(x));
    case TN_UNARY_LOGCOSH: return fabs(x) + log1p(exp(-2 * fabs(x))) - log(2);
    case TN_UNARY_SIN: return sin(x);
    case TN_UNARY_COS: return cos(x);
    case TN_UNARY_RECIPROCAL: return 1 / x;
    case TN_UNARY_CLAMP_MIN: return x < -0.75 ? -0.75 : x;
    case TN_UNARY_SCALE: return -0.75 * x;
    default: return -0.75 * x + 0.5;
    }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    for (int64_t i = 0; i < o->n_in[0]; i++) o->out[0][i] = reference(c->dim[2], o->in[0][i]);
}

static const tn_op_test test; /* defined below, with the properties */

/* Values and slopes of one function at n points. */
static void evaluate(tn_unary_kind kind, const float *x, int64_t n, float *y, float *dx)
{
    const tn_case c = { "points", { 1, n, kind }, 0, 1, 0 };
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y }, (void *[]){ dx }, NULL);
}

static void check_tail(tn_unary_kind kind, const float *y, const float *dx, const float *want, const float *slope)
{
    for (int i = 0; i < 4; i++) {
        const float e = fabsf(y[i] - want[i]), d = fabsf(dx[i] - slope[i]);
        if (y[i] != want[i] && !(e <= 1e-6f * fmaxf(1, fabsf(want[i]))))
            fail_msg("kind %d, point %d: value %g instead of %g", kind, i, (double)y[i], (double)want[i]);
        if (!(d <= 1e-6f))
            fail_msg("kind %d, point %d: slope %g instead of %g", kind, i, (double)dx[i], (double)slope[i]);
    }
}

static void tails(void)
{
    const float x[4] = { -100, 100, -INFINITY, INFINITY };
    const struct {
        tn_unary_kind kind;
        float y[4], dx[4];
    } want[] = {
        { TN_UNARY_SILU, { 0, 100, 0, INFINITY }, { 0, 1, 0, 1 } },
        { TN_UNARY_GELU, { 0, 100, 0, INFINITY }, { 0, 1, 0, 1 } },
        { TN_UNARY_GELU_ERF, { 0, 100, 0, INFINITY }, { 0, 1, 0, 1 } },
        { TN_UNARY_SIGMOID, { 0, 1, 0, 1 }, { 0, 0, 0, 0 } },
        { TN_UNARY_TANH, { -1, 1, -1, 1 }, { 0, 0, 0, 0 } },
        { TN_UNARY_SOFTPLUS, { 0, 100, 0, INFINITY }, { 0, 1, 0, 1 } },
        { TN_UNARY_LOGCOSH, { 99.3068528f, 99.3068528f, INFINITY, INFINITY }, { -1, 1, -1, 1 } },
    };
    for (size_t k = 0; k < TN_COUNT(want); k++) {
        float y[4], dx[4];
        evaluate(want[k].kind, x, 4, y, dx);
        check_tail(want[k].kind, y, dx, want[k].y, want[k].dx);
    }
}

/* Relative error over the whole range of the functions that are not libm's. */
static void accurate(void)
{
    enum { N = 4001 };
    static const struct {
        tn_unary_kind kind;
        float span, tolerance;
    } row[] = { { TN_UNARY_EXP, 87, 3e-7f },     { TN_UNARY_EXPM1, 80, 4e-7f },   { TN_UNARY_TANH, 10, 5e-7f },
                { TN_UNARY_SIGMOID, 80, 5e-7f }, { TN_UNARY_SILU, 80, 6e-7f },    { TN_UNARY_SOFTPLUS, 80, 5e-7f },
                { TN_UNARY_LOGCOSH, 20, 1e-6f }, { TN_UNARY_EXPM1, .01f, 4e-7f }, { TN_UNARY_TANH, .01f, 5e-7f },
                { TN_UNARY_LOGCOSH, .5f, 1e-6f } };
    static float x[N], y[N];
    for (size_t k = 0; k < TN_COUNT(row); k++) {
        for (int i = 0; i < N; i++) x[i] = row[k].span * (2.f * (float)i / (N - 1) - 1);
        const tn_case c = { "points", { 1, N, row[k].kind }, 0, 1, 0 };
        tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y }, NULL, NULL);
        for (int i = 0; i < N; i++) {
            double want = reference(row[k].kind, (double)x[i]);
            if (row[k].kind == TN_UNARY_LOGCOSH && fabs((double)x[i]) < 0.1)
                want = 2 * pow(sinh((double)x[i] / 2), 2), want = log1p(want);
            if (!(fabs((double)y[i] - want) <= (double)row[k].tolerance * fabs(want)))
                fail_msg("kind %d at %.9g: %.9g instead of %.9g", (int)row[k].kind, (double)x[i], (double)y[i], want);
        }
    }
}

static tn_plan *chain(int64_t n, bool gradients)
{
    const tn_graph_options go = { .training = true };
    tn_graph *g;
    tn_plan *plan;
    tn_seed seed = { 0 };
    assert_ok(tn_graph_new(&go, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(n), TN_F32));
    const tn_ref y = tn_affine(g, tn_relu(g, tn_scale(g, x, 2)), 3, 1);
    tn_output(g, "y", y);
    seed.y = y;
    seed.dy = tn_input(g, "dy", tn_shape(n), TN_F32);
    const tn_compile_options co = { .threads = 1, .seeds = &seed, .n_seeds = gradients };
    assert_ok(tn_graph_compile(g, &co, &plan));
    return plan;
}

static void one_buffer(void)
{
    enum { N = 1 << 16 };
    tn_plan *forward = chain(N, false), *both = chain(N, true);
    assert_int_equal(tn_plan_memory(forward).arena, N * sizeof(float));
    /* y and relu's output live to the end; the gradient, copied from its seed, runs through one more buffer */
    assert_true(tn_plan_memory(both).arena <= 3 * N * sizeof(float));
    tn_plan_free(forward);
    tn_plan_free(both);
}

static void wrong_type(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_exp(g, tn_input(g, "ids", tn_shape(3), TN_I32));
    assert_fails(tn_graph_status(g), TN_USAGE, "floats");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "nothing overflows in the tails", tails },
    { "small relative error everywhere", accurate },
    { "a chain of three runs in one buffer", one_buffer },
    { "integers are refused", wrong_type },
};

static const tn_op_test test = { .op = "unary",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_unary(tn_test_list *l) { tn_optest_add(l, &test); }
