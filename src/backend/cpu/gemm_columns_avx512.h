/* Columns that lie along k, 16 at a time with AVX-512: what the kernels that read them so have in common. */
#ifndef TN_BACKEND_CPU_GEMM_COLUMNS_AVX512_H
#define TN_BACKEND_CPU_GEMM_COLUMNS_AVX512_H

#include "backend/cpu/transpose_avx512.h"

#include <stdint.h>

#define TARGET __attribute__((target("avx512f")))
#define INSIDE TARGET static inline __attribute__((always_inline))

enum { COLUMNS = 16, LINE = 64, WORDS = 16 };

/* The last steps, fewer than a line has: the words of a column that it still has. */
INSIDE void load_ends(const unsigned char *p, int64_t step, int words, __m512i x[WORDS])
{
    const __mmask16 mask = (__mmask16)((1u << words) - 1);
#pragma GCC unroll 16
    for (int c = 0; c < COLUMNS; c++) x[c] = _mm512_maskz_loadu_epi32(mask, p + c * step);
    tn__transpose_words(x);
}

INSIDE __m512 first_of(__m512i pair) { return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)); }
INSIDE __m512 second_of(__m512i pair)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u)));
}

INSIDE __m512 step_of(__m512 sum, float a, __m512 b) { return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum); }

/* A last bf16 number that has no pair. */
INSIDE __m512 add_single(__m512 sum, float a, const unsigned char *p, int64_t step)
{
    uint32_t x[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        uint16_t half;
        __builtin_memcpy(&half, p + c * step, sizeof half);
        x[c] = (uint32_t)half << 16;
    }
    return step_of(sum, a, _mm512_castsi512_ps(_mm512_loadu_si512(x)));
}

#endif
