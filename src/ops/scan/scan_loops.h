/* The inner loops of scan_core.c: a few tokens of a few channels, states in registers from token to token. Channels come
 * in whole units of four: callers pad. No documents, no tiles, no tails here.
 *
 * Where lambda's phase is fixed a piece is run in f32 from zero (local), and every output is local + lambda^m carry. The
 * carry, what enters the piece, is double and meets double powers: f32's error never lives longer than a piece, and
 * conversions, which cost more than the arithmetic, happen once a piece. Where every lambda forgets within a few hundred
 * tokens (coef.brief) f32's error is forgotten with the rest: the state itself goes through a piece in f32, at half the
 * arithmetic. Where the phase is not fixed, states and lambda are double. */
#ifndef TN_OPS_SCAN_LOOPS_H
#define TN_OPS_SCAN_LOOPS_H

#include "backend/cpu/vmath.h"
#include "ops/scan/scan_core.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

/* A state or an adjoint of one block of channels. Whole lines of the cache: on Neoverse-N1 a forward scan
 * whose states were aligned to 16 bytes ran at half the speed (23 against 12 GB/s; stores of part of a line may end the
 * core's streaming of results, which was not proved). */
typedef struct tn_scan_numbers {
    _Alignas(64) double re[TN_SCAN_W], im[TN_SCAN_W];
} tn_scan_numbers;

/* Tokens of a block in a tensor (B,T,2K), or a padded copy of them. */
typedef struct tn_scan_planes {
    float *at;        /* real part of the first token's first channel; NULL: not there */
    int64_t step, im; /* to the next token; to the imaginary part */
} tn_scan_planes;

enum { TN_SCAN_GROUP = 4 }; /* units side by side: chains of dependent operations that run at once */

typedef double tn_two __attribute__((vector_size(16)));
typedef float tn_half __attribute__((vector_size(16))); /* four channels in f32 */
typedef struct tn_four {
    tn_two lo, hi;
} tn_four;

TN_INLINE tn_half tn_half_load(const float *p)
{
    tn_half x;
    memcpy(&x, p, sizeof x);
    return x;
}

TN_INLINE void tn_half_store(float *p, tn_half x) { memcpy(p, &x, sizeof x); }

#if defined(__aarch64__) /* gcc 12 converts floats one by one unless told the instruction */
TN_INLINE tn_four tn_widen(tn_half x) { return (tn_four){ vcvt_f64_f32(vget_low_f32(x)), vcvt_high_f64_f32(x) }; }

TN_INLINE tn_half tn_narrow(tn_four x) { return vcvt_high_f32_f64(vcvt_f32_f64(x.lo), x.hi); }
#else
TN_INLINE tn_four tn_widen(tn_half x)
{
    return (tn_four){ { (double)x[0], (double)x[1] }, { (double)x[2], (double)x[3] } };
}

TN_INLINE tn_half tn_narrow(tn_four x)
{
    return (tn_half){ (float)x.lo[0], (float)x.lo[1], (float)x.hi[0], (float)x.hi[1] };
}
#endif

/* A half at a time: copied whole, gcc 12 takes it through the stack. */
TN_INLINE tn_four tn_four_load(const double *p)
{
    tn_four x;
    memcpy(&x.lo, p, sizeof x.lo);
    memcpy(&x.hi, p + 2, sizeof x.hi);
    return x;
}

TN_INLINE void tn_four_store(double *p, tn_four x)
{
    memcpy(p, &x.lo, sizeof x.lo);
    memcpy(p + 2, &x.hi, sizeof x.hi);
}

TN_INLINE tn_four tn_add4(tn_four a, tn_four b) { return (tn_four){ a.lo + b.lo, a.hi + b.hi }; }

TN_INLINE tn_four tn_mul4(tn_four a, tn_four b) { return (tn_four){ a.lo * b.lo, a.hi * b.hi }; }

/* c + a b and c - a b, fused where the machine can. */
TN_INLINE tn_four tn_more4(tn_four c, tn_four a, tn_four b)
{
    return (tn_four){ c.lo + a.lo * b.lo, c.hi + a.hi * b.hi };
}

TN_INLINE tn_four tn_less4(tn_four c, tn_four a, tn_four b)
{
    return (tn_four){ c.lo - a.lo * b.lo, c.hi - a.hi * b.hi };
}

/* --- lambda per token: all in double ---------------------------------------------------------------------------------- */

/* Four channels on their way through the tokens: state (or adjoint) and lambda. */
typedef struct tn_scan_unit {
    tn_four re, im, lr, li;
} tn_scan_unit;

TN_INLINE void tn_scan_lambda(tn_scan_unit *v, const tn_scan_coef *q, int64_t i, int64_t k)
{
    v->lr = tn_four_load(q->lr + i * TN_SCAN_W + k);
    v->li = tn_four_load(q->li + i * TN_SCAN_W + k);
}

TN_INLINE tn_scan_unit tn_scan_unit_load(const tn_scan_numbers *s, int64_t k)
{
    return (tn_scan_unit){ .re = tn_four_load(s->re + k), .im = tn_four_load(s->im + k) };
}

TN_INLINE void tn_scan_unit_store(tn_scan_numbers *s, int64_t k, const tn_scan_unit *v)
{
    tn_four_store(s->re + k, v->re);
    tn_four_store(s->im + k, v->im);
}

/* What a loop over a piece's tokens may take for granted. */
typedef struct tn_scan_form {
    bool grown; /* coef.u is there */
    bool gain;
    bool write; /* the planes written are there */
    bool brief; /* coef.brief, and neither grown nor local */
} tn_scan_form;

/* Token i, channels k..k+3: s = lambda s + gain x, c = s. */
TN_INLINE void tn_scan_step(tn_scan_unit *v, const tn_scan_coef *q, int64_t i, int64_t k, tn_scan_planes x,
                            tn_scan_planes c, tn_scan_form is)
{
    const float *from = x.at + i * x.step + k;
    tn_half xr = tn_half_load(from), xi = tn_half_load(from + x.im);
    if (is.gain) {
        const tn_half g = tn_half_load(q->gain + i * q->gain_step + k);
        xr *= g;
        xi *= g;
    }
    tn_scan_lambda(v, q, i, k);
    const tn_four r = tn_less4(tn_more4(tn_widen(xr), v->lr, v->re), v->li, v->im);
    v->im = tn_more4(tn_more4(tn_widen(xi), v->lr, v->im), v->li, v->re);
    v->re = r;
    if (!is.write) return;
    float *to = c.at + i * c.step + k;
    tn_half_store(to, tn_narrow(v->re));
    tn_half_store(to + c.im, tn_narrow(v->im));
}

/* Token i backwards: a = dc + g, rounded into `a`, then g = conj(lambda) a. */
TN_INLINE void tn_scan_step_back(tn_scan_unit *v, const tn_scan_coef *q, int64_t i, int64_t k, tn_scan_planes dc,
                                 tn_scan_planes a, tn_scan_form is)
{
    const float *from = dc.at + i * dc.step + k;
    const tn_four ar = tn_add4(v->re, tn_widen(tn_half_load(from)));
    const tn_four ai = tn_add4(v->im, tn_widen(tn_half_load(from + dc.im)));
    tn_scan_lambda(v, q, i, k);
    v->re = tn_more4(tn_mul4(v->lr, ar), v->li, ai);
    v->im = tn_less4(tn_mul4(v->lr, ai), v->li, ar);
    if (!is.write) return;
    float *to = a.at + i * a.step + k;
    tn_half_store(to, tn_narrow(ar));
    tn_half_store(to + a.im, tn_narrow(ai));
}

/* n tokens of all channels; two units at a time, so that two chains of dependent operations run side by side. */
TN_INLINE void tn_scan_advance(tn_scan_numbers *restrict s, const tn_scan_coef *restrict q, int64_t width, int64_t n,
                               tn_scan_planes x, tn_scan_planes c, tn_scan_form is)
{
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) {
        tn_scan_unit v = tn_scan_unit_load(s, k), w = tn_scan_unit_load(s, k + 4);
        for (int64_t i = 0; i < n; i++) {
            tn_scan_step(&v, q, i, k, x, c, is);
            tn_scan_step(&w, q, i, k + 4, x, c, is);
        }
        tn_scan_unit_store(s, k, &v);
        tn_scan_unit_store(s, k + 4, &w);
    }
    if (k == width) return;
    tn_scan_unit v = tn_scan_unit_load(s, k);
    for (int64_t i = 0; i < n; i++) tn_scan_step(&v, q, i, k, x, c, is);
    tn_scan_unit_store(s, k, &v);
}

TN_INLINE void tn_scan_retreat(tn_scan_numbers *restrict g, const tn_scan_coef *restrict q, int64_t width, int64_t n,
                               tn_scan_planes dc, tn_scan_planes a, tn_scan_form is)
{
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) {
        tn_scan_unit v = tn_scan_unit_load(g, k), w = tn_scan_unit_load(g, k + 4);
        for (int64_t i = n - 1; i >= 0; i--) {
            tn_scan_step_back(&v, q, i, k, dc, a, is);
            tn_scan_step_back(&w, q, i, k + 4, dc, a, is);
        }
        tn_scan_unit_store(g, k, &v);
        tn_scan_unit_store(g, k + 4, &w);
    }
    if (k == width) return;
    tn_scan_unit v = tn_scan_unit_load(g, k);
    for (int64_t i = n - 1; i >= 0; i--) tn_scan_step_back(&v, q, i, k, dc, a, is);
    tn_scan_unit_store(g, k, &v);
}

/* --- fixed phase: f32 within a piece, double between pieces --------------------------------------------------------- */

/* Four channels: the local state (or adjoint), lambda, the carry in f32, and, where lambda grows, the product of all
 * (1 + u) so far, less 1. */
typedef struct tn_scan_lane {
    tn_half re, im, lr, li, cr, ci, w;
} tn_scan_lane;

TN_INLINE tn_scan_lane tn_scan_lane_load(const tn_scan_numbers *s, const tn_scan_coef *q, int64_t k)
{
    return (tn_scan_lane){ .lr = tn_half_load(q->power_re + q->power_step + k),
                           .li = tn_half_load(q->power_im + q->power_step + k),
                           .cr = tn_narrow(tn_four_load(s->re + k)),
                           .ci = tn_narrow(tn_four_load(s->im + k)) };
}

/* power carry + local: four channels of a carry after a piece. */
TN_INLINE void tn_scan_carried(tn_half local_re, tn_half local_im, tn_four pr, tn_four pi, tn_four re, tn_four im,
                               tn_four *to_re, tn_four *to_im)
{
    *to_re = tn_less4(tn_more4(tn_widen(local_re), pr, re), pi, im);
    *to_im = tn_more4(tn_more4(tn_widen(local_im), pr, im), pi, re);
}

/* The carry after n tokens: lambda^n carry + local; sign -1 for conj(lambda). */
TN_INLINE void tn_scan_carry_unit(const tn_scan_numbers *s, const tn_scan_lane *v, const tn_scan_coef *q, int64_t n,
                                  int64_t k, double sign, bool grown, tn_four *to_re, tn_four *to_im)
{
    const tn_four one = { { 1, 1 }, { 1, 1 } }, turn = { { sign, sign }, { sign, sign } };
    tn_four pr = tn_four_load(q->wide_re + n * q->power_step + k),
            pi = tn_four_load(q->wide_im + n * q->power_step + k);
    const tn_four re = tn_four_load(s->re + k), im = tn_four_load(s->im + k);
    pi = tn_mul4(pi, turn);
    if (grown) {
        const tn_four rho = tn_add4(one, tn_widen(v->w));
        pr = tn_mul4(pr, rho);
        pi = tn_mul4(pi, rho);
    }
    tn_scan_carried(v->re, v->im, pr, pi, re, im, to_re, to_im);
}

/* The carries of a group, real parts first. */
TN_INLINE void tn_scan_carry(tn_scan_numbers *s, const tn_scan_lane *v, int lanes, const tn_scan_coef *q, int64_t n,
                             int64_t k, double sign, bool grown)
{
    tn_four re[TN_SCAN_GROUP], im[TN_SCAN_GROUP];
    TN_UNROLL
    for (int l = 0; l < lanes; l++) tn_scan_carry_unit(s, &v[l], q, n, k + 4 * l, sign, grown, &re[l], &im[l]);
    TN_UNROLL
    for (int l = 0; l < lanes; l++) tn_four_store(s->re + k + 4 * l, re[l]);
    TN_UNROLL
    for (int l = 0; l < lanes; l++) tn_four_store(s->im + k + 4 * l, im[l]);
}

/* The state itself went through the piece. */
TN_INLINE void tn_scan_carry_brief(tn_scan_numbers *s, const tn_scan_lane *v, int lanes, int64_t k)
{
    TN_UNROLL
    for (int l = 0; l < lanes; l++) tn_four_store(s->re + k + 4 * l, tn_widen(v[l].re));
    TN_UNROLL
    for (int l = 0; l < lanes; l++) tn_four_store(s->im + k + 4 * l, tn_widen(v[l].im));
}

/* lambda^m of a lane. */
TN_INLINE void tn_scan_power(const tn_scan_lane *v, const tn_scan_coef *q, int64_t m, int64_t k, bool grown,
                             tn_half *re, tn_half *im)
{
    *re = tn_half_load(q->power_re + m * q->power_step + k);
    *im = tn_half_load(q->power_im + m * q->power_step + k);
    if (!grown) return;
    const tn_half rho = 1.0f + v->w;
    *re *= rho;
    *im *= rho;
}

/* lambda of token i into (lr, li); w takes it up. */
TN_INLINE void tn_scan_grow(tn_scan_lane *v, const tn_scan_coef *q, int64_t i, int64_t k, tn_half *lr, tn_half *li)
{
    const tn_half u = tn_half_load(q->u + i * TN_SCAN_W + k);
    *lr = v->lr + u * v->lr;
    *li = v->li + u * v->li;
    v->w += u + u * v->w;
}

/* Token i, channels k..k+3: local = lambda local + gain x; (re, im) = local + lambda^(i+1) carry where it is written. */
TN_INLINE void tn_scan_lane_step(tn_scan_lane *v, const tn_scan_coef *q, int64_t i, int64_t k, tn_scan_planes x,
                                 tn_scan_form is, tn_half *re, tn_half *im)
{
    const float *from = x.at + i * x.step + k;
    tn_half xr = tn_half_load(from), xi = tn_half_load(from + x.im), lr = v->lr, li = v->li, pr, pi;
    if (is.gain) {
        const tn_half g = tn_half_load(q->gain + i * q->gain_step + k);
        xr *= g;
        xi *= g;
    }
    if (is.grown) tn_scan_grow(v, q, i, k, &lr, &li);
    xr += lr * v->re;
    xi += lr * v->im;
    xr -= li * v->im;
    xi += li * v->re;
    v->re = xr;
    v->im = xi;
    if (!is.write) return;
    *re = xr;
    *im = xi;
    if (is.brief) return;
    tn_scan_power(v, q, i + 1, k, is.grown, &pr, &pi);
    *re = (xr + pr * v->cr) - pi * v->ci;
    *im = (xi + pr * v->ci) + pi * v->cr;
}

/* Backwards: al = dc + local, a = al + conj(lambda of all later tokens) carry, local = conj(lambda) al. */
TN_INLINE void tn_scan_lane_back(tn_scan_lane *v, const tn_scan_coef *q, int64_t i, int64_t n, int64_t k,
                                 tn_scan_planes dc, tn_scan_planes a, tn_scan_form is)
{
    const float *from = dc.at + i * dc.step + k;
    const tn_half ar = v->re + tn_half_load(from), ai = v->im + tn_half_load(from + dc.im);
    tn_half lr = v->lr, li = v->li, pr, pi;
    if (is.write) {
        float *to = a.at + i * a.step + k;
        tn_scan_power(v, q, n - 1 - i, k, is.grown, &pr, &pi);
        tn_half_store(to, (ar + pr * v->cr) + pi * v->ci);
        tn_half_store(to + a.im, (ai + pr * v->ci) - pi * v->cr);
    }
    if (is.grown) tn_scan_grow(v, q, i, k, &lr, &li);
    v->re = lr * ar + li * ai;
    v->im = lr * ai - li * ar;
}

/* Asks for token i of the next piece (way 1) or the one before (way -1): tokens of wide rows lie too far apart for the
 * hardware to guess. The address may lie outside the tensor. */
TN_INLINE void tn_scan_fetch(tn_scan_planes p, int64_t i, int64_t k, int way)
{
    const uintptr_t at = (uintptr_t)p.at + sizeof(float) * (uintptr_t)((i + way * TN_SCAN_N) * p.step + k);
    __builtin_prefetch((const void *)at);
    __builtin_prefetch((const void *)(at + sizeof(float) * (uintptr_t)p.im));
}

TN_INLINE void tn_scan_start_brief(tn_scan_lane *v)
{
    v->re = v->cr;
    v->im = v->ci;
}

/* n tokens of `lanes` times four channels. Real parts are stored together and imaginary parts after them: a line of the
 * cache that is filled at once need not be read from memory first. */
TN_INLINE void tn_scan_lanes_forward(tn_scan_numbers *restrict s, const tn_scan_coef *restrict q, int64_t k, int lanes,
                                     int64_t n, tn_scan_planes x, tn_scan_planes c, tn_scan_form is)
{
    tn_scan_lane v[TN_SCAN_GROUP];
    tn_half im[TN_SCAN_GROUP];
    TN_UNROLL
    for (int l = 0; l < lanes; l++) {
        v[l] = tn_scan_lane_load(s, q, k + 4 * l);
        if (is.brief) tn_scan_start_brief(&v[l]);
    }
    for (int64_t i = 0; i < n; i++) {
        tn_scan_fetch(x, i, k, 1);
        TN_UNROLL
        for (int l = 0; l < lanes; l++) {
            tn_half re;
            tn_scan_lane_step(&v[l], q, i, k + 4 * l, x, is, &re, &im[l]);
            if (is.write) tn_half_store(c.at + i * c.step + k + 4 * l, re);
        }
        if (!is.write) continue;
        TN_UNROLL
        for (int l = 0; l < lanes; l++) tn_half_store(c.at + i * c.step + c.im + k + 4 * l, im[l]);
    }
    if (is.brief) tn_scan_carry_brief(s, v, lanes, k);
    else tn_scan_carry(s, v, lanes, q, n, k, 1, is.grown);
}

/* Groups of 16 channels (8 where lambda grows: there are no registers for more), then units. */
TN_INLINE void tn_scan_lanes_advance(tn_scan_numbers *restrict s, const tn_scan_coef *restrict q, int64_t width,
                                     int64_t n, tn_scan_planes x, tn_scan_planes c, tn_scan_form is)
{
    const int lanes = is.grown ? TN_SCAN_GROUP / 2 : TN_SCAN_GROUP;
    int64_t k = 0;
    for (; k + 4 * lanes <= width; k += 4 * lanes) tn_scan_lanes_forward(s, q, k, lanes, n, x, c, is);
    for (; k < width; k += 4) tn_scan_lanes_forward(s, q, k, 1, n, x, c, is);
}

TN_INLINE void tn_scan_lanes_retreat(tn_scan_numbers *restrict g, const tn_scan_coef *restrict q, int64_t width,
                                     int64_t n, tn_scan_planes dc, tn_scan_planes a, tn_scan_form is)
{
    int64_t k = 0;
    for (; k + 8 <= width; k += 8) {
        tn_scan_lane v[2] = { tn_scan_lane_load(g, q, k), tn_scan_lane_load(g, q, k + 4) };
        for (int64_t i = n - 1; i >= 0; i--) {
            tn_scan_lane_back(&v[0], q, i, n, k, dc, a, is);
            tn_scan_lane_back(&v[1], q, i, n, k + 4, dc, a, is);
        }
        tn_scan_carry(g, v, 2, q, n, k, -1, is.grown);
    }
    if (k == width) return;
    tn_scan_lane v = tn_scan_lane_load(g, q, k);
    for (int64_t i = n - 1; i >= 0; i--) tn_scan_lane_back(&v, q, i, n, k, dc, a, is);
    tn_scan_carry(g, &v, 1, q, n, k, -1, is.grown);
}

/* --- lambda and gain per channel: the whole reverse in one pass ------------------------------------------------------ */

/* What the reverse of a piece reads and writes; `at` is NULL where something is not there. */
typedef struct tn_scan_reverse {
    tn_scan_planes dc, c, before, x, dx; /* before: c ahead of the piece's first token */
} tn_scan_reverse;

typedef struct tn_scan_reverse_form {
    bool gain, dx, add, m, e; /* add: dx is added to; m and e: the sums wanted, as in tn_scan_found */
    bool brief;               /* coef.brief */
} tn_scan_reverse_form;

/* Sums of a block over a tile: m (re, im) and e. */
typedef struct tn_scan_sums {
    _Alignas(64) double row[TN_SCAN_SUMS][TN_SCAN_W];
} tn_scan_sums;

/* Sums of one unit over a piece. */
typedef struct tn_scan_unit_sums {
    tn_half mr, mi, e;
} tn_scan_unit_sums;

/* Token i backwards: the adjoint (see tn_scan_lane_back) and all that it gives, none of it stored but dx. */
TN_INLINE void tn_scan_reverse_step(tn_scan_lane *v, tn_scan_unit_sums *sum, const tn_scan_coef *q, int64_t i,
                                    int64_t n, int64_t k, const tn_scan_reverse *r, tn_scan_reverse_form is,
                                    tn_half *re, tn_half *im)
{
    const float *from = r->dc.at + i * r->dc.step + k;
    const tn_half lr = v->re + tn_half_load(from), li = v->im + tn_half_load(from + r->dc.im);
    tn_half ar = lr, ai = li, pr, pi;
    v->re = v->lr * lr + v->li * li;
    v->im = v->lr * li - v->li * lr;
    if (!is.brief) {
        tn_scan_power(v, q, n - 1 - i, k, false, &pr, &pi);
        ar += pr * v->cr;
        ai += pr * v->ci;
        ar += pi * v->ci;
        ai -= pi * v->cr;
    }
    const float *c = i > 0 ? r->c.at + (i - 1) * r->c.step + k : r->before.at + k;
    if (is.m && (i > 0 || r->before.at)) {
        const tn_half cr = tn_half_load(c), ci = tn_half_load(c + (i > 0 ? r->c.im : r->before.im));
        sum->mr += ar * cr;
        sum->mi += ai * cr;
        sum->mr += ai * ci;
        sum->mi -= ar * ci;
    }
    if (is.e) {
        const float *x = r->x.at + i * r->x.step + k;
        sum->e += ar * tn_half_load(x);
        sum->e += ai * tn_half_load(x + r->x.im);
    }
    if (is.gain) {
        const tn_half g = tn_half_load(q->gain + k);
        ar *= g;
        ai *= g;
    }
    *re = ar;
    *im = ai;
}

TN_INLINE void tn_scan_put(float *to, tn_half x, bool add) { tn_half_store(to, add ? x + tn_half_load(to) : x); }

TN_INLINE void tn_scan_sum_up(double *sum, tn_half x) { tn_four_store(sum, tn_add4(tn_four_load(sum), tn_widen(x))); }

/* n tokens of `lanes` times four channels; the sums over the piece in f32, then to the doubles. */
TN_INLINE void tn_scan_lanes_reverse(tn_scan_numbers *restrict g, const tn_scan_coef *restrict q, int64_t k, int lanes,
                                     int64_t n, const tn_scan_reverse *r, tn_scan_sums *restrict sums,
                                     tn_scan_reverse_form is)
{
    tn_scan_lane v[TN_SCAN_GROUP];
    tn_scan_unit_sums sum[TN_SCAN_GROUP] = { { { 0 }, { 0 }, { 0 } } };
    tn_half im[TN_SCAN_GROUP];
    TN_UNROLL
    for (int l = 0; l < lanes; l++) {
        v[l] = tn_scan_lane_load(g, q, k + 4 * l);
        if (is.brief) tn_scan_start_brief(&v[l]);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        tn_scan_fetch(r->dc, i, k, -1);
        if (is.m) tn_scan_fetch(r->c, i, k, -1);
        if (is.e) tn_scan_fetch(r->x, i, k, -1);
        TN_UNROLL
        for (int l = 0; l < lanes; l++) {
            tn_half re;
            tn_scan_reverse_step(&v[l], &sum[l], q, i, n, k + 4 * l, r, is, &re, &im[l]);
            if (is.dx) tn_scan_put(r->dx.at + i * r->dx.step + k + 4 * l, re, is.add);
        }
        if (!is.dx) continue;
        TN_UNROLL
        for (int l = 0; l < lanes; l++) tn_scan_put(r->dx.at + i * r->dx.step + r->dx.im + k + 4 * l, im[l], is.add);
    }
    if (is.brief) tn_scan_carry_brief(g, v, lanes, k);
    else tn_scan_carry(g, v, lanes, q, n, k, -1, false);
    TN_UNROLL
    for (int l = 0; l < lanes; l++)
        if (is.m) tn_scan_sum_up(sums->row[0] + k + 4 * l, sum[l].mr);
    TN_UNROLL
    for (int l = 0; l < lanes; l++)
        if (is.m) tn_scan_sum_up(sums->row[1] + k + 4 * l, sum[l].mi);
    TN_UNROLL
    for (int l = 0; l < lanes; l++)
        if (is.e) tn_scan_sum_up(sums->row[2] + k + 4 * l, sum[l].e);
}

TN_INLINE void tn_scan_reverse_piece(tn_scan_numbers *restrict g, const tn_scan_coef *restrict q, int64_t width,
                                     int64_t n, const tn_scan_reverse *r, tn_scan_sums *restrict sums,
                                     tn_scan_reverse_form is)
{
    int64_t k = 0;
    for (; k + 4 * TN_SCAN_GROUP <= width; k += 4 * TN_SCAN_GROUP)
        tn_scan_lanes_reverse(g, q, k, TN_SCAN_GROUP, n, r, sums, is);
    for (; k < width; k += 4) tn_scan_lanes_reverse(g, q, k, 1, n, r, sums, is);
}

/* --- after the adjoints ---------------------------------------------------------------------------------------------- */

/* One token in f32: dx = gain a, or dx += gain a. */
TN_INLINE void tn_scan_write_dx(float *restrict dx, int64_t dx_im, const float *restrict a, int64_t a_im,
                                const float *restrict gain, int64_t width, bool add)
{
    for (int64_t k = 0; k < width; k++) {
        const float re = gain ? gain[k] * a[k] : a[k], im = gain ? gain[k] * a[a_im + k] : a[a_im + k];
        dx[k] = add ? re + dx[k] : re;
        dx[dx_im + k] = add ? im + dx[dx_im + k] : im;
    }
}

/* m = a conj(c_{t-1}) */
TN_INLINE void tn_scan_write_m(float *restrict mr, float *restrict mi, const float *restrict a, int64_t a_im,
                               const float *restrict c, int64_t c_im, int64_t width)
{
    for (int64_t k = 0; k < width; k++) {
        mr[k] = a[k] * c[k] + a[a_im + k] * c[c_im + k];
        mi[k] = a[a_im + k] * c[k] - a[k] * c[c_im + k];
    }
}

/* e = Re(a conj(x)) */
TN_INLINE void tn_scan_write_e(float *restrict e, const float *restrict a, int64_t a_im, const float *restrict x,
                               int64_t x_im, int64_t width)
{
    for (int64_t k = 0; k < width; k++) e[k] = a[k] * x[k] + a[a_im + k] * x[x_im + k];
}

#endif
