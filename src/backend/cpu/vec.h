/* Vectors as wide as the instruction set that a file is compiled for, used sixteen floats at a time whatever that width
 * is: sums run in sixteen lanes that are folded pairwise, so their order is the same everywhere. For kernels whose loops
 * compilers do not turn into the code one means; most do not need it (vmath.h). */
#ifndef TN_BACKEND_CPU_VEC_H
#define TN_BACKEND_CPU_VEC_H

#include "backend/cpu/vmath.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__FMA__)
#include <immintrin.h>
#endif

enum { TN_LANES = 16 };

#if defined(__AVX512F__)
enum { TN_VEC = 16 };
#elif defined(__AVX__)
enum { TN_VEC = 8 };
#else
enum { TN_VEC = 4 };
#endif
enum { TN_VECS = TN_LANES / TN_VEC };

typedef float tn_vec __attribute__((vector_size(TN_VEC * 4)));
typedef float tn_vec_at __attribute__((vector_size(TN_VEC * 4), aligned(4), may_alias)); /* anywhere in memory */

TN_INLINE tn_vec tn_vec_get(const float *p) { return *(const tn_vec_at *)p; }

TN_INLINE tn_vec tn_vec_all(float x) { return x - (tn_vec){ 0 }; }

TN_INLINE void tn_vec_put(float *p, tn_vec v) { *(tn_vec_at *)p = v; }

typedef int32_t tn_vec_mask __attribute__((vector_size(TN_VEC * 4))); /* what comparisons of vectors give */

TN_INLINE tn_vec tn_vec_pick(tn_vec_mask first, tn_vec a, tn_vec b)
{
    return (tn_vec)(((tn_vec_mask)a & first) | ((tn_vec_mask)b & ~first));
}

/* a b + c where two products meet in a sum: compilers may fuse either with it, and choose anew in every loop. With one
 * product there is no choice, and the plain expression is as good. */
#if defined(__aarch64__)
TN_INLINE tn_vec tn_vec_fma(tn_vec a, tn_vec b, tn_vec c)
{
    return (tn_vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#elif defined(__AVX512F__)
TN_INLINE tn_vec tn_vec_fma(tn_vec a, tn_vec b, tn_vec c)
{
    return (tn_vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
#elif defined(__FMA__)
TN_INLINE tn_vec tn_vec_fma(tn_vec a, tn_vec b, tn_vec c)
{
    return (tn_vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#else
TN_INLINE tn_vec tn_vec_fma(tn_vec a, tn_vec b, tn_vec c) { return a * b + c; }
#endif

/* The larger; b where a is NaN. */
#if defined(__aarch64__)
TN_INLINE tn_vec tn_vec_max(tn_vec a, tn_vec b) { return (tn_vec)vmaxnmq_f32((float32x4_t)a, (float32x4_t)b); }
#else
TN_INLINE tn_vec tn_vec_max(tn_vec a, tn_vec b) { return tn_vec_pick(a > b, a, b); }
#endif

/* Sixteen lanes to one number: halves joined to halves. */
#define TN_LANES_JOIN(v, join_vectors, join_numbers)                                                                   \
    float s[TN_VEC];                                                                                                   \
    tn_vec t[TN_VECS];                                                                                                 \
    memcpy(t, v, sizeof t);                                                                                            \
    if (TN_VECS >= 4) {                                                                                                \
        t[0] = join_vectors(t[0], t[TN_VECS / 2]);                                                                     \
        t[TN_VECS / 4] = join_vectors(t[TN_VECS / 4], t[TN_VECS * 3 / 4]);                                             \
    }                                                                                                                  \
    if (TN_VECS >= 2) t[0] = join_vectors(t[0], t[TN_VECS / 2 - (TN_VECS >= 4)]);                                      \
    tn_vec_put(s, t[0]);                                                                                               \
    for (int l = 0; TN_VEC >= 16 && l < 8; l++) s[l] = join_numbers(s[l], s[l + 8 % TN_VEC]);                          \
    for (int l = 0; TN_VEC >= 8 && l < 4; l++) s[l] = join_numbers(s[l], s[l + 4 % TN_VEC]);                           \
    return join_numbers(join_numbers(s[0], s[2]), join_numbers(s[1], s[3]))

#define TN_JOIN_SUM(a, b) ((a) + (b))
#define TN_JOIN_MAX(a, b) ((a) > (b) ? (a) : (b))

TN_INLINE float tn_lanes_fold(const tn_vec *v) { TN_LANES_JOIN(v, TN_JOIN_SUM, TN_JOIN_SUM); }

TN_INLINE float tn_lanes_max(const tn_vec *v) { TN_LANES_JOIN(v, tn_vec_max, TN_JOIN_MAX); } /* of lanes without NaN */

#endif
