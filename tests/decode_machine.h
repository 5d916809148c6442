/* A machine of plain C that runs a token's program (plan/decode/decode.h) the way the GPU may, for tests of what the builder decides. Header only.
 *
 * A seed decides which block goes on and how far; one stops at a barrier until all have come there, and at a fetch until all words of that message
 * are of this run. Whatever one block reads of another's without either, it reads too early or too late for some seed. A program whose
 * blocks wait for ever fails. Weights that are staged are copied when the program begins, the kernel may fetch them at any time. f32 alone; arithmetic is double, so
 * that a program's result differs from kernels' by their rounding. */
#ifndef TN_DECODE_MACHINE_H
#define TN_DECODE_MACHINE_H

#include "ops/binary/binary.h"
#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "plan/decode/decode_rope.h"
#include "ops/unary/unary.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TN_DECODE_MACHINE_BLOCKS = 8, TN_DECODE_MACHINE_SEEN = 4096 };

typedef struct tn_decode_machine {
    const tn_decode_program *p;
    int blocks;
    uint64_t seed;                    /* of the blocks' order */
    uint32_t epoch;                   /* beside every number that is sent */
    int at[TN_DECODE_MACHINE_BLOCKS]; /* a block's next step */
    float *slots;                     /* (blocks,slot_floats) */
    float
        *stage[TN_DECODE_STEPS]; /* (n,k): weights of the steps that are staged, as they were when the program began */
    struct {                     /* what a block's last rope, put and seen found */
        double angle[TN_DECODE_ANGLES], amplitude;
        int32_t place, seen;
    } known[TN_DECODE_MACHINE_BLOCKS];
    double best[2][TN_DECODE_MACHINE_BLOCKS][2]; /* halves of the scratch: number, place */
    double seen
        [2]
        [TN_DECODE_MACHINE_SEEN]; /* ... or, for each part of a head's keys, the largest logit, the sum, the values */
} tn_decode_machine;

/* One block at one step. */
typedef struct tn_decode_worker {
    tn_decode_machine *m;
    const tn_decode_step *s;
    int block;
    float *slots;
    bool writes;
} tn_decode_worker;

static inline double tn_decode_far_(const tn_decode_worker *w, int k, int64_t i)
{
    assert_int_equal(w->s->in_type[k], TN_F32);
    return ((const float *)w->s->in[k])[i];
}

static inline double tn_decode_get_(const tn_decode_worker *w, int k, int64_t i)
{
    return w->s->in_slot[k] >= 0 ? (double)w->slots[w->s->in_slot[k] + i] : tn_decode_far_(w, k, i);
}

static inline double tn_decode_or_(const tn_decode_worker *w, int k, int64_t i, double otherwise)
{
    return w->s->in[k] ? tn_decode_get_(w, k, i) : otherwise;
}

/* A parameter, from memory as in the kernel. */
static inline double tn_decode_param_(const tn_decode_worker *w, int k, int64_t i, double otherwise)
{
    return w->s->in[k] ? tn_decode_far_(w, k, i) : otherwise;
}

static inline int32_t tn_decode_integer_(const tn_decode_worker *w, int k)
{
    assert_int_equal(w->s->in_type[k], TN_I32);
    return *(const int32_t *)w->s->in[k];
}

/* ... or what the last such step found. */
static inline int32_t tn_decode_integer_known_(const tn_decode_worker *w, int k, int32_t *known)
{
    if (!(w->s->flags & TN_DECODE_SAME)) *known = tn_decode_integer_(w, k);
    return *known;
}

static inline void tn_decode_put_(const tn_decode_worker *w, int k, int64_t i, double x)
{
    if (!w->s->out[k]) return;
    assert_int_equal(w->s->out_type[k], TN_F32);
    if (w->s->out_slot[k] >= 0) w->slots[w->s->out_slot[k] + i] = (float)x;
    if (w->writes) ((float *)w->s->out[k])[i] = (float)x;
}

/* Number i of output 0, for the blocks that fetch it. */
static inline void tn_decode_message_(const tn_decode_worker *w, int64_t i, double x)
{
    const float number = (float)x;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (w->s->message) w->s->message[i] = (uint64_t)w->m->epoch << 32 | bits;
}

/* --- functions ---------------------------------------------------------------------------------------------------------- */

static inline double tn_m_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static inline double tn_m_softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static inline double tn_m_gelu(double x)
{
    return x * tn_m_sigmoid(2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x));
}
static inline double tn_m_gelu_erf(double x) { return x * 0.5 * erfc(-x / sqrt(2)); }
static inline double tn_m_silu(double x) { return x * tn_m_sigmoid(x); }
static inline double tn_m_relu(double x) { return x > 0 ? x : 0; }
static inline double tn_m_square(double x) { return x * x; }
static inline double tn_m_logcosh(double x) { return log(cosh(x)); }
static inline double tn_m_inverse(double x) { return 1 / x; }
static inline double tn_m_same(double x) { return x; }

static inline double tn_m_unary(const tn_decode_step *s, double x)
{
    static double (*const f[TN_UNARY_KINDS])(double) = {
        [TN_UNARY_GELU] = tn_m_gelu,
        [TN_UNARY_GELU_ERF] = tn_m_gelu_erf,
        [TN_UNARY_SILU] = tn_m_silu,
        [TN_UNARY_TANH] = tanh,
        [TN_UNARY_SIGMOID] = tn_m_sigmoid,
        [TN_UNARY_RELU] = tn_m_relu,
        [TN_UNARY_EXP] = exp,
        [TN_UNARY_EXPM1] = expm1,
        [TN_UNARY_LOG] = log,
        [TN_UNARY_SQRT] = sqrt,
        [TN_UNARY_SQUARE] = tn_m_square,
        [TN_UNARY_ABS] = fabs,
        [TN_UNARY_SOFTPLUS] = tn_m_softplus,
        [TN_UNARY_LOGCOSH] = tn_m_logcosh,
        [TN_UNARY_SIN] = sin,
        [TN_UNARY_COS] = cos,
        [TN_UNARY_RECIPROCAL] = tn_m_inverse,
    };
    if (f[s->kind]) return f[s->kind](x);
    if (s->kind == TN_UNARY_CLAMP_MIN) return x < (double)s->a ? (double)s->a : x;
    return (double)s->a * x + (s->kind == TN_UNARY_AFFINE ? (double)s->b : 0);
}

static inline double tn_m_binary(int kind, double a, double b)
{
    switch (kind) {
    case TN_BINARY_ADD: return a + b;
    case TN_BINARY_SUB: return a - b;
    case TN_BINARY_MUL: return a * b;
    case TN_BINARY_DIV: return a / b;
    case TN_BINARY_MAXIMUM: return a > b || a != a ? a : b;
    case TN_BINARY_MINIMUM: return a < b || a != a ? a : b;
    case TN_BINARY_RSUB: return b - a;
    default: return b / a;
    }
}

static inline double tn_m_gate(int kind, double z)
{
    static double (*const f[TN_GATE_KINDS])(double) = { tn_m_silu, tn_m_sigmoid, tn_m_gelu };
    return f[kind](z);
}

static inline double tn_m_act(int kind, double x)
{
    static double (*const f[TN_ACTS])(double) = { tn_m_same, tn_m_gelu,    tn_m_gelu_erf, tn_m_silu,
                                                  tanh,      tn_m_sigmoid, tn_m_relu };
    return f[kind](x);
}

/* --- steps ---------------------------------------------------------------------------------------------------------------- */

static inline void tn_m_embed(const tn_decode_worker *w)
{
    const int32_t token = tn_decode_integer_(w, 0);
    const bool in = token >= 0 && token < w->s->k;
    for (int64_t i = 0; i < w->s->n; i++)
        tn_decode_put_(w, 0, i, in ? tn_decode_far_(w, 1, (int64_t)token * w->s->n + i) : (double)NAN);
}

static inline double tn_m_sum(const tn_decode_worker *w, int64_t i)
{
    return tn_decode_get_(w, 0, i) + tn_decode_or_(w, 1, i, 0);
}

static inline void tn_m_norm(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (s->kind == TN_NORM_LAYER) mean += tn_m_sum(w, i) / s->n;
        tn_decode_put_(w, 1, i, tn_m_sum(w, i));
    }
    for (int64_t i = 0; i < s->n; i++) squares += (tn_m_sum(w, i) - mean) * (tn_m_sum(w, i) - mean);
    const double scale = 1 / sqrt(squares / s->n + (double)s->a);
    for (int64_t i = 0; i < s->n; i++)
        tn_decode_put_(w, 0, i,
                       (tn_m_sum(w, i) - mean) * scale * tn_decode_param_(w, 2, i, 1) + tn_decode_param_(w, 3, i, 0));
}

typedef struct tn_m_part {
    int64_t first, end; /* rows, or pairs of rows, of a block */
} tn_m_part;

static inline int tn_m_rows(const tn_decode_step *s) { return s->flags & TN_DECODE_PAIRED ? 2 : 1; }

/* A block's of n. */
static inline tn_m_part tn_m_own(const tn_decode_machine *m, int64_t n, int block)
{
    const int64_t each = n / m->blocks, more = n % m->blocks, first = each * block + (block < more ? block : more);
    return (tn_m_part){ first, first + each + (block < more) };
}

static inline bool tn_m_fresh(const tn_decode_worker *w, int state, int reset)
{
    return !w->s->in[state] || (w->s->in[reset] && tn_decode_integer_(w, reset) != 0);
}

/* Channel i of a conv whose input there is x. */
static inline double tn_m_conv_of(const tn_decode_worker *w, int64_t i, double x, bool fresh)
{
    const tn_decode_step *s = w->s;
    double y = tn_decode_param_(w, 2, i, 0) + tn_decode_far_(w, 1, (int64_t)(s->k - 1) * s->n + i) * x;
    for (int64_t j = 0; j + 1 < s->k; j++) {
        const double old = fresh ? 0 : tn_decode_far_(w, 3, j * s->n + i);
        y += tn_decode_far_(w, 1, j * s->n + i) * old;
        if (j) tn_decode_put_(w, 1, (j - 1) * s->n + i, old);
    }
    if (s->k > 1) tn_decode_put_(w, 1, (int64_t)(s->k - 2) * s->n + i, x);
    y = s->kind ? tn_m_silu(y) : y;
    tn_decode_put_(w, 0, i, y);
    return y;
}

/* Messages what the step behind makes of row n (and, of a pair, n + half, where y[1] is), or the row. */
static inline void tn_m_send(const tn_decode_worker *w, int64_t n, const double *y)
{
    const tn_decode_step *s = w->s;
    const tn_decode_worker then = { w->m, s + 1, w->block, w->slots, true };
    if (!(s->flags & TN_DECODE_JOINED)) tn_decode_message_(w, n, y[0]);
    else if (s[1].op == TN_DECODE_CONV) {
        const bool in = n >= s[1].j && n < s[1].j + s[1].n;
        tn_decode_message_(w, n, in ? tn_m_conv_of(&then, n - s[1].j, y[0], tn_m_fresh(&then, 3, 4)) : y[0]);
    } else {
        assert_int_equal(s[1].op, TN_DECODE_GATE);
        const double gated = (s[1].j ? y[1] : y[0]) * tn_m_gate(s[1].kind, s[1].j ? y[0] : y[1]);
        tn_decode_put_(&then, 0, n, gated);
        tn_decode_message_(w, n, gated);
    }
}

static inline void tn_m_linear(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    const bool shared = s->flags & TN_DECODE_SHARED, fetches = s->flags & TN_DECODE_FETCHES;
    float *x = w->slots + (fetches ? s->out_slot[1] : s->in_slot[0]);
    const float *weights = s->flags & TN_DECODE_STAGED ? w->m->stage[s - w->m->p->step] : s->in[1];
    const tn_m_part p = shared ? tn_m_own(w->m, s->n / tn_m_rows(s), w->block) : (tn_m_part){ 0, s->n };
    assert_int_equal(s->in_type[1], TN_F32);
    assert_int_equal((x - w->slots) % 4, 0);
    for (int64_t i = 0; fetches && i < s->k; i++) x[i] = (float)tn_decode_far_(w, 0, i);
    for (int64_t n = p.first; n < p.end; n++) {
        double y[2];
        for (int part = 0; part < tn_m_rows(s); part++) {
            const int64_t at = n + part * (s->n / 2);
            const float *row = weights + at * s->k;
            double sum = tn_decode_param_(w, 2, at, 0);
            for (int64_t i = 0; i < s->k; i++) sum += (double)row[i] * (double)x[i];
            y[part] = tn_m_act(s->kind, sum) + tn_decode_or_(w, 3, at, 0);
            tn_decode_put_(w, 0, at, y[part]);
        }
        tn_m_send(w, n, y);
    }
}

static inline void tn_m_conv(const tn_decode_worker *w)
{
    const bool fresh = tn_m_fresh(w, 3, 4);
    for (int64_t i = 0; i < w->s->n; i++) tn_m_conv_of(w, i, tn_decode_get_(w, 0, i), fresh);
}

static inline void tn_m_scan(const tn_decode_worker *w)
{
    const int64_t n = w->s->n;
    const bool fresh = tn_m_fresh(w, 4, 5);
    for (int64_t i = 0; i < n; i++) {
        const double l = -8 * tn_decode_get_(w, 1, i) * tn_m_softplus(tn_decode_far_(w, 2, i)), under = -expm1(2 * l);
        const double gain = sqrt(under < 1e-6 ? 1e-6 : under) * tn_decode_get_(w, 1, n + i),
                     angle = tn_decode_far_(w, 3, i);
        const double a = fresh ? 0 : exp(l) * tn_decode_far_(w, 4, i),
                     b = fresh ? 0 : exp(l) * tn_decode_far_(w, 4, n + i);
        const double re = gain * tn_decode_get_(w, 0, i) + cos(angle) * a - sin(angle) * b;
        const double im = gain * tn_decode_get_(w, 0, n + i) + cos(angle) * b + sin(angle) * a;
        for (int k = 0; k < 2; k++) {
            tn_decode_put_(w, k, i, re);
            tn_decode_put_(w, k, n + i, im);
        }
    }
}

static inline double tn_m_read(const tn_decode_worker *w, int64_t i)
{
    const double own = w->s->in[2] ? tn_decode_far_(w, 3, i) * tn_decode_get_(w, 2, i) : 0;
    return (double)w->s->a * tn_decode_get_(w, 0, i) + own;
}

static inline void tn_m_readout(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    for (int64_t i = 0; i < s->n; i++) {
        double scale = 1, squares = 0;
        for (int64_t j = 0; j < s->k; j++) squares += tn_m_square(tn_m_read(w, i / s->k * s->k + j));
        if (s->k) scale = tn_decode_param_(w, 4, i, 1) / sqrt(squares / s->k + (double)s->b);
        tn_decode_put_(w, 0, i, tn_m_read(w, i) * scale * tn_m_gate(s->kind, tn_decode_get_(w, 1, i)));
    }
}

static inline void tn_m_elementwise(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    for (int64_t i = 0; i < s->n; i++) {
        const double x = tn_decode_get_(w, 0, i);
        if (s->op == TN_DECODE_GATE) tn_decode_put_(w, 0, i, x * tn_m_gate(s->kind, tn_decode_get_(w, 1, i)));
        else if (s->op == TN_DECODE_UNARY) tn_decode_put_(w, 0, i, tn_m_unary(s, x));
        else tn_decode_put_(w, 0, i, tn_m_binary(s->kind, x, tn_decode_get_(w, 1, i / s->m % s->k)));
    }
}

/* A block takes 8 columns of a head at a time. */
static inline void tn_m_outer(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    const int64_t N = s->k, P = s->m, parts = (P + 7) / 8;
    const bool fresh = tn_m_fresh(w, 4, 5);
    for (int64_t u = w->block; u < s->n * parts; u += w->m->blocks) {
        const int64_t h = u / parts;
        const double alpha = tn_decode_get_(w, 3, h), raw = tn_decode_or_(w, 6, h, 1);
        const double decay = fresh ? 0 : exp(s->kind ? -tn_m_softplus(alpha) : alpha),
                     write = s->kind && s->in[6] ? tn_m_sigmoid(raw) : raw;
        for (int64_t p = u % parts * 8; p < P && p < u % parts * 8 + 8; p++) {
            double sum = 0;
            for (int64_t n = 0; n < N; n++) {
                const int64_t at = (h * N + n) * P + p;
                const double now = tn_decode_get_(w, 1, h * N + n) * tn_decode_get_(w, 2, h * P + p) * write +
                                   (fresh ? 0 : decay * tn_decode_far_(w, 4, at));
                sum += tn_decode_get_(w, 0, h * N + n) * now;
                tn_decode_put_(w, 1, at, now);
            }
            tn_decode_put_(w, 0, h * P + p, sum);
            tn_decode_message_(w, h * P + p, sum);
        }
    }
}

static inline void tn_m_copy(const tn_decode_worker *w)
{
    const tn_m_part p = tn_m_own(w->m, w->s->n, w->block);
    for (int64_t i = p.first; i < p.end; i++) tn_decode_put_(w, 0, i, tn_decode_get_(w, 0, i));
}

static inline void tn_m_rope(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    const int64_t pairs = s->k / 2;
    const bool mixed = s->kind & 1;
    assert_true(pairs <= TN_DECODE_ANGLES);
    if (!(s->flags & TN_DECODE_SAME)) {
        const double position = s->in[1] ? tn_decode_integer_(w, 1) : 0;
        for (int j = 0; j < pairs; j++) w->m->known[w->block].angle[j] = position * tn_decode_frequency(s, j);
        w->m->known[w->block].amplitude = tn_decode_amplitude(s);
    }
    for (int64_t i = 0; i < s->n * pairs; i++) {
        const int64_t j = i % pairs, p = i / pairs * s->k + (mixed ? 2 * j : j), q = mixed ? p + 1 : p + pairs;
        const double angle = w->m->known[w->block].angle[j], amplitude = w->m->known[w->block].amplitude;
        const double a = amplitude * tn_decode_get_(w, 0, p), b = amplitude * tn_decode_get_(w, 0, q);
        tn_decode_put_(w, 0, p, a * cos(angle) - b * sin(angle));
        tn_decode_put_(w, 0, q, b * cos(angle) + a * sin(angle));
    }
}

static inline void tn_m_place(const tn_decode_worker *w)
{
    const int64_t given = tn_decode_integer_known_(w, 1, &w->m->known[w->block].place), row = given < 0 ? 0
                                                                                              : given < w->s->k
                                                                                                  ? given
                                                                                                  : w->s->k - 1;
    for (int64_t i = 0; i < w->s->n; i++) {
        const int64_t m = w->s->m;
        tn_decode_put_(w, 0, (i / m * w->s->k + row) * m + i % m, row == given ? tn_decode_get_(w, 0, i) : (double)NAN);
    }
}

static inline void tn_m_best_parts(const tn_decode_worker *w)
{
    double *best = w->m->best[w->s->kind][w->block];
    const tn_m_part p = tn_m_own(w->m, w->s->n, w->block);
    best[0] = -(double)INFINITY, best[1] = INT32_MAX;
    for (int64_t i = p.first; i < p.end; i++) {
        const double x = tn_decode_get_(w, 0, i);
        if (best[1] < 0 || !(x != x || x > best[0] || (x == best[0] && (double)i < best[1]))) continue;
        best[0] = x, best[1] = x == x ? (double)i : -1;
    }
}

static inline void tn_m_best(const tn_decode_worker *w)
{
    double x = -(double)INFINITY, at = INT32_MAX;
    for (int b = 0; b < w->m->blocks && at >= 0; b++) {
        const double *best = w->m->best[w->s->kind][b];
        if (best[1] < 0 || best[0] > x || (best[0] == x && best[1] < at)) x = best[0], at = best[1];
    }
    if (w->writes) *(int32_t *)w->s->out[0] = (int32_t)at;
}

/* --- attention --------------------------------------------------------------------------------------------------------------- */

static inline int tn_m_parts(const tn_decode_worker *w)
{
    return w->m->blocks / w->s->n > 1 ? w->m->blocks / w->s->n : 1;
}

/* A part of the keys of head h. */
static inline void tn_m_look(const tn_decode_worker *w, int h, int64_t first, int64_t end, double *to)
{
    const tn_decode_step *s = w->s;
    const int64_t D = s->m, base = (int64_t)(h * s->j / s->n) * s->k * D;
    to[0] = -(double)INFINITY;
    for (int64_t i = 1; i < D + 2; i++) to[i] = 0;
    for (int64_t j = first; j < end; j++) {
        double x = 0;
        for (int64_t d = 0; d < D; d++)
            x += (double)s->a * tn_decode_get_(w, 0, h * D + d) * tn_decode_far_(w, 1, base + j * D + d);
        const double most = x > to[0] ? x : to[0], old = exp(to[0] - most), p = exp(x - most);
        to[0] = most;
        to[1] = to[1] * old + p;
        for (int64_t d = 0; d < D; d++) to[2 + d] = to[2 + d] * old + p * tn_decode_far_(w, 2, base + j * D + d);
    }
}

static inline void tn_m_seen(const tn_decode_worker *w)
{
    const tn_decode_step *s = w->s;
    const int parts = tn_m_parts(w),
              given = s->in[3] ? tn_decode_integer_known_(w, 3, &w->m->known[w->block].seen) : s->k;
    const int64_t begin = s->b > 0 && given > (int)s->b ? given - (int)s->b : 0, count = given - begin;
    assert_true((int64_t)s->n * parts * (s->m + 2) <= TN_DECODE_MACHINE_SEEN && s->m % 8 == 0 && given <= s->k);
    for (int u = w->block; u < s->n * parts; u += w->m->blocks)
        tn_m_look(w, u / parts, begin + count * (u % parts) / parts, begin + count * (u % parts + 1) / parts,
                  w->m->seen[s->kind] + (int64_t)u * (s->m + 2));
}

static inline void tn_m_seen_all(const tn_decode_worker *w)
{
    const int parts = tn_m_parts(w), size = w->s->m + 2;
    for (int i = 0; i < w->s->n * w->s->m; i++) {
        const double *head = w->m->seen[w->s->kind] + (int64_t)(i / w->s->m * parts) * size;
        double most = head[0], sum = 0, y = 0;
        for (int c = 1; c < parts; c++) most = head[c * size] > most ? head[c * size] : most;
        for (int c = 0; c < parts; c++) {
            sum += exp(head[c * size] - most) * head[c * size + 1];
            y += exp(head[c * size] - most) * head[c * size + 2 + i % w->s->m];
        }
        tn_decode_put_(w, 0, i, y / sum);
    }
}

/* --- the machine ------------------------------------------------------------------------------------------------------------ */

static inline bool tn_m_has_come(const tn_decode_machine *m, const tn_decode_step *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->message[i] >> 32 != m->epoch) return false;
    return true;
}

static inline void tn_m_take_message(const tn_decode_worker *w)
{
    assert_int_equal(w->s->out_slot[0] % 4, 0);
    for (int i = 0; i < w->s->n; i++) {
        const uint32_t bits = (uint32_t)w->s->message[i];
        memcpy(w->slots + w->s->out_slot[0] + i, &bits, sizeof bits);
    }
}

static inline void tn_m_step(tn_decode_machine *m, int block, int i)
{
    static void (*const run[TN_DECODE_OPS])(const tn_decode_worker *) = {
        [TN_DECODE_EMBED] = tn_m_embed,        [TN_DECODE_NORM] = tn_m_norm,
        [TN_DECODE_LINEAR] = tn_m_linear,      [TN_DECODE_CONV] = tn_m_conv,
        [TN_DECODE_SCAN] = tn_m_scan,          [TN_DECODE_READOUT] = tn_m_readout,
        [TN_DECODE_GATE] = tn_m_elementwise,   [TN_DECODE_UNARY] = tn_m_elementwise,
        [TN_DECODE_BINARY] = tn_m_elementwise, [TN_DECODE_OUTER] = tn_m_outer,
        [TN_DECODE_COPY] = tn_m_copy,          [TN_DECODE_ROPE] = tn_m_rope,
        [TN_DECODE_PUT] = tn_m_place,          [TN_DECODE_BEST_PARTS] = tn_m_best_parts,
        [TN_DECODE_BEST] = tn_m_best,          [TN_DECODE_SEEN] = tn_m_seen,
        [TN_DECODE_SEEN_ALL] = tn_m_seen_all,  [TN_DECODE_FETCH] = tn_m_take_message,
    };
    const tn_decode_step *s = &m->p->step[i];
    if (i && s[-1].op == TN_DECODE_LINEAR && s[-1].flags & TN_DECODE_JOINED) return; /* done */
    const bool writes = (s->flags & TN_DECODE_SHARED) || s->op == TN_DECODE_PUT || i % m->blocks == block;
    run[s->op](&(tn_decode_worker){ m, s, block, m->slots + (int64_t)block * m->p->slot_floats, writes });
}

static inline bool tn_m_can_go_on(const tn_decode_machine *m, int block)
{
    const int i = m->at[block];
    if (i == m->p->n) return false;
    const tn_decode_step *s = &m->p->step[i];
    for (int b = 0; s->flags & TN_DECODE_BARRIER && b < m->blocks; b++)
        if (m->at[b] < i) return false;
    return s->op != TN_DECODE_FETCH || tn_m_has_come(m, s);
}

static inline int tn_m_draw(tn_decode_machine *m, int n)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((m->seed >> 33) % (uint64_t)n);
}

/* Some block that can go on, or -1: none. */
static inline int tn_m_next(tn_decode_machine *m)
{
    const int first = tn_m_draw(m, m->blocks);
    for (int k = 0; k < m->blocks; k++)
        if (tn_m_can_go_on(m, (first + k) % m->blocks)) return (first + k) % m->blocks;
    return -1;
}

/* Runs the whole program in the memory that it names; *seed goes on from program to program. */
static inline void tn_decode_simulate(const tn_decode_program *p, int blocks, uint64_t *seed)
{
    tn_decode_machine m = { .p = p, .blocks = blocks, .seed = *seed, .epoch = p->barrier[2] + 1 };
    const size_t slot_bytes = sizeof(float) * (size_t)(blocks * p->slot_floats);
    assert_true(blocks <= TN_DECODE_MACHINE_BLOCKS);
    m.slots = malloc(slot_bytes + 1);
    assert_non_null(m.slots);
    for (int j = 0; j < p->staged_n; j++) {
        const tn_decode_step *s = &p->step[p->staged[j]];
        const size_t bytes = sizeof(float) * (size_t)s->n * (size_t)s->k;
        m.stage[p->staged[j]] = malloc(bytes);
        assert_non_null(m.stage[p->staged[j]]);
        memcpy(m.stage[p->staged[j]], s->in[1], bytes);
    }
    memset(m.slots, 0xff, slot_bytes); /* NaN */
    for (int i = 0; i < TN_DECODE_MACHINE_SEEN; i++) m.seen[0][i] = m.seen[1][i] = (double)NAN;
    for (int b = 0; b < blocks; b++) {
        for (int k = 0; k < 4; k++) m.best[k / 2][b][k % 2] = (double)NAN;
    }
    for (int b; (b = tn_m_next(&m)) >= 0;) /* one step, or many: some blocks are far ahead of others */
        for (int steps = 1 << tn_m_draw(&m, 9); steps > 0 && tn_m_can_go_on(&m, b); steps--)
            tn_m_step(&m, b, m.at[b]++);
    for (int b = 0; b < blocks; b++)
        if (m.at[b] < p->n) fail_msg("block %d waits at step %d of %d for ever", b, m.at[b], p->n);
    p->barrier[2] = m.epoch;
    *seed = m.seed;
    free(m.slots);
    for (int i = 0; i < p->n; i++) free(m.stage[i]);
}

#endif
