/* conv_causal: rows (dim = B, T, C, W) against the formula in double, and properties. */
#include "optest.h"

#include "base/rng.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BIAS = 1,
    STATE = 2,
    RESET = 4,
    LIVE = 8,
    ONLY_BIAS = 16,
    SILU = 32
}; /* SILU: of y, one kernel with it on CUDA */

static const tn_case cases[] = {
    { "plain", { 2, 9, 5, 4 }, 0, 1e-6f, 2e-2f },
    { "all", { 2, 23, 7, 4 }, BIAS | STATE | RESET, 1e-6f, 2e-2f },
    { "one tap", { 2, 5, 3, 1 }, BIAS | STATE | RESET, 1e-6f, 2e-2f },
    { "eight taps", { 1, 30, 66, 8 }, STATE | RESET, 1e-6f, 2e-2f },
    { "shorter than state", { 2, 2, 3, 6 }, BIAS | STATE, 1e-6f, 2e-2f },
    { "short and reset", { 3, 3, 3, 6 }, STATE | RESET, 1e-6f, 2e-2f },
    { "one token", { 2, 1, 5, 4 }, BIAS | STATE, 1e-6f, 2e-2f },
    { "many tiles", { 3, 300, 131, 4 }, BIAS | STATE | RESET | TN_FEW, 1e-5f, 2e-2f },
    { "unbroken", { 2, 40, 37, 4 }, BIAS | STATE, 1e-6f, 2e-2f },
    { "unbroken, seven taps", { 1, 40, 21, 7 }, 0, 1e-6f, 2e-2f },
    { "channels in fours", { 2, 600, 12, 4 }, BIAS | STATE | RESET | TN_FEW, 1e-5f, 2e-2f },
    { "long", { 1, 2500, 3, 3 }, BIAS | RESET | TN_FEW, 1e-5f, 2e-2f },
    { "only bias", { 2, 9, 5, 4 }, BIAS | ONLY_BIAS, 1e-6f, 2e-2f },
    { "silu", { 2, 9, 5, 4 }, SILU, 1e-6f, 2e-2f },
    { "silu, all", { 2, 23, 7, 4 }, BIAS | STATE | RESET | SILU, 1e-6f, 2e-2f },
    { "silu, eight taps", { 1, 30, 66, 8 }, STATE | RESET | SILU, 1e-6f, 2e-2f },
    { "silu, shorter than state", { 2, 2, 8, 4 }, BIAS | STATE | SILU, 1e-6f, 2e-2f },
    { "silu, short and reset", { 3, 3, 8, 4 }, STATE | RESET | SILU, 1e-6f, 2e-2f },
    { "silu, unbroken", { 2, 70, 12, 4 }, SILU, 1e-6f, 2e-2f },
    { "silu, a span and one token", { 1, 65, 8, 4 }, BIAS | STATE | SILU, 1e-6f, 2e-2f },
    { "silu, channels in fours", { 2, 600, 12, 4 }, BIAS | STATE | RESET | SILU | TN_FEW, 1e-5f, 2e-2f },
    { "many rows", { 512, 70, 4, 4 }, BIAS | STATE | RESET | TN_FEW, 1e-5f, 2e-2f },
    { "silu, many rows", { 512, 70, 4, 4 }, BIAS | STATE | RESET | SILU | TN_FEW, 1e-5f, 2e-2f },
    { "silu, only bias", { 2, 9, 5, 4 }, BIAS | ONLY_BIAS | SILU, 1e-6f, 2e-2f },
    { "no row", { 0, 5, 3, 4 }, BIAS | STATE | RESET, 1e-6f, 2e-2f },
    { "no token", { 2, 0, 3, 4 }, BIAS | STATE, 1e-6f, 2e-2f },
    { "no channel", { 2, 5, 0, 4 }, BIAS | STATE, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], C = c->dim[2], W = c->dim[3];
    const tn_fill_spec normal = { .constant = c->flags & ONLY_BIAS }, integer = { .kind = TN_FILL_INT, .hi = 2 };
    tn_ref x = tn_test_input(io, tn_shape(B, T, C), normal), w = tn_test_input(io, tn_shape(W, C), normal), last;
    tn_conv_causal_options o = { .final = &last };
    if (c->flags & BIAS) o.bias = tn_test_input(io, tn_shape(C), (tn_fill_spec){ 0 });
    if (c->flags & STATE) o.state = tn_test_input(io, tn_shape(B, W - 1, C), normal);
    if (c->flags & RESET) o.reset = tn_test_input(io, tn_shape(B, T), integer);
    if (c->flags & LIVE) x = tn_live(tn_test_graph(io), x, tn_test_input(io, tn_shape(1), integer));
    const tn_ref y = tn_conv_causal_(tn_test_graph(io), __FILE__, __LINE__, x, w, o);
    tn_test_output(io, c->flags & SILU ? tn_silu(tn_test_graph(io), y) : y);
    tn_test_output(io, last);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (!(c->flags & RESET) || input != 2 + !!(c->flags & BIAS) + !!(c->flags & STATE)) return;
    for (int64_t i = 0; i < n; i++) x[i] = (uint32_t)((i + 5) * 2654435761u) >> 16 & 7 ? 0 : 1;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t B = c->dim[0], T = c->dim[1], C = c->dim[2], W = c->dim[3];
    int next = 2;
    const double *x = o->in[0], *w = o->in[1], *bias = c->flags & BIAS ? o->in[next++] : NULL;
    const double *state = c->flags & STATE ? o->in[next++] : NULL, *reset = c->flags & RESET ? o->in[next] : NULL;
    for (int64_t b = 0; b < B; b++)
        for (int64_t k = 0; k < C; k++) {
            double past[TN_CONV_MAX_WIDTH] = { 0 }; /* the last W inputs, oldest first */
            for (int64_t i = 0; state && i < W - 1; i++) past[i + 1] = state[(b * (W - 1) + i) * C + k];
            for (int64_t t = 0; t < T; t++) {
                if (reset && reset[b * T + t] > 0) memset(past, 0, sizeof past);
                memmove(past, past + 1, sizeof past - sizeof past[0]);
                past[W - 1] = x[(b * T + t) * C + k];
                double y = bias ? bias[k] : 0;
                for (int64_t j = 0; j < W; j++) y += w[j * C + k] * past[j];
                o->out[0][(b * T + t) * C + k] = c->flags & SILU ? y / (1 + exp(-y)) : y;
            }
            for (int64_t i = 0; i < W - 1; i++) o->out[1][(b * (W - 1) + i) * C + k] = past[i + 1];
        }
}

/* --- properties --------------------------------------------------------------------------------------------------- */

static const tn_op_test test;

enum { ROOM = 2048 };

typedef struct trial {
    float in[4][ROOM], y[ROOM], last[ROOM], d[4][ROOM], dy[ROOM], dlast[ROOM];
    int32_t reset[ROOM], live[1];
} trial;

static trial *new_trial(void)
{
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int j = 0; j < ROOM; j++) {
        for (int i = 0; i < 4; i++) t->in[i][j] = (float)tn_rng_normal((tn_rng){ 5, (uint64_t)i }, (uint64_t)j);
        t->dy[j] = (float)tn_rng_normal((tn_rng){ 6, 1 }, (uint64_t)j);
        t->dlast[j] = (float)tn_rng_normal((tn_rng){ 6, 2 }, (uint64_t)j);
    }
    return t;
}

static void run_trial(const tn_case *c, int threads, trial *t)
{
    const void *in[6] = { t->in[0], t->in[1] };
    void *out[2] = { t->y, t->last }, *d[6] = { t->d[0], t->d[1] };
    const float *cot[2] = { t->dy, t->dlast };
    int n = 2;
    if (c->flags & BIAS) in[n] = t->in[2], d[n++] = t->d[2];
    if (c->flags & STATE) in[n] = t->in[3], d[n++] = t->d[3];
    if (c->flags & RESET) in[n++] = t->reset;
    if (c->flags & LIVE) in[n] = t->live;
    tn_optest_run(&test, c, threads, in, out, d, cot);
}

static void split_equals_whole(void)
{
    enum { T = 60, FIRST = 23, C = 7, W = 4 };
    const tn_case whole = { "whole", { 1, T, C, W }, BIAS | STATE, 0, 0 },
                  first = { "first", { 1, FIRST, C, W }, BIAS | STATE, 0, 0 },
                  second = { "second", { 1, T - FIRST, C, W }, BIAS | STATE, 0, 0 };
    trial *w = new_trial(), *a = new_trial(), *b = new_trial();
    run_trial(&whole, 1, w);
    run_trial(&first, 1, a);
    memcpy(b->in[0], a->in[0] + FIRST * C, sizeof(float) * (T - FIRST) * C);
    memcpy(b->dy, a->dy + FIRST * C, sizeof(float) * (T - FIRST) * C);
    memcpy(b->in[3], a->last, sizeof(float) * (W - 1) * C);
    run_trial(&second, 1, b);
    memcpy(a->dlast, b->d[3], sizeof(float) * (W - 1) * C);
    run_trial(&first, 1, a);
    assert_memory_equal(a->y, w->y, sizeof(float) * FIRST * C);
    assert_memory_equal(b->y, w->y + FIRST * C, sizeof(float) * (T - FIRST) * C);
    assert_memory_equal(b->last, w->last, sizeof(float) * (W - 1) * C);
    for (int i = 0; i < FIRST * C; i++) assert_true(fabsf(a->d[0][i] - w->d[0][i]) < 1e-5f);
    for (int i = 0; i < W * C; i++) assert_true(fabsf(a->d[1][i] + b->d[1][i] - w->d[1][i]) < 1e-4f);
    free(w), free(a), free(b);
}

/* One token at a time, as in decoding. */
static void steps_equal_whole(void)
{
    enum { T = 11, C = 5, W = 4 };
    const tn_case whole = { "whole", { 1, T, C, W }, STATE, 0, 0 }, one = { "one", { 1, 1, C, W }, STATE, 0, 0 };
    trial *w = new_trial(), *a = new_trial();
    run_trial(&whole, 1, w);
    for (int t = 0; t < T; t++) {
        memcpy(a->in[0], w->in[0] + t * C, sizeof(float) * C);
        run_trial(&one, 1, a);
        assert_memory_equal(a->y, w->y + t * C, sizeof(float) * C);
        memcpy(a->in[3], a->last, sizeof(float) * (W - 1) * C);
    }
    assert_memory_equal(a->last, w->last, sizeof(float) * (W - 1) * C);
    free(w), free(a);
}

static void no_leak(void)
{
    enum { T = 40, C = 6, W = 4 };
    const tn_case c = { "leak", { 1, T, C, W }, BIAS | STATE, 0, 0 };
    for (int at = 1; at < T; at += 7) {
        trial *a = new_trial(), *b = new_trial();
        for (int k = 0; k < C; k++) b->in[0][at * C + k] = NAN;
        run_trial(&c, 1, a);
        run_trial(&c, 2, b);
        assert_memory_equal(a->y, b->y, sizeof(float) * (size_t)(at * C));
        for (int t = at; t < T; t++) assert_true(isnan(b->y[t * C]) == (t < at + W));
        free(a), free(b);
    }
}

static void reset_equals_separate(void)
{
    enum { T = 40, FIRST = 17, C = 6, W = 4 };
    const tn_case both = { "both", { 1, T, C, W }, STATE | RESET, 0, 0 },
                  second = { "second", { 1, T - FIRST, C, W }, 0, 0, 0 };
    trial *a = new_trial(), *b = new_trial();
    a->reset[FIRST] = 1;
    for (int k = 0; k < C; k++) a->in[0][(FIRST - 1) * C + k] = NAN;
    memcpy(b->in[0], a->in[0] + FIRST * C, sizeof(float) * (T - FIRST) * C);
    memcpy(b->dy, a->dy + FIRST * C, sizeof(float) * (T - FIRST) * C);
    run_trial(&both, 1, a);
    run_trial(&second, 1, b);
    assert_memory_equal(a->y + FIRST * C, b->y, sizeof(float) * (T - FIRST) * C);
    assert_memory_equal(a->last, b->last, sizeof(float) * (W - 1) * C);
    assert_memory_equal(a->d[0] + FIRST * C, b->d[0], sizeof(float) * (T - FIRST) * C);
    free(a), free(b);
}

/* Dead rows are neither read nor summed. */
static void dead_rows_are_left_alone(void)
{
    enum { T = 9, C = 5, W = 4, ROW = T * C };
    const tn_case two = { "two", { 2, T, C, W }, BIAS, 0, 0 }, four = { "four", { 4, T, C, W }, BIAS | LIVE, 0, 0 };
    trial *a = new_trial(), *b = new_trial();
    for (int i = 2 * ROW; i < 4 * ROW; i++) b->in[0][i] = b->dy[i] = NAN;
    b->live[0] = 2;
    run_trial(&two, 1, a);
    run_trial(&four, 2, b);
    assert_memory_equal(a->y, b->y, sizeof(float) * 2 * ROW);
    assert_memory_equal(a->d[1], b->d[1], sizeof(float) * W * C);
    assert_memory_equal(a->d[2], b->d[2], sizeof(float) * C);
    free(a), free(b);
}

static void wrong_shapes_are_named(void)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    tn_conv_causal(g, tn_input(g, "x", tn_shape(2, 5, 6), TN_F32), tn_input(g, "w", tn_shape(9, 6), TN_F32));
    assert_fails(tn_graph_status(g), TN_USAGE, "w must be (W,C)");
    tn_graph_free(g);
}

static const tn_property properties[] = {
    { "split and carry equals one pass", split_equals_whole },
    { "one token at a time equals one pass", steps_equal_whole },
    { "future never reaches the past", no_leak },
    { "reset equals separate sequences", reset_equals_separate },
    { "dead rows are left alone", dead_rows_are_left_alone },
    { "wrong shapes are named", wrong_shapes_are_named },
};

static const tn_op_test test = {
    .op = "conv_causal",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_conv_causal(tn_test_list *l) { tn_optest_add(l, &test); }
