/* delta: rows (dim = B, T, H, N, P, chunk), an oracle that steps through tokens in double, and properties. Short rows
 * check gradients by differences, long ones against the same recurrence run backwards in double. */
#include "optest.h"

#include "base/rng.h"
#include "plan/graph.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ROWS: a decay for each row of the state. TWICE: beta up to 2, where what a key holds changes its sign. */
enum { STATE = 1, RESET = 2, STRONG = 4, NO_DECAY = 8, STEPS = 16, SLOW = 32, ROUND = 64, ROWS = 128, TWICE = 256 };
enum { Q, K, V, ALPHA, BETA, EXTRA }; /* inputs; then state and reset where there are any */

static const char *const switches_off[] = { "opt.delta_chunked", NULL };

static const tn_case cases[] = {
    { "short", { 2, 7, 2, 3, 5, 4 }, STATE | RESET, 1e-5f, 2e-2f },
    { "short, rows", { 2, 7, 2, 3, 5, 4 }, STATE | RESET | ROWS, 1e-5f, 2e-2f },
    { "one token", { 3, 1, 2, 4, 3, 0 }, STATE, 1e-5f, 2e-2f },
    { "one token, rows", { 3, 1, 2, 4, 3, 0 }, STATE | ROWS, 1e-5f, 2e-2f },
    { "no state", { 2, 9, 3, 4, 2, 3 }, 0, 1e-5f, 2e-2f },
    { "one chunk", { 1, 12, 2, 3, 3, 0 }, RESET | ROWS, 1e-5f, 2e-2f },
    { "odd", { 2, 67, 3, 5, 7, 16 }, STATE | RESET | TN_FEW, 1e-5f, 2e-2f },
    { "odd, rows", { 2, 67, 3, 5, 7, 16 }, STATE | RESET | ROWS | TN_FEW, 1e-5f, 2e-2f },
    { "strong decay", { 2, 21, 2, 4, 4, 8 }, STATE | STRONG, 1e-5f, 2e-2f },
    { "strong decay, rows", { 2, 21, 2, 4, 4, 8 }, STATE | STRONG | ROWS, 1e-5f, 2e-2f },
    { "no decay", { 2, 21, 2, 4, 4, 8 }, STATE | NO_DECAY, 1e-5f, 2e-2f },
    { "beta up to 2", { 2, 21, 2, 4, 4, 8 }, STATE | TWICE | ROWS, 1e-5f, 3e-2f },
    { "no tokens", { 2, 0, 2, 3, 4, 0 }, STATE, 1e-5f, 2e-2f },
    { "no tokens, no state", { 2, 0, 2, 3, 4, 0 }, ROWS, 1e-5f, 2e-2f },
    { "no keys", { 1, 6, 2, 0, 4, 4 }, STATE | TN_NO_NAN, 1e-5f, 2e-2f },
    { "no values", { 1, 6, 2, 3, 0, 4 }, STATE, 1e-5f, 2e-2f },
    { "no sequences", { 0, 6, 2, 3, 2, 4 }, STATE, 1e-5f, 2e-2f },
    { "bf16 operands", { 2, 67, 2, 16, 16, 16 }, STATE | ROUND | TN_FEW, 3e-2f, 0 },
    { "steps", { 2, 9, 2, 3, 5, 4 }, STATE | RESET | STEPS, 1e-5f, 2e-2f },
    { "steps, rows", { 2, 9, 2, 3, 5, 4 }, STATE | RESET | ROWS | STEPS, 1e-5f, 2e-2f },
    { "steps, no state", { 1, 9, 2, 4, 3, 0 }, NO_DECAY | STEPS, 1e-5f, 2e-2f },
};

static const tn_case long_cases[] = {
    { "slow decay", { 1, 2000, 1, 8, 12, 0 }, STATE | SLOW, 1e-5f, 3e-2f },
    { "slow decay, rows", { 1, 2000, 1, 8, 12, 0 }, STATE | SLOW | ROWS, 1e-5f, 3e-2f },
    { "no decay, 2000 tokens", { 1, 2000, 2, 8, 8, 0 }, STATE | NO_DECAY, 1e-5f, 0 },
    { "strong decay, 1000 tokens", { 1, 1000, 1, 16, 16, 0 }, STATE | STRONG, 1e-5f, 0 },
    { "strong decay, rows", { 1, 1000, 1, 16, 16, 0 }, STATE | STRONG | ROWS, 1e-5f, 0 },
    { "documents", { 3, 300, 2, 16, 20, 0 }, STATE | RESET | SLOW, 1e-5f, 3e-2f },
    { "documents, rows", { 3, 300, 2, 16, 20, 0 }, STATE | RESET | SLOW | ROWS, 1e-5f, 3e-2f },
    { "chunk of 300", { 1, 700, 1, 8, 8, 300 }, STATE | SLOW, 1e-5f, 0 },
    { "full size", { 1, 200, 2, 64, 64, 0 }, STATE | SLOW, 1e-5f, 3e-2f },
    { "full size, rows", { 1, 200, 2, 64, 64, 0 }, STATE | SLOW | ROWS, 1e-5f, 3e-2f },
    { "wide", { 1, 150, 1, 128, 40, 0 }, STATE | RESET | SLOW | ROWS, 1e-5f, 3e-2f },
    { "wider than a GPU's kernels", { 1, 70, 2, 200, 150, 0 }, STATE | RESET | SLOW, 1e-5f, 3e-2f },
    { "wider, rows", { 1, 70, 1, 136, 24, 0 }, STATE | RESET | SLOW | ROWS, 1e-5f, 3e-2f },
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
    const tn_ref v = tn_test_input(io, tn_shape(B, T, H, P), (tn_fill_spec){ 0 });
    const tn_ref alpha = tn_test_input(io, c->flags & ROWS ? tn_shape(B, T, H, N) : tn_shape(B, T, H),
                                       (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = least, .hi = 0 });
    const tn_ref beta =
        tn_test_input(io, tn_shape(B, T, H),
                      (tn_fill_spec){ .kind = TN_FILL_UNIFORM, .lo = 0, .hi = c->flags & TWICE ? 1.9 : 1 });
    tn_ref state = TN_NONE, reset = TN_NONE, final;
    if (c->flags & STATE) state = tn_test_input(io, tn_shape(B, H, N, P), (tn_fill_spec){ 0 });
    if (c->flags & RESET) reset = tn_test_input(io, tn_shape(B, T), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 2 });
    tn_test_output(io, tn_delta(g, q, k, v, alpha, beta, .state = state, .reset = reset, .chunk = c->dim[5],
                                .final = &final));
    tn_test_output(io, final);
}

/* Keys have length 1. Resets are rare, and the first sequence begins with one. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    const int64_t T = c->dim[1], N = c->dim[3], every = T < 20 ? 4 : 53;
    for (int64_t i = 0; input == K && i < n; i += N) {
        double length = 0;
        for (int64_t j = 0; j < N; j++) length += x[i + j] * x[i + j];
        for (int64_t j = 0; j < N; j++) x[i + j] /= sqrt(length);
    }
    if (c->flags & RESET && input == EXTRA + !!(c->flags & STATE))
        for (int64_t i = 0; i < n; i++) x[i] = (i % T + 7 * (i / T)) % every == 0;
}

typedef struct walker { /* one head of one sequence in the oracle's tensors */
    int64_t b, h, T, H, N, P;
    const double *reset;
    bool rows;
} walker;

static int64_t at(const walker *w, int64_t t, int64_t size) { return ((w->b * w->T + t) * w->H + w->h) * size; }

static int64_t alpha_at(const walker *w, int64_t t, int64_t n) { return w->rows ? at(w, t, w->N) + n : at(w, t, 1); }

static double decay_of(const walker *w, const tn_oracle *o, int64_t t, int64_t n)
{
    return w->reset && w->reset[w->b * w->T + t] != 0 ? 0 : exp(o->in[ALPHA][alpha_at(w, t, n)]);
}

/* What is not held yet at token t's key: v - D^T k; S becomes D. A document's start drops S by choice, not by product. */
static void keep(const walker *w, const tn_oracle *o, int64_t t, double *S, double *missing)
{
    const bool fresh = w->reset && w->reset[w->b * w->T + t] != 0;
    for (int64_t p = 0; p < w->P; p++) missing[p] = o->in[V][at(w, t, w->P) + p];
    for (int64_t n = 0; n < w->N; n++)
        for (int64_t p = 0; p < w->P; p++) {
            double *s = &S[n * w->P + p];
            *s = fresh ? 0 : decay_of(w, o, t, n) * *s;
            missing[p] -= *s * o->in[K][at(w, t, w->N) + n];
        }
}

static void step(const walker *w, const tn_oracle *o, int64_t t, double *S, double *missing)
{
    keep(w, o, t, S, missing);
    for (int64_t n = 0; n < w->N; n++)
        for (int64_t p = 0; p < w->P; p++)
            S[n * w->P + p] += o->in[K][at(w, t, w->N) + n] * o->in[BETA][at(w, t, 1)] * missing[p];
}

static walker walker_of(const tn_case *c, const tn_oracle *o, int64_t b, int64_t h)
{
    return (walker){ .b = b,
                     .h = h,
                     .T = c->dim[1],
                     .H = c->dim[2],
                     .N = c->dim[3],
                     .P = c->dim[4],
                     .reset = c->flags & RESET ? o->in[EXTRA + !!(c->flags & STATE)] : NULL,
                     .rows = c->flags & ROWS };
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t P = c->dim[4], NP = c->dim[3] * P;
    double *missing = calloc((size_t)P + 1, sizeof *missing);
    for (int64_t i = 0; i < c->dim[0] * c->dim[2]; i++) {
        const walker w = walker_of(c, o, i / c->dim[2], i % c->dim[2]);
        double *S = o->out[1] + i * NP;
        for (int64_t j = 0; j < NP; j++) S[j] = c->flags & STATE ? o->in[EXTRA][i * NP + j] : 0;
        for (int64_t t = 0; t < w.T; t++) {
            step(&w, o, t, S, missing);
            for (int64_t p = 0; p < P; p++) {
                double y = 0;
                for (int64_t n = 0; n < w.N; n++) y += S[n * P + p] * o->in[Q][at(&w, t, w.N) + n];
                o->out[0][at(&w, t, P) + p] = y;
            }
        }
    }
    free(missing);
}

/* Token t backwards; before and after (N,P) are S around it, G (N,P) is dL/dS. */
static void step_back(const walker *w, const tn_oracle *o, int64_t t, const double *before, const double *after,
                      double *G, double *const *dout, double *const *din)
{
    const int64_t N = w->N, P = w->P, one = at(w, t, 1);
    const double *k = o->in[K] + at(w, t, N), *q = o->in[Q] + at(w, t, N), *d = dout[0] + at(w, t, P);
    double *kept = malloc(sizeof *kept * (size_t)(N * P + 2 * P)), *missing = kept + N * P, *dw = missing + P;
    memcpy(kept, before, sizeof *kept * (size_t)(N * P));
    keep(w, o, t, kept, missing);
    memset(dw, 0, sizeof *dw * (size_t)P);
    for (int64_t n = 0; n < N; n++)
        for (int64_t p = 0; p < P; p++) {
            double *g = &G[n * P + p];
            *g += q[n] * d[p];
            din[Q][at(w, t, N) + n] += after[n * P + p] * d[p];
            din[K][at(w, t, N) + n] += *g * o->in[BETA][one] * missing[p];
            dw[p] += *g * k[n];
        }
    for (int64_t p = 0; p < P; p++) {
        din[BETA][one] += dw[p] * missing[p];
        din[V][at(w, t, P) + p] += o->in[BETA][one] * dw[p];
    }
    for (int64_t n = 0; n < N; n++)
        for (int64_t p = 0; p < P; p++) {
            double *g = &G[n * P + p];
            din[K][at(w, t, N) + n] -= o->in[BETA][one] * dw[p] * kept[n * P + p];
            *g -= o->in[BETA][one] * k[n] * dw[p];
            din[ALPHA][alpha_at(w, t, n)] += *g * kept[n * P + p];
            *g *= decay_of(w, o, t, n);
        }
    free(kept);
}

static void oracle_grad(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din)
{
    const int64_t T = c->dim[1], NP = c->dim[3] * c->dim[4];
    double *states = calloc((size_t)((T + 1) * NP + c->dim[4]), sizeof *states), *missing = states + (T + 1) * NP;
    double *G = calloc((size_t)NP, sizeof *G);
    for (int64_t i = 0; i < c->dim[0] * c->dim[2]; i++) {
        const walker w = walker_of(c, o, i / c->dim[2], i % c->dim[2]);
        memcpy(states, o->in[EXTRA] + i * NP, sizeof *states * (size_t)NP);
        for (int64_t t = 0; t < T; t++) {
            memcpy(states + (t + 1) * NP, states + t * NP, sizeof *states * (size_t)NP);
            step(&w, o, t, states + (t + 1) * NP, missing);
        }
        memcpy(G, dout[1] + i * NP, sizeof *G * (size_t)NP);
        for (int64_t t = T; t-- > 0;) step_back(&w, o, t, states + t * NP, states + (t + 1) * NP, G, dout, din);
        memcpy(din[EXTRA] + i * NP, G, sizeof *G * (size_t)NP);
    }
    free(states);
    free(G);
}

/* --- properties -------------------------------------------------------------------------------------------------- */

enum { PT = 200, PH = 2, PN = 5, PP = 6, PS = PH * PN * PP }; /* one sequence of the properties */

typedef struct sequence { /* and its gradients, where there are any */
    float q[PT * PH * PN], k[PT * PH * PN], v[PT * PH * PP], alpha[PT * PH * PN], beta[PT * PH], state[PS];
    int32_t reset[PT];
    float o[PT * PH * PP], final[PS];
} sequence;

static const tn_op_test test;

static sequence *draw(uint64_t seed)
{
    sequence *s = calloc(1, sizeof *s);
    float *const part[] = { s->q, s->k, s->v, s->alpha, s->beta, s->state };
    const size_t n[] = { TN_COUNT(s->q),     TN_COUNT(s->k),    TN_COUNT(s->v),
                         TN_COUNT(s->alpha), TN_COUNT(s->beta), TN_COUNT(s->state) };
    assert_non_null(s);
    for (uint64_t i = 0; i < 6; i++)
        for (size_t j = 0; j < n[i]; j++) {
            const float uniform = tn_rng_uniform((tn_rng){ seed, i }, j);
            part[i][j] = i == ALPHA ? -0.1f * uniform : i == BETA ? uniform : tn_rng_normal((tn_rng){ seed, i }, j);
        }
    for (size_t i = 0; i < TN_COUNT(s->k); i += PN) {
        float length = 0;
        for (size_t j = i; j < i + PN; j++) length += s->k[j] * s->k[j];
        for (size_t j = i; j < i + PN; j++) s->k[j] /= sqrtf(length);
    }
    return s;
}

/* Tokens [t0, t0+n) of s from the state given, into y; gradients (with cotangents 1) into d. flags: ROWS, STEPS. */
static void run(const sequence *s, uint32_t flags, int64_t t0, int64_t n, int64_t chunk, const float *state,
                sequence *y, sequence *d)
{
    const tn_case c = { "property", { 1, n, PH, PN, PP, chunk }, STATE | RESET | flags, 1, 0 };
    const int64_t alphas = flags & ROWS ? PH * PN : PH;
    const void *in[] = { s->q + t0 * PH * PN,    s->k + t0 * PH * PN, s->v + t0 * PH * PP,
                         s->alpha + t0 * alphas, s->beta + t0 * PH,   state,
                         s->reset + t0 };
    void *out[] = { y->o + t0 * PH * PP, y->final };
    void *grad[] = { d ? d->q : NULL,
                     d ? d->k : NULL,
                     d ? d->v : NULL,
                     d ? d->alpha : NULL,
                     d ? d->beta : NULL,
                     d ? d->state : NULL,
                     NULL };
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

static void same(const sequence *y, const sequence *d, const sequence *y_ref, const sequence *d_ref, float tolerance)
{
    close_to("output", y->o, y_ref->o, TN_COUNT(y->o), 1e-5f);
    close_to("final state", y->final, y_ref->final, PS, 1e-5f);
    close_to("gradient of q", d->q, d_ref->q, TN_COUNT(d->q), tolerance);
    close_to("gradient of k", d->k, d_ref->k, TN_COUNT(d->k), tolerance);
    close_to("gradient of v", d->v, d_ref->v, TN_COUNT(d->v), tolerance);
    close_to("gradient of alpha", d->alpha, d_ref->alpha, TN_COUNT(d->alpha), tolerance);
    close_to("gradient of beta", d->beta, d_ref->beta, TN_COUNT(d->beta), tolerance);
    close_to("gradient of state", d->state, d_ref->state, PS, tolerance);
}

static void split_equals_whole(void)
{
    sequence *s = draw(1), *whole = calloc(1, sizeof *s), *parts = calloc(1, sizeof *s);
    const int64_t cut[] = { 0, 1, 64, 67, 150, PT };
    run(s, ROWS, 0, PT, 0, s->state, whole, NULL);
    memcpy(parts->final, s->state, sizeof parts->final);
    for (size_t i = 0; i + 1 < TN_COUNT(cut); i++) {
        float carried[PS];
        memcpy(carried, parts->final, sizeof carried);
        run(s, ROWS, cut[i], cut[i + 1] - cut[i], 0, carried, parts, NULL);
    }
    close_to("output", parts->o, whole->o, TN_COUNT(s->o), 1e-5f);
    close_to("final state", parts->final, whole->final, PS, 1e-5f);
    free(s), free(whole), free(parts);
}

static void chunk_does_not_matter(void)
{
    const int64_t chunks[] = { 1, 7, 16, 256 };
    for (uint32_t rows = 0; rows <= ROWS; rows += ROWS) {
        sequence *s = draw(2), *y = calloc(2, sizeof *s), *d = calloc(2, sizeof *s);
        s->reset[70] = s->reset[71] = 1;
        run(s, rows, 0, PT, 32, s->state, y, d);
        for (size_t i = 0; i < TN_COUNT(chunks); i++) {
            run(s, rows, 0, PT, chunks[i], s->state, y + 1, d + 1);
            same(&y[1], &d[1], &y[0], &d[0], 1e-5f);
        }
        free(s), free(y), free(d);
    }
}

/* The op against the loop of plain ops that opt.delta_chunked=off builds. */
static void twin_agrees(void)
{
    for (uint32_t rows = 0; rows <= ROWS; rows += ROWS) {
        sequence *s = draw(8), *y = calloc(2, sizeof *s), *d = calloc(2, sizeof *s);
        s->reset[0] = s->reset[90] = 1;
        run(s, rows, 0, PT, 0, s->state, y, d);
        run(s, rows | STEPS, 0, PT, 0, s->state, y + 1, d + 1);
        same(&y[0], &d[0], &y[1], &d[1], 1e-4f);
        free(s), free(y), free(d);
    }
}

/* Changes token t in every way, to other numbers and to NaN: outputs before t keep their bits, later ones change. */
static void no_leak(void)
{
    sequence *s = draw(3), *y = calloc(2, sizeof *s);
    const int64_t tokens[] = { 0, 30, 64, 127, PT - 1 };
    for (int64_t chunk = 8; chunk <= 32; chunk *= 2)
        for (size_t i = 0; i < TN_COUNT(tokens); i++)
            for (int kind = 0; kind < 3; kind++) {
                const int64_t t = tokens[i];
                sequence *changed = malloc(sizeof *s);
                *changed = *s;
                for (int64_t j = 0; kind < 2 && j < PH * PN; j++) {
                    changed->q[t * PH * PN + j] = kind ? NAN : 3;
                    changed->k[t * PH * PN + j] = kind ? NAN : 100;
                    changed->alpha[t * PH * PN + j] = kind ? NAN : -7;
                }
                for (int64_t j = 0; kind < 2 && j < PH * PP; j++) changed->v[t * PH * PP + j] = kind ? NAN : -50;
                for (int64_t j = 0; kind < 2 && j < PH; j++) changed->beta[t * PH + j] = kind ? NAN : 0.3f;
                if (kind == 2) changed->reset[t] = 1;
                run(s, ROWS, 0, PT, chunk, s->state, y, NULL);
                run(changed, ROWS, 0, PT, chunk, s->state, y + 1, NULL);
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
    run(s, ROWS, 0, PT, 0, s->state, y, NULL);
    run(s, ROWS, 0, 37, 0, s->state, y + 1, NULL);
    run(s, ROWS, 37, 64, 0, zero, y + 1, NULL);
    s->reset[101] = 0; /* a sequence of its own starts from zero */
    run(s, ROWS, 101, PT - 101, 0, zero, y + 1, NULL);
    close_to("output", y[1].o, y[0].o, TN_COUNT(s->o), 1e-5f);
    close_to("final state", y[1].final, y[0].final, PS, 1e-5f);
    free(s), free(y);
}

/* A NaN before a reset does not reach what comes after it, though chunks are longer; columns know nothing of each other. */
static void reset_stops_nan(void)
{
    sequence *s = draw(5), *y = calloc(1, sizeof *s);
    s->reset[40] = 1;
    s->v[20 * PH * PP] = NAN;
    run(s, ROWS, 0, PT, 0, s->state, y, NULL);
    for (int64_t t = 0; t < PT; t++)
        for (int64_t p = 0; p < PH * PP; p++)
            assert_int_equal(isnan(y->o[t * PH * PP + p]) != 0, p == 0 && t >= 20 && t < 40);
    assert_false(isnan(y->final[0]));
    free(s), free(y);
}

/* A decay of -inf forgets the state, without NaN. */
static void forgets(void)
{
    sequence *s = draw(7), *y = calloc(2, sizeof *s), *d = calloc(1, sizeof *s);
    for (int64_t j = 0; j < PH * PN; j++) s->alpha[50 * PH * PN + j] = -INFINITY;
    run(s, ROWS, 0, PT, 0, s->state, y, d);
    for (int64_t j = 0; j < PH * PN; j++) s->alpha[50 * PH * PN + j] = 0;
    s->reset[50] = 1;
    run(s, ROWS, 0, PT, 0, s->state, y + 1, NULL);
    close_to("output", y[0].o, y[1].o, TN_COUNT(s->o), 1e-6f);
    for (size_t i = 0; i < TN_COUNT(s->alpha); i++) assert_false(isnan(d->alpha[i]));
    for (size_t i = 0; i < TN_COUNT(s->q); i++) assert_false(isnan(d->q[i]) || isnan(d->k[i]));
    free(s), free(y), free(d);
}

/* What is written at a key with beta 1 is what is read at that key, whatever was there. */
static void writes_replace(void)
{
    sequence *s = draw(9), *y = calloc(1, sizeof *s);
    memcpy(s->q, s->k, sizeof s->q);
    for (size_t i = 0; i < TN_COUNT(s->beta); i++) s->beta[i] = 1;
    run(s, 0, 0, PT, 0, s->state, y, NULL);
    close_to("output", y->o, s->v, TN_COUNT(s->v), 1e-5f);
    free(s), free(y);
}

static const tn_property properties[] = {
    { "split and carry equals one pass", split_equals_whole },
    { "the chunk does not matter", chunk_does_not_matter },
    { "the plain twin agrees", twin_agrees },
    { "the future never reaches the past", no_leak },
    { "reset separates sequences", reset_separates },
    { "reset stops NaN", reset_stops_nan },
    { "infinite decay forgets", forgets },
    { "what is written is read", writes_replace },
};

static const tn_op_test test = {
    .op = "delta",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

static const tn_op_test long_test = {
    .op = "delta",
    .cases = long_cases,
    .n_cases = TN_COUNT(long_cases),
    .build = build,
    .oracle = oracle,
    .oracle_grad = oracle_grad,
    .adjust = adjust,
};

void tn_tests_delta(tn_test_list *l)
{
    tn_optest_add(l, &test);
    tn_optest_add(l, &long_test);
}
