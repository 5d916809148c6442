/* compact: rows (dim = n, live), and what it is for: kept rows gathered, worked on and put back. Also what the
 * three ops on indices say of a bad one. */
#include "optest.h"

#include "plan/plan.h"

#include <tenon/ops.h>

#include <string.h>

enum { LIVE = 1, ALL = 2, NONE = 4 };

static const tn_case cases[] = {
    { "some", { 23 }, TN_NO_GRAD, 1e-7f, 0 },
    { "all", { 9 }, ALL | TN_NO_GRAD, 1e-7f, 0 },
    { "none", { 9 }, NONE | TN_NO_GRAD, 1e-7f, 0 },
    { "many", { 5000 }, TN_NO_GRAD, 1e-7f, 0 },
    { "empty", { 0 }, TN_NO_GRAD, 1e-7f, 0 },
    { "live", { 23, 11 }, LIVE | TN_NO_GRAD, 1e-7f, 0 },
    { "none alive", { 23, 0 }, LIVE | ALL | TN_NO_GRAD, 1e-7f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const double lo = c->flags & ALL ? 1 : 0, hi = c->flags & NONE ? 1 : 3;
    tn_ref index, count,
        keep = tn_test_input(io, tn_shape(c->dim[0]), (tn_fill_spec){ .kind = TN_FILL_INT, .lo = lo, .hi = hi });
    if (c->flags & LIVE)
        keep = tn_live(g, keep, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    tn_compact(g, keep, &index, &count);
    tn_test_output(io, index);
    tn_test_output(io, count);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == 1 && i < n; i++) x[i] = (double)c->dim[1];
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < (c->flags & LIVE ? c->dim[1] : c->dim[0]); i++)
        if (o->in[0][i] != 0) o->out[0][kept++] = (double)i;
    for (int64_t i = kept; i < c->dim[0]; i++) o->out[0][i] = -1;
    o->out[1][0] = (double)kept;
}

enum { N = 10, W = 3 };

typedef struct machine {
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
} machine;

static machine start(tn_graph *g, const tn_compile_options *o)
{
    machine m;
    assert_ok(tn_graph_compile(g, o, &m.plan));
    assert_ok(tn_context_new(TN_CPU, 1, &m.context));
    assert_ok(tn_bind(m.plan, m.context, NULL, &m.bound));
    return m;
}

static void stop(machine *m)
{
    tn_bound_free(m->bound);
    tn_context_free(m->context);
    tn_plan_free(m->plan);
}

/* Rows that are not kept do not reach the result, nor does a gradient reach them, even if they are NaN. */
static void kept_rows_only(void)
{
    const int32_t keep[N] = { 1, 0, 0, 1, 1, 0, 1, 0, 0, 1 };
    tn_graph *g;
    tn_ref index, count;
    assert_ok(tn_graph_new(&(tn_graph_options){ 0 }, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(N, W), TN_F32));
    tn_compact(g, tn_input(g, "keep", tn_shape(N), TN_I32), &index, &count);
    index = tn_live(g, index, count);
    const tn_ref y = tn_scatter_rows(g, tn_copy(g, tn_gather_rows(g, x, index)), index, N);
    tn_output(g, "y", y);
    const tn_seed seed = { y, tn_input(g, "dy", tn_shape(N, W), TN_F32) };
    machine m = start(g, &(tn_compile_options){ .seeds = &seed, .n_seeds = 1 });
    float *in = tn_bound_data(m.bound, "x"), *dy = tn_bound_data(m.bound, "dy");
    memcpy(tn_bound_data(m.bound, "keep"), keep, sizeof keep);
    for (int i = 0; i < N * W; i++) in[i] = keep[i / W] ? (float)i : 0.f / 0.f, dy[i] = (float)(i + 1);
    assert_ok(tn_run(m.bound));
    const float *out = tn_bound_data(m.bound, "y"), *dx = tn_bound_data(m.bound, "d.x");
    for (int i = 0; i < N * W; i++) {
        assert_true(out[i] == (keep[i / W] ? (float)i : 0.f));
        assert_true(dx[i] == (keep[i / W] ? (float)(i + 1) : 0.f));
    }
    stop(&m);
}

/* A tail of -1 without a live extent is an error that says what to do, for both ops. */
static void index_outside(void)
{
    for (int scatter = 0; scatter < 2; scatter++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&(tn_graph_options){ 0 }, &g));
        const tn_ref x = tn_input(g, "x", tn_shape(N, W), TN_F32), index = tn_input(g, "index", tn_shape(N), TN_I32);
        tn_output(g, "y", scatter ? tn_scatter_rows(g, x, index, N) : tn_gather_rows(g, x, index));
        machine m = start(g, &(tn_compile_options){ 0 });
        int32_t *i = tn_bound_data(m.bound, "index");
        memset(tn_bound_data(m.bound, "x"), 0, sizeof(float) * N * W);
        for (int k = 0; k < N; k++) i[k] = k < N - 1 ? k : -1;
        assert_fails(tn_run(m.bound), TN_USAGE,
                     "index -1 at position 9 is outside [0, 10): give the index a live extent");
        i[N - 1] = N;
        assert_fails(tn_run(m.bound), TN_USAGE, "index 10");
        i[N - 1] = 0;
        assert_ok(tn_run(m.bound));
        stop(&m);
    }
}

static const tn_property properties[] = { { "only kept rows come and go", kept_rows_only },
                                          { "an index outside", index_outside } };

static const tn_op_test test = {
    .op = "compact",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_compact(tn_test_list *l) { tn_optest_add(l, &test); }
