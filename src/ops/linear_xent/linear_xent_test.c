/* linear_xent: rows (dim = B, T, d, V) and properties. */
#include "losses.h"

#include "base/rng.h"

#include <tenon/ops.h>

static const tn_case cases[] = {
    { "small", { 2, 3, 4, 7 }, L_NLL, 2e-6f, 2e-2f },
    { "bias", { 2, 5, 3, 9 }, L_BIAS | L_WEIGHTS | L_Z, 3e-6f, 2e-2f },
    { "ignore", { 3, 5, 4, 9 }, L_WEIGHTS | L_IGNORE | L_NLL | L_TILE, 3e-6f, 2e-2f },
    { "ignore zero", { 3, 5, 4, 9 }, L_IGNORE_ZERO | L_Z | L_NLL | L_BIAS, 3e-6f, 2e-2f },
    { "sum", { 3, 5, 6, 17 }, L_SUM | L_WEIGHTS | L_Z | L_TILE, 3e-6f, 2e-2f },
    { "tiles", { 3, 101, 5, 37 }, L_WEIGHTS | L_BIAS | L_IGNORE | L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "blocks", { 1, 7, 5, 4101 }, L_Z | L_BIAS | L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "many classes", { 1, 7, 5, 4101 }, L_Z | L_NLL | L_IGNORE | TN_FEW, 5e-6f, 2e-2f },
    { "whole vectors", { 1, 5, 4, 4160 }, L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "more classes", { 1, 3, 4, 20011 }, L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "more classes, bias", { 1, 3, 4, 20011 }, L_BIAS | L_WEIGHTS | TN_FEW, 5e-6f, 2e-2f },
    { "frozen half", { 2, 5, 8, 19 }, L_HALF | L_NLL, 3e-6f, 2e-2f },
    { "all ignored", { 1, 6, 3, 5 }, L_ALL_IGNORED | L_WEIGHTS | L_BIAS | L_NLL, 1e-6f, 2e-2f },
    { "empty", { 0, 3, 4, 5 }, L_WEIGHTS | L_BIAS | L_NLL, 1e-6f, 2e-2f },
    { "no features", { 1, 3, 0, 5 }, L_NLL, 1e-6f, 2e-2f },
    { "live", { 5, 2, 3, 6 }, L_LIVE | L_NLL | TN_NO_GRAD, 1e-6f, 2e-2f },
};

enum { ALIVE = 3 };

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], d = c->dim[2], V = c->dim[3];
    tn_graph *g = tn_test_graph(io);
    const bool half = c->flags & L_HALF;
    const tn_fill_spec spec = { .dtype = half ? TN_BF16 : TN_F32, .constant = half };
    tn_ref x = tn_test_input(io, tn_shape(B, T, d), (tn_fill_spec){ 0 }), m = TN_NONE, b = TN_NONE, nll;
    const tn_ref y = tn_test_input(io, tn_shape(B, T), losses_int(0, V));
    const tn_ref w = tn_test_input(io, tn_shape(V, d), spec);
    if (c->flags & L_WEIGHTS) m = tn_test_input(io, tn_shape(B, T), losses_uniform(0.25, 2));
    if (c->flags & L_BIAS) b = tn_test_input(io, tn_shape(V), (tn_fill_spec){ 0 });
    if (c->flags & L_LIVE) x = tn_live(g, x, tn_test_input(io, tn_shape(1), losses_int(ALIVE, ALIVE + 1)));
    tn_test_output(io, tn_linear_xent(g, x, w, y, .weights = m, .bias = b, .ignore = c->flags & L_IGNORE ? -100 : 0,
                                      .ignore_zero = c->flags & L_IGNORE_ZERO, .z_loss = (float)losses_z(c),
                                      .sum = c->flags & L_SUM, .tile = c->flags & L_TILE ? 2 : 0, .nll = &nll));
    if (c->flags & L_NLL) tn_test_output(io, nll);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t d = c->dim[2], V = c->dim[3], n = (c->flags & L_LIVE ? ALIVE : c->dim[0]) * c->dim[1];
    const double *x = o->in[0], *w = o->in[2], *m = c->flags & L_WEIGHTS ? o->in[3] : NULL;
    const double *b = c->flags & L_BIAS ? o->in[m ? 4 : 3] : NULL;
    double *logits = calloc((size_t)(n * V) + 1, sizeof *logits);
    assert_non_null(logits);
    for (int64_t t = 0; t < n; t++)
        for (int64_t v = 0; v < V; v++) {
            double s = b ? b[v] : 0;
            for (int64_t i = 0; i < d; i++) s += x[t * d + i] * w[v * d + i];
            logits[t * V + v] = s;
        }
    o->out[0][0] = losses_xent(c, logits, o->in[1], m, n, V, o->out[1]);
    free(logits);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input == 1) losses_adjust_labels(c, x, n);
}

static const tn_op_test test;

enum { N = 23, D = 6, V = 19 };

typedef struct sample {
    float x[N * D], w[V * D], m[N], b[V];
    int32_t y[N];
} sample;

typedef struct result {
    float loss, nll[N], dx[N * D], dw[V * D], dm[N], db[V];
} result;

static sample draw(void)
{
    sample s;
    for (int i = 0; i < N * D; i++) s.x[i] = tn_rng_normal((tn_rng){ 5, 1 }, (uint64_t)i);
    for (int i = 0; i < V * D; i++) s.w[i] = tn_rng_normal((tn_rng){ 5, 2 }, (uint64_t)i);
    for (int i = 0; i < V; i++) s.b[i] = tn_rng_normal((tn_rng){ 5, 3 }, (uint64_t)i);
    for (int i = 0; i < N; i++) s.m[i] = 0.5f + (float)(i % 4);
    for (int i = 0; i < N; i++) s.y[i] = i * 7 % V;
    return s;
}

/* The first n tokens, with weights and bias. */
static void run(const sample *s, int64_t n, uint32_t flags, int threads, result *r)
{
    const tn_case c = { "", { 1, n, D, V }, L_WEIGHTS | L_BIAS | L_NLL | flags, 0, 0 };
    memset(r, 0, sizeof *r);
    tn_optest_run(&test, &c, threads, (const void *[]){ s->x, s->y, s->w, s->m, s->b }, (void *[]){ &r->loss, r->nll },
                  (void *[]){ r->dx, NULL, r->dw, r->dm, r->db }, NULL);
}

static void tile_size_changes_nothing(void)
{
    if (tn_test_device() != TN_CPU) return; /* there the library chooses an algorithm by the shape */
    const sample s = draw();
    result whole, tiles;
    run(&s, N, L_Z, 1, &whole);
    run(&s, N, L_Z | L_TILE, 2, &tiles);
    assert_memory_equal(&whole.loss, &tiles.loss, sizeof whole.loss);
    assert_memory_equal(whole.nll, tiles.nll, sizeof whole.nll);
    assert_memory_equal(whole.dx, tiles.dx, sizeof whole.dx);
    losses_close(whole.dw, tiles.dw, V * D, 1e-6);
    losses_close(whole.db, tiles.db, V, 1e-6);
}

static void ignored_tokens_change_nothing(void)
{
    sample s = draw();
    result few, all;
    for (int t = N - 3; t < N; t++) {
        s.y[t] = -100;
        s.x[t * D + 1] = s.m[t] = NAN;
    }
    run(&s, N - 3, L_IGNORE, 1, &few);
    run(&s, N, L_IGNORE, 1, &all);
    assert_memory_equal(&few, &all, sizeof few); /* gradients and nll of the ignored are 0, as in the shorter run */
}

static void weight_two_is_twice_the_token(void)
{
    sample s = draw();
    result weighted, twice;
    for (int t = 0; t < N; t++) s.m[t] = 1;
    s.m[0] = 2;
    memcpy(s.x + (N - 1) * D, s.x, sizeof(float) * D);
    s.y[N - 1] = s.y[0];
    run(&s, N - 1, 0, 1, &weighted);
    s.m[0] = 1;
    run(&s, N, 0, 1, &twice);
    losses_close(&weighted.loss, &twice.loss, 1, 1e-6);
    losses_close(weighted.dw, twice.dw, V * D, 1e-6);
    for (int i = 0; i < D; i++) twice.dx[i] *= 2;
    losses_close(weighted.dx, twice.dx, (N - 1) * D, 1e-6);
}

static void constant_bias_changes_nothing(void)
{
    sample s = draw();
    result a, b;
    run(&s, N, 0, 1, &a);
    for (int v = 0; v < V; v++) s.b[v] += 8;
    run(&s, N, 0, 1, &b);
    losses_close(&a.loss, &b.loss, 1, 1e-5);
    losses_close(a.dw, b.dw, V * D, 1e-5);
    double sum = 0;
    for (int v = 0; v < V; v++) sum += (double)a.db[v];
    assert_true(fabs(sum) < 1e-6);
}

/* Rows past the live count add nothing to the loss or to dw, whatever they hold. */
static void dead_rows_change_nothing(void)
{
    const tn_case live = { "", { 5, 2, D, V }, L_LIVE, 0, 0 }, cut = { "", { ALIVE, 2, D, V }, 0, 0, 0 };
    const int32_t alive = ALIVE;
    sample s = draw();
    result a = { 0 }, b = { 0 };
    for (int i = ALIVE * 2 * D; i < N * D; i++) s.x[i] = NAN;
    tn_optest_run(&test, &live, 2, (const void *[]){ s.x, s.y, s.w, &alive }, (void *[]){ &a.loss },
                  (void *[]){ a.dx, NULL, a.dw, NULL }, NULL);
    tn_optest_run(&test, &cut, 1, (const void *[]){ s.x, s.y, s.w }, (void *[]){ &b.loss },
                  (void *[]){ b.dx, NULL, b.dw }, NULL);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(a.dw, b.dw, sizeof a.dw);
    assert_memory_equal(a.dx, b.dx, sizeof(float) * ALIVE * 2 * D);
}

/* x, w, y -> loss and gradients through the given calls, at a size with several blocks and tiles. */
enum { BIG_N = 300, BIG_D = 24, BIG_V = 2100 };

typedef struct big {
    float x[BIG_N * BIG_D], w[BIG_V * BIG_D], nll[BIG_N], dx[BIG_N * BIG_D], dw[BIG_V * BIG_D], loss;
    int32_t y[BIG_N];
} big;

static void run_big(big *b, int way)
{
    static const char *const without[] = { [2] = "opt.linear_xent", [3] = "opt.late_loss" };
    const tn_graph_options o = { .activation = TN_F32, .off = (const char *const[]){ without[way], NULL } };
    tn_graph *g;
    tn_ref nll;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(BIG_N, BIG_D), TN_F32));
    const tn_ref w = tn_want_gradient(g, tn_input(g, "w", tn_shape(BIG_V, BIG_D), TN_F32));
    const tn_ref y = tn_input(g, "y", tn_shape(BIG_N), TN_I32);
    const tn_ref loss = tn_linear_xent(g, x, w, y, .z_loss = 0.01f, .nll = &nll, .tile = way == 1 ? 64 : 0);
    tn_output(g, "loss", loss);
    tn_output(g, "nll", nll);
    const losses_io in[] = {
        { "x", b->x, sizeof b->x }, { "w", b->w, sizeof b->w }, { "y", b->y, sizeof b->y }, { 0 }
    };
    const losses_io out[] = { { "loss", &b->loss, sizeof b->loss },
                              { "nll", b->nll, sizeof b->nll },
                              { "d.x", b->dx, sizeof b->dx },
                              { "d.w", b->dw, sizeof b->dw },
                              { 0 } };
    assert_ok(losses_run(g, loss, 2, in, out));
}

static void same_as_plain_twin(void)
{
    big *b[4];
    for (int k = 0; k < 4; k++) {
        b[k] = calloc(1, sizeof *b[k]);
        assert_non_null(b[k]);
        for (int i = 0; i < BIG_N * BIG_D; i++) b[k]->x[i] = tn_rng_normal((tn_rng){ 6, 1 }, (uint64_t)i);
        for (int i = 0; i < BIG_V * BIG_D; i++) b[k]->w[i] = 0.3f * tn_rng_normal((tn_rng){ 6, 2 }, (uint64_t)i);
        for (int i = 0; i < BIG_N; i++) b[k]->y[i] = i % 5 == 4 ? -1 : i * 31 % BIG_V;
        run_big(b[k], k);
    }
    for (int k = 1; k < 3; k++) {
        losses_close(&b[0]->loss, &b[k]->loss, 1, 1e-5);
        losses_close(b[0]->nll, b[k]->nll, BIG_N, 1e-5);
        losses_close(b[0]->dx, b[k]->dx, BIG_N * BIG_D, 1e-7);
        losses_close(b[0]->dw, b[k]->dw, BIG_V * BIG_D, 1e-7);
    }
    assert_memory_equal(&b[0]->loss, &b[3]->loss, sizeof b[0]->loss); /* late or not: the same pieces, the same bits */
    assert_memory_equal(b[0]->nll, b[3]->nll, sizeof b[0]->nll);
    assert_memory_equal(b[0]->dx, b[3]->dx, sizeof b[0]->dx);
    assert_memory_equal(b[0]->dw, b[3]->dw, sizeof b[0]->dw);
    for (int k = 0; k < 4; k++) free(b[k]);
}

/* Workspace of a plan with n tokens; late: the loss comes with the gradients. */
static size_t workspace(int64_t n, bool late)
{
    const tn_graph_options o = { .activation = TN_F32,
                                 .off = (const char *const[]){ late ? NULL : "opt.late_loss", NULL } };
    tn_graph *g;
    tn_plan *p;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(n, 64), TN_F32));
    const tn_ref w = tn_want_gradient(g, tn_input(g, "w", tn_shape(50000, 64), TN_F32));
    const tn_ref loss = tn_linear_xent(g, x, w, tn_input(g, "y", tn_shape(n), TN_I32));
    tn_output(g, "loss", loss);
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 2, .loss = loss }, &p));
    const size_t bytes = tn_plan_memory(p).workspace;
    tn_plan_free(p);
    return bytes;
}

static void workspace_is_bounded(void)
{
    for (int late = 0; late < 2; late++) {
        const size_t a = workspace(1000, late), b = workspace(1000000, late);
        assert_true(b < a + 4096 && b < (size_t)(late ? 56 : 8) << 20);
    }
}

static void bad_label_is_named(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    int32_t y[2] = { 3, 5 };
    const losses_io in[] = { { "y", y, sizeof y }, { 0 } }, none[] = { { 0 } };
    tn_graph *g;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref loss = tn_linear_xent(g, tn_input(g, "x", tn_shape(2, 3), TN_F32),
                                       tn_input(g, "w", tn_shape(5, 3), TN_F32), tn_input(g, "y", tn_shape(2), TN_I32));
    tn_output(g, "loss", loss);
    assert_fails(losses_run(g, TN_NONE, 1, in, none), TN_USAGE, "label 5 of token 1 is not in [0,5)");
}

static void wrong_shapes_are_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    for (int k = 0; k < 3; k++) {
        static const char *const says[] = { "w must be", "the bias must be", "labels must be i32" };
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref x = tn_input(g, "x", tn_shape(2, 3), TN_F32), w = tn_input(g, "w", tn_shape(5, k ? 3 : 4), TN_F32);
        tn_linear_xent(g, x, w, tn_input(g, "y", tn_shape(2), k == 2 ? TN_I64 : TN_I32),
                       .bias = tn_input(g, "b", tn_shape(k == 1 ? 4 : 5), TN_F32));
        assert_fails(tn_graph_status(g), TN_USAGE, says[k]);
        tn_graph_free(g);
    }
}

static const tn_property properties[] = {
    { "the tile size changes nothing", tile_size_changes_nothing },
    { "ignored tokens change nothing, NaN or not", ignored_tokens_change_nothing },
    { "a weight of 2 is the token twice", weight_two_is_twice_the_token },
    { "a constant bias changes nothing", constant_bias_changes_nothing },
    { "rows past the live count change nothing", dead_rows_change_nothing },
    { "equal to linear and xent", same_as_plain_twin },
    { "workspace does not grow with tokens", workspace_is_bounded },
    { "a bad label is named", bad_label_is_named },
    { "wrong shapes are refused", wrong_shapes_are_refused },
};

static const tn_op_test test = { .op = "linear_xent",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_linear_xent(tn_test_list *l) { tn_optest_add(l, &test); }
