/* Elementary functions for kernels' inner loops: branch-free, so that compilers turn a loop over them into vector code.
 * Not for single numbers (libm is as good there), and not a replacement for libm's rounding.
 *
 * Errors, checked in vmath_test.c over all of f32, as a share of |result| + 1e-30:
 *     exp expm1 tanh sigmoid log softplus   2.5e-7          slopes of tanh and sigmoid     5e-7
 *     gelu_erf                              6e-7            logcosh                        1e-6
 *     silu                                  2e-6            gelu (tanh form)               2e-5, beyond x = -5 only
 *     1 / sqrt (1e-30 <= x <= 1e30)         2.5e-7
 * and of size: sin and cos 1e-7 (|x| <= 8192), slopes of silu, gelu and gelu_erf 3e-7.
 * Invariant: NaN in gives NaN out, and no finite or infinite argument overflows on the way to a finite result. */
#ifndef TN_BACKEND_CPU_VMATH_H
#define TN_BACKEND_CPU_VMATH_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Before a loop whose iterations are independent although its pointers may be equal (in-place ops). */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* loops over libm's functions stay scalar */
#define TN_VECTOR _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#define TN_UNROLL
#else
#define TN_VECTOR _Pragma("GCC ivdep")
#define TN_UNROLL _Pragma("GCC unroll 16") /* before a loop over a block: its vectors side by side, not one by one */
#endif

/* A call that is not inlined keeps its whole loop scalar. */
#define TN_INLINE static inline __attribute__((always_inline))

/* Elements to a block of tn_v_map: a few vectors side by side hide the latency of one element's chain of operations. */
enum { TN_V_BLOCK = 16 };

TN_INLINE float tn_v_from_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = { .u = u };
    return v.f;
}

TN_INLINE uint32_t tn_v_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { .f = f };
    return v.u;
}

/* To nearest even in half precision and back, the bits of tn_f16_to_f32(tn_f32_to_f16(x)) but for a NaN's payload: beyond
 * 65504 an infinity; near 0 the adder rounds to multiples of 2^-24, the smallest subnormal. */
TN_INLINE float tn_v_round_f16(float x)
{
    const uint32_t u = tn_v_bits(x), m = u & 0x7fffffffu, even = (m + 0xfffu + (m >> 13 & 1u)) & ~0x1fffu;
    const uint32_t small = tn_v_bits((tn_v_from_bits(m) + 0.5f) - 0.5f);
    const uint32_t finite = m < 0x38800000u ? small : even, large = m > 0x7f800000u ? m | 0x400000u : 0x7f800000u;
    return tn_v_from_bits((m >= 0x477ff000u ? large : finite) | (u & 0x80000000u));
}

/* To nearest even in bf16, the bits of tn_f32_to_bf16, as a mask: the upper half of the result; the lower is 0. */
TN_INLINE uint32_t tn_v_bf16_bits(float x)
{
    const uint32_t u = tn_v_bits(x), even = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
    const uint32_t nan = 0u - ((u & 0x7fffffffu) > 0x7f800000u);
    return ((even & ~nan) | (quiet & nan)) & 0xffff0000u;
}

/* Clamps that let NaN pass, as masks: compilers turn chains of conditionals into far longer vector code. */
TN_INLINE float tn_v_pick(bool first, float a, float b)
{
    const uint32_t mask = -(uint32_t)first;
    return tn_v_from_bits((tn_v_bits(a) & mask) | (tn_v_bits(b) & ~mask));
}

TN_INLINE float tn_v_at_least(float x, float lo) { return tn_v_pick(x < lo, lo, x); }

TN_INLINE float tn_v_at_most(float x, float hi) { return tn_v_pick(x > hi, hi, x); }

/* x = n ln 2 + r with |r| <= ln(2)/2: returns r, and n modulo 2^32. Adding 1.5 * 2^23 rounds to nearest and leaves the
 * integer in the low bits. |x| must be below 2^21. */
TN_INLINE float tn_v_reduce(float x, uint32_t *n)
{
    const float t = x * 1.44269504f + 12582912.0f, k = t - 12582912.0f;
    *n = tn_v_bits(t) - 0x4B400000u;
    return (x - k * 0.693359375f) - k * -2.12194440e-4f; /* ln 2 in two parts; the first has nine bits */
}

/* e^r - 1 for |r| <= 0.35: interpolated at Chebyshev's points (within 1.1e-8), in pairs rather than as one chain, so
 * that fewer steps wait for one another. */
TN_INLINE float tn_v_expm1_small(float r)
{
    const float w = r * r, high = 0.0416665524f + 0.00836324692f * r + 0.00139262679f * w;
    return r + (0.5f + 0.166665763f * r + high * w) * w;
}

TN_INLINE float tn_v_power2(uint32_t n) { return tn_v_from_bits((n + 127u) << 23); } /* -126 <= n <= 127 */

TN_INLINE uint32_t tn_v_half(uint32_t n) { return ((n + 256u) >> 1) - 128u; } /* n / 2 rounded down */

/* e^x for x <= 89; below -104 it rounds to 0. Powers of two in two steps reach subnormal results, and infinity. */
TN_INLINE float tn_v_exp_below(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(tn_v_at_least(x, -104.0f), &n);
    return (1.0f + tn_v_expm1_small(r)) * tn_v_power2(tn_v_half(n)) * tn_v_power2(n - tn_v_half(n));
}

TN_INLINE float tn_v_exp(float x) { return tn_v_exp_below(tn_v_at_most(x, 89.0f)); }

/* sign x = n ln 2 + sign r for a sign of 1 or -1 and |x| <= 87: returns r, *t = 1.5 * 2^23 + 127 + n, whose low bits are
 * the exponent of 2^n, ready to be shifted. Vectors have a multiply-subtract but no free negation. */
TN_INLINE float tn_v_split(float x, float sign, float *t)
{
    *t = x * (sign * 1.44269504f) + 12583039.0f;
    const float k = *t - 12583039.0f;
    return (x - k * (sign * 0.693359375f)) - k * (sign * -2.12194440e-4f);
}

/* e^(sign x) for sign x <= 88, and 0 below -87.7: at half the price of tn_v_exp. What comes out beyond that is hidden,
 * NaN is not. */
TN_INLINE float tn_v_exp_signed(float x, float sign)
{
    float t;
    const float r = tn_v_split(x, sign, &t), w = r * r, s = tn_v_from_bits(tn_v_bits(t) << 23);
    const float high = 0.0416665524f + (sign * 0.00836324692f) * r + 0.00139262679f * w;
    const float u = r + sign * (0.5f + (sign * 0.166665763f) * r + high * w) * w; /* e^(sign r) = 1 + sign u */
    const uint32_t hidden = -(uint32_t)(t < 12582912.5f);
    return tn_v_from_bits(tn_v_bits(s + sign * (s * u)) & ~hidden);
}

/* e^x for x <= 88: weights relative to a largest. */
TN_INLINE float tn_v_exp_weight(float x) { return tn_v_exp_signed(x, 1.0f); }

TN_INLINE float tn_v_expm1(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(tn_v_at_most(tn_v_at_least(x, -60.0f), 89.0f), &n);
    const uint32_t h = tn_v_half(n);
    const float a = tn_v_power2(h), b = tn_v_power2(n - h), c = tn_v_power2(h - n); /* ab = 2^n, bc = 1 */
    return (tn_v_expm1_small(r) * a + (a - c)) * b; /* 2^n q + (2^n - 1), safe up to n = 128 */
}

/* The same for x <= 88, and by fewer steps: larger x give e^88 - 1. */
TN_INLINE float tn_v_expm1_below(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(tn_v_at_most(tn_v_at_least(x, -60.0f), 88.0f), &n), s = tn_v_power2(n);
    return tn_v_expm1_small(r) * s + (s - 1.0f);
}

/* 1 / sqrt(x) for 1e-30 <= x <= 1e30: a guess from the exponent, within 3.5 %, and two steps of third order. Cheaper
 * than a root and a quotient where both are needed. */
TN_INLINE float tn_v_inverse_sqrt(float x)
{
    float y = tn_v_from_bits(0x5F3759DFu - (tn_v_bits(x) >> 1));
    for (int i = 0; i < 2; i++) {
        const float e = 1.0f - x * y * y;
        y += y * e * (0.5f + 0.375f * e);
    }
    return y;
}

TN_INLINE float tn_v_tanh(float x)
{
    float t;
    const float r = tn_v_split(2.0f * tn_v_at_most(fabsf(x), 20.0f), 1.0f, &t), s = tn_v_from_bits(tn_v_bits(t) << 23);
    const float m = tn_v_expm1_small(r) * s + (s - 1.0f); /* e^2|x| - 1 */
    return copysignf(m / (m + 2.0f), x);
}

/* sigmoid(|x|) = 1 / (1 + e) and its complement e / (1 + e), e = e^-|x|. Both keep full relative accuracy down to
 * e^-87, then the complement is 0: a saturated gate passes exactly nothing, and no subnormal numbers on to products,
 * where some processors take a hundred times longer over them. */
TN_INLINE float tn_v_sigmoid_parts(float x, float *complement)
{
    const float e = tn_v_exp_signed(fabsf(x), -1.0f), s = 1.0f / (1.0f + e);
    *complement = e * s;
    return s;
}

/* s = sigmoid(x); *slope = s (1 - s). */
TN_INLINE float tn_v_sigmoid_slope(float x, float *slope)
{
    float t;
    const float s = tn_v_sigmoid_parts(x, &t);
    *slope = s * t;
    return tn_v_pick(x < 0.0f, t, s);
}

TN_INLINE float tn_v_sigmoid(float x)
{
    const float e = tn_v_exp_signed(fabsf(x), -1.0f);
    return tn_v_pick(x < 0.0f, e, 1.0f) / (1.0f + e);
}

/* log(1 + e) for 0 <= e <= 1, as 2 atanh(z), z = e / (2 + e) <= 1/3: its series to z^15. */
TN_INLINE float tn_v_log1p_unit(float e)
{
    const float z = e / (2.0f + e), w = z * z;
    float p = 1.0f / 15;
    p = p * w + 1.0f / 13;
    p = p * w + 1.0f / 11;
    p = p * w + 1.0f / 9;
    p = p * w + 1.0f / 7;
    p = p * w + 1.0f / 5;
    p = p * w + 1.0f / 3;
    return 2.0f * z + 2.0f * z * w * p;
}

TN_INLINE float tn_v_softplus(float x) { return tn_v_at_least(x, 0.0f) + tn_v_log1p_unit(tn_v_exp_below(-fabsf(x))); }

TN_INLINE float tn_v_logcosh(float x)
{
    const float a = fabsf(x), w = x * x;
    /* near 0 the terms of a + log1p(e^-2a) - ln 2 cancel: there the Taylor polynomial of degree 10 */
    float p = 31.0f / 14175;
    p = p * w - 17.0f / 2520;
    p = p * w + 1.0f / 45;
    p = p * w - 1.0f / 12;
    p = p * w + 0.5f;
    return tn_v_pick(a < 0.4f, p * w, a + (tn_v_log1p_unit(tn_v_exp_below(-2.0f * a)) - 0.693147181f));
}

/* act(x) with *slope = act'(x): what a gate's backward pass needs of both. -infinity gives 0: FLT_MAX times 0. */
TN_INLINE float tn_v_silu_slope(float x, float *slope)
{
    const float c = tn_v_at_most(tn_v_at_least(x, -FLT_MAX), FLT_MAX), s = tn_v_sigmoid_slope(c, slope);
    *slope = s + c * *slope;
    return c * s;
}

TN_INLINE float tn_v_silu(float x) { return tn_v_at_least(x, -FLT_MAX) * tn_v_sigmoid(x); }

TN_INLINE float tn_v_silu_grad(float x)
{
    float slope;
    (void)tn_v_silu_slope(x, &slope);
    return slope;
}

/* x sigmoid(v), v = 2 sqrt(2/pi) (x + 0.044715 x^3): the tanh form of GELU without its cancellation in the left tail.
 * Beyond |x| = 12 the function and its slope are at their limits. */
TN_INLINE float tn_v_gelu(float x)
{
    const float c = tn_v_at_least(x, -12.0f);
    return c * tn_v_sigmoid(c * (1.5957691f + 0.0713548163f * (c * c)));
}

TN_INLINE float tn_v_gelu_slope(float x, float *slope)
{
    const float c = tn_v_at_most(tn_v_at_least(x, -12.0f), 12.0f), w = c * c;
    const float s = tn_v_sigmoid_slope(c * (1.5957691f + 0.0713548163f * w), slope);
    *slope = s + c * *slope * (1.5957691f + 0.214064449f * w);
    return tn_v_at_least(x, -12.0f) * s;
}

TN_INLINE float tn_v_gelu_grad(float x)
{
    float slope;
    (void)tn_v_gelu_slope(x, &slope);
    return slope;
}

TN_INLINE float tn_v_relu(float x) { return tn_v_at_least(x, 0.0f); }

/* 0 at 0; NaN passes. */
TN_INLINE float tn_v_relu_grad(float x) { return tn_v_pick(x > 0.0f, 1.0f, tn_v_pick(x <= 0.0f, 0.0f, x)); }

TN_INLINE float tn_v_sigmoid_grad(float x)
{
    float t;
    return tn_v_sigmoid_parts(x, &t) * t;
}

TN_INLINE float tn_v_tanh_grad(float x) { return 4.0f * tn_v_sigmoid_grad(2.0f * x); } /* 1 - tanh^2, no cancellation */

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(z), z = (m - 1) / (m + 1), whose first term 2z is written
 * (m - 1) - z (m - 1): m - 1 is exact. Subnormal numbers are scaled first. */
TN_INLINE float tn_v_log(float x)
{
    const bool tiny = x < 0x1p-126f;
    const uint32_t u = tn_v_bits(tn_v_pick(tiny, x * 0x1p23f, x));
    const int32_t e = (int32_t)(u - 0x3F3504F3u) >> 23;
    const float f = tn_v_from_bits(u - ((uint32_t)e << 23)) - 1.0f, z = f / (2.0f + f), w = z * z;
    const float n = (float)e - tn_v_pick(tiny, 23.0f, 0.0f);
    float p = 2.0f / 9;
    p = p * w + 2.0f / 7;
    p = p * w + 2.0f / 5;
    p = p * w + 2.0f / 3;
    const float y = n * 0.693359375f + (f - (z * (f - w * p) + n * 2.12194440e-4f));
    const float special =
        tn_v_pick(x == 0.0f, -INFINITY, tn_v_pick(x > 0.0f, x, NAN)); /* log of infinity, NaN, x < 0 */
    return tn_v_pick(x > 0.0f && x < INFINITY, y, special);
}

enum { TN_V_TURN_MOST = 8192 }; /* largest |x| of the two below */

/* sin(x + shift pi/2) for |x| <= TN_V_TURN_MOST: x less the nearest multiple of pi/2, which is in three parts, the
 * first two so short that their products are exact. Then Taylor polynomials on |r| <= pi/4. */
TN_INLINE float tn_v_turn(float x, uint32_t shift)
{
    const float t = x * 0.636619772f + 12582912.0f, k = t - 12582912.0f;
    const uint32_t quadrant = tn_v_bits(t) - 0x4B400000u + shift;
    const float r = ((x - k * 1.5703125f) - k * 4.8375129699707031e-4f) - k * 7.54978995e-8f, w = r * r;
    float s = 1.0f / 362880, c = -1.0f / 3628800;
    s = s * w - 1.0f / 5040;
    s = s * w + 1.0f / 120;
    s = s * w - 1.0f / 6;
    c = c * w + 1.0f / 40320;
    c = c * w - 1.0f / 720;
    c = c * w + 1.0f / 24;
    c = c * w - 0.5f;
    const float y = tn_v_pick(quadrant & 1, 1.0f + w * c, r + r * w * s);
    return tn_v_from_bits(tn_v_bits(y) ^ (quadrant & 2) << 30);
}

TN_INLINE float tn_v_sin(float x) { return tn_v_turn(x, 0); }

TN_INLINE float tn_v_cos(float x) { return tn_v_turn(x, 1); }

/* Phi(-a), the normal distribution's tail, for 0 <= a <= 15: e^(-a^2/2) times its Mills ratio over sqrt(2 pi), a
 * polynomial in s = 1 / (1 + 0.3 a) times s (Chebyshev interpolation, relative error 5e-9). a^2 would be rounded by
 * more than the tail can bear: the square of a's first twelve bits is exact, and the rest joins after the reduction.
 * *density gets e^(-a^2/2). */
TN_INLINE float tn_v_normal_tail(float a, float *density)
{
    const float head = tn_v_from_bits(tn_v_bits(a) & 0xFFFFF000u), s = 1.0f / (1.0f + 0.3f * a);
    uint32_t n;
    const float r = tn_v_reduce(tn_v_at_least(-0.5f * head * head, -104.0f), &n) - 0.5f * (a - head) * (a + head);
    const uint32_t h = tn_v_half(n);
    float p = -0.0209846692f;
    p = p * s + 0.114402111f;
    p = p * s - 0.232835481f;
    p = p * s + 0.197921642f;
    p = p * s - 0.0844812808f;
    p = p * s + 0.0988308404f;
    p = p * s + 0.0774857709f;
    p = p * s + 0.110423197f;
    p = p * s + 0.119550118f;
    p = p * s + 0.11968775f;
    const float e = (1.0f + tn_v_expm1_small(r)) * tn_v_power2(h), last = tn_v_power2(n - h);
    *density = e * last;
    return e * (p * s) * last; /* the last power of two may round to a subnormal */
}

/* x Phi(x). Below -15 it is 0 in f32. */
TN_INLINE float tn_v_gelu_erf(float x)
{
    float density;
    const float c = tn_v_at_least(x, -15.0f), q = tn_v_normal_tail(tn_v_at_most(fabsf(c), 15.0f), &density);
    return c * tn_v_pick(c < 0.0f, q, 1.0f - q);
}

/* Phi(x) + x phi(x). */
TN_INLINE float tn_v_gelu_erf_grad(float x)
{
    float density;
    const float c = tn_v_at_most(tn_v_at_least(x, -15.0f), 15.0f), q = tn_v_normal_tail(fabsf(c), &density);
    return tn_v_pick(c < 0.0f, q, 1.0f - q) + 0.398942280f * c * density;
}

/* y = f(x) and z = y f(x) over n elements, block by block; the last block is filled up with zeros, so that every element
 * goes through the same instructions wherever it lies. y may be x, and z may be y. */
TN_INLINE void tn_v_block(float *y, const float *x, float (*f)(float))
{
    float out[TN_V_BLOCK];
    TN_UNROLL
    for (int k = 0; k < TN_V_BLOCK; k++) out[k] = f(x[k]);
    memcpy(y, out, sizeof out);
}

TN_INLINE void tn_v_map(float *y, const float *x, int64_t n, float (*f)(float))
{
    int64_t i = 0;
    for (; i + TN_V_BLOCK <= n; i += TN_V_BLOCK) tn_v_block(y + i, x + i, f);
    if (i == n) return;
    float last[TN_V_BLOCK] = { 0 };
    memcpy(last, x + i, sizeof *x * (size_t)(n - i));
    tn_v_block(last, last, f);
    memcpy(y + i, last, sizeof *y * (size_t)(n - i));
}

TN_INLINE void tn_v_block_times(float *z, const float *y, const float *x, float (*f)(float))
{
    float out[TN_V_BLOCK];
    TN_UNROLL
    for (int k = 0; k < TN_V_BLOCK; k++) out[k] = y[k] * f(x[k]);
    memcpy(z, out, sizeof out);
}

TN_INLINE void tn_v_map_times(float *z, const float *y, const float *x, int64_t n, float (*f)(float))
{
    int64_t i = 0;
    for (; i + TN_V_BLOCK <= n; i += TN_V_BLOCK) tn_v_block_times(z + i, y + i, x + i, f);
    if (i == n) return;
    float last[TN_V_BLOCK] = { 0 }, factor[TN_V_BLOCK] = { 0 };
    memcpy(last, x + i, sizeof *x * (size_t)(n - i));
    memcpy(factor, y + i, sizeof *y * (size_t)(n - i));
    tn_v_block_times(last, factor, last, f);
    memcpy(z + i, last, sizeof *z * (size_t)(n - i));
}

#endif
