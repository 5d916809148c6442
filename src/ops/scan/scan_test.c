/* scan: rows (dim = B, T, K, chunk) against a loop in double, once with gradients by differences and once with the
 * loop's own reverse (long rows), then properties. The oracle starts from lambda as scan.h defines it. */
#include "optest.h"

#include "base/rng.h"
#include "ops/scan/scan_math.h"
#include "plan/graph.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RHO_T = 1,
    OMEGA_T = 2,
    GAMMA = 4,
    GAMMA_T = 8,
    STATE = 16,
    RESET = 32,
    PLAIN = 64, /* _T: per token */
    NEAR_ONE = 128,
    ONE = 256,
    LIVE = 512,
    ALL_T = RHO_T | OMEGA_T | GAMMA_T,
    LONG = TN_NO_VIEWS
};

/* Small rows: lambda is not rounded in their oracle, so that differences make sense. */
static const tn_case small_cases[] = {
    { "short", { 2, 7, 3, 4 }, 0, 1e-5f, 3e-2f },
    { "one token", { 3, 1, 5, 0 }, GAMMA | STATE | RESET, 1e-5f, 2e-2f },
    { "all fixed", { 2, 19, 5, 4 }, GAMMA | STATE | RESET, 1e-5f, 3e-2f },
    { "all per token", { 2, 21, 5, 4 }, ALL_T | STATE | RESET, 1e-5f, 3e-2f },
    { "rho per token", { 1, 37, 17, 8 }, RHO_T | GAMMA_T | STATE, 1e-5f, 3e-2f },
    { "omega per token", { 1, 37, 16, 8 }, OMEGA_T | GAMMA | RESET, 1e-5f, 3e-2f },
    { "many tiles", { 5, 40, 33, 0 }, ALL_T | STATE | RESET | TN_FEW, 1e-5f, 3e-2f },
    { "no row", { 0, 5, 3, 0 }, GAMMA | STATE | RESET, 1e-5f, 2e-2f },
    { "no token", { 2, 0, 3, 0 }, GAMMA | STATE, 1e-5f, 2e-2f },
    { "no channel", { 2, 4, 0, 0 }, RESET, 1e-5f, 2e-2f },
    { "plain", { 2, 19, 5, 0 }, GAMMA | STATE | RESET | PLAIN, 1e-5f, 3e-2f },
    { "plain per token", { 2, 21, 5, 0 }, ALL_T | STATE | RESET | PLAIN, 1e-5f, 3e-2f },
    { "plain empty", { 0, 5, 3, 0 }, STATE | PLAIN, 1e-5f, 2e-2f },
};

static const tn_case long_cases[] = {
    { "T=1", { 1, 1, 8, 0 }, STATE, 1e-5f, 0 },
    { "T=7", { 2, 7, 8, 3 }, STATE | GAMMA, 1e-5f, 0 },
    { "T=64", { 2, 64, 8, 16 }, STATE | RESET, 1e-5f, 0 },
    { "T=65", { 1, 65, 8, 64 }, STATE | GAMMA, 1e-5f, 0 },
    { "T=1000", { 1, 1000, 64, 0 }, STATE | GAMMA | RESET, 1e-5f, 0 },
    { "T=1000 chunk 1", { 1, 1000, 8, 1 }, STATE | NEAR_ONE, 1e-5f, 0 },
    { "T=1000 chunk 37", { 1, 1000, 8, 37 }, ALL_T | RESET, 1e-5f, 0 },
    { "T=1000 rho=1", { 2, 1000, 40, 0 }, STATE | ONE, 1e-5f, 0 },
    { "pairs of channels", { 2, 1300, 70, 0 }, STATE | GAMMA | RESET, 1e-5f, 3e-2f },
    { "pairs, one chunk", { 3, 100, 6, 0 }, STATE | RESET, 1e-5f, 3e-2f },
    { "T=32768", { 1, 32768, 8, 0 }, STATE | GAMMA | LONG, 1e-5f, 0 },
    { "T=32768 near 1", { 1, 32768, 8, 0 }, NEAR_ONE | LONG | TN_SLOW, 1e-5f, 0 },
    { "T=32768 rho=1", { 1, 32768, 4, 333 }, ONE | GAMMA_T | LONG | TN_SLOW, 1e-5f, 0 },
    { "T=32768 per token", { 1, 32768, 4, 0 }, ALL_T | NEAR_ONE | LONG, 1e-5f, 0 },
    { "T=200003", { 1, 200003, 1, 0 }, STATE | LONG, 1e-5f, 0 },
    { "T=200003 pairs", { 1, 200003, 8, 0 }, STATE | GAMMA | LONG | TN_SLOW, 1e-5f, 3e-2f },
    { "T=8000 documents", { 3, 8000, 40, 0 }, STATE | GAMMA | RESET | LONG, 1e-5f, 3e-2f },
    { "100 rows", { 100, 300, 8, 0 }, STATE | GAMMA | RESET | LONG, 1e-5f, 3e-2f },
    { "T=200003 near 1", { 1, 200003, 1, 0 }, NEAR_ONE | GAMMA | LONG | TN_SLOW, 1e-5f, 0 },
    { "T=200003 rho=1", { 1, 200003, 1, 0 }, ONE | LONG | TN_SLOW, 1e-5f, 0 },
    { "T=200003 rho_t", { 1, 200003, 1, 4096 }, RHO_T | NEAR_ONE | LONG | TN_SLOW, 1e-5f, 0 },
};

static tn_fill_spec uniform(double lo, double hi)
{
    return (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = lo, .hi = hi };
}

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const int64_t B = c->dim[0], T = c->dim[1], K = c->dim[2];
    const tn_dims fixed = tn_shape(K), token = tn_shape(B, T, K);
    tn_fill_spec rho = uniform(0.6, 0.999);
    if (c->flags & NEAR_ONE) rho = uniform(0.99999, 1);
    if (c->flags & ONE) rho = (tn_fill_spec){ .kind = TN_FILL_CONSTANT, .lo = 1 };
    tn_scan_options o = { .chunk = c->dim[3], .plain = c->flags & PLAIN };
    tn_ref last;
    o.final = &last;
    tn_ref x = tn_test_input(io, tn_shape(B, T, 2 * K), (tn_fill_spec){ 0 });
    const tn_ref r = tn_test_input(io, c->flags & RHO_T ? token : fixed, rho);
    const tn_ref w = tn_test_input(io, c->flags & OMEGA_T ? token : fixed, uniform(-4, 4));
    if (c->flags & (GAMMA | GAMMA_T))
        o.gamma = tn_test_input(io, c->flags & GAMMA_T ? token : fixed, uniform(0.5, 1.5));
    if (c->flags & STATE) o.state = tn_test_input(io, tn_shape(B, 2 * K), (tn_fill_spec){ 0 });
    if (c->flags & RESET) o.reset = tn_test_input(io, tn_shape(B, T), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 2 });
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    tn_test_output(io, tn_scan_(g, __FILE__, __LINE__, x, r, w, o));
    tn_test_output(io, last);
}

/* Documents of irregular length. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    const int at = 3 + !!(c->flags & (GAMMA | GAMMA_T)) + !!(c->flags & STATE);
    if (!(c->flags & RESET) || input != at) return;
    for (int64_t i = 0; i < n; i++) x[i] = (uint32_t)((i + 5) * 2654435761u) >> 16 & 7 ? 0 : 1;
}

/* --- the oracle --------------------------------------------------------------------------------------------------- */

typedef struct view {
    int64_t B, T, K;
    const double *x, *rho, *omega, *gamma, *state, *reset;
    int gamma_at, state_at;
    uint32_t flags;
    bool rounded;
} view;

static view view_of(const tn_case *c, const tn_oracle *o, bool rounded)
{
    view v = { .B = c->dim[0],
               .T = c->dim[1],
               .K = c->dim[2],
               .x = o->in[0],
               .rho = o->in[1],
               .omega = o->in[2],
               .flags = c->flags,
               .rounded = rounded && !(c->flags & (RHO_T | OMEGA_T)) };
    int next = 3;
    if (c->flags & (GAMMA | GAMMA_T)) v.gamma = o->in[v.gamma_at = next++];
    if (c->flags & STATE) v.state = o->in[v.state_at = next++];
    if (c->flags & RESET) v.reset = o->in[next];
    return v;
}

typedef struct point { /* coefficients at (b,t,k) and where they came from */
    double lr, li, cs, sn, rho, gamma;
    int64_t rho_at, omega_at, gamma_at, x_at; /* x_at: real part; imaginary K later */
    bool starts;
} point;

static point point_at(const view *v, int64_t b, int64_t t, int64_t k)
{
    const int64_t token = (b * v->T + t) * v->K + k;
    point p = { .rho_at = v->flags & RHO_T ? token : k,
                .omega_at = v->flags & OMEGA_T ? token : k,
                .gamma_at = v->flags & GAMMA_T ? token : k,
                .x_at = (b * v->T + t) * 2 * v->K + k };
    p.rho = v->rho[p.rho_at];
    p.cs = cos(v->omega[p.omega_at]);
    p.sn = sin(v->omega[p.omega_at]);
    p.lr = v->rounded ? (double)(float)(p.rho * p.cs) : p.rho * p.cs;
    p.li = v->rounded ? (double)(float)(p.rho * p.sn) : p.rho * p.sn;
    p.gamma = v->gamma ? v->gamma[p.gamma_at] : 1;
    p.starts = v->reset && v->reset[b * v->T + t] > 0;
    return p;
}

static void loop_forward(const view *v, double *c, double *last)
{
    for (int64_t b = 0; b < v->B; b++)
        for (int64_t k = 0; k < v->K; k++) {
            double re = v->state ? v->state[b * 2 * v->K + k] : 0, im = v->state ? v->state[(b * 2 + 1) * v->K + k] : 0;
            for (int64_t t = 0; t < v->T; t++) {
                const point p = point_at(v, b, t, k);
                if (p.starts) re = im = 0;
                const double r = p.lr * re - p.li * im + p.gamma * v->x[p.x_at];
                im = p.lr * im + p.li * re + p.gamma * v->x[p.x_at + v->K];
                re = r;
                c[p.x_at] = re;
                c[p.x_at + v->K] = im;
            }
            last[b * 2 * v->K + k] = re;
            last[(b * 2 + 1) * v->K + k] = im;
        }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const view v = view_of(c, o, false);
    loop_forward(&v, o->out[0], o->out[1]);
}

static void oracle_rounded(const tn_case *c, tn_oracle *o)
{
    const view v = view_of(c, o, true);
    loop_forward(&v, o->out[0], o->out[1]);
}

/* The reverse of the loop, channel by channel; checked against differences through the short rows. */
static void loop_backward(const view *v, const double *c, double *const *dout, double *const *din)
{
    const int64_t K = v->K;
    for (int64_t b = 0; b < v->B; b++)
        for (int64_t k = 0; k < K; k++) {
            const int64_t s = b * 2 * K + k;
            double gr = dout[1][s], gi = dout[1][s + K];
            for (int64_t t = v->T - 1; t >= 0; t--) {
                const point p = point_at(v, b, t, k);
                const double ar = dout[0][p.x_at] + gr, ai = dout[0][p.x_at + K] + gi;
                double cr = v->state ? v->state[s] : 0, ci = v->state ? v->state[s + K] : 0;
                if (t > 0) cr = c[p.x_at - 2 * K], ci = c[p.x_at - K];
                if (p.starts) cr = ci = 0;
                const double mr = ar * cr + ai * ci, mi = ai * cr - ar * ci;
                din[0][p.x_at] = p.gamma * ar;
                din[0][p.x_at + K] = p.gamma * ai;
                din[1][p.rho_at] += mr * p.cs + mi * p.sn;
                din[2][p.omega_at] += p.rho * (mi * p.cs - mr * p.sn);
                if (v->gamma) din[v->gamma_at][p.gamma_at] += ar * v->x[p.x_at] + ai * v->x[p.x_at + K];
                gr = p.starts ? 0 : p.lr * ar + p.li * ai;
                gi = p.starts ? 0 : p.lr * ai - p.li * ar;
            }
            if (v->state) din[v->state_at][s] = gr, din[v->state_at][s + K] = gi;
        }
}

static void oracle_grad(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din)
{
    const view v = view_of(c, o, true);
    loop_backward(&v, o->out[0], dout, din);
}

/* --- properties --------------------------------------------------------------------------------------------------- */

static const tn_op_test small_test;

enum { ROOM = 4096 };

/* Inputs in the order of `build`, results and gradients of one run. */
typedef struct trial {
    float in[6][ROOM], c[ROOM], last[ROOM], d[6][ROOM], dc[ROOM], dlast[ROOM];
    int32_t reset[ROOM], live[1];
} trial;

static trial *new_trial(void)
{
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < ROOM; j++) {
            const tn_rng rng = { 5, (uint64_t)i };
            t->in[i][j] = i == 1 ? 0.6f + 0.399f * (float)tn_rng_uniform(rng, (uint64_t)j)
                                 : (float)tn_rng_normal(rng, (uint64_t)j);
        }
    for (int j = 0; j < ROOM; j++) {
        t->dc[j] = (float)tn_rng_normal((tn_rng){ 6, 1 }, (uint64_t)j);
        t->dlast[j] = (float)tn_rng_normal((tn_rng){ 6, 2 }, (uint64_t)j);
    }
    return t;
}

static void run_trial(const tn_case *c, int threads, trial *t)
{
    const void *in[8] = { t->in[0], t->in[1], t->in[2] };
    void *out[2] = { t->c, t->last }, *d[8] = { t->d[0], t->d[1], t->d[2] };
    const float *cot[2] = { t->dc, t->dlast };
    int n = 3;
    if (c->flags & (GAMMA | GAMMA_T)) in[n] = t->in[3], d[n++] = t->d[3];
    if (c->flags & STATE) in[n] = t->in[4], d[n++] = t->d[4];
    if (c->flags & RESET) in[n++] = t->reset;
    if (c->flags & LIVE) in[n++] = t->live;
    tn_optest_run(&small_test, c, threads, in, out, d, cot);
}

static void assert_near(const float *a, const float *b, int64_t n, float tolerance, const char *what)
{
    float scale = 0;
    for (int64_t i = 0; i < n; i++) scale = fmaxf(scale, fabsf(b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= tolerance * scale))
            fail_msg("%s, element %lld: %.9g instead of %.9g", what, (long long)i, (double)a[i], (double)b[i]);
}

static void assert_same(const void *a, const void *b, int64_t n, const char *what)
{
    if (memcmp(a, b, sizeof(float) * (size_t)n)) fail_msg("%s: other bits", what);
}

/* Appendix A.8 of the specification: rho = 1/2, omega = pi/2, inputs 1, 1, 1; loss Re c_3. */
static void hand_vector(void)
{
    for (int plain = 0; plain < 2; plain++) {
        const tn_case c = { "hand", { 1, 3, 1, 2 }, STATE | (plain ? PLAIN : 0), 0, 0 };
        trial *t = new_trial();
        const float x[6] = { 1, 0, 1, 0, 1, 0 }, want[6] = { 1, 0, 1, 0.5f, 0.75f, 0.5f },
                    loss[6] = { 0, 0, 0, 0, 1, 0 };
        const float a[6] = { -0.25f, 0, 0, -0.5f, 1, 0 }, drho = -1, domega = -0.5f, dstate[2] = { 0, 0.125f };
        memcpy(t->in[0], x, sizeof x);
        memcpy(t->dc, loss, sizeof loss);
        t->in[1][0] = 0.5f;
        t->in[2][0] = 1.57079632679f;
        memset(t->in[4], 0, sizeof t->in[4]);
        memset(t->dlast, 0, sizeof t->dlast);
        run_trial(&c, 1, t);
        assert_near(t->c, want, 6, 1e-6f, "c");
        assert_near(t->last, want + 4, 2, 1e-6f, "final");
        assert_near(t->d[0], a, 6, 1e-6f, "dx");
        assert_near(t->d[1], &drho, 1, 1e-6f, "drho");
        assert_near(t->d[2], &domega, 1, 1e-6f, "domega");
        assert_near(t->d[4], dstate, 2, 1e-6f, "dstate");
        free(t);
    }
}

static void split_equals_whole(void)
{
    enum { T = 200, FIRST = 83, K = 5 };
    const tn_case whole = { "whole", { 1, T, K, 16 }, STATE, 0, 0 },
                  first = { "first", { 1, FIRST, K, 16 }, STATE, 0, 0 },
                  second = { "second", { 1, T - FIRST, K, 16 }, STATE, 0, 0 };
    trial *w = new_trial(), *a = new_trial(), *b = new_trial();
    run_trial(&whole, 1, w);
    run_trial(&first, 1, a);
    memcpy(b->in[0], a->in[0] + FIRST * 2 * K, sizeof(float) * (T - FIRST) * 2 * K);
    memcpy(b->dc, a->dc + FIRST * 2 * K, sizeof(float) * (T - FIRST) * 2 * K);
    memcpy(b->in[4], a->last, sizeof(float) * 2 * K);
    run_trial(&second, 1, b);
    memcpy(a->dlast, b->d[4], sizeof(float) * 2 * K); /* the gradient crosses the cut */
    run_trial(&first, 1, a);
    assert_near(a->c, w->c, FIRST * 2 * K, 1e-6f, "first half");
    assert_near(b->c, w->c + FIRST * 2 * K, (T - FIRST) * 2 * K, 1e-6f, "second half");
    assert_near(b->last, w->last, 2 * K, 1e-6f, "final");
    assert_near(a->d[0], w->d[0], FIRST * 2 * K, 1e-6f, "dx");
    assert_near(a->d[4], w->d[4], 2 * K, 1e-6f, "dstate");
    for (int k = 0; k < K; k++) a->d[1][k] += b->d[1][k], a->d[2][k] += b->d[2][k];
    assert_near(a->d[1], w->d[1], K, 1e-5f, "drho");
    assert_near(a->d[2], w->d[2], K, 1e-5f, "domega");
    free(w), free(a), free(b);
}

/* Changing token t changes no bit of any output before t: across pieces, chunks, threads and forms. */
static void no_leak(void)
{
    enum { T = 100, K = 5 };
    const tn_case cases[] = { { "fixed", { 1, T, K, 16 }, STATE | GAMMA, 0, 0 },
                              { "token", { 1, T, K, 7 }, ALL_T | RESET, 0, 0 },
                              { "one chunk", { 1, T, K, 256 }, STATE, 0, 0 },
                              { "plain", { 1, T, K, 16 }, STATE | PLAIN, 0, 0 } };
    const int at[] = { 1, 15, 16, 17, 50, 99 };
    for (size_t i = 0; i < TN_COUNT(cases); i++)
        for (size_t j = 0; j < TN_COUNT(at); j++) {
            trial *a = new_trial(), *b = new_trial();
            for (int k = 0; k < 2 * K; k++) b->in[0][at[j] * 2 * K + k] += 1e3f;
            for (int k = 0; k < K && cases[i].flags & RHO_T; k++) b->in[1][at[j] * K + k] *= 0.5f;
            run_trial(&cases[i], 1, a);
            run_trial(&cases[i], 2, b);
            assert_same(a->c, b->c, at[j] * 2 * K, "tokens before the change");
            assert_true(memcmp(a->c + at[j] * 2 * K, b->c + at[j] * 2 * K, sizeof(float) * 2 * K));
            free(a), free(b);
        }
}

/* Documents in one row give the bits of documents on their own, even after a NaN. */
static void reset_equals_separate(void)
{
    enum { T = 60, FIRST = 23, K = 5 };
    const tn_case both = { "both", { 1, T, K, 256 }, STATE | RESET | RHO_T, 0, 0 },
                  second = { "second", { 1, T - FIRST, K, 256 }, RHO_T, 0, 0 };
    trial *a = new_trial(), *b = new_trial();
    a->reset[FIRST] = 1;
    a->in[0][3] = NAN;
    memcpy(b->in[0], a->in[0] + FIRST * 2 * K, sizeof(float) * (T - FIRST) * 2 * K);
    memcpy(b->in[1], a->in[1] + FIRST * K, sizeof(float) * (T - FIRST) * K);
    memcpy(b->dc, a->dc + FIRST * 2 * K, sizeof(float) * (T - FIRST) * 2 * K);
    run_trial(&both, 1, a);
    run_trial(&second, 1, b);
    assert_same(a->c + FIRST * 2 * K, b->c, (T - FIRST) * 2 * K, "c");
    assert_same(a->last, b->last, 2 * K, "final");
    assert_same(a->d[0] + FIRST * 2 * K, b->d[0], (T - FIRST) * 2 * K, "dx");
    assert_same(a->d[1] + FIRST * K, b->d[1], (T - FIRST) * K, "drho");
    free(a), free(b);
}

static void rows_are_independent(void)
{
    enum { B = 3, T = 30, K = 7, ROW = T * 2 * K };
    const tn_case c = { "batch", { B, T, K, 8 }, STATE, 0, 0 };
    trial *a = new_trial(), *b = new_trial();
    for (int i = 0; i < B; i++) {
        memcpy(b->in[0] + i * ROW, a->in[0] + (B - 1 - i) * ROW, sizeof(float) * ROW);
        memcpy(b->in[4] + i * 2 * K, a->in[4] + (B - 1 - i) * 2 * K, sizeof(float) * 2 * K);
        memcpy(b->dc + i * ROW, a->dc + (B - 1 - i) * ROW, sizeof(float) * ROW);
    }
    run_trial(&c, 1, a);
    run_trial(&c, 2, b);
    for (int i = 0; i < B; i++) {
        assert_same(b->c + i * ROW, a->c + (B - 1 - i) * ROW, ROW, "c");
        assert_same(b->last + i * 2 * K, a->last + (B - 1 - i) * 2 * K, 2 * K, "final");
    }
    free(a), free(b);
}

static void chunk_size_is_rounding(void)
{
    enum { T = 300, K = 6 };
    const int64_t chunk[] = { 1, 2, 16, 37, 256, 299, 300, 1000 };
    trial *a = new_trial(), *b = new_trial();
    const tn_case plain = { "plain", { 1, T, K, 0 }, STATE | GAMMA | PLAIN, 0, 0 };
    run_trial(&plain, 1, a);
    for (size_t i = 0; i < TN_COUNT(chunk); i++) {
        const tn_case c = { "chunk", { 1, T, K, chunk[i] }, STATE | GAMMA, 0, 0 };
        run_trial(&c, 2, b);
        assert_near(b->c, a->c, T * 2 * K, 1e-6f, "c");
        for (int d = 0; d < 5; d++) assert_near(b->d[d], a->d[d], d == 0 ? T * 2 * K : K, 2e-6f, "gradient");
    }
    free(a), free(b);
}

/* Dead rows are neither written nor summed. */
static void dead_rows_are_left_alone(void)
{
    enum { T = 12, K = 3, ROW = T * 2 * K };
    for (int plain = 0; plain < 2; plain++) {
        const uint32_t flags = GAMMA | (plain ? PLAIN : 0);
        const tn_case two = { "two", { 2, T, K, 0 }, flags, 0, 0 },
                      four = { "four", { 4, T, K, 0 }, flags | LIVE, 0, 0 };
        trial *a = new_trial(), *b = new_trial();
        for (int i = 2 * ROW; i < 4 * ROW; i++) b->in[0][i] = b->dc[i] = NAN;
        b->live[0] = 2;
        memset(a->dlast, 0, sizeof a->dlast), memset(b->dlast, 0, sizeof b->dlast);
        run_trial(&two, 1, a);
        run_trial(&four, 1, b);
        assert_same(a->c, b->c, 2 * ROW, "c");
        assert_near(b->d[1], a->d[1], K, 1e-6f, "drho");
        assert_near(b->d[3], a->d[3], K, 1e-6f, "dgamma");
        free(a), free(b);
    }
}

static void switch_builds_the_twin(void)
{
    static const char *const off[] = { "opt.scan", NULL };
    const tn_graph_options o = { .off = off };
    tn_graph *g;
    tn_ref last;
    assert_ok(tn_graph_new(&o, &g));
    const tn_ref w = tn_input(g, "w", tn_shape(3), TN_F32);
    tn_scan(g, tn_input(g, "x", tn_shape(2, 5, 6), TN_F32), w, w, .final = &last);
    assert_ok(tn_graph_status(g));
    assert_true(last.id && g->n_nodes == 1 && ((const tn_scan_attr *)g->node[0].attr)->plain);
    tn_scan(g, tn_input(g, "y", tn_shape(2, 5, 8), TN_F32), w, w);
    assert_fails(tn_graph_status(g), TN_USAGE, "rho must be (K) or (B,T,K)");
    tn_graph_free(g);
}

static void sines_of_rows(void)
{
    double x[64], sn[64], cs[64];
    for (int r = 0; r < 200; r++) {
        for (int i = 0; i < 64; i++)
            x[i] = (tn_rng_uniform((tn_rng){ 8, 1 }, (uint64_t)(r * 64 + i)) - 0.5) * pow(4, r % 12);
        tn_sincos_rows(64, x, sn, cs);
        for (int i = 0; i < 64; i++) assert_true(fabs(sn[i] - sin(x[i])) < 1e-15 && fabs(cs[i] - cos(x[i])) < 1e-15);
    }
    x[0] = NAN, x[1] = 1e9;
    tn_sincos_rows(2, x, sn, cs);
    assert_true(isnan(sn[0]) && isnan(cs[0]) && sn[1] == sin(1e9));
}

static const tn_property properties[] = {
    { "hand test vector", hand_vector },
    { "split and carry equals one pass", split_equals_whole },
    { "future never reaches the past", no_leak },
    { "reset equals separate sequences", reset_equals_separate },
    { "rows of a batch are independent", rows_are_independent },
    { "chunk size is rounding only", chunk_size_is_rounding },
    { "dead rows are left alone", dead_rows_are_left_alone },
    { "switch builds the twin", switch_builds_the_twin },
    { "sines of rows", sines_of_rows },
};

static const tn_op_test small_test = {
    .op = "scan",
    .cases = small_cases,
    .n_cases = TN_COUNT(small_cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

static const tn_op_test long_test = {
    .op = "scan",
    .cases = long_cases,
    .n_cases = TN_COUNT(long_cases),
    .build = build,
    .oracle = oracle_rounded,
    .oracle_grad = oracle_grad,
    .adjust = adjust,
};

void tn_tests_scan(tn_test_list *l)
{
    tn_optest_add(l, &small_test);
    tn_optest_add(l, &long_test);
}
