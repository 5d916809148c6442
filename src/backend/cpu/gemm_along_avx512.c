/* A few rows times 16 columns that lie along k, with AVX-512: the queries that share a head of a cache, or rows that decode together. As in
 * gemm_row_avx512.c a line of every column is read at once and turned in registers.
 *
 * Invariant: an element's sum is the chain of TN_ALONG_K (gemm_micro.h), so that which kernel ran cannot be seen in the bits. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include "backend/cpu/gemm_columns_avx512.h"

/* A whole line of every column; those of the next 16 columns are asked for meanwhile, as the hardware sees no stream in short ones. */
INSIDE void load_columns(const unsigned char *b, int64_t step, __m512i x[WORDS])
{
#pragma GCC unroll 16
    for (int c = 0; c < COLUMNS; c++) {
        x[c] = _mm512_loadu_si512(b + c * step);
        _mm_prefetch((const char *)((uintptr_t)b + (uintptr_t)((COLUMNS + c) * step)), _MM_HINT_T0);
    }
    tn__transpose_words(x);
}

/* Words [0, n) of a line, each one step of k or, where `pairs`, two. a (k,rows). */
INSIDE void add_words(__m512 *sum, const float *a, const __m512i x[WORDS], int n, int rows, bool pairs)
{
#pragma GCC unroll 16
    for (int i = 0; i < WORDS; i++) {
        if (i >= n) break;
        const __m512 first = pairs ? first_of(x[i]) : _mm512_castsi512_ps(x[i]), second = second_of(x[i]);
        const float *at = a + (pairs ? 2 : 1) * i * rows;
        for (int r = 0; r < rows; r++) sum[r] = step_of(sum[r], at[r], first);
        for (int r = 0; pairs && r < rows; r++) sum[r] = step_of(sum[r], at[rows + r], second);
    }
}

INSIDE void run(int64_t k, const float *restrict a, const void *restrict columns, int64_t b_step, float *restrict acc,
                int64_t acc_row, int rows, bool pairs)
{
    const int per = pairs ? 2 * WORDS : WORDS, bytes = pairs ? 2 : 4;
    const unsigned char *b = columns;
    const int64_t step = b_step * bytes;
    __m512 sum[TN_GEMM_DIRECT];
    __m512i x[WORDS];
    int64_t p = 0;
    for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
    for (; p + per <= k; p += per, a += per * rows, b += LINE) {
        load_columns(b, step, x);
        add_words(sum, a, x, WORDS, rows, pairs);
    }
    const int words = (int)((k - p) * bytes / 4), steps = words * 4 / bytes;
    if (words > 0) {
        load_ends(b, step, words, x);
        add_words(sum, a, x, words, rows, pairs);
    }
    if (p + steps < k)
        for (int r = 0; r < rows; r++) sum[r] = add_single(sum[r], a[steps * rows + r], b + 4 * words, step);
    for (int r = 0; r < rows; r++) {
        float *to = acc + r * acc_row;
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum[r]));
    }
}

#define ALONG(name, rows, pairs)                                                                                       \
    TARGET void name(int64_t k, const void *restrict a, const void *restrict b, int64_t b_step, float *restrict acc,   \
                     int64_t acc_row)                                                                                  \
    {                                                                                                                  \
        run(k, a, b, b_step, acc, acc_row, rows, pairs);                                                               \
    }
ALONG(tn__gemm_along_avx512_1, 1, false)
ALONG(tn__gemm_along_avx512_2, 2, false)
ALONG(tn__gemm_along_avx512_4, 4, false)
ALONG(tn__gemm_along_bf16_avx512_1, 1, true)
ALONG(tn__gemm_along_bf16_avx512_2, 2, true)
ALONG(tn__gemm_along_bf16_avx512_4, 4, true)
#else
typedef int tn__gemm_along_avx512_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
