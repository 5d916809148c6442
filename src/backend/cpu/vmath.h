/* Elementary functions for kernels' inner loops: branch-free, so that compilers turn a loop over them into vector code.
 * Not for single numbers (libm is as good there), and not a replacement for libm's rounding: errors are a few units in
 * the last place of f32.
 *
 * Invariant: NaN in gives NaN out, and no finite or infinite argument overflows on the way to a finite result. */
#ifndef TN_BACKEND_CPU_VMATH_H
#define TN_BACKEND_CPU_VMATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Before a loop whose iterations are independent although its pointers may be equal (in-place ops). */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* loops over libm's functions stay scalar */
#define TN_VECTOR _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define TN_VECTOR _Pragma("GCC ivdep")
#endif

/* A call that is not inlined keeps its whole loop scalar. */
#define TN_INLINE static inline __attribute__((always_inline))

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

/* exp(r) - 1 for |r| <= 0.35, by its Taylor polynomial of degree 7 (the next term is below 6e-9). */
TN_INLINE float tn_v_expm1_small(float r)
{
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    return r + r * r * p;
}

TN_INLINE float tn_v_power2(uint32_t n) { return tn_v_from_bits((n + 127u) << 23); } /* -126 <= n <= 127 */

TN_INLINE uint32_t tn_v_half(uint32_t n) { return ((n + 256u) >> 1) - 128u; } /* n / 2 rounded down */

/* e^x for |x| <= 87. */
TN_INLINE float tn_v_exp_inner(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(x, &n);
    return (1.0f + tn_v_expm1_small(r)) * tn_v_power2(n);
}

/* e^x for x <= 89; below -104 it rounds to 0. Powers of two in two steps reach subnormal results, and infinity. */
TN_INLINE float tn_v_exp_below(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(tn_v_at_least(x, -104.0f), &n);
    return (1.0f + tn_v_expm1_small(r)) * tn_v_power2(tn_v_half(n)) * tn_v_power2(n - tn_v_half(n));
}

TN_INLINE float tn_v_exp(float x) { return tn_v_exp_below(tn_v_at_most(x, 89.0f)); }

TN_INLINE float tn_v_expm1(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(tn_v_at_most(tn_v_at_least(x, -60.0f), 89.0f), &n);
    const uint32_t h = tn_v_half(n);
    const float a = tn_v_power2(h), b = tn_v_power2(n - h), c = tn_v_power2(h - n); /* ab = 2^n, bc = 1 */
    return (tn_v_expm1_small(r) * a + (a - c)) * b; /* 2^n q + (2^n - 1), safe up to n = 128 */
}

TN_INLINE float tn_v_tanh(float x)
{
    uint32_t n;
    const float r = tn_v_reduce(2.0f * tn_v_at_most(fabsf(x), 20.0f), &n), s = tn_v_power2(n);
    const float m = tn_v_expm1_small(r) * s + (s - 1.0f); /* e^2|x| - 1 */
    return copysignf(m / (m + 2.0f), x);
}

/* s = sigmoid(x) and t = 1 - s, both to full relative accuracy for |x| <= 87 and within 2e-38 beyond. */
TN_INLINE float tn_v_sigmoid_pair(float x, float *t)
{
    const float e = tn_v_exp_inner(-tn_v_at_most(tn_v_at_least(x, -87.0f), 87.0f)), s = 1.0f / (1.0f + e);
    *t = e * s;
    return s;
}

TN_INLINE float tn_v_sigmoid(float x)
{
    float t;
    return tn_v_sigmoid_pair(x, &t);
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

TN_INLINE float tn_v_silu(float x) { return tn_v_at_least(x, -87.0f) * tn_v_sigmoid(x); } /* -infinity gives 0 */

TN_INLINE float tn_v_silu_grad(float x)
{
    float t;
    const float c = tn_v_at_most(tn_v_at_least(x, -87.0f), 87.0f), s = tn_v_sigmoid_pair(c, &t);
    return s + s * t * c;
}

/* x sigmoid(v), v = 2 sqrt(2/pi) (x + 0.044715 x^3): the tanh form of GELU without its cancellation in the left tail.
 * Beyond |x| = 12 the function and its slope are at their limits. */
TN_INLINE float tn_v_gelu(float x)
{
    const float c = tn_v_at_least(x, -12.0f);
    return c * tn_v_sigmoid(1.5957691f * (c + 0.044715f * c * c * c));
}

TN_INLINE float tn_v_gelu_grad(float x)
{
    float t;
    const float c = tn_v_at_most(tn_v_at_least(x, -12.0f), 12.0f);
    const float s = tn_v_sigmoid_pair(1.5957691f * (c + 0.044715f * c * c * c), &t);
    return s + c * s * t * (1.5957691f * (1.0f + 0.134145f * c * c));
}

#endif
