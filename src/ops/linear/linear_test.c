/* linear: rows (dim = R1, R2, k, n; x is (R1,R2,k), or (R1,k) when R2 is 0), activations, halves, live rows, odd
 * views. */
#include "optest.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BIAS = 1 << 4,
    RESIDUAL = 1 << 5,
    HALF_W = 1 << 6,     /* w is a frozen f16 tensor */
    LIVE = 1 << 7,       /* the last two rows of x are dead */
    TRANSPOSED = 1 << 8, /* x, w and residual are transposed views */
    VECTOR = 1 << 9,     /* x is (k) */
    TWIN = 1 << 10,      /* what opt.epilogue=off builds */
    DEEP = 1 << 11,      /* a second product, with v (DEEP_N,n), reads the first one's result */
    NORMED = 1 << 12,    /* layernorm of the result and one more tensor, without weights: it makes the bias' gradient */
    SUMMED = 1 << 13,    /* ... and the sum is read too */
    ACT = 15
};

enum { DEEP_N = 16 };

static const tn_case cases[] = {
    /*               R1   R2  k    n */
    { "matrix", { 5, 0, 7, 3 }, 0, 2e-6f, 2e-2f },
    { "vector", { 1, 0, 9, 4 }, VECTOR | BIAS, 2e-6f, 2e-2f },
    { "bias", { 3, 4, 17, 9 }, BIAS, 2e-6f, 2e-2f },
    { "gelu", { 3, 5, 11, 6 }, TN_ACT_GELU | BIAS, 4e-6f, 2e-2f },
    { "gelu erf", { 3, 5, 11, 6 }, TN_ACT_GELU_ERF | BIAS, 4e-6f, 2e-2f },
    { "silu", { 3, 5, 11, 6 }, TN_ACT_SILU | BIAS | RESIDUAL, 4e-6f, 2e-2f },
    { "tanh", { 3, 5, 11, 6 }, TN_ACT_TANH, 4e-6f, 2e-2f },
    { "sigmoid", { 3, 5, 11, 6 }, TN_ACT_SIGMOID | RESIDUAL, 4e-6f, 2e-2f },
    { "relu", { 3, 5, 11, 6 }, TN_ACT_RELU | BIAS, 4e-6f, 0 },
    { "residual", { 2, 6, 5, 8 }, RESIDUAL, 2e-6f, 2e-2f },
    { "half weights", { 4, 3, 20, 10 }, HALF_W | BIAS, 2e-6f, 2e-2f },
    { "transposed", { 3, 5, 11, 6 }, TRANSPOSED | TN_NO_VIEWS | TN_ACT_SILU | BIAS | RESIDUAL, 4e-6f, 0 },
    { "live", { 6, 3, 8, 5 }, LIVE | TN_ACT_GELU | BIAS | RESIDUAL, 4e-6f, 0 },
    { "large", { 3, 110, 300, 130 }, TN_ACT_GELU | BIAS | RESIDUAL | TN_FEW, 4e-6f, 2e-2f },
    { "vectors", { 5, 40, 24, 264 }, BIAS | TN_FEW, 4e-6f, 2e-2f },
    { "vectors, gelu", { 5, 40, 24, 264 }, TN_ACT_GELU | BIAS | TN_FEW, 4e-6f, 2e-2f },
    { "vectors, silu", { 5, 40, 24, 264 }, TN_ACT_SILU | BIAS | RESIDUAL | TN_FEW, 4e-6f, 2e-2f },
    { "deep, gelu", { 3, 7, 16, 24 }, DEEP | TN_ACT_GELU | BIAS, 4e-6f, 2e-2f },
    { "deep, silu", { 3, 7, 16, 24 }, DEEP | TN_ACT_SILU | BIAS, 4e-6f, 2e-2f },
    { "deep, odd", { 3, 7, 5, 9 }, DEEP | TN_ACT_GELU | BIAS, 4e-6f, 2e-2f },
    { "normed", { 3, 7, 16, 24 }, NORMED | BIAS, 8e-6f, 3e-2f },
    { "normed, summed", { 3, 7, 16, 24 }, NORMED | SUMMED | BIAS, 8e-6f, 3e-2f },
    { "normed, odd", { 3, 5, 11, 7 }, NORMED | SUMMED | BIAS, 8e-6f, 3e-2f },
    { "normed, wide", { 2, 45, 8, 776 }, NORMED | SUMMED | BIAS | TN_FEW, 8e-6f, 3e-2f },
    { "normed, long", { 1, 9, 8, 4104 }, NORMED | BIAS | TN_FEW, 8e-6f, 3e-2f },
    { "normed, deep", { 3, 7, 16, 24 }, NORMED | DEEP | BIAS, 8e-6f, 3e-2f },
    { "twin", { 3, 5, 11, 6 }, TWIN | TN_ACT_GELU_ERF | BIAS | RESIDUAL, 4e-6f, 3e-2f },
    { "twin vector", { 1, 0, 9, 4 }, TWIN | VECTOR | TN_ACT_RELU | BIAS, 4e-6f, 0 },
    { "twin live", { 6, 3, 8, 5 }, TWIN | LIVE | TN_ACT_SILU | BIAS, 4e-6f, 0 },
    { "no rows", { 0, 4, 7, 3 }, TN_ACT_SILU | BIAS | RESIDUAL, 1e-6f, 0 },
    { "no inputs", { 3, 0, 0, 4 }, BIAS, 1e-6f, 0 },
    { "no outputs", { 3, 0, 4, 0 }, BIAS | TN_NO_GRAD, 1e-6f, 0 },
};

/* (R1,R2,n) or (R1,n); TRANSPOSED draws it with its last two axes exchanged. */
static tn_ref draw(tn_op_io *io, const tn_case *c, int64_t n)
{
    const int64_t R1 = c->dim[0], R2 = c->dim[1];
    tn_graph *g = tn_test_graph(io);
    if (c->flags & TRANSPOSED)
        return tn_transpose(g, tn_test_input(io, tn_shape(n, R1, R2), (tn_fill_spec){ 0 }), 1, 2, 0);
    if (c->flags & VECTOR) return tn_test_input(io, tn_shape(n), (tn_fill_spec){ 0 });
    return tn_test_input(io, R2 ? tn_shape(R1, R2, n) : tn_shape(R1, n), (tn_fill_spec){ 0 });
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t k = c->dim[2], n = c->dim[3];
    const bool turned = c->flags & TRANSPOSED;
    tn_graph *g = tn_test_graph(io);
    tn_ref x = draw(io, c, k), bias = TN_NONE, residual = TN_NONE;
    tn_ref w = tn_test_input(io, turned ? tn_shape(k, n) : tn_shape(n, k),
                             (tn_fill_spec){ .dtype = c->flags & HALF_W ? TN_F16 : TN_F32 });
    if (turned) w = tn_transpose(g, w, 1, 0);
    if (c->flags & BIAS) bias = tn_test_input(io, tn_shape(n), (tn_fill_spec){ 0 });
    if (c->flags & RESIDUAL) residual = draw(io, c, n);
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ TN_FILL_INT, .lo = 4, .hi = 5 }));
    const tn_linear_attr attr = { .act = c->flags & ACT };
    tn_ref out[2], y;
    if (c->flags & TWIN) {
        assert_ok(tn_op_linear.plain(g, &attr, (const tn_ref[]){ x, w, bias, residual }, 4, out));
        y = out[0];
    } else {
        y = tn_linear(g, x, w, .bias = bias, .act = c->flags & ACT, .residual = residual);
    }
    if (c->flags & NORMED) {
        tn_ref sum;
        y = tn_layernorm(g, y, TN_NONE, TN_NONE, .residual = draw(io, c, n), .sum = &sum);
        if (c->flags & SUMMED) y = tn_add(g, y, sum);
    }
    if (c->flags & DEEP) y = tn_linear(g, y, tn_test_input(io, tn_shape(DEEP_N, n), (tn_fill_spec){ 0 }));
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, 4) : y);
}

static double act(int kind, double x)
{
    switch (kind) {
    case TN_ACT_GELU: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case TN_ACT_GELU_ERF: return 0.5 * x * erfc(-x / sqrt(2));
    case TN_ACT_SILU: return x / (1 + exp(-x));
    case TN_ACT_TANH: return tanh(x);
    case TN_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TN_ACT_RELU: return x < 0 ? 0 : x;
    default: return x;
    }
}

/* h (rows,n) becomes layernorm(h + r), plus h + r where the sum is read */
static void oracle_normed(const tn_case *c, double *h, const double *r, int64_t rows)
{
    const int64_t n = c->dim[3];
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0, square = 0;
        for (int64_t j = 0; j < n; j++) mean += (h[i * n + j] += r[i * n + j]) / (double)n;
        for (int64_t j = 0; j < n; j++) square += (h[i * n + j] - mean) * (h[i * n + j] - mean) / (double)n;
        for (int64_t j = 0; j < n; j++)
            h[i * n + j] = (h[i * n + j] - mean) / sqrt(square + 1e-5) + (c->flags & SUMMED ? h[i * n + j] : 0);
    }
}

/* y (rows,DEEP_N) of h (rows,n) and v, the last input */
static void oracle_deep(const tn_case *c, const double *h, int64_t rows, tn_oracle *o)
{
    const int64_t n = c->dim[3];
    const double *v = o->in[(c->flags & BIAS ? 3 : 2) + (c->flags & NORMED ? 1 : 0)];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < DEEP_N; j++) {
            double s = 0;
            for (int64_t p = 0; p < n; p++) s += h[i * n + p] * v[j * n + p];
            o->out[0][i * DEEP_N + j] = s;
        }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t all = c->dim[0] * (c->dim[1] ? c->dim[1] : 1), k = c->dim[2], n = c->dim[3];
    const int64_t rows = c->flags & LIVE ? 4 * c->dim[1] : all;
    const bool turned = c->flags & TRANSPOSED;
    const double *x = o->in[0], *w = o->in[1], *b = c->flags & BIAS ? o->in[2] : NULL;
    const double *res = c->flags & RESIDUAL ? o->in[c->flags & BIAS ? 3 : 2] : NULL;
    double *y = c->flags & DEEP ? calloc((size_t)(rows * n), sizeof *y) : o->out[0];
    assert_non_null(y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            const double *row = x + (turned ? i : i * k), *column = w + (turned ? j : j * k);
            double s = b ? b[j] : 0;
            for (int64_t p = 0; p < k; p++) s += row[p * (turned ? all : 1)] * column[p * (turned ? n : 1)];
            y[i * n + j] = act(c->flags & ACT, s) + (res ? res[turned ? j * all + i : i * n + j] : 0);
        }
    if (c->flags & NORMED) oracle_normed(c, y, o->in[c->flags & BIAS ? 3 : 2], rows);
    if (y == o->out[0]) return;
    oracle_deep(c, y, rows, o);
    free(y);
}

static const tn_op_test test;

/* A row's bits do not depend on how many rows there are: decoding one token equals prefilling many. */
static void rows_stand_alone(void)
{
    enum { R = 37, K = 70, N = 21 };
    if (tn_test_device() != TN_CPU) return; /* there the library chooses an algorithm by the shape */
    float x[R * K], w[N * K], whole[R * N], one[N];
    for (int i = 0; i < R * K; i++) x[i] = sinf((float)i);
    for (int i = 0; i < N * K; i++) w[i] = cosf(0.7f * (float)i);
    const tn_case many = { "many", { R, 0, K, N }, TN_ACT_SILU, 1, 0 },
                  single = { "one", { 1, 0, K, N }, TN_ACT_SILU, 1, 0 };
    tn_optest_run(&test, &many, 2, (const void *[]){ x, w }, (void *[]){ whole }, NULL, NULL);
    for (int i = 0; i < R; i += 9) {
        tn_optest_run(&test, &single, 1, (const void *[]){ x + i * K, w }, (void *[]){ one }, NULL, NULL);
        assert_memory_equal(one, whole + i * N, sizeof one);
    }
}

/* Dead rows may hold anything: no gradient sees them. */
static void dead_rows_do_not_count(void)
{
    enum { R1 = 6, R2 = 2, K = 5, N = 4 };
    const tn_case c = { "live", { R1, R2, K, N }, LIVE | BIAS | TN_ACT_TANH, 1, 0 };
    float x[R1 * R2 * K], w[N * K], b[N] = { 1, 2, 3, 4 }, y[2][4 * R2 * N], dw[2][N * K], db[2][N], dx[2][R1 * R2 * K];
    const int32_t live = 4;
    for (int i = 0; i < N * K; i++) w[i] = cosf((float)i);
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < R1 * R2 * K; i++) x[i] = i < 4 * R2 * K ? 0.1f * sinf((float)i) : run ? NAN : 1.f;
        tn_optest_run(&test, &c, 1, (const void *[]){ x, w, b, &live }, (void *[]){ y[run] },
                      (void *[]){ dx[run], dw[run], db[run], NULL }, NULL);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
    assert_memory_equal(db[0], db[1], sizeof db[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    for (int i = 4 * R2 * K; i < R1 * R2 * K; i++) assert_float_equal(dx[0][i], 0, 0);
}

static void shapes_are_checked(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_linear(g, tn_input(g, "x", tn_shape(2, 3), TN_F32), tn_input(g, "w", tn_shape(4, 5), TN_F32));
    assert_fails(tn_graph_status(g), TN_USAGE, "the last axis of x is 3");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "a row does not depend on the others", rows_stand_alone },
    { "dead rows do not count", dead_rows_do_not_count },
    { "shapes are checked", shapes_are_checked },
};

static const tn_op_test test = { .op = "linear",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_linear(tn_test_list *l) { tn_optest_add(l, &test); }
