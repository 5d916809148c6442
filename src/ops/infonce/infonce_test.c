/* infonce: rows (dim = N, d) and properties. */
#include "losses.h"

#include "base/rng.h"

#include <tenon/ops.h>

enum { TENSOR = 1, LIVE = 2, ALIVE = 3 };

static const tn_case cases[] = {
    { "small", { 4, 3 }, 0, 2e-6f, 2e-2f },
    { "one pair", { 1, 5 }, TENSOR, 1e-6f, 2e-2f },
    { "temperature", { 7, 5 }, TENSOR, 3e-6f, 2e-2f },
    { "several tiles", { 301, 9 }, TENSOR | TN_FEW, 1e-5f, 2e-2f },
    { "no features", { 5, 0 }, TENSOR, 1e-6f, 2e-2f },
    { "empty", { 0, 3 }, TENSOR, 1e-6f, 2e-2f },
    { "live", { 5, 4 }, LIVE | TN_NO_GRAD, 2e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    tn_ref a = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), (tn_fill_spec){ 0 }), t = TN_NONE;
    const tn_ref b = tn_test_input(io, tn_shape(c->dim[0], c->dim[1]), (tn_fill_spec){ 0 });
    if (c->flags & TENSOR) t = tn_test_input(io, tn_shape(1), losses_uniform(0.5, 1.5));
    if (c->flags & LIVE) a = tn_live(g, a, tn_test_input(io, tn_shape(1), losses_int(ALIVE, ALIVE + 1)));
    tn_test_output(io, tn_infonce(g, a, b, .temperature = t.id ? 0 : 0.75f, .temperature_tensor = t));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t n = c->flags & LIVE ? ALIVE : c->dim[0], d = c->dim[1];
    const double T = c->flags & TENSOR ? o->in[2][0] : 0.75;
    double *l = calloc((size_t)(2 * n * n) + 1, sizeof *l), *m = l + n * n, sum = 0; /* l and its transpose */
    assert_non_null(l);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            double s = 0;
            for (int64_t v = 0; v < d; v++) s += o->in[0][i * d + v] * o->in[1][k * d + v];
            l[i * n + k] = m[k * n + i] = s / T;
        }
    for (int64_t i = 0; i < n; i++) sum += losses_lse(l + i * n, n) + losses_lse(m + i * n, n) - 2 * l[i * n + i];
    o->out[0][0] = n ? sum / (2 * (double)n) : 0;
    free(l);
}

static const tn_op_test test;

enum { N = 9, D = 5 };

typedef struct sample {
    float a[N * D], b[N * D], t;
} sample;

typedef struct result {
    float loss, da[N * D], db[N * D], dt;
} result;

static sample draw(void)
{
    sample s = { .t = 0.5f };
    for (int i = 0; i < N * D; i++) {
        s.a[i] = tn_rng_normal((tn_rng){ 8, 1 }, (uint64_t)i);
        s.b[i] = tn_rng_normal((tn_rng){ 8, 2 }, (uint64_t)i);
    }
    return s;
}

static void run(const sample *s, result *r)
{
    const tn_case c = { "", { N, D }, TENSOR, 0, 0 };
    tn_optest_run(&test, &c, 1, (const void *[]){ s->a, s->b, &s->t }, (void *[]){ &r->loss },
                  (void *[]){ r->da, r->db, &r->dt }, NULL);
}

static void order_of_pairs_changes_nothing(void)
{
    const sample s = draw();
    sample p = s;
    result x, y;
    for (int i = 0; i < N; i++) {
        memcpy(p.a + (i * 4 % N) * D, s.a + i * D, sizeof(float) * D);
        memcpy(p.b + (i * 4 % N) * D, s.b + i * D, sizeof(float) * D);
    }
    run(&s, &x);
    run(&p, &y);
    losses_close(&x.loss, &y.loss, 1, 1e-5);
    losses_close(&x.dt, &y.dt, 1, 1e-5);
    for (int i = 0; i < N; i++) losses_close(x.da + i * D, y.da + (i * 4 % N) * D, D, 1e-5);
}

static void symmetric(void)
{
    const sample s = draw();
    sample p = s;
    result x, y;
    memcpy(p.a, s.b, sizeof p.a);
    memcpy(p.b, s.a, sizeof p.b);
    run(&s, &x);
    run(&p, &y);
    losses_close(&x.loss, &y.loss, 1, 1e-5);
    losses_close(x.da, y.db, N * D, 1e-5);
    losses_close(x.db, y.da, N * D, 1e-5);
}

/* l depends on a/T alone, so <a, da> = -T dT; and without any difference between pairs the loss is log N. */
static void temperature_is_a_scale(void)
{
    sample s = draw();
    result r;
    double dot = 0;
    run(&s, &r);
    for (int i = 0; i < N * D; i++) dot += (double)s.a[i] * (double)r.da[i];
    assert_true(fabs(dot + (double)s.t * (double)r.dt) < 1e-5);
    memset(s.a, 0, sizeof s.a);
    run(&s, &r);
    assert_true(fabs((double)r.loss - log(N)) < 1e-6);
}

static void bad_temperatures_are_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    for (int k = 0; k < 3; k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref a = tn_input(g, "a", tn_shape(2, 3), TN_F32), t = tn_scalar(g, "t", -0.5f);
        const tn_ref loss = tn_infonce(g, a, a,
                                       .temperature = k == 0   ? -1
                                                      : k == 1 ? 2
                                                               : 0,
                                       .temperature_tensor = k ? t : TN_NONE);
        if (k < 2) {
            assert_fails(tn_graph_status(g), TN_USAGE, k ? "not both" : "temperature -1");
            tn_graph_free(g);
            continue;
        }
        tn_output(g, "loss", loss);
        assert_fails(losses_run(g, TN_NONE, 1, (const losses_io[]){ { 0 } }, (const losses_io[]){ { 0 } }), TN_USAGE,
                     "must stay positive");
    }
}

static const tn_property properties[] = {
    { "the order of pairs changes nothing", order_of_pairs_changes_nothing },
    { "symmetric in a and b", symmetric },
    { "the temperature is a scale", temperature_is_a_scale },
    { "bad temperatures are refused", bad_temperatures_are_refused },
};

static const tn_op_test test = { .op = "infonce",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_infonce(tn_test_list *l) { tn_optest_add(l, &test); }
