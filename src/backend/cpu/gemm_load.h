/* Loading numbers of any float type as fp32, four at a time: shared by what packs and what reads operands in place.
 *
 * Everything here is inlined into its caller, so that it is compiled for the caller's target. It must stay the same
 * arithmetic for four numbers and for one: which of them ran cannot be seen in the bits. */
#ifndef TN_BACKEND_CPU_GEMM_LOAD_H
#define TN_BACKEND_CPU_GEMM_LOAD_H

#include "backend/cpu/gemm_kernel.h"

#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__F16C__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

typedef float quad __attribute__((vector_size(16)));
typedef uint32_t bits __attribute__((vector_size(16)));
typedef uint64_t wide __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));

/* What a source number is and what happens to it; each makes its own instance of the loops that load. */
typedef enum kind { F32, F32_TO_BF16, F32_TO_F16, BF16, BF16_TO_F16, F16, F16_TO_BF16 } kind;

INLINE size_t kind_bytes(kind t) { return t <= F32_TO_F16 ? 4 : 2; }

/* To nearest even, as tn_f32_to_bf16 does, and back. Lanes of a comparison are all ones or all zeros. */
INLINE quad round_to_bf16(quad x)
{
    const bits u = (bits)x, is_nan = (bits)((u & 0x7fffffffu) > 0x7f800000u);
    const bits rounded = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
    return (quad)(((rounded & ~is_nan) | (quiet & is_nan)) & 0xffff0000u);
}

/* To nearest even in half precision, as tn_f32_to_f16 does, and back: what is too large becomes an infinity, what is too
 * small a multiple of the smallest subnormal. */
#if defined(__aarch64__)
INLINE quad round_to_f16(quad x) { return (quad)vcvt_f32_f16(vcvt_f16_f32((float32x4_t)x)); }
#elif defined(__F16C__)
INLINE quad round_to_f16(quad x) { return (quad)_mm_cvtph_ps(_mm_cvtps_ph((__m128)x, _MM_FROUND_TO_NEAREST_INT)); }
#else
INLINE bits choose(bits first, bits a, bits b) { return (a & first) | (b & ~first); }

INLINE quad round_to_f16(quad x)
{
    const bits u = (bits)x, m = u & 0x7fffffffu;
    const bits small = (bits)(((quad)m + 0.5f) - 0.5f); /* 2^-24 apart, and the adder rounds to even */
    const bits even = (m + 0xfffu + (m >> 13 & 1u)) & ~0x1fffu;
    bits r = choose((bits)(m < 0x38800000u), small, even);
    r = choose((bits)(m >= 0x477ff000u), (bits){ 0 } + 0x7f800000u, r);
    r = choose((bits)(m > 0x7f800000u), m | 0x400000u, r);
    return (quad)(r | (u & 0x80000000u));
}
#endif

/* The exponent is moved by an exact multiplication, which also takes subnormals right; infinity and NaN get the top
 * exponent back. */
INLINE quad f16_to_f32(bits x)
{
    const bits magnitude = (bits)((quad)((x & 0x7fffu) << 13) * 0x1p112f);
    const bits special = (bits)((x & 0x7c00u) == 0x7c00u) & 0x7f800000u;
    return (quad)(magnitude | special | (x & 0x8000u) << 16);
}

/* The low four numbers of two registers: with zeros as one of them, a widening (compilers are slow at the plain one). */
INLINE halves interleave(halves low, halves high)
{
    return __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
}

INLINE quad load4(const unsigned char *p, kind t)
{
    quad x;
    if (t <= F32_TO_F16) {
        memcpy(&x, p, sizeof x);
    } else {
        uint64_t four;
        memcpy(&four, p, sizeof four);
        const halves h = (halves)(wide){ four };
        x = t == BF16 || t == BF16_TO_F16 ? (quad)interleave((halves){ 0 }, h)
                                          : f16_to_f32((bits)interleave(h, (halves){ 0 }));
    }
    if (t == F32_TO_BF16 || t == F16_TO_BF16) return round_to_bf16(x);
    return t == F32_TO_F16 || t == BF16_TO_F16 ? round_to_f16(x) : x;
}

INLINE float load1(const unsigned char *p, kind t)
{
    unsigned char four[16] = { 0 };
    memcpy(four, p, kind_bytes(t));
    return load4(four, t)[0];
}

/* One number of each of four columns. */
INLINE quad load_columns(const unsigned char *p, int64_t step, kind t)
{
    return (quad){ load1(p, t), load1(p + step, t), load1(p + 2 * step, t), load1(p + 3 * step, t) };
}

/* Rows x[0..3] become columns. */
INLINE void transpose4(quad x[4])
{
    const quad a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
    const quad c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    x[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    x[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    x[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

/* Four numbers of half precision at either end of h. */
#if defined(__aarch64__)
INLINE quad f16_low(halves h) { return (quad)vcvt_f32_f16(vget_low_f16((float16x8_t)h)); }
INLINE quad f16_high(halves h) { return (quad)vcvt_high_f32_f16((float16x8_t)h); }
#elif defined(__F16C__)
INLINE quad f16_low(halves h) { return (quad)_mm_cvtph_ps((__m128i)h); }
INLINE quad f16_high(halves h) { return (quad)_mm_cvtph_ps(_mm_srli_si128((__m128i)h, 8)); }
#else
INLINE quad f16_low(halves h) { return f16_to_f32((bits)interleave(h, (halves){ 0 })); }
INLINE quad f16_high(halves h)
{
    return f16_to_f32((bits)__builtin_shufflevector(h, (halves){ 0 }, 4, 12, 5, 13, 6, 14, 7, 15));
}
#endif

/* x[q] holds pairs of halves, (2q, 2q+1) of four columns; y[p] gets number p of the four. F32: x[q] are numbers q. */
INLINE void split_pairs(const quad x[4], quad y[8], kind t)
{
    for (int q = 0; q < 4; q++)
        if (t == BF16) {
            y[2 * q] = (quad)((bits)x[q] << 16);
            y[2 * q + 1] = (quad)((bits)x[q] & 0xffff0000u);
        } else if (t == F32) y[q] = x[q];
    for (int q = 0; q < 4 && t == F16; q += 2) {
        const halves a = (halves)x[q], b = (halves)x[q + 1];
        const halves even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
        const halves odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
        y[2 * q] = f16_low(even);
        y[2 * q + 1] = f16_low(odd);
        y[2 * q + 2] = f16_high(even);
        y[2 * q + 3] = f16_high(odd);
    }
}

#endif
