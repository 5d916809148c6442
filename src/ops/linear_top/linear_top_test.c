/* linear_top: rows (dim = B, T, d, V, K, temperature * 4) and properties. */
#include "losses.h"
#include "world.h"

#include "base/rng.h"

#include <tenon/ops.h>

enum { T_LABELS = 1 << 12, T_TIES = 1 << 13 };
enum { NO = TN_NO_GRAD | TN_NO_NAN }; /* a NaN is a property: ids are whole numbers */

static const tn_case cases[] = {
    { "small", { 2, 3, 4, 7, 3, 0 }, NO, 2e-6f, 0 },
    { "all of them", { 2, 3, 4, 9, 9, 8 }, NO, 2e-6f, 0 },
    { "one", { 3, 2, 4, 11, 1, 8 }, NO, 2e-6f, 0 },
    { "one class", { 3, 2, 4, 1, 1, 8 }, NO, 2e-6f, 0 },
    { "labels", { 5, 7, 4, 33, 8, 2 }, NO | T_LABELS, 3e-6f, 0 },
    { "ties", { 3, 7, 2, 60, 16, 4 }, NO | T_TIES, 3e-6f, 0 },
    { "tiles", { 3, 101, 5, 37, 5, 8 }, NO | T_LABELS, 3e-6f, 0 },
    { "blocks", { 1, 9, 5, 4101, 64, 8 }, NO, 5e-6f, 0 },
    { "more than a block", { 1, 3, 4, 5000, 2500, 8 }, NO, 5e-6f, 0 },
    { "frozen half", { 2, 5, 8, 19, 6, 8 }, NO | L_HALF, 3e-6f, 0 },
    { "all ignored", { 1, 6, 3, 5, 2, 8 }, NO | T_LABELS | L_ALL_IGNORED, 1e-6f, 0 },
    { "empty", { 0, 3, 4, 5, 2, 8 }, NO, 1e-6f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], d = c->dim[2], V = c->dim[3];
    tn_ref y = TN_NONE, logits, lse;
    const tn_ref x = tn_test_input(io, tn_shape(B, T, d), (tn_fill_spec){ 0 });
    const tn_ref w = tn_test_input(io, tn_shape(V, d),
                                   (tn_fill_spec){ .dtype = c->flags & L_HALF ? TN_BF16 : TN_F32, .constant = true });
    if (c->flags & T_LABELS) y = tn_test_input(io, tn_shape(B, T), losses_int(0, V));
    const tn_ref ids = tn_linear_top(tn_test_graph(io), x, w, c->dim[4], .labels = y,
                                     .temperature = (float)c->dim[5] / 4, .logits = &logits, .lse = &lse);
    tn_test_output(io, ids);
    tn_test_output(io, logits);
    tn_test_output(io, lse);
}

/* Whole numbers multiply without rounding: many logits are equal. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input < 2 && c->flags & T_TIES && i < n; i++) x[i] = floor(1.5 * x[i]);
    for (int64_t i = 0; input == 2 && i < n; i++)
        if (c->flags & L_ALL_IGNORED || i % 3 == 1) x[i] = -1;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t n = c->dim[0] * c->dim[1], d = c->dim[2], V = c->dim[3], K = c->dim[4];
    const double T = c->dim[5] ? (double)c->dim[5] / 4 : 1;
    double *s = calloc((size_t)V, sizeof *s), *scaled = calloc((size_t)V, sizeof *s);
    assert_true(s && scaled);
    for (int64_t r = 0; r < n; r++) {
        double most = -INFINITY;
        if (c->flags & T_LABELS && o->in[2][r] == -1) continue;
        for (int64_t v = 0; v < V; v++) {
            s[v] = 0;
            for (int64_t i = 0; i < d; i++) s[v] += o->in[0][r * d + i] * o->in[1][v * d + i];
            most = fmax(most, s[v]);
        }
        for (int64_t v = 0; v < V; v++) scaled[v] = (s[v] - most) / T;
        o->out[2][r] = losses_lse(scaled, V);
        for (int64_t k = 0; k < K; k++) {
            int64_t at = 0;
            for (int64_t v = 1; v < V; v++)
                if (s[v] > s[at]) at = v;
            o->out[0][r * K + k] = (double)at;
            o->out[1][r * K + k] = s[at] - most;
            s[at] = -INFINITY;
        }
    }
    free(s);
    free(scaled);
}

static const tn_op_test test;

enum { N = 4, D = 3, V = 2100, K = 5 };

/* A NaN stays in its row; a class that is out of the question comes last. */
static void odd_numbers(void)
{
    static const tn_case c = { "", { 1, N, D, V, K, 8 }, 0, 0, 0 };
    float x[N * D], w[V * D], logits[N * K], lse[N];
    int32_t ids[N * K];
    for (int i = 0; i < N * D; i++) x[i] = tn_rng_normal((tn_rng){ 3, 1 }, (uint64_t)i);
    for (int i = 0; i < V * D; i++) w[i] = tn_rng_normal((tn_rng){ 3, 2 }, (uint64_t)i);
    x[1 * D] = NAN;
    tn_optest_run(&test, &c, 2, (const void *[]){ x, w }, (void *[]){ ids, logits, lse }, (void *[]){ NULL, NULL },
                  NULL);
    for (int r = 0; r < N; r++) {
        assert_true(isnan(lse[r]) == (r == 1));
        for (int k = 0; k < K; k++) {
            assert_true(isnan(logits[r * K + k]) == (r == 1));
            if (r == 1) assert_int_equal(ids[r * K + k], k);
            else if (k) assert_true(logits[r * K + k] <= logits[r * K + k - 1]);
        }
        if (r != 1) assert_true(logits[r * K] == 0 && lse[r] > 0);
    }
}

/* softmax over all classes, from the K best and the logsumexp. */
static void probabilities_are_of_all_classes(void)
{
    static const tn_case c = { "", { 1, N, D, V, K, 6 }, 0, 0, 0 };
    float x[N * D], w[V * D], logits[N * K], lse[N];
    int32_t ids[N * K];
    for (int i = 0; i < N * D; i++) x[i] = tn_rng_normal((tn_rng){ 4, 1 }, (uint64_t)i);
    for (int i = 0; i < V * D; i++) w[i] = tn_rng_normal((tn_rng){ 4, 2 }, (uint64_t)i);
    tn_optest_run(&test, &c, 1, (const void *[]){ x, w }, (void *[]){ ids, logits, lse }, (void *[]){ NULL, NULL },
                  NULL);
    for (int r = 0; r < N; r++) {
        double sum = 0, s[V];
        for (int v = 0; v < V; v++) {
            s[v] = 0;
            for (int i = 0; i < D; i++) s[v] += (double)x[r * D + i] * (double)w[v * D + i] / 1.5;
            sum += exp(s[v]);
        }
        for (int k = 0; k < K; k++) {
            const double p = exp((double)logits[r * K + k] / 1.5 - (double)lse[r]), q = exp(s[ids[r * K + k]]) / sum;
            assert_true(fabs(p - q) < 2e-6 * q);
        }
    }
}

static void wrong_calls_are_refused(void)
{
    static const struct {
        int64_t w, k;
        tn_dtype labels;
        float temperature;
        const char *says;
    } bad[] = {
        { 2, 1, TN_I32, 1, "w must be floats of shape (V,3)" },
        { 3, 0, TN_I32, 1, "the 0 largest of 5 classes" },
        { 3, 6, TN_I32, 1, "the 6 largest of 5 classes" },
        { 3, 1, TN_I64, 1, "labels must be i32" },
        { 3, 1, TN_I32, -1, "temperature -1" },
    };
    for (size_t i = 0; i < TN_COUNT(bad); i++) {
        tn_graph *g = tn_world_graph(NULL);
        tn_linear_top(g, tn_input(g, "x", tn_shape(2, 3), TN_F32), tn_input(g, "w", tn_shape(5, bad[i].w), TN_F32),
                      bad[i].k, .labels = tn_input(g, "y", tn_shape(2), bad[i].labels),
                      .temperature = bad[i].temperature);
        assert_fails(tn_graph_status(g), TN_USAGE, bad[i].says);
        tn_graph_free(g);
    }
}

static const tn_property properties[] = {
    { "a NaN stays in its row", odd_numbers },
    { "probabilities are of all classes", probabilities_are_of_all_classes },
    { "wrong calls are refused", wrong_calls_are_refused },
};

static const tn_op_test test = { .op = "linear_top",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_linear_top(tn_test_list *l) { tn_optest_add(l, &test); }
