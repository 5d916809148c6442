/* kl: rows (dim = B, T, V, temperature * 4) and properties. */
#include "losses.h"

#include "base/rng.h"

#include <tenon/ops.h>

enum { WEIGHTS = 1, LIVE = 2, ALIVE = 3 };

static const tn_case cases[] = {
    { "small", { 2, 3, 5, 0 }, 0, 2e-6f, 2e-2f },
    { "temperature", { 2, 3, 9, 10 }, WEIGHTS, 2e-6f, 2e-2f },
    { "cold", { 1, 4, 7, 2 }, 0, 3e-6f, 2e-2f },
    { "one class", { 1, 3, 1, 0 }, 0, 1e-6f, 2e-2f },
    { "large", { 3, 41, 301, 6 }, WEIGHTS | TN_FEW, 5e-6f, 2e-2f },
    { "wide", { 1, 3, 5003, 0 }, TN_FEW, 5e-6f, 2e-2f },
    { "empty", { 0, 3, 5, 0 }, WEIGHTS, 1e-6f, 2e-2f },
    { "live", { 5, 2, 6, 0 }, LIVE | TN_NO_GRAD, 2e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const tn_dims d = tn_shape(c->dim[0], c->dim[1], c->dim[2]);
    tn_graph *g = tn_test_graph(io);
    tn_ref t = tn_test_input(io, d, losses_uniform(-2, 2)), w = TN_NONE;
    const tn_ref s = tn_test_input(io, d, losses_uniform(-2, 2));
    if (c->flags & WEIGHTS) w = tn_test_input(io, tn_shape(d.dim[0], d.dim[1]), losses_uniform(0.5, 2));
    if (c->flags & LIVE) t = tn_live(g, t, tn_test_input(io, tn_shape(1), losses_int(ALIVE, ALIVE + 1)));
    tn_test_output(io, tn_kl(g, t, s, .temperature = (float)c->dim[3] / 4, .weights = w));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t V = c->dim[2], n = (c->flags & LIVE ? ALIVE : c->dim[0]) * c->dim[1];
    const double T = c->dim[3] ? (double)c->dim[3] / 4 : 1;
    double *t = calloc((size_t)V, sizeof *t), *s = calloc((size_t)V, sizeof *s), sum = 0, total = 0;
    assert_true(t && s);
    for (int64_t r = 0; r < n; r++) {
        const double w = c->flags & WEIGHTS ? o->in[2][r] : 1;
        double kl = 0;
        for (int64_t v = 0; v < V; v++) {
            t[v] = o->in[0][r * V + v] / T;
            s[v] = o->in[1][r * V + v] / T;
        }
        const double lt = losses_lse(t, V), ls = losses_lse(s, V);
        for (int64_t v = 0; v < V; v++) kl += exp(t[v] - lt) * ((t[v] - lt) - (s[v] - ls));
        sum += w * kl;
        total += w;
    }
    o->out[0][0] = total == 0 ? 0 : T * T * sum / total;
    free(t);
    free(s);
}

static const tn_op_test test;

enum { N = 4, V = 37 };

static void draw(float *x, uint64_t stream)
{
    for (int i = 0; i < N * V; i++) x[i] = 2 * tn_rng_normal((tn_rng){ 7, stream }, (uint64_t)i);
}

static void equal_rows_give_zero(void)
{
    const tn_case c = { "", { 1, N, V, 6 }, 0, 0, 0 };
    float t[N * V], loss, dt[N * V], ds[N * V];
    draw(t, 1);
    tn_optest_run(&test, &c, 1, (const void *[]){ t, t }, (void *[]){ &loss }, (void *[]){ dt, ds }, NULL);
    assert_true(loss == 0);
    for (int i = 0; i < N * V; i++) assert_true(dt[i] == 0 && ds[i] == 0);
}

static void shifts_change_nothing(void)
{
    const tn_case c = { "", { 1, N, V, 8 }, 0, 0, 0 };
    float t[N * V], s[N * V], loss[2], ds[2][N * V];
    draw(t, 1);
    draw(s, 2);
    for (int k = 0; k < 2; k++) {
        tn_optest_run(&test, &c, 1, (const void *[]){ t, s }, (void *[]){ &loss[k] }, (void *[]){ NULL, ds[k] }, NULL);
        for (int i = 0; i < N * V; i++) t[i] += 16, s[i] -= 8;
    }
    assert_true(loss[0] > 0);
    losses_close(&loss[0], &loss[1], 1, 1e-5);
    losses_close(ds[0], ds[1], N * V, 1e-5);
}

/* With a teacher that is sure, KL is the student's cross-entropy. */
static void sure_teacher_is_cross_entropy(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    float t[N * V], s[N * V], loss[2], ds[N * V], ds2[N * V];
    int32_t y[N];
    draw(s, 2);
    for (int r = 0; r < N; r++) {
        y[r] = 5 * r + 1;
        for (int v = 0; v < V; v++) t[r * V + v] = v == y[r] ? 0 : -INFINITY;
    }
    const losses_io in[] = { { "t", t, sizeof t }, { "s", s, sizeof s }, { "y", y, sizeof y }, { 0 } };
    for (int k = 0; k < 2; k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref student = tn_want_gradient(g, tn_input(g, "s", tn_shape(N, V), TN_F32));
        const tn_ref loss_ref = k ? tn_xent(g, student, tn_input(g, "y", tn_shape(N), TN_I32))
                                  : tn_kl(g, tn_input(g, "t", tn_shape(N, V), TN_F32), student);
        tn_output(g, "loss", loss_ref);
        const losses_io out[] = { { "loss", &loss[k], sizeof loss[k] }, { "d.s", k ? ds2 : ds, sizeof ds }, { 0 } };
        assert_ok(losses_run(g, loss_ref, 1, k ? in + 1 : (const losses_io[]){ in[0], in[1], { 0 } }, out));
    }
    losses_close(&loss[0], &loss[1], 1, 1e-5);
    losses_close(ds, ds2, N * V, 1e-6);
}

static void bad_temperature_is_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    tn_graph *g;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref t = tn_input(g, "t", tn_shape(2, 3), TN_F32);
    tn_kl(g, t, t, .temperature = -1);
    assert_fails(tn_graph_status(g), TN_USAGE, "temperature -1");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "KL(p,p) = 0, and so are its gradients", equal_rows_give_zero },
    { "shifts of logits change nothing", shifts_change_nothing },
    { "a sure teacher gives cross-entropy", sure_teacher_is_cross_entropy },
    { "a bad temperature is refused", bad_temperature_is_refused },
};

static const tn_op_test test = { .op = "kl",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_kl(tn_test_list *l) { tn_optest_add(l, &test); }
