/* The packer of bf16 panels for x86-64 with AVX512-BF16, 32 numbers along k by 16 rows or columns at a time.
 *
 * Such a block is 16 registers of pairs, loaded along the direction that is contiguous in memory (a register: 16 pairs
 * of one row, or one pair of 16 rows) and turned if the panel wants the other. Types and strides it has no way for go
 * through tn__gemm_pack_bf16. The instruction that rounds flushes denormals to 0, which the products would do anyway. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/transpose_avx512.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512bf16,avx2,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { SIDE = 16, DEPTH = 32 };

/* What rounding x to bf16 leaves; nothing of what is not finite once rounded. */
INLINE __m512 left_by_bf16(__m512 x)
{
    const __m512i up = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)), r = _mm512_slli_epi32(up, 16);
    const __m512i top = _mm512_set1_epi32(0x7f800000);
    const __mmask16 finite = _mm512_cmpneq_epi32_mask(_mm512_and_si512(r, top), top);
    return _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(r));
}

INLINE __m512 part_of(__m512 x, int part)
{
    for (int i = 0; i < part; i++) x = left_by_bf16(x);
    return x;
}

/* 32 numbers that lie together, those whose bit of `valid` is not set 0: 16 pairs of neighbours. */
INLINE __m512i load_along(const unsigned char *from, uint32_t valid, bool is_f32, int part)
{
    if (!is_f32) return _mm512_maskz_loadu_epi16(part ? 0 : valid, from);
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)valid, from);
    const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(valid >> SIDE), from + SIDE * sizeof(float));
    return (__m512i)_mm512_cvtne2ps_pbh(part_of(high, part), part_of(low, part));
}

/* 16 numbers each of two lines: 16 pairs, the first of each from `from`. next == NULL: a line of 0. */
INLINE __m512i load_across(const unsigned char *from, const unsigned char *next, __mmask16 valid, bool is_f32, int part)
{
    const __mmask16 second = next ? valid : 0;
    if (!is_f32) {
        const __mmask32 none = 0;
        const __m512i a = _mm512_maskz_loadu_epi16(part ? none : valid, from);
        const __m512i b = _mm512_maskz_loadu_epi16(part ? none : second, next ? next : from);
        return _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(a)),
                               _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(b)), 16));
    }
    const __m512 a = _mm512_maskz_loadu_ps(valid, from), b = _mm512_maskz_loadu_ps(second, next ? next : from);
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(part_of(b, part), part_of(a, part));
    return _mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(both)),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1)), 16));
}

/* One block: from points at its number (0,0), rows x k of it are real; at points at its first number in the panel. */
INLINE void pack_block(uint16_t *restrict at, const tn_gemm_panel *to, const unsigned char *from, int64_t outer,
                       int64_t inner, int64_t rows, int64_t k, bool is_f32, bool along, int part)
{
    const uint32_t valid = k >= DEPTH ? 0xffffffffu : (1u << k) - 1;
    const __mmask16 side = (__mmask16)(rows >= SIDE ? 0xffff : (1u << rows) - 1);
    __m512i x[SIDE];
    UNROLL for (int i = 0; i < SIDE; i++)
    {
        const unsigned char *line = from + (along ? i * outer : 2 * i * inner);
        if (along) x[i] = i < rows ? load_along(line, valid, is_f32, part) : _mm512_setzero_si512();
        else if (2 * i >= k) x[i] = _mm512_setzero_si512();
        else x[i] = load_across(line, 2 * i + 1 < k ? line + inner : NULL, side, is_f32, part);
    }
    const bool deep = to->depth == DEPTH;
    if (along != deep) tn__transpose_words(x);
    const int64_t width = to->width < SIDE ? to->width : SIDE;
    if (deep)
        for (int i = 0; i < width; i++) _mm512_storeu_si512(at + i * DEPTH, x[i]);
    else UNROLL for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(at + 2 * i * to->width, x[i]);
}

/* 32 steps along k, from p on, of the panel whose first line is `first`. A depth of 2 comes with a width that is a multiple of 16, one
 * of 32 with any. */
INLINE void pack_steps(uint16_t *restrict dst, const tn_gemm_panel *to, const tn_gemm_source *src, int64_t valid,
                       int64_t k, int64_t first, int64_t p, bool is_f32, bool along)
{
    const int64_t bytes = is_f32 ? 4 : 2, outer = src->outer * bytes, inner = src->inner * bytes;
    for (int64_t i = 0; i < to->width; i += SIDE) {
        const int64_t here = valid - first - i, room = to->width - i;
        const int64_t rows = here < 0 ? 0 : here < room ? here : room;
        uint16_t *at = dst + first * to->k + (to->depth == DEPTH ? p * to->width + i * DEPTH : p * to->width + 2 * i);
        const tn_gemm_panel rest = { (int)(to->depth == DEPTH ? room : to->width), to->depth, to->k };
        pack_block(at, &rest, (const unsigned char *)src->data + (first + i) * outer + p * inner, outer, inner, rows,
                   k - p < 0 ? 0 : k - p, is_f32, along, src->part);
    }
}

/* In the order of memory: what is contiguous along k panel by panel, what is contiguous across it 32 lines of all panels at a time. */
INLINE void pack_panels(uint16_t *restrict dst, const tn_gemm_panel *to, const tn_gemm_source *src, int64_t valid,
                        int64_t k, bool is_f32, bool along)
{
    if (along)
        for (int64_t first = 0; first < valid; first += to->width)
            for (int64_t p = 0; p < to->k; p += DEPTH) pack_steps(dst, to, src, valid, k, first, p, is_f32, true);
    else
        for (int64_t p = 0; p < to->k; p += DEPTH)
            for (int64_t first = 0; first < valid; first += to->width)
                pack_steps(dst, to, src, valid, k, first, p, is_f32, false);
}

/* Their own functions: four variants in one would be too much for the compiler to keep in registers. */
#define VARIANT(name, is_f32, along)                                                                                   \
    TARGET static void name(uint16_t *restrict dst, const tn_gemm_panel *to, const tn_gemm_source *src, int64_t valid, \
                            int64_t k)                                                                                 \
    {                                                                                                                  \
        pack_panels(dst, to, src, valid, k, is_f32, along);                                                            \
    }
VARIANT(f32_across, true, false)
VARIANT(f32_along, true, true)
VARIANT(bf16_across, false, false)
VARIANT(bf16_along, false, true)

void tn__gemm_pack_avx512(uint16_t *restrict dst, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k)
{
    if (src.type == TN_F16 || (src.inner != 1 && src.outer != 1)) tn__gemm_pack_bf16(dst, to, src, valid, k);
    else if (src.type == TN_F32) (src.inner == 1 ? f32_along : f32_across)(dst, &to, &src, valid, k);
    else (src.inner == 1 ? bf16_along : bf16_across)(dst, &to, &src, valid, k);
}
#else
typedef int tn__gemm_pack_avx512_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
