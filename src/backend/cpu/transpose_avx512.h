/* 16 x 16 words of 32 bits in registers, for the AVX-512 files that read columns as they lie and want rows, or the reverse. */
#ifndef TN_BACKEND_CPU_TRANSPOSE_AVX512_H
#define TN_BACKEND_CPU_TRANSPOSE_AVX512_H

#include <immintrin.h>

/* x[i] word j becomes x[j] word i: 64 shuffles, each of which swaps blocks across the diagonal. */
__attribute__((target("avx512f"), always_inline)) static inline void tn__transpose_words(__m512i x[16])
{
    __m512i y[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(x[i], x[i + 1]), b = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(x[i + 2], x[i + 3]), d = _mm512_unpackhi_epi32(x[i + 2], x[i + 3]);
        y[i] = _mm512_unpacklo_epi64(a, c);
        y[i + 1] = _mm512_unpackhi_epi64(a, c);
        y[i + 2] = _mm512_unpacklo_epi64(b, d);
        y[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    /* y[4 g + q]: words q, q + 4, q + 8 and q + 12 of lines 4 g to 4 g + 3, one in each quarter */
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        const __m512i a = _mm512_shuffle_i32x4(y[q], y[q + 4], 0x88), b = _mm512_shuffle_i32x4(y[q], y[q + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(y[q + 8], y[q + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(y[q + 8], y[q + 12], 0xdd);
        x[q] = _mm512_shuffle_i32x4(a, c, 0x88);
        x[q + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        x[q + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        x[q + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

#endif
