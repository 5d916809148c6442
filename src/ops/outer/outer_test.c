/* outer: rows (dim = B, T, H, N, P, chunk), an oracle that steps through tokens in double, and properties. Short rows
 * check gradients by differences, long ones against the same recurrence run backwards in double. */
#include "optest.h"

#include "base/rng.h"
#include "plan/graph.h"
#include "plan/plan.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STATE = 1, RESET = 2, STRONG = 4, NO_DECAY = 8, STEPS = 16, SLOW = 32, ROUND = 64 };
/* One kernel with these on CUDA. WRITE: v by a number a token; GATES: by sigmoid of it, and alpha is -softplus of its input. */
enum { WRITE = 128, GATES = 256 };
enum { Q, K, V, ALPHA, EXTRA }; /* inputs; then state, reset and strengths where there are any */

static const char *const switches_off[] = { "opt.outer", NULL };

static const tn_case cases[] = {
    { "short", { 2, 7, 2, 3, 5, 4 }, STATE | RESET, 1e-5f, 2e-2f },
    { "one token", { 3, 1, 2, 4, 3, 0 }, STATE, 1e-5f, 2e-2f },
    { "no state", { 2, 9, 3, 4, 2, 3 }, 0, 1e-5f, 2e-2f },
    { "one chunk", { 1, 12, 2, 3, 3, 0 }, RESET, 1e-5f, 2e-2f },
    { "odd", { 2, 67, 3, 5, 7, 16 }, STATE | RESET | TN_FEW, 1e-5f, 2e-2f },
    { "strong decay", { 2, 21, 2, 4, 4, 8 }, STATE | STRONG, 1e-5f, 2e-2f },
    { "no decay", { 2, 21, 2, 4, 4, 8 }, STATE | NO_DECAY, 1e-5f, 2e-2f },
    { "no tokens", { 2, 0, 2, 3, 4, 0 }, STATE, 1e-5f, 2e-2f },
    { "no tokens, no state", { 2, 0, 2, 3, 4, 0 }, 0, 1e-5f, 2e-2f },
    { "no keys", { 1, 6, 2, 0, 4, 4 }, STATE | TN_NO_NAN, 1e-5f, 2e-2f },
    { "no values", { 1, 6, 2, 3, 0, 4 }, STATE, 1e-5f, 2e-2f },
    { "no sequences", { 0, 6, 2, 3, 2, 4 }, STATE, 1e-5f, 2e-2f },
    { "bf16 operands", { 2, 67, 2, 16, 16, 16 }, STATE | ROUND | TN_FEW, 3e-2f, 0 },
    { "strengths", { 2, 21, 2, 8, 16, 0 }, STATE | RESET | WRITE | TN_FEW, 1e-5f, 2e-2f },
    { "strengths, odd", { 2, 9, 2, 3, 5, 4 }, WRITE, 1e-5f, 2e-2f },
    { "gates", { 2, 21, 2, 8, 16, 0 }, STATE | RESET | WRITE | GATES | TN_FEW, 1e-5f, 2e-2f },
    { "steps", { 2, 19, 2, 3, 5, 4 }, STATE | RESET | STEPS, 1e-5f, 2e-2f },
    { "steps, no decay", { 1, 9, 2, 4, 3, 0 }, NO_DECAY | STEPS, 1e-5f, 2e-2f },
};

static const tn_case long_cases[] = {
    { "slow decay", { 1, 2000, 1, 8, 12, 0 }, STATE | SLOW, 1e-5f, 3e-2f },
    { "no decay, 2000 tokens", { 1, 2000, 2, 8, 8, 0 }, STATE | NO_DECAY, 1e-5f, 0 },
    { "strong decay, 1000 tokens", { 1, 1000, 1, 16, 16, 0 }, STATE | STRONG, 1e-5f, 0 },
    { "documents", { 3, 300, 2, 16, 20, 0 }, STATE | RESET | SLOW, 1e-5f, 3e-2f },
    { "long chunk", { 1, 700, 1, 8, 8, 300 }, STATE | SLOW, 1e-5f, 0 },
    { "full size", { 1, 200, 2, 64, 64, 0 }, STATE | SLOW, 1e-5f, 3e-2f },
    { "two levels", { 1, 1100, 2, 16, 24, 0 }, STATE | SLOW, 1e-5f, 3e-2f },
    { "two levels, documents", { 1, 700, 1, 64, 64, 0 }, STATE | RESET | SLOW, 1e-5f, 3e-2f },
    { "two levels, strong decay", { 2, 600, 1, 8, 16, 0 }, STATE | STRONG, 1e-5f, 3e-2f },
    { "strengths, documents", { 3, 300, 2, 16, 24, 0 }, STATE | RESET | SLOW | WRITE, 1e-5f, 3e-2f },
    { "strengths, full size", { 1, 700, 2, 64, 64, 0 }, STATE | SLOW | WRITE, 1e-5f, 3e-2f },
    { "strengths, strong decay", { 2, 600, 1, 8, 16, 0 }, STATE | STRONG | WRITE, 1e-5f, 3e-2f },
    { "gates, documents", { 3, 300, 2, 16, 24, 0 }, STATE | RESET | SLOW | WRITE | GATES, 1e-5f, 3e-2f },
    { "gates, full size", { 1, 700, 2, 64, 64, 0 }, STATE | SLOW | WRITE | GATES, 1e-5f, 3e-2f },
    { "steps, 700 tokens", { 1, 700, 1, 8, 8, 0 }, STATE | RESET | SLOW | STEPS, 1e-5f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const int64_t B = c->dim[0], T = c->dim[1], H = c->dim[2], N = c->dim[3], P = c->dim[4];
    const double least = c->flags & STRONG ? -20 : c->flags & NO_DECAY ? 0 : c->flags & SLOW ? -0.05 : -2;
    if (c->flags & STEPS) g->options.off = switches_off;
    g->options.round = c->flags & ROUND ? TN_BF16 : TN_F32;
    const tn_ref q = tn_test_input(io, tn_shape(B, T, H, N), (tn_fill_spec){ 0 });
    const tn_ref k = tn_test_input(io, tn_shape(B, T, H, N), (tn_fill_spec){ 0 });
    tn_ref v = tn_test_input(io, tn_shape(B, T, H, P), (tn_fill_spec){ 0 });
    const bool gates = c->flags & GATES;
    const tn_fill_spec decays = { .kind = TN_FILL_UNIFORM, .lo = gates ? -7 : least, .hi = gates ? -2 : 0 };
    tn_ref alpha = tn_test_input(io, tn_shape(B, T, H), decays);
    if (gates) alpha = tn_neg(g, tn_softplus(g, alpha));
    tn_ref state = TN_NONE, reset = TN_NONE, final;
    if (c->flags & STATE) state = tn_test_input(io, tn_shape(B, H, N, P), (tn_fill_spec){ 0 });
    if (c->flags & RESET) reset = tn_test_input(io, tn_shape(B, T), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 2 });
    if (c->flags & WRITE) {
        const tn_ref b =
            tn_test_input(io, tn_shape(B, T, H), (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = -1, .hi = 2 });
        v = tn_mul(g, v, tn_reshape(g, gates ? tn_sigmoid(g, b) : b, tn_shape(B, T, H, 1)));
    }
    tn_test_output(io,
                   tn_outer(g, q, k, v, alpha, .state = state, .reset = reset, .chunk = c->dim[5], .final = &final));
    tn_test_output(io, final);
}

/* Resets are rare, and the first sequence begins with one. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (!(c->flags & RESET) || input != EXTRA + !!(c->flags & STATE)) return;
    const int64_t T = c->dim[1], every = T < 20 ? 4 : 53;
    for (int64_t i = 0; i < n; i++) x[i] = (i % T + 7 * (i / T)) % every == 0;
}

typedef struct walker { /* one head of one sequence in the oracle's tensors */
    int64_t b, h, T, H, N, P;
    const double *reset, *write;
    bool gates;
} walker;

static int64_t at(const walker *w, int64_t t, int64_t size) { return ((w->b * w->T + t) * w->H + w->h) * size; }

static bool resets(const walker *w, int64_t t) { return w->reset && w->reset[w->b * w->T + t] != 0; }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double strength(const walker *w, int64_t t)
{
    return !w->write ? 1 : w->gates ? sigmoid(w->write[at(w, t, 1)]) : w->write[at(w, t, 1)];
}

/* e^alpha of token t. */
static double decay_of(const walker *w, const tn_oracle *o, int64_t t)
{
    const double a = o->in[ALPHA][at(w, t, 1)];
    return w->gates ? sigmoid(-a) : exp(a);
}

static void step(const walker *w, const tn_oracle *o, int64_t t, double *S)
{
    const double decay = decay_of(w, o, t);
    const double *k = o->in[K] + at(w, t, w->N), *v = o->in[V] + at(w, t, w->P);
    for (int64_t n = 0; n < w->N; n++)
        for (int64_t p = 0; p < w->P; p++)
            S[n * w->P + p] = (resets(w, t) ? 0 : decay * S[n * w->P + p]) + k[n] * strength(w, t) * v[p];
}

static int strengths_at(const tn_case *c) { return EXTRA + !!(c->flags & STATE) + !!(c->flags & RESET); }

static walker walker_of(const tn_case *c, const tn_oracle *o, int64_t b, int64_t h)
{
    return (walker){ .b = b,
                     .h = h,
                     .T = c->dim[1],
                     .H = c->dim[2],
                     .N = c->dim[3],
                     .P = c->dim[4],
                     .reset = c->flags & RESET ? o->in[EXTRA + !!(c->flags & STATE)] : NULL,
                     .write = c->flags & WRITE ? o->in[strengths_at(c)] : NULL,
                     .gates = c->flags & GATES };
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t NP = c->dim[3] * c->dim[4];
    for (int64_t i = 0; i < c->dim[0] * c->dim[2]; i++) {
        const walker w = walker_of(c, o, i / c->dim[2], i % c->dim[2]);
        double *S = o->out[1] + i * NP;
        for (int64_t j = 0; j < NP; j++) S[j] = c->flags & STATE ? o->in[EXTRA][i * NP + j] : 0;
        for (int64_t t = 0; t < w.T; t++) {
            step(&w, o, t, S);
            for (int64_t p = 0; p < w.P; p++) {
                double y = 0;
                for (int64_t n = 0; n < w.N; n++) y += S[n * w.P + p] * o->in[Q][at(&w, t, w.N) + n];
                o->out[0][at(&w, t, w.P) + p] = y;
            }
        }
    }
}

/* One head backwards; states (T+1,N,P) are S before every token, G (N,P) is dL/dS. */
static void backwards(const walker *w, const tn_oracle *o, const double *states, double *G, double *const *dout,
                      double *const *din, double *dwrite)
{
    const int64_t N = w->N, P = w->P;
    for (int64_t t = w->T; t-- > 0;) {
        const double decay = resets(w, t) ? 0 : decay_of(w, o, t), s = strength(w, t);
        const double by_a = w->gates ? -sigmoid(o->in[ALPHA][at(w, t, 1)]) : 1, by_b = w->gates ? s * (1 - s) : 1;
        const double *before = states + t * N * P, *after = before + N * P, *d = dout[0] + at(w, t, P);
        for (int64_t n = 0; n < N; n++)
            for (int64_t p = 0; p < P; p++) {
                const int64_t qn = at(w, t, N) + n, vp = at(w, t, P) + p;
                double *g = &G[n * P + p];
                *g += o->in[Q][qn] * d[p];
                din[Q][qn] += after[n * P + p] * d[p];
                din[K][qn] += *g * strength(w, t) * o->in[V][vp];
                din[V][vp] += *g * strength(w, t) * o->in[K][qn];
                if (dwrite) dwrite[at(w, t, 1)] += by_b * *g * o->in[V][vp] * o->in[K][qn];
                din[ALPHA][at(w, t, 1)] += by_a * decay * before[n * P + p] * *g;
                *g *= decay;
            }
    }
}

static void oracle_grad(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din)
{
    const int64_t T = c->dim[1], NP = c->dim[3] * c->dim[4];
    double *states = calloc((size_t)((T + 1) * NP), sizeof *states), *G = calloc((size_t)NP, sizeof *G);
    for (int64_t i = 0; i < c->dim[0] * c->dim[2]; i++) {
        const walker w = walker_of(c, o, i / c->dim[2], i % c->dim[2]);
        memcpy(states, o->in[EXTRA] + i * NP, sizeof *states * (size_t)NP);
        for (int64_t t = 0; t < T; t++) {
            memcpy(states + (t + 1) * NP, states + t * NP, sizeof *states * (size_t)NP);
            step(&w, o, t, states + (t + 1) * NP);
        }
        memcpy(G, dout[1] + i * NP, sizeof *G * (size_t)NP);
        backwards(&w, o, states, G, dout, din, c->flags & WRITE ? din[strengths_at(c)] : NULL);
        memcpy(din[EXTRA] + i * NP, G, sizeof *G * (size_t)NP);
    }
    free(states);
    free(G);
}

/* --- properties -------------------------------------------------------------------------------------------------- */

enum { PT = 200, PH = 2, PN = 5, PP = 6, PS = PH * PN * PP }; /* one sequence of the properties */

typedef struct sequence { /* and its gradients, where there are any */
    float q[PT * PH * PN], k[PT * PH * PN], v[PT * PH * PP], alpha[PT * PH], state[PS];
    int32_t reset[PT];
    float o[PT * PH * PP], final[PS];
} sequence;

static const tn_op_test test;

static sequence *draw(uint64_t seed)
{
    sequence *s = calloc(1, sizeof *s);
    float *const part[] = { s->q, s->k, s->v, s->alpha, s->state };
    const size_t n[] = { TN_COUNT(s->q), TN_COUNT(s->k), TN_COUNT(s->v), TN_COUNT(s->alpha), TN_COUNT(s->state) };
    assert_non_null(s);
    for (uint64_t i = 0; i < 5; i++)
        for (size_t j = 0; j < n[i]; j++)
            part[i][j] =
                i == ALPHA ? -0.1f * tn_rng_uniform((tn_rng){ seed, i }, j) : tn_rng_normal((tn_rng){ seed, i }, j);
    return s;
}

/* Tokens [t0, t0+n) of s from the state given, into y; gradients (with cotangents 1) into d. */
static void run(const sequence *s, int64_t t0, int64_t n, int64_t chunk, const float *state, sequence *y, sequence *d)
{
    const tn_case c = { "property", { 1, n, PH, PN, PP, chunk }, STATE | RESET, 1, 0 };
    const void *in[] = { s->q + t0 * PH * PN, s->k + t0 * PH * PN, s->v + t0 * PH * PP, s->alpha + t0 * PH, state,
                         s->reset + t0 };
    void *out[] = { y->o + t0 * PH * PP, y->final };
    void *grad[] = {
        d ? d->q : NULL, d ? d->k : NULL, d ? d->v : NULL, d ? d->alpha : NULL, d ? d->state : NULL, NULL
    };
    tn_optest_run(&test, &c, 1, in, out, d ? grad : NULL, NULL);
}

static void close_to(const char *what, const float *x, const float *ref, size_t n, float tolerance)
{
    float scale = 1e-20f;
    for (size_t i = 0; i < n; i++) scale = fmaxf(scale, fabsf(ref[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - ref[i]) <= tolerance * scale))
            fail_msg("%s, element %zu: %.9g instead of %.9g", what, i, (double)x[i], (double)ref[i]);
}

static void split_equals_whole(void)
{
    sequence *s = draw(1), *whole = calloc(1, sizeof *s), *parts = calloc(1, sizeof *s);
    const int64_t cut[] = { 0, 1, 64, 67, 150, PT };
    run(s, 0, PT, 0, s->state, whole, NULL);
    memcpy(parts->final, s->state, sizeof parts->final);
    for (size_t i = 0; i + 1 < TN_COUNT(cut); i++) {
        float carried[PS];
        memcpy(carried, parts->final, sizeof carried);
        run(s, cut[i], cut[i + 1] - cut[i], 0, carried, parts, NULL);
    }
    close_to("output", parts->o, whole->o, TN_COUNT(s->o), 1e-5f);
    close_to("final state", parts->final, whole->final, PS, 1e-5f);
    free(s), free(whole), free(parts);
}

static void chunk_does_not_matter(void)
{
    sequence *s = draw(2), *y = calloc(2, sizeof *s), *d = calloc(2, sizeof *s);
    const int64_t chunks[] = { 1, 16, 256, PT };
    s->reset[70] = s->reset[71] = 1;
    run(s, 0, PT, 64, s->state, y, d);
    for (size_t i = 0; i < TN_COUNT(chunks); i++) {
        run(s, 0, PT, chunks[i], s->state, y + 1, d + 1);
        close_to("output", y[1].o, y[0].o, TN_COUNT(s->o), 1e-5f);
        close_to("final state", y[1].final, y[0].final, PS, 1e-5f);
        close_to("gradient of q", d[1].q, d[0].q, TN_COUNT(s->q), 1e-5f);
        close_to("gradient of k", d[1].k, d[0].k, TN_COUNT(s->k), 1e-5f);
        close_to("gradient of v", d[1].v, d[0].v, TN_COUNT(s->v), 1e-5f);
        close_to("gradient of alpha", d[1].alpha, d[0].alpha, TN_COUNT(s->alpha), 1e-5f);
        close_to("gradient of state", d[1].state, d[0].state, PS, 1e-5f);
    }
    free(s), free(y), free(d);
}

/* Changes token t in every way, to other numbers and to NaN: outputs before t keep their bits, later ones change. */
static void no_leak(void)
{
    sequence *s = draw(3), *y = calloc(2, sizeof *s);
    const int64_t tokens[] = { 0, 30, 64, 127, PT - 1 };
    for (int64_t chunk = 16; chunk <= 256; chunk *= 4)
        for (size_t i = 0; i < TN_COUNT(tokens); i++)
            for (int kind = 0; kind < 3; kind++) {
                const int64_t t = tokens[i];
                sequence *changed = malloc(sizeof *s);
                *changed = *s;
                for (int64_t j = 0; kind < 2 && j < PH * PN; j++) changed->q[t * PH * PN + j] = kind ? NAN : 3;
                for (int64_t j = 0; kind < 2 && j < PH * PN; j++) changed->k[t * PH * PN + j] = kind ? NAN : 100;
                for (int64_t j = 0; kind < 2 && j < PH * PP; j++) changed->v[t * PH * PP + j] = kind ? NAN : -50;
                for (int64_t j = 0; kind < 2 && j < PH; j++) changed->alpha[t * PH + j] = kind ? NAN : -7;
                if (kind == 2) changed->reset[t] = 1;
                run(s, 0, PT, chunk, s->state, y, NULL);
                run(changed, 0, PT, chunk, s->state, y + 1, NULL);
                assert_memory_equal(y[1].o, y[0].o, sizeof(float) * (size_t)(t * PH * PP));
                assert_memory_not_equal(y[1].o + t * PH * PP, y[0].o + t * PH * PP, sizeof(float) * PH * PP);
                free(changed);
            }
    free(s), free(y);
}

static void reset_separates(void)
{
    static const float zero[PS];
    sequence *s = draw(4), *y = calloc(2, sizeof *s);
    s->reset[37] = s->reset[101] = 1;
    run(s, 0, PT, 0, s->state, y, NULL);
    run(s, 0, 37, 0, s->state, y + 1, NULL);
    run(s, 37, 64, 0, zero, y + 1, NULL);
    s->reset[101] = 0; /* a sequence of its own starts from zero */
    run(s, 101, PT - 101, 0, zero, y + 1, NULL);
    close_to("output", y[1].o, y[0].o, TN_COUNT(s->o), 1e-6f);
    close_to("final state", y[1].final, y[0].final, PS, 1e-6f);
    free(s), free(y);
}

/* A NaN before a reset does not reach what comes after it, though chunks are longer. */
static void reset_stops_nan(void)
{
    sequence *s = draw(5), *y = calloc(1, sizeof *s);
    s->reset[40] = 1;
    s->v[20 * PH * PP] = NAN;
    run(s, 0, PT, 0, s->state, y, NULL);
    for (int64_t t = 0; t < PT; t++) assert_int_equal(isnan(y->o[t * PH * PP]) != 0, t >= 20 && t < 40);
    assert_false(isnan(y->final[0]));
    free(s), free(y);
}

/* Sequences in another order give the same bits in that order. */
static void batch_order(void)
{
    enum { B = 3, T = 70, N = 3, P = 4 };
    const tn_case c = { "property", { B, T, 1, N, P, 16 }, STATE, 1, 0 };
    static float in[2][5][B * T * P], o[2][B * T * P], final[2][B * N * P];
    const size_t each[] = { T * N, T * N, T * P, T, N * P };
    for (int order = 0; order < 2; order++) {
        for (uint64_t i = 0; i < 5; i++)
            for (size_t b = 0; b < B; b++)
                for (size_t j = 0; j < each[i]; j++) {
                    const float x = tn_rng_uniform((tn_rng){ 6, i }, b * each[i] + j) - 1;
                    in[order][i][(order ? B - 1 - b : b) * each[i] + j] = x;
                }
        const void *inputs[] = { in[order][0], in[order][1], in[order][2], in[order][3], in[order][4] };
        void *outputs[] = { o[order], final[order] };
        tn_optest_run(&test, &c, 1 + order, inputs, outputs, NULL, NULL);
    }
    for (size_t b = 0; b < B; b++) {
        assert_memory_equal(o[0] + b * T * P, o[1] + (B - 1 - b) * T * P, sizeof(float) * T * P);
        assert_memory_equal(final[0] + b * N * P, final[1] + (B - 1 - b) * N * P, sizeof(float) * N * P);
    }
}

/* A decay of -inf forgets the state, without NaN. */
static void forgets(void)
{
    sequence *s = draw(7), *y = calloc(2, sizeof *s), *d = calloc(1, sizeof *s);
    for (int64_t j = 0; j < PH; j++) s->alpha[50 * PH + j] = -INFINITY;
    run(s, 0, PT, 0, s->state, y, d);
    for (int64_t j = 0; j < PH; j++) s->alpha[50 * PH + j] = 0;
    s->reset[50] = 1;
    run(s, 0, PT, 0, s->state, y + 1, NULL);
    close_to("output", y[0].o, y[1].o, TN_COUNT(s->o), 1e-6f);
    for (size_t i = 0; i < TN_COUNT(s->alpha); i++) assert_false(isnan(d->alpha[i]));
    for (size_t i = 0; i < TN_COUNT(s->q); i++) assert_false(isnan(d->q[i]) || isnan(d->k[i]));
    free(s), free(y), free(d);
}

static double flops_of(int64_t T, int64_t chunk, bool steps)
{
    enum { H = 2, N = 4, P = 8 };
    tn_graph *g;
    tn_plan *p;
    assert_ok(tn_graph_new(&(tn_graph_options){ .off = steps ? switches_off : NULL }, &g));
    const tn_ref q = tn_input(g, "q", tn_shape(1, T, H, N), TN_F32), v = tn_input(g, "v", tn_shape(1, T, H, P), TN_F32);
    tn_output(g, "o", tn_outer(g, q, q, v, tn_input(g, "alpha", tn_shape(1, T, H), TN_F32), .chunk = chunk));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = 1 }, &p));
    const double flops = tn_plan_flops(p);
    tn_plan_free(p);
    return flops;
}

/* Pairs of tokens in one chunk; every token is written to the state, those behind the first chunk read it. */
static void short_chunks_cost_less(void)
{
    const double state = 2.0 * 2 * 4 * 8, pair = 2.0 * 2 * (4 + 8);
    assert_true(flops_of(64, 64, false) == 64 * state + 64 * 65 / 2 * pair);
    assert_true(flops_of(32, 64, false) == 32 * state + 32 * 33 / 2 * pair);
    assert_true(fabs(flops_of(40, 16, false) / ((40 + 24) * state + (2 * 16 * 17 / 2 + 8 * 9 / 2) * pair) - 1) < 1e-12);
    assert_true(flops_of(64, 64, true) == 2 * 64 * state);
}

static const tn_property properties[] = {
    { "split and carry equals one pass", split_equals_whole },
    { "the chunk does not matter", chunk_does_not_matter },
    { "the future never reaches the past", no_leak },
    { "reset separates sequences", reset_separates },
    { "reset stops NaN", reset_stops_nan },
    { "order of the batch", batch_order },
    { "infinite decay forgets", forgets },
    { "short chunks cost less", short_chunks_cost_less },
};

static const tn_op_test test = {
    .op = "outer",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

static const tn_op_test long_test = {
    .op = "outer",
    .cases = long_cases,
    .n_cases = TN_COUNT(long_cases),
    .build = build,
    .oracle = oracle,
    .oracle_grad = oracle_grad,
    .adjust = adjust,
};

void tn_tests_outer(tn_test_list *l)
{
    tn_optest_add(l, &test);
    tn_optest_add(l, &long_test);
}
