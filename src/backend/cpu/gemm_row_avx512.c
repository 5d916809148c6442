/* One row times 16 columns that lie along k, with AVX-512 (generating text is this product). Each column gives a line of 64 bytes, read once:
 * the 16 x 16 words are turned in registers, so that a vector holds one step of k (of bf16 a pair of steps) of all columns.
 *
 * Invariant: an element's sum is the chain of the narrower kernels (gemm_micro.h: TN_ROW), so that columns have the same bits wherever
 * they stand. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include "backend/cpu/gemm.h"
#include "backend/cpu/transpose_avx512.h"

#define TARGET __attribute__((target("avx512f")))
#define INSIDE TARGET static inline __attribute__((always_inline))

enum { COLUMNS = 16, LINE = 64, WORDS = 16 };

/* The line that begins at p of every column; the memory behind all columns is asked for meanwhile. */
INSIDE void load_lines(const unsigned char *p, int64_t step, uintptr_t ahead, __m512i x[WORDS])
{
#pragma GCC unroll 16
    for (int c = 0; c < COLUMNS; c++) {
        x[c] = _mm512_loadu_si512(p + c * step);
        _mm_prefetch((const char *)(ahead + (uintptr_t)(LINE * c)), _MM_HINT_T0);
    }
    tn__transpose_words(x);
}

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

/* Words [0, n) of a line; where `pairs`, each is two steps. */
INSIDE __m512 add_words(__m512 sum, const float *a, const __m512i x[WORDS], int n, bool pairs)
{
#pragma GCC unroll 16
    for (int i = 0; i < WORDS; i++) {
        if (i >= n) break;
        if (!pairs) sum = step_of(sum, a[i], _mm512_castsi512_ps(x[i]));
        else sum = step_of(step_of(sum, a[2 * i], first_of(x[i])), a[2 * i + 1], second_of(x[i]));
    }
    return sum;
}

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

INSIDE void run(int64_t k, const float *restrict a, const void *restrict columns, int64_t b_step, float *restrict acc,
                bool pairs)
{
    const int per = pairs ? 2 * WORDS : WORDS, bytes = pairs ? 2 : 4;
    const unsigned char *b = columns;
    const int64_t step = b_step * bytes;
    uintptr_t ahead = (uintptr_t)b + (uintptr_t)(COLUMNS * step);
    for (int64_t left = k; left > 0; left -= TN_GEMM_KC) {
        const int64_t n = left < TN_GEMM_KC ? left : TN_GEMM_KC;
        __m512 sum = _mm512_setzero_ps();
        __m512i x[WORDS];
        int64_t p = 0;
        for (; p + per <= n; p += per, a += per, b += LINE, ahead += LINE * COLUMNS) {
            load_lines(b, step, ahead, x);
            sum = add_words(sum, a, x, WORDS, pairs);
        }
        const int words = (int)((n - p) * bytes / 4), steps = words * 4 / bytes;
        if (words > 0) {
            load_ends(b, step, words, x);
            sum = add_words(sum, a, x, words, pairs);
            a += steps, b += 4 * words;
        }
        if (p + steps < n) {
            sum = add_single(sum, *a, b, step);
            a++, b += bytes;
        }
        _mm512_storeu_ps(acc, _mm512_add_ps(_mm512_loadu_ps(acc), sum));
    }
}

TARGET void tn__gemm_row_avx512(int64_t k, const float *restrict a, const void *restrict b, int64_t b_step,
                                float *restrict acc)
{
    run(k, a, b, b_step, acc, false);
}

TARGET void tn__gemm_row_bf16_avx512(int64_t k, const float *restrict a, const void *restrict b, int64_t b_step,
                                     float *restrict acc)
{
    run(k, a, b, b_step, acc, true);
}
#else
typedef int tn__gemm_row_avx512_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
