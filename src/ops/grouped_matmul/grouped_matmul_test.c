/* grouped_matmul: rows (dim = R, G, k, n), groups with gaps and empty ones, live rows, bad offsets. */
#include "optest.h"
#include "plan/plan.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { GAPS = 1, HALF = 2, LIVE = 4, EMPTY = 8 };

static const tn_case cases[] = {
    /*             R    G  k   n */
    { "small", { 7, 3, 5, 4 }, 0, 2e-6f, 2e-2f },
    { "gaps", { 9, 3, 5, 4 }, GAPS, 2e-6f, 2e-2f },
    { "empty groups", { 9, 4, 5, 4 }, EMPTY, 2e-6f, 2e-2f },
    { "half", { 7, 3, 6, 4 }, HALF, 2e-6f, 2e-2f },
    { "live", { 11, 3, 5, 4 }, LIVE, 2e-6f, 0 },
    { "large", { 300, 5, 70, 60 }, GAPS | TN_FEW, 4e-6f, 2e-2f },
    { "no rows", { 0, 2, 3, 4 }, 0, 1e-6f, 0 },
    { "no groups", { 4, 0, 3, 2 }, 0, 1e-6f, 0 },
};

enum { ALIVE = 6 };

static int64_t offset(const tn_case *c, int64_t i)
{
    const int64_t R = c->dim[0], G = c->dim[1], lo = c->flags & GAPS ? 1 : 0, hi = c->flags & GAPS ? R - 2 : R;
    if (c->flags & EMPTY) return i == 0 ? 0 : i == G ? R : R / 2; /* the middle groups have no row */
    return G ? lo + i * (hi - lo) / G : lo;
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input == 2)
        for (int64_t i = 0; i < n; i++) x[i] = (double)offset(c, i);
    if (input == 3) x[0] = ALIVE;
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t R = c->dim[0], G = c->dim[1], k = c->dim[2], n = c->dim[3];
    tn_graph *g = tn_test_graph(io);
    tn_ref x = tn_test_input(io, tn_shape(R, k), (tn_fill_spec){ 0 });
    const tn_ref w = tn_test_input(io, tn_shape(G, n, k), (tn_fill_spec){ .dtype = c->flags & HALF ? TN_F16 : TN_F32 });
    const tn_ref o = tn_test_input(io, tn_shape(G + 1), (tn_fill_spec){ TN_FILL_INT, .lo = 0, .hi = 1 });
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = 0, .hi = 1 }));
    const tn_ref y = tn_grouped_matmul(g, x, w, o);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, ALIVE) : y);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t rows = c->flags & LIVE ? ALIVE : c->dim[0], G = c->dim[1], k = c->dim[2], n = c->dim[3];
    for (int64_t i = 0; i < G; i++)
        for (int64_t r = (int64_t)o->in[2][i]; r < (int64_t)o->in[2][i + 1] && r < rows; r++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t p = 0; p < k; p++)
                    o->out[0][r * n + j] += o->in[0][r * k + p] * o->in[1][(i * n + j) * k + p];
}

static const tn_op_test test;

static void one_group_is_linear(void)
{
    enum { R = 13, K = 9, N = 6 };
    float x[R * K], w[N * K], y[R * N], want = 0;
    const int32_t o[2] = { 0, R };
    for (int i = 0; i < R * K; i++) x[i] = sinf((float)i);
    for (int i = 0; i < N * K; i++) w[i] = cosf((float)i);
    const tn_case c = { "one", { R, 1, K, N }, 0, 1, 0 };
    tn_optest_run(&test, &c, 2, (const void *[]){ x, w, o }, (void *[]){ y }, NULL, NULL);
    for (int r = 0; r < R; r++)
        for (int j = 0; j < N; j++) {
            want = 0;
            for (int p = 0; p < K; p++) want = fmaf(x[r * K + p], w[j * K + p], want);
            assert_float_equal(y[r * N + j], want, 0);
        }
}

static void bad_offsets_are_refused(void)
{
    static const struct {
        int32_t v[3];
        const char *says;
    } bad[] = { { { 0, 3, 2 }, "less than the 3 before" },
                { { -1, 2, 3 }, "offsets[0] is -1" },
                { { 0, 2, 5 }, "has 4 rows" } };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(NULL, &g));
    tn_output(g, "y",
              tn_grouped_matmul(g, tn_input(g, "x", tn_shape(4, 2), TN_F32),
                                tn_input(g, "w", tn_shape(2, 3, 2), TN_F32), tn_input(g, "o", tn_shape(3), TN_I32)));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ 0 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    for (size_t i = 0; i < TN_COUNT(bad); i++) {
        memcpy(tn_bound_data(bound, "o"), bad[i].v, sizeof bad[i].v);
        assert_fails(tn_run(bound), TN_USAGE, bad[i].says);
    }
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static const tn_property properties[] = {
    { "one group is a plain product", one_group_is_linear },
    { "bad offsets are refused", bad_offsets_are_refused },
};

static const tn_op_test test = { .op = "grouped_matmul",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_grouped_matmul(tn_test_list *l) { tn_optest_add(l, &test); }
