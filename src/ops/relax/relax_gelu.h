/* gelu of relax's tiles, x Phi(x), for files compiled for several levels. Phi is within 2.5e-7, and its slope within 2.5e-6 beyond the
 * edge. tn_v_gelu_erf also keeps the digits of the left tail, at more than twice the price; here the result is added to numbers of
 * size 1. NaN comes out as NaN. */
#ifndef TN_OPS_RELAX_GELU_H
#define TN_OPS_RELAX_GELU_H

#include "backend/cpu/vec.h"

/* Where it has a place, slope gets Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi), given Phi (n vectors) and x clamped to where that is Phi. */
TN_INLINE void gelu_slope(int n, const tn_vec *phi, const tn_vec *x, float *slope)
{
    float density[TN_LANES];
    TN_UNROLL for (int k = 0; k < n; k++) tn_vec_put(density + k * TN_VEC, x[k] * x[k] * -0.5f);
    TN_UNROLL for (int l = 0; l < n * TN_VEC; l++) density[l] = tn_v_exp_weight(density[l]);
    TN_UNROLL for (int k = 0; k < n; k++)
        tn_vec_put(slope + k * TN_VEC, tn_vec_fma(tn_vec_get(density + k * TN_VEC) * 0.398942280f, x[k], phi[k]));
}

#if defined(__AVX512F__)

/* Phi(x) - 1/2 is odd: with a = |x| it is a polynomial of degree 4 in what rounding 3a to a whole number leaves, one of 16 that a
 * register holds each coefficient of (interpolated at Chebyshev's points, within 8.1e-8). Beyond 15.48 / 3 it is 1/2 within
 * 1.3e-7. A division, of which a quotient would need one, takes as long as 16 multiply-adds. */
static const float GELU_EDGE = 5.16f;
static const float GELU_TABLE[5][16] = {
    { 0, 0.130558655f, 0.247507468f, 0.341344744f, 0.40878877f, 0.452209651f, 0.477249861f, 0.490184665f, 0.496169627f,
      0.498650104f, 0.499570936f, 0.499877125f, 0.49996832f, 0.499992669f, 0.49999848f, 0.499999702f },
    { 0.132979959f, 0.125793815f, 0.106482558f, 0.0806572288f, 0.0546705164f, 0.0331594422f, 0.0179971699f,
      0.00874063093f, 0.00379857933f, 0.00147719402f, 0.000514031213f, 0.000160056981f, 4.4595392e-05f, 1.11181507e-05f,
      2.48026936e-06f, 4.95091115e-07f },
    { 0, -0.00698851328f, -0.0118313227f, -0.0134427641f, -0.0121488916f, -0.00921087712f, -0.00599903241f,
      -0.00339915603f, -0.00168830052f, -0.000738638453f, -0.000285602f, -9.78288954e-05f, -2.97378356e-05f,
      -8.03275452e-06f, -1.93010328e-06f, -4.128689e-07f },
    { -0.00244982284f, -0.00206123036f, -0.00109367853f, -5.15891361e-06f, 0.000779534981f, 0.00108532317f,
      0.000996935531f, 0.000719376607f, 0.000431213499f, 0.00022027854f, 9.72484777e-05f, 3.74248448e-05f,
      1.26263767e-05f, 3.74949036e-06f, 9.82893312e-07f, 2.27948448e-07f },
    { 0, 0.000185899611f, 0.000278601772f, 0.000248078111f, 0.00013743632f, 1.94497516e-05f, -5.49690267e-05f,
      -7.65781515e-05f, -6.4165506e-05f, -4.10826106e-05f, -2.15333821e-05f, -9.52545543e-06f, -3.61524485e-06f,
      -1.18917978e-06f, -3.41288086e-07f, -8.58621689e-08f },
};

/* z = gelu(z + bias), n vectors. */
TN_INLINE void gelu(int n, float *z, const tn_vec *bias, float *slope)
{
    const tn_vec whole =
        tn_vec_all(12582912.f); /* added to a small number, it leaves the nearest whole one in the last bits */
    const __m512 sign = _mm512_set1_ps(-0.f);
    TN_UNROLL for (int k = 0; k < n; k++)
    {
        const __m512 sum = (__m512)(tn_vec_get(z + k * TN_VEC) + bias[k]);
        const __m512 x = _mm512_max_ps(_mm512_set1_ps(-GELU_EDGE), sum),
                     a = _mm512_andnot_ps(sign, x); /* NaN: the second */
        const tn_vec c = (tn_vec)_mm512_min_ps(_mm512_set1_ps(GELU_EDGE), a), three = tn_vec_all(3);
        const tn_vec m = tn_vec_fma(c, three, whole), u = tn_vec_fma(c, three, whole - m);
        tn_vec q = (tn_vec)_mm512_permutexvar_ps((__m512i)m, _mm512_loadu_ps(GELU_TABLE[4]));
        TN_UNROLL for (int i = 3; i >= 0; i--) q =
            tn_vec_fma(q, u, (tn_vec)_mm512_permutexvar_ps((__m512i)m, _mm512_loadu_ps(GELU_TABLE[i])));
        tn_vec_put(z + k * TN_VEC, tn_vec_fma((tn_vec)a, q, (tn_vec)x * 0.5f));
        if (!slope) continue;
        const __m512 minus = _mm512_and_ps(sign, x);
        const tn_vec phi = (tn_vec)_mm512_xor_ps(minus, (__m512)q) + 0.5f;
        const tn_vec clamped =
            (tn_vec)_mm512_max_ps(_mm512_set1_ps(-6), _mm512_min_ps(_mm512_set1_ps(6), sum)); /* NaN: the second */
        gelu_slope(1, &phi, &clamped, slope + k * TN_VEC);
    }
}

#else

/* Clamps that let NaN pass. */
#if defined(__aarch64__)
TN_INLINE tn_vec at_least(tn_vec x, float lo) { return (tn_vec)vmaxq_f32((float32x4_t)x, vdupq_n_f32(lo)); }
TN_INLINE tn_vec at_most(tn_vec x, float hi) { return (tn_vec)vminq_f32((float32x4_t)x, vdupq_n_f32(hi)); }
#else
TN_INLINE tn_vec at_least(tn_vec x, float lo) { return tn_vec_pick(x < lo, tn_vec_all(lo), x); }
TN_INLINE tn_vec at_most(tn_vec x, float hi) { return tn_vec_pick(x > hi, tn_vec_all(hi), x); }
#endif

/* x Phi(x) = x (1/2 + c P(t) / Q(t)), c = x clamped to +-5.25, where Phi is 0 or 1 within 8e-8, and t = c^2: the quotient is
 * within 6.5e-8 / |c| (fitted at Chebyshev's points).
 * The polynomials are sums of powers: no constant is added to but one, and where a multiply-add overwrites its addend,
 * every such constant costs a move. */
static const float GELU_EDGE = 5.25f;
static const float GELU_P[] = { 0.398941874f, 0.0507933284f, 0.00560618750f, 3.27490217e-4f, 6.04452732e-6f };
static const float GELU_Q[] = { 1, 0.293980086f, 0.0380613921f, 0.00278104407f, 1.17465688e-4f, 5.15230305e-7f };

/* z = gelu(z + bias), n vectors at once, step by step, so that the chain of one hides behind the others. */
TN_INLINE void gelu(int n, float *z, const tn_vec *bias, float *slope)
{
    tn_vec x[TN_VECS], c[TN_VECS], t[TN_VECS], power[TN_VECS], third[TN_VECS], p[TN_VECS], q[TN_VECS];
#define EACH TN_UNROLL for (int k = 0; k < n; k++)
    EACH x[k] = at_least(tn_vec_get(z + k * TN_VEC) + bias[k], -GELU_EDGE);
    EACH c[k] = at_most(x[k], GELU_EDGE);
    EACH t[k] = c[k] * c[k];
    EACH power[k] = t[k] * t[k];
    EACH p[k] = t[k] * GELU_P[1];
    EACH q[k] = t[k] * GELU_Q[1];
    EACH third[k] = power[k] * t[k];
    EACH p[k] = tn_vec_fma(power[k], tn_vec_all(GELU_P[2]), p[k]);
    EACH q[k] = tn_vec_fma(power[k], tn_vec_all(GELU_Q[2]), q[k]);
    EACH power[k] = power[k] * power[k];
    EACH p[k] = tn_vec_fma(third[k], tn_vec_all(GELU_P[3]), p[k]);
    EACH q[k] = tn_vec_fma(third[k], tn_vec_all(GELU_Q[3]), q[k]);
    EACH t[k] = t[k] * power[k];
    EACH p[k] = tn_vec_fma(power[k], tn_vec_all(GELU_P[4]), p[k]);
    EACH q[k] = tn_vec_fma(power[k], tn_vec_all(GELU_Q[4]), q[k]);
    EACH p[k] = p[k] * c[k];
    EACH q[k] = tn_vec_fma(t[k], tn_vec_all(GELU_Q[5]), q[k]);
    EACH p[k] = tn_vec_fma(c[k], tn_vec_all(GELU_P[0]), p[k]);
    EACH q[k] = q[k] + GELU_Q[0];
    EACH p[k] = p[k] / q[k];
    if (slope) {
        EACH q[k] = p[k] + 0.5f;
        gelu_slope(n, q, c, slope);
    }
    EACH c[k] = x[k] * 0.5f;
    EACH tn_vec_put(z + k * TN_VEC, tn_vec_fma(x[k], p[k], c[k]));
#undef EACH
}

#endif
#endif
