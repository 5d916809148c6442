/* attention: rows (dim = B, T, S, H, KV, D, window) of the tiled op and of its plain twin against one oracle. */
#include "ops/attention/attention_mask.h"
#include "backend/cpu/vmath.h"
#include "optest.h"
#include "plan/plan.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum {
    CAUSAL = 1,
    LENGTHS = 2,  /* 0 for the last sequence */
    CACHE = 4,    /* kv_length */
    DOCUMENT = 8, /* ids 0 1 2 in runs */
    PACKED = 16,  /* q, k, v are parts of one (B,T,(H+2KV)D) tensor */
    HALF = 32,    /* k and v are f16 */
    LIVE = 64,    /* one sequence of q is dead */
    PLAIN = 128,  /* the twin */
    SCALE = 256,
    BELOW = 512, /* a negative scale */
};

static const tn_case cases[] = {
    /*                  B  T   S   H  KV D   W */
    { "all", { 2, 5, 7, 2, 2, 6, 0 }, 0, 4e-6f, 2e-2f },
    { "causal", { 2, 9, 9, 2, 2, 5, 0 }, CAUSAL, 4e-6f, 2e-2f },
    { "causal tail", { 1, 3, 9, 2, 1, 4, 0 }, CAUSAL | SCALE, 4e-6f, 2e-2f },
    { "more queries", { 1, 7, 4, 2, 1, 4, 0 }, CAUSAL, 4e-6f, 2e-2f },
    { "grouped", { 2, 6, 6, 6, 2, 4, 0 }, CAUSAL, 4e-6f, 2e-2f },
    { "many heads", { 1, 3, 3, 70, 1, 3, 0 }, CAUSAL, 4e-6f, 0 },
    { "lengths", { 3, 4, 6, 2, 1, 4, 0 }, LENGTHS, 4e-6f, 2e-2f },
    { "lengths causal", { 3, 6, 6, 2, 2, 4, 0 }, LENGTHS | CAUSAL, 4e-6f, 2e-2f },
    { "cache", { 2, 3, 11, 4, 2, 8, 0 }, CACHE | CAUSAL, 4e-6f, 2e-2f },
    { "one token", { 2, 1, 100, 4, 2, 64, 0 }, CACHE | CAUSAL | TN_FEW, 4e-6f, 2e-2f },
    { "one token, keys shared out", { 1, 1, 256, 8, 2, 64, 0 }, CACHE | CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "one token, window", { 2, 1, 200, 4, 1, 128, 50 }, CACHE | CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "few tokens, lengths", { 3, 4, 130, 4, 1, 40, 0 }, LENGTHS | CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "window", { 1, 10, 10, 2, 1, 4, 3 }, CAUSAL, 4e-6f, 2e-2f },
    { "window both", { 1, 10, 10, 2, 1, 4, 3 }, 0, 4e-6f, 2e-2f },
    { "window cache", { 1, 1, 90, 2, 1, 4, 20 }, CAUSAL | CACHE, 4e-6f, 0 },
    { "documents", { 2, 9, 9, 2, 1, 4, 0 }, DOCUMENT | CAUSAL, 4e-6f, 2e-2f },
    { "packed", { 2, 6, 6, 4, 2, 8, 0 }, PACKED | CAUSAL, 4e-6f, 2e-2f },
    { "half cache", { 2, 3, 5, 2, 1, 6, 0 }, HALF | CAUSAL, 4e-6f, 2e-2f },
    { "live", { 3, 4, 5, 2, 1, 4, 0 }, LIVE | CAUSAL, 4e-6f, 0 },
    { "tiles", { 1, 145, 145, 3, 1, 64, 0 }, CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "wide tiles", { 1, 130, 190, 2, 1, 128, 0 }, CAUSAL | TN_FEW, 0, 2e-2f },
    { "tiles packed", { 1, 200, 200, 2, 2, 64, 0 }, PACKED | CAUSAL | TN_FEW, 0, 2e-2f },
    { "tiles both ways", { 1, 140, 140, 2, 2, 64, 33 }, TN_FEW, 0, 2e-2f },
    { "tiles lengths", { 2, 129, 200, 1, 1, 40, 0 }, LENGTHS | TN_FEW, 0, 2e-2f },
    { "tiles cache", { 1, 131, 250, 2, 1, 80, 0 }, CACHE | CAUSAL | TN_FEW, 0, 2e-2f },
    { "tiles window", { 1, 150, 150, 2, 2, 16, 70 }, CAUSAL | DOCUMENT | TN_FEW, 6e-6f, 0 },
    { "blocks", { 1, 230, 230, 1, 1, 9, 0 }, CAUSAL | TN_FEW, 6e-6f, 0 },
    { "blocks window", { 1, 230, 230, 1, 1, 5, 100 }, CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "blocks both ways", { 1, 209, 245, 1, 1, 8, 31 }, TN_FEW, 6e-6f, 0 },
    { "deep", { 1, 14, 70, 1, 1, 300, 0 }, CAUSAL | TN_FEW, 6e-6f, 0 },
    { "scale below zero", { 1, 9, 9, 1, 1, 5, 0 }, CAUSAL | BELOW, 6e-6f, 0 },
    { "odd tiles", { 2, 67, 131, 2, 1, 17, 0 }, LENGTHS | TN_FEW, 6e-6f, 0 },
    { "fused", { 2, 192, 192, 3, 3, 64, 0 }, PACKED | CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "fused all", { 1, 70, 200, 2, 2, 128, 0 }, TN_FEW | SCALE, 6e-6f, 2e-2f },
    { "fused grouped", { 2, 130, 130, 4, 2, 72, 0 }, PACKED | CAUSAL | TN_FEW, 6e-6f, 2e-2f },
    { "no queries", { 2, 0, 4, 2, 1, 4, 0 }, 0, 1e-6f, 0 },
    { "no keys", { 2, 3, 0, 2, 1, 4, 0 }, 0, 1e-6f, 0 },
    { "plain", { 2, 9, 9, 4, 2, 5, 0 }, PLAIN | CAUSAL, 4e-6f, 2e-2f },
    { "plain cache", { 2, 3, 11, 4, 2, 8, 6 }, PLAIN | CACHE | CAUSAL, 4e-6f, 0 },
    { "plain lengths", { 3, 6, 6, 2, 1, 4, 0 }, PLAIN | LENGTHS | DOCUMENT, 4e-6f, 0 },
    { "plain packed", { 2, 6, 6, 4, 2, 8, 0 }, PLAIN | PACKED | CAUSAL, 4e-6f, 0 },
    { "plain live", { 3, 4, 5, 2, 1, 4, 0 }, PLAIN | LIVE, 4e-6f, 0 },
    { "plain empty", { 2, 0, 4, 2, 1, 4, 0 }, PLAIN, 1e-6f, 0 },
};

static float scale_of(const tn_case *c) { return c->flags & SCALE ? 0.7f : c->flags & BELOW ? -0.4f : 0; }

static int64_t cached(const tn_case *c) { return c->dim[2] - c->dim[2] / 3; }

static int64_t length_of(const tn_case *c, int64_t b) { return b == c->dim[0] - 1 ? 0 : c->dim[2] - 1 - b; }

static int32_t document_of(const tn_case *c, int64_t t) { return (int32_t)(t * 3 / (c->dim[1] + 1)); }

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    int at = c->flags & PACKED ? 1 : 3;
    if ((c->flags & LENGTHS) && input == at++)
        for (int64_t b = 0; b < n; b++) x[b] = (double)length_of(c, b);
    if ((c->flags & CACHE) && input == at++) x[0] = (double)cached(c);
    if ((c->flags & DOCUMENT) && input == at++)
        for (int64_t i = 0; i < n; i++) x[i] = (double)document_of(c, i % c->dim[1]);
    if ((c->flags & LIVE) && input == at++) x[0] = (double)(c->dim[0] - 1);
}

static tn_ref add_attention(tn_graph *g, const tn_case *c, tn_ref q, tn_ref k, tn_ref v, tn_attention_options o)
{
    const tn_ref in[] = { q, k, v, o.lengths, o.kv_length, o.document };
    tn_ref out[2];
    if (!(c->flags & PLAIN)) return tn_attention_(g, __FILE__, __LINE__, q, k, v, o);
    const tn_attention_attr a = { o.causal, o.scale == 0 ? 1 / sqrtf((float)c->dim[5]) : o.scale, o.window, false };
    return tn_graph_add(g, __FILE__, __LINE__, &tn_op_attention_plain, &a, in, TN_ATT_INPUTS, out);
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], S = c->dim[2], H = c->dim[3], KV = c->dim[4], D = c->dim[5];
    const tn_fill_spec integer = { TN_FILL_INT, .lo = 0, .hi = 1 },
                       half = { .dtype = c->flags & HALF ? TN_F16 : TN_F32 };
    tn_graph *g = tn_test_graph(io);
    tn_attention_options o = { .causal = c->flags & CAUSAL, .scale = scale_of(c), .window = c->dim[6] };
    tn_ref q, k, v;
    if (c->flags & PACKED) {
        const tn_ref all = tn_test_input(io, tn_shape(B, T, H + 2 * KV, D), (tn_fill_spec){ 0 });
        q = tn_slice(g, all, 2, 0, H);
        k = tn_slice(g, all, 2, H, KV);
        v = tn_slice(g, all, 2, H + KV, KV);
    } else {
        q = tn_test_input(io, tn_shape(B, T, H, D), (tn_fill_spec){ 0 });
        k = tn_test_input(io, tn_shape(B, S, KV, D), half);
        v = tn_test_input(io, tn_shape(B, S, KV, D), half);
    }
    if (c->flags & LENGTHS) o.lengths = tn_test_input(io, tn_shape(B), integer);
    if (c->flags & CACHE) o.kv_length = tn_test_input(io, tn_shape(1), integer);
    if (c->flags & DOCUMENT) o.document = tn_test_input(io, tn_shape(B, T), integer);
    if (c->flags & LIVE) q = tn_live(g, q, tn_test_input(io, tn_shape(1), integer));
    const tn_ref y = add_attention(g, c, q, k, v, o);
    tn_test_output(io, c->flags & LIVE ? tn_slice(g, y, 0, 0, B - 1) : y);
}

static bool sees(const tn_case *c, int64_t b, int64_t t, int64_t s)
{
    const int64_t keys = c->flags & CACHE ? cached(c) : c->dim[2], p = keys - c->dim[1] + t, W = c->dim[6];
    if (s >= keys || ((c->flags & LENGTHS) && s >= length_of(c, b))) return false;
    if ((c->flags & CAUSAL) && s > p) return false;
    if (W && (s <= p - W || s >= p + W)) return false;
    return !(c->flags & DOCUMENT) || document_of(c, t) == document_of(c, s);
}

/* Where head h of token n lies: own tensors, or parts of one. kind 0 = q, 1 = k, 2 = v. */
static const double *row_of(const tn_case *c, const tn_oracle *o, int kind, int64_t b, int64_t n, int64_t h)
{
    const int64_t H = c->dim[3], KV = c->dim[4], D = c->dim[5], N = kind ? c->dim[2] : c->dim[1];
    if (!(c->flags & PACKED)) return o->in[kind] + ((b * N + n) * (kind ? KV : H) + h) * D;
    return o->in[0] + ((b * N + n) * (H + 2 * KV) + (kind ? H + (kind - 1) * KV : 0) + h) * D;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t B = c->dim[0] - (c->flags & LIVE ? 1 : 0), T = c->dim[1], S = c->dim[2], H = c->dim[3], D = c->dim[5];
    const double scale = scale_of(c) == 0 ? 1 / sqrt((double)D) : (double)scale_of(c);
    double p[256];
    for (int64_t i = 0; i < B * T * H; i++) {
        const int64_t b = i / (T * H), t = i / H % T, h = i % H, kv = h * c->dim[4] / H;
        const double *q = row_of(c, o, 0, b, t, h);
        double max = -INFINITY, sum = 0;
        for (int64_t s = 0; s < S; s++) {
            p[s] = -INFINITY;
            if (!sees(c, b, t, s)) continue;
            p[s] = 0;
            for (int64_t d = 0; d < D; d++) p[s] += scale * q[d] * row_of(c, o, 1, b, s, kv)[d];
            if (p[s] > max) max = p[s];
        }
        for (int64_t s = 0; s < S; s++) sum += p[s] = sees(c, b, t, s) ? exp(p[s] - max) : 0;
        for (int64_t s = 0; s < S; s++)
            for (int64_t d = 0; d < D && sees(c, b, t, s); d++)
                o->out[0][i * D + d] += p[s] / sum * row_of(c, o, 2, b, s, kv)[d];
    }
}

/* --- properties -------------------------------------------------------------------------------------------------- */

static const tn_op_test test;

enum { T0 = 140, H0 = 4, KV0 = 2, D0 = 16, W0 = (H0 + 2 * KV0) * D0 };

static void fill_waves(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = sinf(0.37f * (float)i) + 0.5f * cosf(0.011f * (float)(i * i % 1009));
}

/* Changing token t, even to NaN, leaves every bit before it as it was. */
static void future_never_reaches_the_past(void)
{
    static float x[T0 * W0], y[2][T0 * H0 * D0];
    static const int change[] = { 1, 63, 64, 100, 139 };
    const tn_case c = { "leak", { 1, T0, T0, H0, KV0, D0, 0 }, PACKED | CAUSAL, 1, 0 };
    fill_waves(x, T0 * W0);
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y[0] }, NULL, NULL);
    for (size_t i = 0; i < TN_COUNT(change); i++)
        for (int bad = 0; bad < 2; bad++) {
            fill_waves(x, T0 * W0);
            for (int d = 0; d < W0; d++) x[change[i] * W0 + d] = bad ? NAN : 3.f - x[change[i] * W0 + d];
            tn_optest_run(&test, &c, 2, (const void *[]){ x }, (void *[]){ y[1] }, NULL, NULL);
            assert_memory_equal(y[0], y[1], sizeof(float) * (size_t)(change[i] * H0 * D0));
            assert_true(memcmp(y[0], y[1], sizeof y[0]) != 0);
        }
}

typedef struct world {
    tn_plan *plan;
    tn_bound *bound;
} world;

/* A pass over T tokens of width (H+2KV)D through rope and the cache "k", "v" of S0 tokens. */
enum { S0 = 37, PREFILL = 20 };

static void open_cached(world *w, tn_store *store, tn_context *context, int64_t T)
{
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(1, T, H0 + 2 * KV0, D0), TN_F32);
    const tn_ref at = tn_input(g, "at", tn_shape(1), TN_I32), n = tn_input(g, "n", tn_shape(1), TN_I32);
    const tn_ref q = tn_rope(g, tn_slice(g, x, 2, 0, H0), .position = at);
    const tn_ref k = tn_rope(g, tn_slice(g, x, 2, H0, KV0), .position = at);
    const tn_ref keys = tn_cache_write(g, tn_cache(g, "k", tn_shape(1, S0, KV0, D0), TN_F32), k, at);
    const tn_ref values =
        tn_cache_write(g, tn_cache(g, "v", tn_shape(1, S0, KV0, D0), TN_F32), tn_slice(g, x, 2, H0 + KV0, KV0), at);
    tn_output(g, "y", tn_attention(g, q, keys, values, .causal = true, .kv_length = n));
    assert_ok(tn_graph_status(g));
    assert_ok(tn_store_adopt(store, g));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &w->plan));
    assert_ok(tn_bind(w->plan, context, store, &w->bound));
}

static void run_cached(world *w, const float *x, int64_t first, int64_t T, float *y)
{
    memcpy(tn_bound_data(w->bound, "x"), x + first * W0, sizeof(float) * (size_t)(T * W0));
    *(int32_t *)tn_bound_data(w->bound, "at") = (int32_t)first;
    *(int32_t *)tn_bound_data(w->bound, "n") = (int32_t)(first + T);
    assert_ok(tn_run(w->bound));
    memcpy(y + first * H0 * D0, tn_bound_data(w->bound, "y"), sizeof(float) * (size_t)(T * H0 * D0));
}

static void cached_steps_equal_the_whole(void)
{
    static float x[S0 * W0], whole[S0 * H0 * D0], steps[S0 * H0 * D0];
    static const int64_t lengths[] = { S0, PREFILL, 1 };
    tn_store *store;
    tn_context *context;
    world w[3];
    assert_ok(tn_store_new(TN_CPU, 1, &store));
    assert_ok(tn_context_new(TN_CPU, 1, &context));
    for (int i = 0; i < 3; i++) open_cached(&w[i], store, context, lengths[i]);
    fill_waves(x, S0 * W0);
    run_cached(&w[0], x, 0, S0, whole);
    float *k = tn_store_find(store, "k")->data;
    for (int64_t i = 0; i < S0 * KV0 * D0; i++) k[i] = NAN; /* what is not written yet must not matter */
    run_cached(&w[1], x, 0, PREFILL, steps);
    for (int64_t t = PREFILL; t < S0; t++) run_cached(&w[2], x, t, 1, steps);
    assert_memory_equal(steps, whole, sizeof whole); /* a row alone and a row in a strip: the same sums */
    *(int32_t *)tn_bound_data(w[2].bound, "n") = S0 + 1;
    assert_fails(tn_run(w[2].bound), TN_USAGE, "kv_length is 38: it must be 0 to 37, the number of keys");
    for (int i = 0; i < 3; i++) {
        tn_bound_free(w[i].bound);
        tn_plan_free(w[i].plan);
    }
    tn_context_free(context);
    tn_store_free(store);
}

static void nothing_seen_gives_zeros(void)
{
    enum { B = 2, T = 3, S = 4, D = 4 };
    const tn_case c = { "none", { B, T, S, 1, 1, D, 0 }, LENGTHS, 1, 0 };
    float q[B * T * D], k[B * S * D], v[B * S * D], y[B * T * D], dq[B * T * D], dk[B * S * D], dv[B * S * D];
    const int32_t lengths[B] = { 2, 0 };
    fill_waves(q, B * T * D);
    fill_waves(k, B * S * D);
    fill_waves(v, B * S * D);
    tn_optest_run(&test, &c, 1, (const void *[]){ q, k, v, lengths }, (void *[]){ y }, (void *[]){ dq, dk, dv, NULL },
                  NULL);
    for (int i = 0; i < T * D; i++) {
        assert_true(y[i] != 0 && y[T * D + i] == 0);
        assert_float_equal(dq[T * D + i], 0, 0);
    }
    for (int i = 2 * D; i < B * S * D; i++) assert_true(dk[i] == 0 && dv[i] == 0);
}

/* Packed documents are worth what they are alone. */
static void documents_do_not_mix(void)
{
    enum { T = 100 };
    static float x[T * W0], packed[T * H0 * D0], alone[T * H0 * D0];
    int32_t doc[T];
    const tn_case c = { "packed", { 1, T, T, H0, KV0, D0, 0 }, PACKED | CAUSAL | DOCUMENT, 1, 0 };
    fill_waves(x, T * W0);
    for (int t = 0; t < T; t++) doc[t] = document_of(&c, t);
    tn_optest_run(&test, &c, 1, (const void *[]){ x, doc }, (void *[]){ packed }, NULL, NULL);
    for (int t = 0, n; t < T; t += n) {
        for (n = 1; t + n < T && doc[t + n] == doc[t]; n++) continue;
        const tn_case one = { "one", { 1, n, n, H0, KV0, D0, 0 }, PACKED | CAUSAL, 1, 0 };
        tn_optest_run(&test, &one, 1, (const void *[]){ x + t * W0 }, (void *[]){ alone + t * H0 * D0 }, NULL, NULL);
    }
    for (int i = 0; i < T * H0 * D0; i++) assert_float_equal(packed[i], alone[i], 1e-5f);
}

/* Rows of NaN in a strip's keys and values reach the queries that see them, and no other, at every edge of a panel. */
static void nan_stays_where_it_is_seen(void)
{
    enum { T = 80, D = 4, W = 3 * D };
    static float x[T * W], y[2][T * D];
    const tn_case c = { "nan", { 1, T, T, 1, 1, D, 9 }, PACKED | CAUSAL, 1, 0 };
    fill_waves(x, T * W);
    tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y[0] }, NULL, NULL);
    for (int bad = 0; bad < T; bad += 7) {
        fill_waves(x, T * W);
        for (int d = D; d < W; d++) x[bad * W + d] = NAN;
        tn_optest_run(&test, &c, 1, (const void *[]){ x }, (void *[]){ y[1] }, NULL, NULL);
        for (int t = 0; t < T; t++) {
            const bool seen = t >= bad && t < bad + 9;
            for (int d = 0; d < D && seen; d++) assert_true(isnan(y[1][t * D + d]));
            if (!seen) assert_memory_equal(y[0] + t * D, y[1] + t * D, sizeof(float) * D);
        }
    }
}

static void weights_are_exponentials(void)
{
    for (int i = 0; i < 87000; i++) {
        const float x = -0.001f * (float)i;
        assert_true(fabs((double)tn_v_exp_weight(x) / exp((double)x) - 1) < 2.5e-7);
    }
    assert_true(tn_v_exp_weight(0) == 1 && tn_v_exp_weight(-INFINITY) == 0 && tn_v_exp_weight(-1e30f) == 0);
    assert_true(isnan(tn_v_exp_weight(NAN)));
}

static void switch_builds_the_twin(void)
{
    static const char *const off[] = { "opt.flash", NULL };
    const tn_graph_options go = { .off = off };
    tn_graph *g;
    assert_ok(tn_graph_new(&go, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(1, 3, 2, 4), TN_F32);
    const tn_ref y = tn_attention(g, x, x, x, .causal = true);
    assert_int_equal(tn_ref_dim(g, y, 3), 4);
    assert_string_equal(g->node[0].op->name, "attention_plain");
    tn_graph_free(g);
}

/* Pairs of a query and a key that it sees, as the forward FLOPs of a plan have them. */
static double pairs_of(int64_t T, int64_t S, bool causal, int64_t window)
{
    enum { H = 2, D = 4 };
    tn_graph *g = tn_world_graph(NULL);
    tn_plan *p;
    const tn_ref q = tn_input(g, "q", tn_shape(1, T, H, D), TN_F32), k = tn_input(g, "k", tn_shape(1, S, H, D), TN_F32);
    tn_output(g, "y", tn_attention(g, q, k, k, .causal = causal, .window = window));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &p));
    const double pairs = tn_plan_flops(p) / (4 * H * D);
    tn_plan_free(p);
    return pairs;
}

static void hidden_pairs_cost_nothing(void)
{
    assert_true(pairs_of(16, 16, false, 0) == 256);
    assert_true(pairs_of(16, 16, true, 0) == 136);
    assert_true(pairs_of(16, 16, true, 4) == 1 + 2 + 3 + 13 * 4);
    assert_true(pairs_of(16, 16, false, 4) == 2 * (4 + 5 + 6) + 10 * 7);
    assert_true(pairs_of(16, 16, true, 99) == 136);
    assert_true(pairs_of(4, 16, true, 0) == 13 + 14 + 15 + 16); /* the last query is beside the last key */
    assert_true(pairs_of(4, 16, true, 5) == 20);
    assert_true(pairs_of(4, 2, true, 0) == 1 + 2); /* the first two see nothing */
}

static const tn_property properties[] = {
    { "the future never reaches the past", future_never_reaches_the_past },
    { "prefill and steps equal the whole pass", cached_steps_equal_the_whole },
    { "a query that sees nothing gives zeros", nothing_seen_gives_zeros },
    { "packed documents do not mix", documents_do_not_mix },
    { "NaN stays where it is seen", nan_stays_where_it_is_seen },
    { "weights are exponentials", weights_are_exponentials },
    { "opt.flash=off builds the twin", switch_builds_the_twin },
    { "hidden pairs cost nothing", hidden_pairs_cost_nothing },
};

static const tn_op_test test = { .op = "attention",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_attention(tn_test_list *l) { tn_optest_add(l, &test); }
