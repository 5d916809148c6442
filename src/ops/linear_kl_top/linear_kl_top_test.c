/* linear_kl_top: rows (dim = B, T, d, V, K, temperature * 4) and properties. The teacher's numbers of a row are drawn: most of what
 * they leave to the tail is much, of some rows nothing. */
#include "losses.h"

#include "base/rng.h"

#include <tenon/ops.h>

enum { K_ALL = 1 << 12 }; /* no labels: all rows count */
enum { I_X, I_W, I_IDS, I_LOGITS, I_LSE, I_MORE };

static const tn_case cases[] = {
    { "small", { 2, 3, 4, 7, 3, 0 }, L_NLL | K_ALL, 2e-6f, 2e-2f },
    { "warm", { 2, 3, 4, 7, 2, 8 }, L_NLL | K_ALL, 2e-6f, 2e-2f },
    { "all classes", { 2, 3, 4, 7, 7, 8 }, L_NLL | K_ALL, 2e-6f, 2e-2f },
    { "all but one", { 2, 3, 4, 7, 6, 8 }, L_NLL | K_ALL, 2e-6f, 2e-2f },
    { "one", { 2, 5, 3, 9, 1, 8 }, L_NLL, 2e-6f, 2e-2f },
    { "weights", { 2, 5, 3, 9, 4, 6 }, L_WEIGHTS | K_ALL, 3e-6f, 2e-2f },
    { "ignore", { 3, 5, 4, 9, 3, 8 }, L_WEIGHTS | L_NLL | L_TILE, 3e-6f, 2e-2f },
    { "tiles", { 3, 101, 5, 37, 8, 8 }, L_WEIGHTS | L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "many classes", { 1, 7, 5, 4101, 64, 8 }, L_NLL | TN_FEW, 5e-6f, 2e-2f },
    { "whole vectors", { 1, 5, 8, 4160, 16, 4 }, L_NLL | K_ALL | TN_FEW, 5e-6f, 2e-2f },
    { "more classes", { 1, 3, 4, 20011, 8, 8 }, L_NLL | L_WEIGHTS | K_ALL | TN_FEW, 5e-6f, 2e-2f },
    { "frozen half", { 2, 5, 8, 19, 6, 8 }, L_HALF | L_NLL, 3e-6f, 2e-2f },
    { "one class", { 1, 4, 3, 1, 1, 8 }, L_NLL | L_WEIGHTS, 1e-6f, 2e-2f },
    { "all ignored", { 1, 6, 3, 5, 2, 8 }, L_ALL_IGNORED | L_WEIGHTS | L_NLL, 1e-6f, 2e-2f },
    { "empty", { 0, 3, 4, 5, 2, 8 }, L_WEIGHTS | L_NLL, 1e-6f, 2e-2f },
    { "no features", { 1, 3, 0, 5, 2, 8 }, L_NLL, 1e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], d = c->dim[2], V = c->dim[3], K = c->dim[4];
    const bool half = c->flags & L_HALF;
    tn_ref y = TN_NONE, m = TN_NONE, kl;
    const tn_ref x = tn_test_input(io, tn_shape(B, T, d), (tn_fill_spec){ 0 });
    const tn_ref w =
        tn_test_input(io, tn_shape(V, d), (tn_fill_spec){ .dtype = half ? TN_BF16 : TN_F32, .constant = half });
    const tn_ref ids = tn_test_input(io, tn_shape(B, T, K), losses_int(0, V));
    const tn_ref logits = tn_test_input(io, tn_shape(B, T, K),
                                        (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = -4, .hi = 0, .constant = true });
    const tn_ref lse = tn_test_input(io, tn_shape(B, T),
                                     (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = 0.5, .hi = 4, .constant = true });
    if (!(c->flags & K_ALL)) y = tn_test_input(io, tn_shape(B, T), losses_int(0, V));
    if (c->flags & L_WEIGHTS) m = tn_test_input(io, tn_shape(B, T), losses_uniform(0.25, 2));
    tn_test_output(io,
                   tn_linear_kl_top(tn_test_graph(io), x, w, ids, logits, lse, .labels = y, .weights = m,
                                    .temperature = (float)c->dim[5] / 4, .tile = c->flags & L_TILE ? 2 : 0, .kl = &kl));
    if (c->flags & L_NLL) tn_test_output(io, kl);
}

/* 1021 is prime and no divisor of any V here: the ids of a row differ, and lie in all blocks. */
static int64_t id_of(int64_t row, int64_t k, int64_t V) { return (row * 3 + k * 1021) % V; }

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    for (int64_t i = 0; input == I_IDS && i < n; i++) x[i] = (double)id_of(i / c->dim[4], i % c->dim[4], c->dim[3]);
    for (int64_t i = 0; input == I_MORE && !(c->flags & K_ALL) && i < n; i++)
        if (c->flags & L_ALL_IGNORED || i % 3 == 1) x[i] = -1;
}

static double kl_of(const double *s, const double *ids, const double *logits, double lse, int64_t V, int64_t K,
                    double T)
{
    bool *top = calloc((size_t)V, sizeof *top);
    const double all = losses_lse(s, V);
    double sum = 0, rest = 0, kl = 0;
    assert_non_null(top);
    for (int64_t k = 0; k < K; k++) {
        const double log_p = logits[k] / T - lse;
        top[(int64_t)ids[k]] = true;
        sum += exp(log_p);
        kl += exp(log_p) * (log_p - (s[(int64_t)ids[k]] - all));
    }
    for (int64_t v = 0; v < V; v++) rest += top[v] ? 0 : exp(s[v] - all);
    if (K < V && sum < 1) kl += (1 - sum) * (log(1 - sum) - log(rest));
    free(top);
    return kl;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t n = c->dim[0] * c->dim[1], d = c->dim[2], V = c->dim[3], K = c->dim[4];
    const double T = c->dim[5] ? (double)c->dim[5] / 4 : 1;
    const double *y = c->flags & K_ALL ? NULL : o->in[I_MORE];
    const double *m = c->flags & L_WEIGHTS ? o->in[I_MORE + !!y] : NULL;
    double *s = calloc((size_t)V, sizeof *s), sum = 0, total = 0;
    assert_non_null(s);
    for (int64_t r = 0; r < n; r++) {
        if (y && y[r] == -1) continue;
        for (int64_t v = 0; v < V; v++) {
            s[v] = 0;
            for (int64_t i = 0; i < d; i++) s[v] += o->in[I_X][r * d + i] * o->in[I_W][v * d + i] / T;
        }
        const double kl = kl_of(s, o->in[I_IDS] + r * K, o->in[I_LOGITS] + r * K, o->in[I_LSE][r], V, K, T);
        sum += (m ? m[r] : 1) * kl;
        total += m ? m[r] : 1;
        if (o->out[1]) o->out[1][r] = kl;
    }
    o->out[0][0] = total == 0 ? 0 : T * T * sum / total;
    free(s);
}

static const tn_op_test test;

/* --- properties ------------------------------------------------------------------------------------------------------- */

enum { N = 23, D = 6, V = 19, K = 5 };

typedef struct sample {
    float x[N * D], w[V * D], logits[N * K], lse[N], m[N];
    int32_t ids[N * K], y[N];
} sample;

typedef struct result {
    float loss, kl[N], dx[N * D], dw[V * D], dm[N];
} result;

static void fill(float *x, int n, uint64_t stream)
{
    for (int i = 0; i < n; i++) x[i] = tn_rng_normal((tn_rng){ 9, stream }, (uint64_t)i);
}

static sample draw(void)
{
    sample s;
    fill(s.x, N * D, 1);
    fill(s.w, V * D, 2);
    for (int i = 0; i < N * K; i++) s.ids[i] = (int32_t)id_of(i / K, i % K, V), s.logits[i] = -0.25f * (float)(i % K);
    for (int i = 0; i < N; i++) s.lse[i] = 1.25f + 0.1f * (float)(i % 9), s.m[i] = 0.5f + (float)(i % 4);
    for (int i = 0; i < N; i++) s.y[i] = i * 7 % V;
    return s;
}

static void run(const sample *s, int64_t n, uint32_t flags, int threads, result *r)
{
    const tn_case c = { "", { 1, n, D, V, K, 8 }, L_WEIGHTS | L_NLL | flags, 0, 0 };
    memset(r, 0, sizeof *r);
    tn_optest_run(&test, &c, threads, (const void *[]){ s->x, s->w, s->ids, s->logits, s->lse, s->y, s->m },
                  (void *[]){ &r->loss, r->kl }, (void *[]){ r->dx, r->dw, NULL, NULL, NULL, NULL, r->dm }, NULL);
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
        s.y[r] = -1;
        s.x[r * D + 1] = s.logits[r * K] = s.lse[r] = s.m[r] = NAN;
        s.ids[r * K] = -7;
    }
    run(&s, N - 3, 0, 1, &few);
    run(&s, N, 0, 1, &all);
    assert_memory_equal(&few, &all, sizeof few);
}

static void nan_stays_in_its_row(void)
{
    for (int k = 0; k < 3; k++) {
        sample s = draw();
        result r;
        if (k == 0) s.x[2 * D] = NAN;
        if (k == 1) s.logits[2 * K + 1] = NAN;
        if (k == 2) s.lse[2] = NAN;
        run(&s, N, 0, 2, &r);
        assert_true(isnan(r.loss) && isnan(r.dw[0]));
        for (int i = 0; i < N; i++) assert_true(!isnan(r.kl[i]) == (i != 2) && !isnan(r.dx[i * D]) == (i != 2));
    }
}

/* A teacher t (n,D) of the same head, kept with `top` of its logits, against linear_kl of all of it. */
enum { BIG_V = 2100 };

typedef struct big {
    float x[N * D], t[N * D], w[BIG_V * D], loss, kl[N], dx[N * D], dw[BIG_V * D];
    int32_t y[N];
} big;

static void run_big(big *b, int64_t top, const char *off)
{
    const tn_graph_options o = { .activation = TN_F32, .off = (const char *const[]){ off, NULL } };
    tn_graph *g;
    tn_ref kl, logits, lse;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(N, D), TN_F32));
    const tn_ref t = tn_input(g, "t", tn_shape(N, D), TN_F32), y = tn_input(g, "y", tn_shape(N), TN_I32);
    const tn_ref w = tn_want_gradient(g, tn_input(g, "w", tn_shape(BIG_V, D), TN_F32));
    tn_ref loss;
    if (top) {
        const tn_ref ids = tn_linear_top(g, t, tn_stop_gradient(g, w), top, .labels = y, .temperature = 2,
                                         .logits = &logits, .lse = &lse);
        loss = tn_linear_kl_top(g, x, w, ids, logits, lse, .labels = y, .temperature = 2, .kl = &kl);
    } else loss = tn_linear_kl(g, x, t, w, .labels = y, .temperature = 2, .kl = &kl);
    tn_output(g, "loss", loss);
    tn_output(g, "kl", kl);
    const losses_io in[] = { { "x", b->x, sizeof b->x },
                             { "t", b->t, sizeof b->t },
                             { "w", b->w, sizeof b->w },
                             { "y", b->y, sizeof b->y },
                             { 0 } };
    const losses_io out[] = { { "loss", &b->loss, sizeof b->loss },
                              { "kl", b->kl, sizeof b->kl },
                              { "d.x", b->dx, sizeof b->dx },
                              { "d.w", b->dw, sizeof b->dw },
                              { 0 } };
    assert_ok(losses_run(g, loss, 2, in, out));
}

static big *new_big(float sharp)
{
    big *b = calloc(1, sizeof *b);
    assert_non_null(b);
    fill(b->x, N * D, 5);
    fill(b->t, N * D, 6);
    fill(b->w, BIG_V * D, 7);
    for (int i = 0; i < BIG_V * D; i++) b->w[i] *= sharp;
    for (int i = 0; i < N; i++) b->y[i] = i % 5 == 4 ? -1 : i;
    return b;
}

/* All classes in the top: linear_kl, whichever node makes the loss. */
static void all_classes_are_linear_kl(void)
{
    big *whole = new_big(0.5f), *top = new_big(0.5f), *early = new_big(0.5f);
    run_big(whole, 0, NULL);
    run_big(top, BIG_V, NULL);
    run_big(early, BIG_V, "opt.late_loss");
    assert_true(whole->loss > 0.1f);
    losses_close(&whole->loss, &top->loss, 1, 1e-5);
    losses_close(whole->kl, top->kl, N, 1e-5);
    losses_close(whole->dx, top->dx, N * D, 1e-6);
    losses_close(whole->dw, top->dw, BIG_V * D, 1e-7);
    assert_memory_equal(&top->loss, &early->loss, sizeof top->loss);
    assert_memory_equal(top->dx, early->dx, sizeof top->dx);
    assert_memory_equal(top->dw, early->dw, sizeof top->dw);
    free(whole);
    free(top);
    free(early);
}

/* The tail as one bucket takes something away from KL, never adds to it; of a sharp teacher almost nothing. */
static void less_than_linear_kl(void)
{
    static const int64_t tops[] = { 1, 8, 64, 512, BIG_V };
    big *whole = new_big(12), *top = new_big(12);
    float before = -1;
    run_big(whole, 0, NULL);
    for (size_t i = 0; i < TN_COUNT(tops); i++) {
        run_big(top, tops[i], NULL);
        for (int r = 0; r < N; r++) assert_true(top->kl[r] <= whole->kl[r] * (1 + 1e-5f) && top->kl[r] >= 0);
        assert_true(top->loss >= before * (1 - 1e-6f));
        before = top->loss;
        if (tops[i] == 64) assert_true(top->loss > 0.99f * whole->loss);
        if (tops[i] == 1) assert_true(top->loss < 0.9f * whole->loss);
    }
    free(whole);
    free(top);
}

/* The student is the teacher: nothing to learn, in the top and behind it. */
static void equal_rows_give_zero(void)
{
    big *b = new_big(1);
    memcpy(b->x, b->t, sizeof b->x);
    run_big(b, 64, NULL);
    if (!(fabsf(b->loss) < 1e-5f)) fail_msg("a loss of %g", (double)b->loss);
    for (int i = 0; i < N * D; i++) assert_true(fabsf(b->dx[i]) < 2e-6f);
    free(b);
}

/* One row of width 1: logits of class v are w[v]. */
static float loss_of(const float *w, float lse, float *dw)
{
    const tn_case c = { "", { 1, 1, 1, V, 2, 4 }, K_ALL, 0, 0 };
    const float one = 1, logits[2] = { 0, -1 };
    const int32_t ids[2] = { 3, 11 };
    float loss, dx;
    tn_optest_run(&test, &c, 1, (const void *[]){ &one, w, ids, logits, &lse }, (void *[]){ &loss },
                  (void *[]){ &dx, dw, NULL, NULL, NULL }, NULL);
    return loss;
}

static void infinity_has_rules(void)
{
    float w[V], dw[V];
    const float all = log1pf(expf(-1)); /* the top has everything */
    for (int v = 0; v < V; v++) w[v] = v == 3 || v == 11 ? 0 : -INFINITY;
    assert_true(isfinite(loss_of(w, all + 1e-3f, dw)) == false); /* q_rest = 0 where p_rest is not */
    for (int v = 0; v < V; v++) assert_true(isfinite(dw[v]));
    assert_true(isfinite(loss_of(w, all - 1e-6f, dw))); /* p_rest = 0 adds nothing, whatever q_rest */
    for (int v = 0; v < V; v++) assert_true(isfinite(dw[v]) && (v == 3 || v == 11 || dw[v] == 0));
    for (int v = 0; v < V; v++) w[v] = v == 3 || v == 11 ? 100 : -100; /* q_rest is below what a float holds */
    const float far = loss_of(w, 2, dw);
    assert_true(isfinite(far) && far > 50);
    double sum = 0;
    for (int v = 0; v < V; v++) sum += (double)dw[v];
    assert_true(fabs(sum) < 1e-5 && dw[0] < -0.01f); /* the tail is pulled up, shared out as q is */
}

static void wrong_calls_are_refused(void)
{
    const tn_graph_options o = { .activation = TN_F32 };
    static const struct {
        int64_t rows, k, lse, w;
        tn_dtype ids;
        float temperature;
        const char *says;
    } bad[] = {
        { 2, 4, 2, 2, TN_I32, 1, "w must be floats of shape (V,3)" },
        { 7, 4, 2, 3, TN_I32, 1, "ids must be i32 (...,K)" },
        { 2, 4, 2, 3, TN_I64, 1, "ids must be i32 (...,K)" },
        { 2, 6, 2, 3, TN_I32, 1, "the teacher's 6 largest logits of 5 classes" },
        { 2, 4, 3, 3, TN_I32, 1, "lse must be floats, one for each row" },
        { 2, 4, 2, 3, TN_I32, NAN, "temperature nan" },
    };
    for (size_t k = 0; k < TN_COUNT(bad); k++) {
        tn_graph *g;
        assert_ok(tn_graph_new(&o, &g));
        tn_linear_kl_top(g, tn_input(g, "x", tn_shape(2, 3), TN_F32), tn_input(g, "w", tn_shape(5, bad[k].w), TN_F32),
                         tn_input(g, "i", tn_shape(bad[k].rows, bad[k].k), bad[k].ids),
                         tn_input(g, "l", tn_shape(bad[k].rows, bad[k].k), TN_F32),
                         tn_input(g, "e", tn_shape(bad[k].lse), TN_F32), .temperature = bad[k].temperature);
        assert_fails(tn_graph_status(g), TN_USAGE, bad[k].says);
        tn_graph_free(g);
    }
}

/* What comes from a file is looked at. */
static void wrong_ids_are_refused(void)
{
    if (tn_test_device() != TN_CPU) return;
    for (int32_t id = -1; id <= 5; id += 6) {
        const tn_graph_options o = { .activation = TN_F32 };
        tn_graph *g;
        float x[3] = { 1, 2, 3 }, w[15] = { 0 }, l = 0, e = 1;
        assert_ok(tn_graph_new(&o, &g));
        const tn_ref loss =
            tn_linear_kl_top(g, tn_want_gradient(g, tn_input(g, "x", tn_shape(1, 3), TN_F32)),
                             tn_input(g, "w", tn_shape(5, 3), TN_F32), tn_input(g, "i", tn_shape(1, 1), TN_I32),
                             tn_input(g, "l", tn_shape(1, 1), TN_F32), tn_input(g, "e", tn_shape(1), TN_F32));
        tn_output(g, "loss", loss);
        const losses_io in[] = { { "x", x, sizeof x },  { "w", w, sizeof w },  { "i", &id, sizeof id },
                                 { "l", &l, sizeof l }, { "e", &e, sizeof e }, { 0 } };
        assert_fails(losses_run(g, loss, 1, in, &(losses_io){ 0 }), TN_USAGE, "of row 0 is not in [0,5)");
    }
}

static const tn_property properties[] = {
    { "the tile size changes nothing", tile_size_changes_nothing },
    { "ignored rows change nothing, NaN or not", ignored_rows_change_nothing },
    { "a NaN stays in its row", nan_stays_in_its_row },
    { "all classes: linear_kl", all_classes_are_linear_kl },
    { "fewer classes: less than linear_kl", less_than_linear_kl },
    { "equal rows give 0, and so does their gradient", equal_rows_give_zero },
    { "classes of probability 0", infinity_has_rules },
    { "wrong calls are refused", wrong_calls_are_refused },
    { "ids outside of the classes are refused", wrong_ids_are_refused },
};

static const tn_op_test test = { .op = "linear_kl_top",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_linear_kl_top(tn_test_list *l) { tn_optest_add(l, &test); }
