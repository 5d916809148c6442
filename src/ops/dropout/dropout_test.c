/* dropout: dim = R, C, p in percent. The oracle draws the mask again: the driver's seed is 12345 at step 7, and the
 * first random op of a graph has stream 1. */
#include "base/rng.h"
#include "optest.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/ops.h>

static const tn_case cases[] = {
    { "half", { 5, 37, 50 }, 0, 1e-6f, 2e-2f }, { "tenth", { 3, 11, 10 }, 0, 1e-6f, 2e-2f },
    { "none", { 3, 11, 0 }, 0, 1e-7f, 2e-2f },  { "large", { 97, 515, 30 }, TN_FEW, 1e-6f, 2e-2f },
    { "empty", { 0, 4, 50 }, 0, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_ref x = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), (tn_fill_spec){ 0 });
    tn_test_output(io, tn_dropout(tn_test_graph(io), x, (float)c->dim[2] / 100));
}

static bool kept(int64_t i, float p, uint64_t seed, uint64_t step)
{
    uint32_t w[4];
    tn_rng_block((tn_rng){ seed + step * 0x9E3779B97F4A7C15u, 1 }, (uint64_t)i / 4, w);
    return (double)(w[i % 4] >> 8) / 16777216 >= (double)p;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const float p = (float)c->dim[2] / 100;
    for (int64_t i = 0; i < o->n_in[0]; i++) o->out[0][i] = kept(i, p, 12345, 7) ? o->in[0][i] / (1 - (double)p) : 0;
}

static const tn_op_test test;

static void share_kept(void)
{
    enum { N = 40000 };
    static float x[N], y[N], dx[N];
    const tn_case c = { "", { 1, N, 25 }, 0, 1, 0 };
    int64_t count = 0;
    for (int i = 0; i < N; i++) x[i] = 3;
    tn_optest_run(&test, &c, 2, (const void *[]){ x }, (void *[]){ y }, (void *[]){ dx }, NULL);
    for (int i = 0; i < N; i++) {
        count += y[i] != 0;
        assert_true(y[i] == 3 * dx[i]); /* the backward mask is the forward one */
    }
    assert_true(labs((long)(count - N * 3 / 4)) < 4 * 87); /* four standard deviations */
}

/* Two dropouts in one graph, at two steps: four different masks; without training, x itself. */
static void masks_differ(void)
{
    enum { N = 256 };
    tn_graph *g;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    float mask[4][N];
    assert_ok(tn_graph_new(&(tn_graph_options){ .training = true }, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(N), TN_F32);
    tn_output(g, "a", tn_dropout(g, x, 0.5f));
    tn_output(g, "b", tn_dropout(g, x, 0.5f));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &plan));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    assert_ok(tn_bind(plan, context, NULL, &bound));
    for (int i = 0; i < N; i++) ((float *)tn_bound_data(bound, "x"))[i] = 1;
    for (int step = 0; step < 2; step++) {
        tn_bound_seed(bound, 5, step);
        assert_ok(tn_run(bound));
        memcpy(mask[2 * step], tn_bound_data(bound, "a"), sizeof mask[0]);
        memcpy(mask[2 * step + 1], tn_bound_data(bound, "b"), sizeof mask[0]);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) assert_int_not_equal(memcmp(mask[i], mask[k], sizeof mask[0]), 0);
    tn_bound_free(bound);
    tn_context_free(context);
    tn_plan_free(plan);
}

static void identity(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(3), TN_F32);
    assert_int_equal(tn_dropout(g, x, 0.5f).id, x.id);
    tn_dropout(g, x, 1.0f);
    assert_fails(tn_graph_status(g), TN_USAGE, "[0, 1)");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "the right share is kept, backward as forward", share_kept },
    { "places and steps have masks of their own", masks_differ },
    { "x itself outside training; p = 1 is refused", identity },
};

static const tn_op_test test = { .op = "dropout",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_dropout(tn_test_list *l) { tn_optest_add(l, &test); }
