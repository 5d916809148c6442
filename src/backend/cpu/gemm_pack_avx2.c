/* The packer of fp32 panels for x86-64 with AVX2: columns that are contiguous along k are turned in blocks of 8 x 8 (and
 * 4 x 8 where a panel is 12 wide). The two halves of a register are loaded from rows four apart, which leaves the one
 * port that shuffles with 16 instructions for 64 numbers instead of 24. Everything else goes through tn__gemm_pack. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_load.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
enum { SIDE = 8 };

/* Numbers 0..3 of row `low` and of row `high`. */
TARGET INLINE __m256 two_rows(const float *low, const float *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

/* 8 rows, numbers 0..3 of each, into four rows of 8. */
TARGET INLINE void turn_half(float *restrict dst, int width, const float *from, int64_t outer)
{
    const __m256 a = two_rows(from, from + 4 * outer), b = two_rows(from + outer, from + 5 * outer);
    const __m256 c = two_rows(from + 2 * outer, from + 6 * outer), d = two_rows(from + 3 * outer, from + 7 * outer);
    const __m256 ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d);
    const __m256 AB = _mm256_unpackhi_ps(a, b), CD = _mm256_unpackhi_ps(c, d);
    _mm256_storeu_ps(dst, _mm256_shuffle_ps(ab, cd, 0x44));
    _mm256_storeu_ps(dst + width, _mm256_shuffle_ps(ab, cd, 0xee));
    _mm256_storeu_ps(dst + 2 * width, _mm256_shuffle_ps(AB, CD, 0x44));
    _mm256_storeu_ps(dst + 3 * width, _mm256_shuffle_ps(AB, CD, 0xee));
}

/* 4 rows, numbers 0..7 of each, into eight rows of 4. */
TARGET INLINE void turn_four(float *restrict dst, int width, const float *from, int64_t outer)
{
    const __m256 a = _mm256_loadu_ps(from), b = _mm256_loadu_ps(from + outer);
    const __m256 c = _mm256_loadu_ps(from + 2 * outer), d = _mm256_loadu_ps(from + 3 * outer);
    const __m256 ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d);
    const __m256 AB = _mm256_unpackhi_ps(a, b), CD = _mm256_unpackhi_ps(c, d);
    const __m256 row[4] = { _mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee),
                            _mm256_shuffle_ps(AB, CD, 0x44), _mm256_shuffle_ps(AB, CD, 0xee) };
    for (int q = 0; q < 4; q++) {
        _mm_storeu_ps(dst + q * width, _mm256_castps256_ps128(row[q]));
        _mm_storeu_ps(dst + (q + 4) * width, _mm256_extractf128_ps(row[q], 1));
    }
}

/* One whole panel; width a multiple of 4. */
TARGET INLINE void turn_panel(float *restrict dst, int width, const float *from, int64_t outer, int64_t k)
{
    for (int i = 0; i < width; i += SIDE) {
        const bool four = width - i < SIDE;
        const float *rows = from + i * outer;
        int64_t p = 0;
        for (; p + SIDE <= k; p += SIDE) {
            float *to = dst + p * width + i;
            if (four) {
                turn_four(to, width, rows + p, outer);
            } else {
                turn_half(to, width, rows + p, outer);
                turn_half(to + 4 * width, width, rows + p + 4, outer);
            }
        }
        for (; p < k; p++)
            for (int q = 0; q < (four ? 4 : SIDE); q++) dst[p * width + i + q] = rows[q * outer + p];
    }
}

TARGET void tn__gemm_pack_avx2(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k)
{
    const float *from = src.data;
    int64_t at = 0;
    if (src.type == TN_F32 && !src.round && src.inner == 1 && width % 4 == 0)
        for (; at + width <= valid; at += width) {
            const float *panel = from + at * src.outer;
            if (width == 12) turn_panel(dst + at * k, 12, panel, src.outer, k);
            else if (width == 24) turn_panel(dst + at * k, 24, panel, src.outer, k);
            else if (width == 32) turn_panel(dst + at * k, 32, panel, src.outer, k);
            else turn_panel(dst + at * k, width, panel, src.outer, k);
        }
    if (at == valid) return;
    src.data = (const unsigned char *)src.data + at * src.outer * (int64_t)tn_dtype_bytes(src.type);
    tn__gemm_pack(dst + at * k, width, src, valid - at, k);
}
#else
typedef int tn__gemm_pack_avx2_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
