/* The packer of fp32 panels from bf16 for x86-64 with AVX-512 (frozen weights are held so): columns that are contiguous along k, 16 of them
 * and a cache line of each at a time. A word is two neighbouring steps of k, which are taken apart when the words have been transposed.
 * fp32 and everything else goes through tn__gemm_pack_avx2: memory bounds it, and 16 columns gained nothing. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/transpose_avx512.h"

#define TARGET __attribute__((target("avx512f")))
#define INSIDE TARGET static inline __attribute__((always_inline))

enum { SIDE = 16, STEPS = 32 /* in a line */, BYTES = 2 };

/* Words of a line that are there; of columns that are not, zeros. The lines of the columns behind are asked for meanwhile: a block along
 * k is too short for the hardware to see a stream in each column. */
INSIDE void load_words(__m512i x[SIDE], const unsigned char *from, int64_t outer, int columns, __mmask16 words)
{
#pragma GCC unroll 16
    for (int c = 0; c < SIDE; c++) {
        x[c] = c < columns ? _mm512_maskz_loadu_epi32(words, from + c * outer) : _mm512_setzero_si512();
        if (c < columns)
            _mm_prefetch((const char *)((uintptr_t)from + (uintptr_t)((columns + c) * outer)), _MM_HINT_T0);
    }
    tn__transpose_words(x);
}

/* Columns [0, columns) of one step of k. */
INSIDE void put(float *at, int columns, __m512i x)
{
    if (columns == SIDE) _mm512_storeu_si512(at, x);
    else _mm512_mask_storeu_epi32(at, (__mmask16)((1u << columns) - 1), x);
}

INSIDE void put_words(float *dst, int width, int columns, const __m512i x[SIDE], int words)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
#pragma GCC unroll 16
    for (int w = 0; w < SIDE; w++) {
        if (w >= words) break;
        put(dst + 2 * w * width, columns, _mm512_slli_epi32(x[w], 16));
        put(dst + (2 * w + 1) * width, columns, _mm512_and_si512(x[w], high));
    }
}

/* The last number of an odd count, which has no whole word to be read as. */
INSIDE void put_last(float *dst, int columns, const unsigned char *from, int64_t outer)
{
    for (int c = 0; c < columns; c++) {
        uint16_t bits;
        __builtin_memcpy(&bits, from + c * outer, sizeof bits);
        const uint32_t word = (uint32_t)bits << 16;
        __builtin_memcpy(dst + c, &word, sizeof word);
    }
}

/* Up to 16 columns of a panel, all of k. */
INSIDE void pack_columns(float *restrict dst, int width, int columns, const unsigned char *from, int64_t outer,
                         int64_t k)
{
    __m512i x[SIDE];
    int64_t p = 0;
    for (; p + STEPS <= k; p += STEPS) {
        load_words(x, from + p * BYTES, outer, columns, 0xffff);
        put_words(dst + p * width, width, columns, x, SIDE);
    }
    const int words = (int)(k - p) / 2;
    if (words > 0) {
        load_words(x, from + p * BYTES, outer, columns, (__mmask16)((1u << words) - 1));
        put_words(dst + p * width, width, columns, x, words);
    }
    if (k % 2) put_last(dst + (k - 1) * width, columns, from + (k - 1) * BYTES, outer);
}

/* Their own functions, with the number of columns known. */
typedef void columns_fn(float *restrict dst, int width, const unsigned char *from, int64_t outer, int64_t k);
#define COLUMNS(name, columns)                                                                                         \
    TARGET static void name(float *restrict dst, int width, const unsigned char *from, int64_t outer, int64_t k)       \
    {                                                                                                                  \
        pack_columns(dst, width, columns, from, outer, k);                                                             \
    }
COLUMNS(pack_16, 16)
COLUMNS(pack_12, 12)
COLUMNS(pack_8, 8)

void tn__gemm_pack_f32_avx512(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k)
{
    const int side = width == 12 || width == 8 ? width : SIDE;
    columns_fn *some = width == 12 ? pack_12 : width == 8 ? pack_8 : pack_16;
    int64_t at = 0;
    if (src.type == TN_BF16 && src.round != TN_F16 && src.inner == 1 && width % side == 0)
        for (; at + width <= valid; at += width)
            for (int i = 0; i < width; i += side)
                some(dst + at * k + i, width, (const unsigned char *)src.data + (at + i) * src.outer * BYTES,
                     src.outer * BYTES, k);
    if (at == valid) return;
    src.data = (const unsigned char *)src.data + at * src.outer * (int64_t)tn_dtype_bytes(src.type);
    tn__gemm_pack_avx2(dst + at * k, width, src, valid - at, k);
}
#else
typedef int tn__gemm_pack_f32_avx512_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
