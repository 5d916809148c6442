/* scan_gated: rows (dim = B, T, K, chunk) against the formula in double, and properties. */
#include "optest.h"

#include "base/rng.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STATE = 1, RESET = 2, CLAMPED = 4, TWIN = 8, LONG_MEMORY = 16, FIXED_GATES = 32 };

static const tn_case cases[] = {
    { "short", { 2, 7, 3, 4 }, 0, 1e-5f, 3e-2f },
    { "one token", { 2, 1, 5, 0 }, STATE, 1e-5f, 2e-2f },
    { "odd", { 2, 33, 19, 8 }, STATE | RESET, 1e-5f, 3e-2f },
    { "clamped", { 1, 9, 4, 4 }, STATE | CLAMPED, 1e-3f, 3e-2f }, /* nu hardly matters: its differences lose digits */
    { "fixed gates", { 2, 9, 4, 0 }, STATE | FIXED_GATES, 1e-5f, 3e-2f },
    { "many tiles", { 5, 40, 70, 0 }, STATE | RESET | TN_FEW, 1e-5f, 3e-2f },
    { "long memory", { 1, 300, 5, 64 }, STATE | LONG_MEMORY | TN_FEW, 1e-5f, 0 },
    { "pairs of channels", { 2, 300, 34, 0 }, STATE | RESET | TN_FEW, 1e-5f, 3e-2f },
    { "no row", { 0, 5, 3, 0 }, STATE | RESET, 1e-5f, 2e-2f },
    { "no token", { 2, 0, 3, 0 }, STATE, 1e-5f, 2e-2f },
    { "twin", { 2, 33, 19, 8 }, STATE | RESET | TWIN, 1e-5f, 0 },
};

static tn_fill_spec uniform(double lo, double hi)
{
    return (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = lo, .hi = hi };
}

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const int64_t B = c->dim[0], T = c->dim[1], K = c->dim[2];
    tn_fill_spec gate = uniform(0.05, 1);
    tn_fill_spec nu = c->flags & CLAMPED ? uniform(-8, -6) : c->flags & LONG_MEMORY ? uniform(-9, -6) : uniform(-4, 1);
    gate.constant = nu.constant = c->flags & FIXED_GATES;
    tn_ref in[TN_GATED_INPUTS] = { { 0 } }, out[2];
    in[TN_GATED_X] = tn_test_input(io, tn_shape(B, T, 2 * K), (tn_fill_spec){ 0 });
    in[TN_GATED_RI] = tn_test_input(io, tn_shape(B, T, 2 * K), gate);
    in[TN_GATED_NU] = tn_test_input(io, tn_shape(K), nu);
    in[TN_GATED_OMEGA] = tn_test_input(io, tn_shape(K), uniform(-3, 3));
    if (c->flags & STATE) in[TN_GATED_STATE] = tn_test_input(io, tn_shape(B, 2 * K), (tn_fill_spec){ 0 });
    if (c->flags & RESET)
        in[TN_GATED_RESET] = tn_test_input(io, tn_shape(B, T), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 2 });
    const tn_scan_gated_attr attr = { .chunk = c->dim[3] ? c->dim[3] : TN_SCAN_CHUNK };
    if (c->flags & TWIN) assert_ok(tn_op_scan_gated.plain(g, &attr, in, TN_GATED_INPUTS, out));
    else
        out[0] = tn_scan_gated(g, in[0], in[1], in[2], in[3], .state = in[TN_GATED_STATE], .reset = in[TN_GATED_RESET],
                               .final = &out[1], .chunk = c->dim[3]);
    tn_test_output(io, out[0]);
    tn_test_output(io, out[1]);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == 1 && c->flags & CLAMPED && i < n; i++)
        if (i / c->dim[2] % 2 == 0) x[i] *= 1e-6; /* r so small that 1 - rho^2 is below the floor */
    if (!(c->flags & RESET) || input != 4 + !!(c->flags & STATE)) return;
    for (int64_t i = 0; i < n; i++) x[i] = (uint32_t)((i + 5) * 2654435761u) >> 16 & 7 ? 0 : 1;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t B = c->dim[0], T = c->dim[1], K = c->dim[2];
    const double *x = o->in[0], *ri = o->in[1], *nu = o->in[2], *omega = o->in[3];
    const double *state = c->flags & STATE ? o->in[4] : NULL;
    const double *reset = c->flags & RESET ? o->in[4 + !!(c->flags & STATE)] : NULL;
    for (int64_t b = 0; b < B; b++)
        for (int64_t k = 0; k < K; k++) {
            double re = state ? state[b * 2 * K + k] : 0, im = state ? state[b * 2 * K + K + k] : 0;
            for (int64_t t = 0; t < T; t++) {
                const int64_t at = (b * T + t) * 2 * K + k;
                const double l = -8 * ri[at] * log1p(exp(nu[k])), rho = exp(l), v = -expm1(2 * l);
                const double gain = sqrt(v < 1e-6 ? 1e-6 : v) * ri[at + K];
                if (reset && reset[b * T + t] > 0) re = im = 0;
                const double lr = rho * cos(omega[k]), li = rho * sin(omega[k]), r = lr * re - li * im + gain * x[at];
                im = lr * im + li * re + gain * x[at + K];
                re = r;
                o->out[0][at] = re;
                o->out[0][at + K] = im;
            }
            o->out[1][b * 2 * K + k] = re;
            o->out[1][b * 2 * K + K + k] = im;
        }
}

/* --- properties --------------------------------------------------------------------------------------------------- */

static const tn_op_test test;

enum { ROOM = 4096 };

typedef struct trial {
    float in[5][ROOM], c[ROOM], last[ROOM], d[5][ROOM], dc[ROOM], dlast[ROOM];
    int32_t reset[ROOM];
} trial;

static trial *new_trial(void)
{
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int j = 0; j < ROOM; j++) {
        for (int i = 0; i < 5; i++) t->in[i][j] = (float)tn_rng_normal((tn_rng){ 5, (uint64_t)i }, (uint64_t)j);
        t->in[1][j] = 0.5f + 0.49f * tanhf(t->in[1][j]);
        t->dc[j] = (float)tn_rng_normal((tn_rng){ 6, 1 }, (uint64_t)j);
        t->dlast[j] = (float)tn_rng_normal((tn_rng){ 6, 2 }, (uint64_t)j);
    }
    return t;
}

static void run_trial(const tn_case *c, int threads, trial *t)
{
    const void *in[6] = { t->in[0], t->in[1], t->in[2], t->in[3] };
    void *out[2] = { t->c, t->last }, *d[6] = { t->d[0], t->d[1], t->d[2], t->d[3] };
    const float *cot[2] = { t->dc, t->dlast };
    int n = 4;
    if (c->flags & STATE) in[n] = t->in[4], d[n++] = t->d[4];
    if (c->flags & RESET) in[n] = t->reset;
    tn_optest_run(&test, c, threads, in, out, d, cot);
}

static void assert_near(const float *a, const float *b, int64_t n, float tolerance, const char *what)
{
    float scale = 0;
    for (int64_t i = 0; i < n; i++) scale = fmaxf(scale, fabsf(b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= tolerance * scale))
            fail_msg("%s, element %lld: %.9g instead of %.9g", what, (long long)i, (double)a[i], (double)b[i]);
}

/* Numbers, gradients and all: the fused op and its twin of plain ops. */
static void fused_equals_twin(void)
{
    enum { B = 2, T = 40, K = 9 };
    const tn_case fused = { "fused", { B, T, K, 16 }, STATE | RESET, 0, 0 },
                  twin = { "twin", { B, T, K, 16 }, STATE | RESET | TWIN, 0, 0 };
    const int64_t count[5] = { B * T * 2 * K, B * T * 2 * K, K, K, B * 2 * K };
    trial *a = new_trial(), *b = new_trial();
    a->reset[11] = b->reset[11] = a->reset[50] = b->reset[50] = 1;
    run_trial(&fused, 2, a);
    run_trial(&twin, 1, b);
    assert_near(a->c, b->c, B * T * 2 * K, 1e-5f, "c");
    assert_near(a->last, b->last, B * 2 * K, 1e-5f, "final");
    for (int i = 0; i < 5; i++) assert_near(a->d[i], b->d[i], count[i], 1e-5f, "gradient");
    free(a), free(b);
}

static void split_equals_whole(void)
{
    enum { T = 100, FIRST = 37, K = 6, X = 2 * K };
    const tn_case whole = { "whole", { 1, T, K, 16 }, STATE, 0, 0 },
                  first = { "first", { 1, FIRST, K, 16 }, STATE, 0, 0 },
                  second = { "second", { 1, T - FIRST, K, 16 }, STATE, 0, 0 };
    trial *w = new_trial(), *a = new_trial(), *b = new_trial();
    run_trial(&whole, 1, w);
    run_trial(&first, 1, a);
    memcpy(b->in[0], a->in[0] + FIRST * X, sizeof(float) * (T - FIRST) * X);
    memcpy(b->in[1], a->in[1] + FIRST * X, sizeof(float) * (T - FIRST) * X);
    memcpy(b->dc, a->dc + FIRST * X, sizeof(float) * (T - FIRST) * X);
    memcpy(b->in[4], a->last, sizeof(float) * X);
    run_trial(&second, 1, b);
    memcpy(a->dlast, b->d[4], sizeof(float) * X);
    run_trial(&first, 1, a);
    assert_near(a->c, w->c, FIRST * X, 1e-6f, "first half");
    assert_near(b->c, w->c + FIRST * X, (T - FIRST) * X, 1e-6f, "second half");
    assert_near(a->d[1], w->d[1], FIRST * X, 2e-6f, "dri");
    for (int k = 0; k < K; k++) a->d[2][k] += b->d[2][k], a->d[3][k] += b->d[3][k];
    assert_near(a->d[2], w->d[2], K, 1e-5f, "dnu");
    assert_near(a->d[3], w->d[3], K, 1e-5f, "domega");
    free(w), free(a), free(b);
}

static void no_leak(void)
{
    enum { T = 60, K = 6, X = 2 * K };
    const int64_t chunk[] = { 7, 256 };
    const int at[] = { 1, 7, 30, 59 };
    for (size_t i = 0; i < TN_COUNT(chunk); i++)
        for (size_t j = 0; j < TN_COUNT(at); j++) {
            const tn_case c = { "leak", { 1, T, K, chunk[i] }, STATE, 0, 0 };
            trial *a = new_trial(), *b = new_trial();
            for (int k = 0; k < X; k++) b->in[0][at[j] * X + k] += 100, b->in[1][at[j] * X + k] *= 0.5f;
            run_trial(&c, 1, a);
            run_trial(&c, 2, b);
            if (memcmp(a->c, b->c, sizeof(float) * (size_t)(at[j] * X))) fail_msg("token %d reached the past", at[j]);
            assert_true(memcmp(a->c + at[j] * X, b->c + at[j] * X, sizeof(float) * X));
            free(a), free(b);
        }
}

static void reset_equals_separate(void)
{
    enum { T = 50, FIRST = 21, K = 6, X = 2 * K };
    const tn_case both = { "both", { 1, T, K, 0 }, STATE | RESET, 0, 0 },
                  second = { "second", { 1, T - FIRST, K, 0 }, 0, 0, 0 };
    trial *a = new_trial(), *b = new_trial();
    a->reset[FIRST] = 1;
    a->in[0][5] = NAN;
    for (int i = 0; i < 2; i++) memcpy(b->in[i], a->in[i] + FIRST * X, sizeof(float) * (T - FIRST) * X);
    memcpy(b->dc, a->dc + FIRST * X, sizeof(float) * (T - FIRST) * X);
    run_trial(&both, 1, a);
    run_trial(&second, 1, b);
    assert_memory_equal(a->c + FIRST * X, b->c, sizeof(float) * (T - FIRST) * X);
    assert_memory_equal(a->last, b->last, sizeof(float) * X);
    assert_memory_equal(a->d[1] + FIRST * X, b->d[1], sizeof(float) * (T - FIRST) * X);
    free(a), free(b);
}

static const tn_property properties[] = {
    { "fused equals its twin", fused_equals_twin },
    { "split and carry equals one pass", split_equals_whole },
    { "future never reaches the past", no_leak },
    { "reset equals separate sequences", reset_equals_separate },
};

static const tn_op_test test = {
    .op = "scan_gated",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_scan_gated(tn_test_list *l) { tn_optest_add(l, &test); }
