/* Elementary functions for kernels' inner loops: branch-free, so that compilers turn a loop over them into vector code.
 * Not for single numbers (libm is as good there), and not a replacement for libm's rounding: errors are a few units in
 * the last place of f32.
 *
 * Invariant: NaN in gives NaN out, and no finite or infinite argument overflows on the way to a finite result. Clamps
 * are written `x < lo ? lo : x`, which lets NaN pass. */
#ifndef TN_OPS_VMATH_H
#define TN_OPS_VMATH_H

#include <math.h>
#include <stdint.h>

/* Before a loop whose iterations are independent although its pointers may be equal (in-place ops). */
#if defined(__clang__)
#define TN_VECTOR _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define TN_VECTOR _Pragma("GCC ivdep")
#endif

static inline float tn_v_from_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = { .u = u };
    return v.f;
}

static inline uint32_t tn_v_bits(float f)
{
    union {
        float f;
        uint32_t u;
    } v = { .f = f };
    return v.u;
}

/* x = n ln 2 + r with |r| <= ln(2)/2: returns r, and n modulo 2^32. Adding 1.5 * 2^23 rounds to nearest and leaves
 * the integer in the low bits. |x| must be below 2^21. */
static inline float tn_v_reduce(float x, uint32_t *n)
{
    const float t = x * 1.44269504f + 12582912.0f, k = t - 12582912.0f;
    *n = tn_v_bits(t) - 0x4B400000u;
    return (x - k * 0.693359375f) - k * -2.12194440e-4f; /* ln 2 in two parts; the first has nine bits */
}

/* exp(r) - 1 for |r| <= 0.35, by its Taylor polynomial of degree 7 (the next term is below 6e-9). */
static inline float tn_v_expm1_small(float r)
{
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    return r + r * r * p;
}

static inline float tn_v_power2(uint32_t n) { return tn_v_from_bits((n + 127u) << 23); } /* -126 <= n <= 127 */

static inline uint32_t tn_v_half(uint32_t n) { return ((n + 256u) >> 1) - 128u; } /* n / 2 rounded down */

static inline float tn_v_exp(float x)
{
    uint32_t n;
    x = x < -104.0f ? -104.0f : x; /* rounds to 0 */
    x = x > 89.0f ? 89.0f : x;     /* rounds to infinity */
    const float r = tn_v_reduce(x, &n);
    return (1.0f + tn_v_expm1_small(r)) * tn_v_power2(tn_v_half(n)) * tn_v_power2(n - tn_v_half(n));
}

static inline float tn_v_expm1(float x)
{
    uint32_t n;
    x = x < -60.0f ? -60.0f : x; /* rounds to -1 */
    x = x > 89.0f ? 89.0f : x;
    const float r = tn_v_reduce(x, &n);
    const uint32_t h = tn_v_half(n);
    const float a = tn_v_power2(h), b = tn_v_power2(n - h), c = tn_v_power2(h - n); /* ab = 2^n, bc = 1 */
    return (tn_v_expm1_small(r) * a + (a - c)) * b; /* 2^n q + (2^n - 1), safe up to n = 128 */
}

static inline float tn_v_tanh(float x)
{
    const float a = fabsf(x), m = tn_v_expm1(2.0f * (a > 20.0f ? 20.0f : a));
    return copysignf(m / (m + 2.0f), x);
}

/* s = sigmoid(x) and t = 1 - s, both to full relative accuracy. */
static inline float tn_v_sigmoid_pair(float x, float *t)
{
    const float e = tn_v_exp(-fabsf(x)), r = 1.0f / (1.0f + e), q = e * r;
    *t = x < 0 ? r : q;
    return x < 0 ? q : r;
}

static inline float tn_v_sigmoid(float x)
{
    float t;
    return tn_v_sigmoid_pair(x, &t);
}

/* log(1 + e) for 0 <= e <= 1, as 2 atanh(z), z = e / (2 + e) <= 1/3: its series to z^15 (the next term is below 2e-9). */
static inline float tn_v_log1p_unit(float e)
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

static inline float tn_v_softplus(float x) { return (x < 0 ? 0 : x) + tn_v_log1p_unit(tn_v_exp(-fabsf(x))); }

static inline float tn_v_logcosh(float x)
{
    const float a = fabsf(x);
    /* near 0 the three terms cancel: log cosh x = log1p(2 sinh(x/2)^2) = x^2/2 - x^4/12 + x^6/45 - 17 x^8/2520 + ... */
    const float w = x * x, small = w * (0.5f + w * (-1.0f / 12 + w * (1.0f / 45 + w * (-17.0f / 2520 + w * 31.0f / 14175))));
    const float large = a + (tn_v_log1p_unit(tn_v_exp(-2.0f * a)) - 0.693147181f);
    return a < 0.4f ? small : large;
}

static inline float tn_v_silu(float x)
{
    const float c = x < -200.0f ? -200.0f : x; /* so that -infinity gives 0 */
    return c * tn_v_sigmoid(c);
}

static inline float tn_v_silu_grad(float x)
{
    float t, c = x < -200.0f ? -200.0f : x;
    c = c > 200.0f ? 200.0f : c;
    const float s = tn_v_sigmoid_pair(c, &t);
    return s + s * t * c;
}

/* x sigmoid(v), v = 2 sqrt(2/pi) (x + 0.044715 x^3): the tanh form of GELU without its cancellation in the left tail.
 * Beyond |x| = 12 the function and its slope are at their limits. */
static inline float tn_v_gelu(float x)
{
    const float c = x < -12.0f ? -12.0f : x;
    return c * tn_v_sigmoid(1.5957691f * (c + 0.044715f * c * c * c));
}

static inline float tn_v_gelu_grad(float x)
{
    float t, c = x < -12.0f ? -12.0f : x;
    c = c > 12.0f ? 12.0f : c;
    const float s = tn_v_sigmoid_pair(1.5957691f * (c + 0.044715f * c * c * c), &t);
    return s + c * s * t * (1.5957691f * (1.0f + 0.134145f * c * c));
}

#endif
