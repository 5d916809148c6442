/* linear_kl: rows (dim = B, T, d, V, e, temperature * 4) and properties. A head that both sides share is a constant here, as
 * difference quotients would move the teacher with it; that its gradient is the student's alone is a property. */
#include "losses.h"

#include "base/rng.h"

#include <tenon/ops.h>

enum { K_OWN = 1 << 12, K_ALL = 1 << 13 }; /* the teacher has its own head, e wide; no labels: all rows count */

static const tn_case cases[] = {
    { "small", { 2, 3, 4, 7, 0, 0 }, L_NLL | K_ALL, 2e-6f, 2e-2f },
    { "own head", { 2, 3, 4, 7, 6, 8 }, L_NLL | K_OWN | K_ALL, 2e-6f, 2e-2f },
    { "weights", { 2, 5, 3, 9, 0, 6 }, L_WEIGHTS | K_ALL, 3e-6f, 2e-2f },
    { "ignore", { 3, 5, 4, 9, 3, 8 }, L_WEIGHTS | L_IGNORE | L_NLL | L_TILE | K_OWN, 3e-6f, 2e-2f },
    { "ignore zero", { 3, 5, 4, 9, 0, 2 }, L_IGNORE_ZERO | L_NLL, 3e-6f, 2e-2f },
    { "tiles", { 3, 101, 5, 37, 2, 8 }, L_WEIGHTS | L_IGNORE | L_NLL | K_OWN | TN_FEW, 5e-6f, 2e-2f },
    { "many classes", { 1, 7, 5, 4101, 4, 8 }, L_NLL | L_IGNORE | K_OWN | TN_FEW, 5e-6f, 2e-2f },
    { "whole vectors", { 1, 5, 8, 4160, 0, 4 }, L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "more classes", { 1, 3, 4, 20011, 0, 8 }, L_NLL | L_WEIGHTS | K_ALL | TN_FEW, 5e-6f, 2e-2f },
    { "frozen half", { 2, 5, 8, 19, 0, 8 }, L_HALF | L_NLL, 3e-6f, 2e-2f },
    { "frozen halves", { 2, 5, 8, 64, 16, 8 }, L_HALF | L_NLL | K_OWN, 3e-6f, 2e-2f },
    { "one class", { 1, 4, 3, 1, 0, 8 }, L_NLL | L_WEIGHTS, 1e-6f, 2e-2f },
    { "all ignored", { 1, 6, 3, 5, 2, 8 }, L_ALL_IGNORED | L_WEIGHTS | L_NLL | K_OWN, 1e-6f, 2e-2f },
    { "empty", { 0, 3, 4, 5, 0, 8 }, L_WEIGHTS | L_NLL, 1e-6f, 2e-2f },
    { "no features", { 1, 3, 0, 5, 0, 8 }, L_NLL, 1e-6f, 2e-2f },
    { "live", { 5, 2, 3, 6, 4, 8 }, L_LIVE | L_NLL | K_OWN | TN_NO_GRAD, 2e-6f, 2e-2f },
};

enum { ALIVE = 3 };

static int64_t teacher_width(const tn_case *c) { return c->flags & K_OWN ? c->dim[4] : c->dim[2]; }

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], d = c->dim[2], V = c->dim[3], e = teacher_width(c);
    const bool half = c->flags & L_HALF, own = c->flags & K_OWN;
    const tn_fill_spec head = { .dtype = half ? TN_BF16 : TN_F32, .constant = half || !own };
    tn_graph *g = tn_test_graph(io);
    tn_ref u = TN_NONE, y = TN_NONE, m = TN_NONE, kl;
    const tn_ref x = tn_test_input(io, tn_shape(B, T, d), (tn_fill_spec){ 0 });
    tn_ref t = tn_test_input(io, tn_shape(B, T, e), (tn_fill_spec){ .constant = true });
    const tn_ref w = tn_test_input(io, tn_shape(V, d), head);
    if (own) u = tn_test_input(io, tn_shape(V, e), (tn_fill_spec){ .dtype = head.dtype, .constant = true });
    if (!(c->flags & K_ALL)) y = tn_test_input(io, tn_shape(B, T), losses_int(0, V));
    if (c->flags & L_WEIGHTS) m = tn_test_input(io, tn_shape(B, T), losses_uniform(0.25, 2));
    if (c->flags & L_LIVE) t = tn_live(g, t, tn_test_input(io, tn_shape(1), losses_int(ALIVE, ALIVE + 1)));
    tn_test_output(io,
                   tn_linear_kl(g, x, t, w, .teacher_w = u, .labels = y, .weights = m,
                                .temperature = (float)c->dim[5] / 4, .ignore = c->flags & L_IGNORE ? -100 : 0,
                                .ignore_zero = c->flags & L_IGNORE_ZERO, .tile = c->flags & L_TILE ? 2 : 0, .kl = &kl));
    if (c->flags & L_NLL) tn_test_output(io, kl);
}

static void multiply(double *logits, const double *x, const double *w, int64_t d, int64_t V, double T)
{
    for (int64_t v = 0; v < V; v++) {
        logits[v] = 0;
        for (int64_t i = 0; i < d; i++) logits[v] += x[i] * w[v * d + i] / T;
    }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t d = c->dim[2], V = c->dim[3], e = teacher_width(c);
    const int64_t n = (c->flags & L_LIVE ? ALIVE : c->dim[0]) * c->dim[1];
    const double T = c->dim[5] ? (double)c->dim[5] / 4 : 1;
    int at = 3;
    const double *u = c->flags & K_OWN ? o->in[at++] : o->in[2], *y = c->flags & K_ALL ? NULL : o->in[at++];
    const double *m = c->flags & L_WEIGHTS ? o->in[at] : NULL;
    double *s = calloc((size_t)V, sizeof *s), *t = calloc((size_t)V, sizeof *t), sum = 0, total = 0;
    assert_true(s && t);
    for (int64_t r = 0; r < n; r++) {
        double kl = 0;
        if (y && y[r] == losses_ignored(c)) continue;
        multiply(s, o->in[0] + r * d, o->in[2], d, V, T);
        multiply(t, o->in[1] + r * e, u, e, V, T);
        const double ls = losses_lse(s, V), lt = losses_lse(t, V);
        for (int64_t v = 0; v < V; v++) kl += exp(t[v] - lt) * ((t[v] - lt) - (s[v] - ls));
        sum += (m ? m[r] : 1) * kl;
        total += m ? m[r] : 1;
        if (o->out[1]) o->out[1][r] = kl;
    }
    o->out[0][0] = total == 0 ? 0 : T * T * sum / total;
    free(s);
    free(t);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (!(c->flags & K_ALL) && input == (c->flags & K_OWN ? 4 : 3)) losses_adjust_labels(c, x, n);
}

static const tn_op_test test;

/* --- properties ------------------------------------------------------------------------------------------------------- */

enum { N = 23, D = 6, E = 4, V = 19 };

typedef struct sample {
    float x[N * D], t[N * E], w[V * D], u[V * E], m[N];
    int32_t y[N];
} sample;

typedef struct result {
    float loss, kl[N], dx[N * D], dw[V * D], dm[N];
} result;

static void fill(float *x, int n, uint64_t stream)
{
    for (int i = 0; i < n; i++) x[i] = tn_rng_normal((tn_rng){ 8, stream }, (uint64_t)i);
}

static sample draw(void)
{
    sample s;
    fill(s.x, N * D, 1);
    fill(s.t, N * E, 2);
    fill(s.w, V * D, 3);
    fill(s.u, V * E, 4);
    for (int i = 0; i < N; i++) s.m[i] = 0.5f + (float)(i % 4);
    for (int i = 0; i < N; i++) s.y[i] = i * 7 % V;
    return s;
}

/* The first n rows, with labels, weights and the teacher's own head. */
static void run(const sample *s, int64_t n, uint32_t flags, int threads, result *r)
{
    const tn_case c = { "", { 1, n, D, V, E, 8 }, L_WEIGHTS | L_NLL | K_OWN | flags, 0, 0 };
    memset(r, 0, sizeof *r);
    tn_optest_run(&test, &c, threads, (const void *[]){ s->x, s->t, s->w, s->u, s->y, s->m },
                  (void *[]){ &r->loss, r->kl }, (void *[]){ r->dx, NULL, r->dw, NULL, NULL, r->dm }, NULL);
}

static void tile_size_changes_nothing(void)
{
    if (tn_test_device() != TN_CPU) return; /* there the library chooses an algorithm by the shape */
    const sample s = draw();
    result whole, tiles;
    run(&s, N, 0, 1, &whole);
    run(&s, N, L_TILE, 2, &tiles);
    assert_memory_equal(&whole.loss, &tiles.loss, sizeof whole.loss);
    assert_memory_equal(whole.kl, tiles.kl, sizeof whole.kl);
    assert_memory_equal(whole.dx, tiles.dx, sizeof whole.dx);
    losses_close(whole.dw, tiles.dw, V * D, 1e-6);
}

static void ignored_rows_change_nothing(void)
{
    sample s = draw();
    result few, all;
    for (int r = N - 3; r < N; r++) {
        s.y[r] = -100;
        s.x[r * D + 1] = s.t[r * E] = s.m[r] = NAN;
    }
    run(&s, N - 3, L_IGNORE, 1, &few);
    run(&s, N, L_IGNORE, 1, &all);
    assert_memory_equal(&few, &all, sizeof few); /* gradients and KL of the ignored are 0, as in the shorter run */
}

static void nan_stays_in_its_row(void)
{
    sample s = draw();
    result r;
    s.t[2 * E] = NAN;
    run(&s, N, 0, 2, &r);
    assert_true(isnan(r.loss) && isnan(r.dw[0]));
    for (int i = 0; i < N; i++) assert_true(!isnan(r.kl[i]) == (i != 2) && !isnan(r.dx[i * D]) == (i != 2));
}

static void weight_two_is_twice_the_row(void)
{
    sample s = draw();
    result weighted, twice;
    for (int r = 0; r < N; r++) s.m[r] = 1;
    s.m[0] = 2;
    memcpy(s.x + (N - 1) * D, s.x, sizeof(float) * D);
    memcpy(s.t + (N - 1) * E, s.t, sizeof(float) * E);
    run(&s, N - 1, 0, 1, &weighted);
    s.m[0] = 1;
    run(&s, N, 0, 1, &twice);
    losses_close(&weighted.loss, &twice.loss, 1, 1e-5);
    losses_close(weighted.dw, twice.dw, V * D, 1e-6);
    for (int i = 0; i < D; i++) twice.dx[i] *= 2;
    losses_close(weighted.dx, twice.dx, (N - 1) * D, 1e-6);
}

/* The student is the teacher. */
static void equal_rows_give_zero(void)
{
    const tn_case c = { "", { 1, N, D, V, 0, 6 }, L_NLL | K_ALL, 0, 0 };
    const sample s = draw();
    result r = { .loss = 1 };
    tn_optest_run(&test, &c, 2, (const void *[]){ s.x, s.x, s.w }, (void *[]){ &r.loss, r.kl },
                  (void *[]){ r.dx, NULL, NULL }, NULL);
    assert_true(r.loss == 0);
    for (int i = 0; i < N; i++) assert_true(r.kl[i] == 0);
    for (int i = 0; i < N * D; i++) assert_true(r.dx[i] == 0);
}

/* A last feature that all classes weigh alike shifts all logits of a row. */
static void shifts_change_nothing(void)
{
    const tn_case c = { "", { 1, N, D, V, 0, 6 }, L_NLL | K_ALL, 0, 0 };
    sample s = draw();
    float t[N * D];
    result r = { .loss = 1 };
    for (int v = 0; v < V; v++) s.w[v * D + D - 1] = 1;
    memcpy(t, s.x, sizeof t);
    for (int i = 0; i < N; i++) t[i * D + D - 1] += 512;
    tn_optest_run(&test, &c, 1, (const void *[]){ s.x, t, s.w }, (void *[]){ &r.loss, r.kl },
                  (void *[]){ r.dx, NULL, NULL }, NULL);
    if (!(fabsf(r.loss) < 2e-6f)) fail_msg("a loss of %g", (double)r.loss);
    for (int i = 0; i < N * D; i++) assert_true(fabsf(r.dx[i]) < 5e-5f); /* logits are rounded to 3e-5 */
}

/* A teacher that is sure of its class: cross-entropy with that label. */
static void sure_teacher_is_cross_entropy(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    sample s = draw();
    float loss[2], dx[2][N * D], t[N * V] = { 0 }, one[V * V] = { 0 };
    for (int v = 0; v < V; v++) one[v * V + v] = 1;
    for (int r = 0; r < N; r++) t[r * V + s.y[r]] = 200;
    for (int k = 0; k < 2; k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(N, D), TN_F32));
        const tn_ref w = tn_input(g, "w", tn_shape(V, D), TN_F32), y = tn_input(g, "y", tn_shape(N), TN_I32);
        const tn_ref l = k ? tn_linear_xent(g, x, w, y)
                           : tn_linear_kl(g, x, tn_input(g, "t", tn_shape(N, V), TN_F32), w, .labels = y,
                                          .teacher_w = tn_input(g, "u", tn_shape(V, V), TN_F32));
        tn_output(g, "loss", l);
        losses_io in[] = {
            { "x", s.x, sizeof s.x }, { "w", s.w, sizeof s.w }, { "y", s.y, sizeof s.y },
            { "t", t, sizeof t },     { "u", one, sizeof one }, { 0 },
        };
        if (k) in[3] = (losses_io){ 0 };
        const losses_io out[] = { { "loss", &loss[k], sizeof loss[k] }, { "d.x", dx[k], sizeof dx[k] }, { 0 } };
        assert_ok(losses_run(g, l, 1, in, out));
    }
    losses_close(&loss[0], &loss[1], 1, 1e-5);
    losses_close(dx[0], dx[1], N * D, 1e-6);
}

/* Logits of class v are w[v] and u[v], for one row of width 1. */
enum { WIDE = 3001 };

static float loss_of_logits(const float *w, const float *u, float *kl)
{
    const tn_case c = { "", { 1, 1, 1, WIDE, 1, 4 }, L_NLL | K_OWN | K_ALL, 0, 0 };
    const float one = 1;
    float loss, dx, dw[WIDE];
    tn_optest_run(&test, &c, 1, (const void *[]){ &one, &one, w, u }, (void *[]){ &loss, kl },
                  (void *[]){ &dx, NULL, dw, NULL }, NULL);
    return loss;
}

static void infinity_has_rules(void)
{
    static float w[WIDE], u[WIDE];
    float kl, without;
    for (int v = 0; v < WIDE; v++) w[v] = 0.1f * (float)(v % 7), u[v] = 0.1f * (float)(v % 5);
    w[9] = -INFINITY;
    assert_true(loss_of_logits(w, u, &kl) == INFINITY && kl == INFINITY); /* q = 0 where p is not */
    u[9] = -INFINITY;
    const float both = loss_of_logits(w, u, &kl); /* the class is gone for either */
    w[9] = u[9] = -200;
    without = loss_of_logits(w, u, &kl);
    assert_true(isfinite(both) && fabsf(both - without) < 1e-5f);
    w[9] = 0.2f;
    u[9] = -INFINITY;
    assert_true(isfinite(loss_of_logits(w, u, &kl))); /* p = 0 adds nothing, whatever q */
    u[9] = 0;
    w[9] = -INFINITY;
    u[WIDE - 2] = 300; /* a later block shows that p of class 9 is 0 after all */
    assert_true(isfinite(loss_of_logits(w, u, &kl)));
    for (int v = 0; v < WIDE; v++) w[v] = v == 5 ? INFINITY : 0;
    assert_true(isnan(loss_of_logits(w, u, &kl)));
}

/* Rows past the live count of either side add nothing, whatever they hold. */
static void dead_rows_change_nothing(void)
{
    const tn_case live = { "", { 5, 2, D, V, E, 8 }, L_LIVE | K_OWN, 0, 0 };
    const tn_case cut = { "", { ALIVE, 2, D, V, E, 8 }, K_OWN, 0, 0 };
    const int32_t alive = ALIVE;
    sample s = draw();
    result a = { 0 }, b = { 0 };
    for (int i = ALIVE * 2 * D; i < N * D; i++) s.x[i] = NAN;
    for (int i = ALIVE * 2 * E; i < N * E; i++) s.t[i] = NAN;
    tn_optest_run(&test, &live, 2, (const void *[]){ s.x, s.t, s.w, s.u, s.y, &alive }, (void *[]){ &a.loss },
                  (void *[]){ a.dx, NULL, a.dw, NULL, NULL, NULL }, NULL);
    tn_optest_run(&test, &cut, 1, (const void *[]){ s.x, s.t, s.w, s.u, s.y }, (void *[]){ &b.loss },
                  (void *[]){ b.dx, NULL, b.dw, NULL, NULL }, NULL);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(a.dw, b.dw, sizeof a.dw);
    assert_memory_equal(a.dx, b.dx, sizeof(float) * ALIVE * 2 * D);
    for (int i = ALIVE * 2 * D; i < 10 * D; i++) assert_true(a.dx[i] == 0);
}

/* x, t, w -> loss and gradients, at a size with several blocks and tiles. */
enum { BIG_N = 300, BIG_D = 24, BIG_V = 2100 };
enum { AS_IT_IS, TILES, PLAIN, NOT_LATE, TWO_HEADS, WAYS };

typedef struct big {
    float x[BIG_N * BIG_D], t[BIG_N * BIG_D], w[BIG_V * BIG_D], kl[BIG_N], dx[BIG_N * BIG_D], dw[BIG_V * BIG_D], loss;
    int32_t y[BIG_N];
} big;

static void run_big(big *b, int way)
{
    static const char *const without[WAYS] = { [PLAIN] = "opt.linear_kl", [NOT_LATE] = "opt.late_loss" };
    const tn_graph_options o = { .activation = TN_F32, .off = (const char *const[]){ without[way], NULL } };
    tn_graph *g;
    tn_ref kl, u = TN_NONE;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(BIG_N, BIG_D), TN_F32));
    const tn_ref t = tn_want_gradient(g, tn_input(g, "t", tn_shape(BIG_N, BIG_D), TN_F32));
    const tn_ref w = tn_want_gradient(g, tn_input(g, "w", tn_shape(BIG_V, BIG_D), TN_F32));
    const tn_ref y = tn_input(g, "y", tn_shape(BIG_N), TN_I32);
    if (way == TWO_HEADS) u = tn_want_gradient(g, tn_input(g, "u", tn_shape(BIG_V, BIG_D), TN_F32));
    const tn_ref loss = tn_linear_kl(g, x, t, w, .labels = y, .teacher_w = u, .temperature = 1.5f, .kl = &kl,
                                     .tile = way == TILES ? 64 : 0);
    tn_output(g, "loss", loss);
    tn_output(g, "kl", kl);
    losses_io in[] = { { "x", b->x, sizeof b->x },
                       { "t", b->t, sizeof b->t },
                       { "w", b->w, sizeof b->w },
                       { "y", b->y, sizeof b->y },
                       { 0 },
                       { 0 } };
    if (way == TWO_HEADS) in[4] = (losses_io){ "u", b->w, sizeof b->w };
    const losses_io out[] = { { "loss", &b->loss, sizeof b->loss },
                              { "kl", b->kl, sizeof b->kl },
                              { "d.x", b->dx, sizeof b->dx },
                              { "d.w", b->dw, sizeof b->dw },
                              { 0 } };
    assert_ok(losses_run(g, loss, 2, in, out));
}

static void same_as_plain_twin(void)
{
    big *b[WAYS];
    for (int k = 0; k < WAYS; k++) {
        b[k] = calloc(1, sizeof *b[k]);
        assert_non_null(b[k]);
        fill(b[k]->x, BIG_N * BIG_D, 5);
        fill(b[k]->t, BIG_N * BIG_D, 6);
        fill(b[k]->w, BIG_V * BIG_D, 7);
        for (int i = 0; i < BIG_V * BIG_D; i++) b[k]->w[i] *= 0.3f;
        for (int i = 0; i < BIG_N; i++) b[k]->y[i] = i % 5 == 4 ? -1 : i;
        run_big(b[k], k);
    }
    assert_true(b[0]->loss > 0.1f);
    for (int k = TILES; k <= PLAIN; k++) {
        losses_close(&b[0]->loss, &b[k]->loss, 1, 1e-5);
        losses_close(b[0]->kl, b[k]->kl, BIG_N, 1e-5);
        losses_close(b[0]->dx, b[k]->dx, BIG_N * BIG_D, 1e-7);
        losses_close(b[0]->dw, b[k]->dw, BIG_V * BIG_D, 1e-7);
    }
    for (int k = NOT_LATE; k < WAYS; k++) { /* the same pieces, the same bits */
        assert_memory_equal(&b[0]->loss, &b[k]->loss, sizeof b[0]->loss);
        assert_memory_equal(b[0]->kl, b[k]->kl, sizeof b[0]->kl);
        assert_memory_equal(b[0]->dx, b[k]->dx, sizeof b[0]->dx);
        assert_memory_equal(b[0]->dw, b[k]->dw, sizeof b[0]->dw);
    }
    for (int k = 0; k < WAYS; k++) free(b[k]);
}

/* Workspace of a plan with n rows; late: the loss comes with the gradients. */
static size_t workspace(int64_t n, bool late)
{
    const tn_graph_options o = { .activation = TN_F32,
                                 .off = (const char *const[]){ late ? NULL : "opt.late_loss", NULL } };
    tn_graph *g;
    tn_plan *p;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(n, 64), TN_F32));
    const tn_ref loss = tn_linear_kl(g, x, tn_input(g, "t", tn_shape(n, 64), TN_F32),
                                     tn_want_gradient(g, tn_input(g, "w", tn_shape(50000, 64), TN_F32)));
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
        assert_true(b < a + 4096 && b < (size_t)(late ? 70 : 10) << 20);
    }
}

static void wrong_calls_are_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    static const struct {
        int64_t rows, e, w, u, classes; /* u 0: a shared head */
        tn_dtype labels;
        float temperature;
        const char *says;
    } bad[] = {
        { 2, 3, 4, 0, 5, TN_I32, 1, "w must be floats of shape (V,3)" },
        { 2, 4, 3, 0, 5, TN_I32, 1, "the shared head must be floats of shape (V,4)" },
        { 2, 4, 3, 3, 5, TN_I32, 1, "the teacher's head must be floats of shape (V,4)" },
        { 2, 4, 3, 4, 6, TN_I32, 1, "has 6 classes, the student's 5" },
        { 7, 3, 3, 0, 5, TN_I32, 1, "the teacher must be floats with a row for each row of x" },
        { 2, 3, 3, 0, 5, TN_I64, 1, "labels must be i32" },
        { 2, 3, 3, 0, 5, TN_I32, -1, "temperature -1" },
        { 2, 3, 3, 0, 5, TN_I32, NAN, "temperature nan" },
    };
    for (size_t k = 0; k < TN_COUNT(bad); k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref x = tn_input(g, "x", tn_shape(2, 3), TN_F32);
        const tn_ref t = tn_input(g, "t", tn_shape(bad[k].rows, bad[k].e), TN_F32);
        const tn_ref u = bad[k].u ? tn_input(g, "u", tn_shape(bad[k].classes, bad[k].u), TN_F32) : TN_NONE;
        tn_linear_kl(g, x, t, tn_input(g, "w", tn_shape(5, bad[k].w), TN_F32), .teacher_w = u,
                     .labels = tn_input(g, "y", tn_shape(2), bad[k].labels), .temperature = bad[k].temperature);
        assert_fails(tn_graph_status(g), TN_USAGE, bad[k].says);
        tn_graph_free(g);
    }
}

static const tn_property properties[] = {
    { "the tile size changes nothing", tile_size_changes_nothing },
    { "ignored rows change nothing, NaN or not", ignored_rows_change_nothing },
    { "a NaN stays in its row", nan_stays_in_its_row },
    { "a weight of 2 is the row twice", weight_two_is_twice_the_row },
    { "equal rows give 0, and so does their gradient", equal_rows_give_zero },
    { "a shift of all logits changes nothing", shifts_change_nothing },
    { "a sure teacher gives cross-entropy", sure_teacher_is_cross_entropy },
    { "classes of probability 0", infinity_has_rules },
    { "rows past the live count change nothing", dead_rows_change_nothing },
    { "equal to linear and kl; a shared head is the student's", same_as_plain_twin },
    { "workspace does not grow with rows", workspace_is_bounded },
    { "wrong calls are refused", wrong_calls_are_refused },
};

static const tn_op_test test = { .op = "linear_kl",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_linear_kl(tn_test_list *l) { tn_optest_add(l, &test); }
