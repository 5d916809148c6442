/* One row times 16 columns that lie along k, with AVX-512 (generating text is this product). Each column gives a line of 64 bytes, read once:
 * the 16 x 16 words are turned in registers, so that a vector holds one step of k (of bf16 a pair of steps) of all columns.
 *
 * Invariant: an element's sum is the chain of the narrower kernels (gemm_micro.h: TN_ROW), so that columns have the same bits wherever
 * they stand. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include "backend/cpu/gemm_columns_avx512.h"

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
