/* reduce: dim = kind, A, B, C, axis (ALL: over everything) of x (A,B,C). */
#include "optest.h"

#include "plan/plan.h"

#include <math.h>
#include <string.h>
#include <tenon/ops.h>

enum { ALL = 100, SUM = TN_REDUCE_SUM, MEAN = TN_REDUCE_MEAN, MAX = TN_REDUCE_MAX };

static const tn_case cases[] = {
    { "sum 0", { SUM, 4, 5, 7, 0 }, 0, 1e-6f, 2e-2f },
    { "sum 1", { SUM, 4, 5, 7, 1 }, 0, 1e-6f, 2e-2f },
    { "sum last", { SUM, 4, 5, 7, -1 }, 0, 1e-6f, 2e-2f },
    { "mean 0", { MEAN, 4, 5, 7, 0 }, 0, 1e-6f, 2e-2f },
    { "mean 1", { MEAN, 4, 5, 7, 1 }, 0, 1e-6f, 2e-2f },
    { "mean last", { MEAN, 4, 5, 7, 2 }, 0, 1e-6f, 2e-2f },
    { "max 0", { MAX, 4, 5, 7, 0 }, 0, 1e-6f, 2e-2f },
    { "max 1", { MAX, 4, 5, 7, 1 }, 0, 1e-6f, 2e-2f },
    { "max last", { MAX, 4, 5, 7, -1 }, 0, 1e-6f, 2e-2f },
    { "sum all", { SUM, 4, 5, 7, ALL }, 0, 1e-6f, 2e-2f },
    { "mean all", { MEAN, 4, 5, 7, ALL }, 0, 1e-6f, 2e-2f },
    { "large 0", { SUM, 300, 3, 91, 0 }, TN_FEW, 1e-6f, 2e-2f },
    { "large 1", { MEAN, 3, 300, 91, 1 }, TN_FEW, 1e-6f, 2e-2f },
    { "large last", { SUM, 9, 4, 2100, 2 }, TN_FEW, 1e-6f, 2e-2f },
    { "large all", { MEAN, 50, 11, 163, ALL }, TN_FEW, 1e-6f, 2e-2f },
    { "large max", { MAX, 31, 600, 5, 1 }, TN_FEW, 1e-6f, 2e-2f },
    { "one", { SUM, 1, 1, 1, 1 }, 0, 1e-6f, 2e-2f },
    { "empty", { SUM, 4, 0, 7, 1 }, 0, 1e-6f, 2e-2f },
    { "empty mean", { MEAN, 4, 5, 0, 2 }, 0, 1e-6f, 2e-2f },
    { "empty rows", { MAX, 0, 5, 7, 1 }, 0, 1e-6f, 2e-2f },
    { "empty all", { SUM, 0, 5, 7, ALL }, 0, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[1], c->dim[2], c->dim[3]), (tn_fill_spec){ 0 });
    const bool all = c->dim[4] == ALL;
    tn_test_output(io, tn_reduce(tn_test_graph(io), (tn_reduce_kind)c->dim[0], x, all ? 0 : (int)c->dim[4], all));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const bool all = c->dim[4] == ALL;
    const int axis = (int)(c->dim[4] < 0 ? 2 : c->dim[4]);
    int64_t outer = 1, n = 1, inner = 1;
    for (int i = 0; i < 3; i++) *(all || i == axis ? &n : i < axis ? &outer : &inner) *= c->dim[1 + i];
    for (int64_t u = 0; u < outer; u++)
        for (int64_t v = 0; v < inner; v++) {
            double y = c->dim[0] == MAX ? -INFINITY : 0;
            for (int64_t k = 0; k < n; k++) {
                const double x = o->in[0][(u * n + k) * inner + v];
                y = c->dim[0] != MAX ? y + x : x > y || isnan(x) ? x : y;
            }
            o->out[0][u * inner + v] = c->dim[0] == MEAN && n ? y / (double)n : y;
        }
}

static const tn_op_test test;

static void first_maximum(void)
{
    const tn_case c = { "", { MAX, 1, 5, 1, 1 }, 0, 1, 0 };
    const float x[5] = { 1, 3, 2, 3, 3 }, bad[5] = { 1, NAN, 2, NAN, 3 };
    float y, dx[5];
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ &y }, (void *[]){ dx }, NULL);
    assert_true(y == 3 && dx[0] == 0 && dx[1] == 1 && dx[2] == 0 && dx[3] == 0 && dx[4] == 0);
    tn_optest_run(&test, &c, 1, (const void *[]){ bad }, (void *[]){ &y }, (void *[]){ dx }, NULL);
    assert_true(isnan(y) && dx[0] == 0 && dx[1] == 1 && dx[3] == 0);
}

/* A naive f32 sum of these loses the small numbers altogether. */
static void small_numbers_count(void)
{
    enum { N = 60000 };
    static float x[N];
    const tn_case c = { "", { SUM, N, 1, 1, 0 }, 0, 1, 0 };
    float y;
    for (int i = 0; i < N; i++) x[i] = 1;
    x[0] = 1e8f;
    x[N - 1] = -1e8f;
    tn_optest_run(&test, &c, 2, (const void *[]){ x }, (void *[]){ &y }, NULL, NULL);
    assert_true(y == N - 2);
}

/* Of six rows two are alive: what goes over axis 0 or over all sees those; over axis 1 the extent stays. */
static void live_rows(void)
{
    enum { R = 6, C = 3 };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref count = tn_input(g, "count", tn_shape(1), TN_I32);
    const tn_ref x = tn_live(g, tn_want_gradient(g, tn_input(g, "x", tn_shape(R, C), TN_F32)), count);
    const tn_ref mean = tn_mean_all(g, x);
    tn_output(g, "mean", mean);
    tn_output(g, "sum", tn_sum(g, x, 0));
    tn_output(g, "max", tn_max(g, x, 0));
    tn_output(g, "rows", tn_mean(g, tn_sum(g, x, 1), 0));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1, .loss = mean }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    for (int alive = 2; alive >= 0; alive -= 2) {
        *(int32_t *)tn_bound_data(bound, "count") = alive;
        for (int i = 0; i < R * C; i++) ((float *)tn_bound_data(bound, "x"))[i] = i / C < 2 ? (float)(i / C + 1) : NAN;
        assert_ok(tn_run(bound));
        assert_true(*(float *)tn_bound_data(bound, "mean") == (alive ? 1.5f : 0));
        assert_true(*(float *)tn_bound_data(bound, "sum") == (alive ? 3 : 0));
        assert_true(*(float *)tn_bound_data(bound, "max") == (alive ? 2 : -INFINITY));
        assert_true(*(float *)tn_bound_data(bound, "rows") == (alive ? 4.5f : 0));
        const float *dx = tn_bound_data(bound, "d.x");
        for (int i = 0; i < R * C; i++) assert_true(dx[i] == (i / C < alive ? 1.0f / 6 : 0));
    }
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static void missing_axis(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_sum(g, tn_input(g, "x", tn_shape(2, 3), TN_F32), 2);
    assert_fails(tn_graph_status(g), TN_USAGE, "axis 2 does not exist");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "the gradient goes to the first maximum", first_maximum },
    { "small numbers count beside large ones", small_numbers_count },
    { "live rows only", live_rows },
    { "an axis that is not there is refused", missing_axis },
};

static const tn_op_test test = { .op = "reduce",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_reduce(tn_test_list *l) { tn_optest_add(l, &test); }
