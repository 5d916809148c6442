/* Packing: panels of A or B, of any float type and strides, into fp32 in the order the micro-kernel reads them.
 *
 * Blocks of 4 x 4 go through registers when either stride is 1 (copied, or transposed); what is left goes one number at a
 * time. The conversion is the same arithmetic in both, so which one ran cannot be seen in the bits. Compiled for all levels
 * of x86-64, as the later ones have instructions for half precision. */
#include "backend/cpu/gemm_load.h"
#include "backend/cpu/level.h"

/* One column of the panel, p in [from,k); column == NULL: padding. */
INLINE void pack_column(float *restrict dst, int width, const unsigned char *column, int64_t step, int64_t from,
                        int64_t k, kind t)
{
    for (int64_t p = from; p < k; p++) dst[p * width] = column ? load1(column + p * step, t) : 0.0f;
}

/* One panel whose columns are contiguous in memory (inner == 1): 4 x 4 blocks are transposed. Returns the columns done. */
INLINE int64_t pack_transposed(float *restrict dst, int width, const unsigned char *from, int64_t outer, int64_t valid,
                               int64_t k, kind t)
{
    const int64_t bytes = (int64_t)kind_bytes(t);
    int64_t i = 0;
    for (; i + 4 <= valid; i += 4) {
        const unsigned char *rows = from + i * outer;
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) {
            if (p % 16 == 0) /* the next four columns: as they are far apart, the hardware sees no stream in them */
                for (int q = 4; q < 8; q++)
                    __builtin_prefetch((const void *)((uintptr_t)rows + (uintptr_t)(q * outer + p * bytes)));
            quad x[4] = { load4(rows + p * bytes, t), load4(rows + outer + p * bytes, t),
                          load4(rows + 2 * outer + p * bytes, t), load4(rows + 3 * outer + p * bytes, t) };
            transpose4(x);
            for (int q = 0; q < 4; q++) memcpy(dst + (p + q) * width + i, &x[q], sizeof x[q]);
        }
        for (int q = 0; q < 4; q++) pack_column(dst + i + q, width, rows + q * outer, bytes, p, k, t);
    }
    return i;
}

/* Whole panels whose rows are contiguous in memory (outer == 1), side by side: reading them one after the other would
 * fetch each cache line of a row twice, and with a power of two between rows it is gone by the second time. */
INLINE void pack_copied(float *restrict dst, int width, const unsigned char *from, int64_t inner, int64_t panels,
                        int64_t k, kind t)
{
    enum { AHEAD = 8 }; /* rows: strides this long defeat the hardware's prefetcher */
    const int64_t bytes = (int64_t)kind_bytes(t);
    for (int64_t p = 0; p < k; p++) {
        const unsigned char *row = from + p * inner;
        for (int64_t q = 0; q < panels * width * bytes; q += 64)
            __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)(AHEAD * inner + q)));
        for (int64_t n = 0; n < panels; n++)
            for (int i = 0; i < width; i += 4, row += 4 * bytes) {
                const quad x = load4(row, t);
                memcpy(dst + (n * k + p) * width + i, &x, sizeof x);
            }
    }
}

/* Widths known when compiling: otherwise compilers call memcpy for each row of a panel. */
INLINE void copy_panels(float *restrict dst, int width, const unsigned char *from, int64_t inner, int64_t panels,
                        int64_t k, kind t)
{
    if (width == 8) pack_copied(dst, 8, from, inner, panels, k, t);
    else if (width == 12) pack_copied(dst, 12, from, inner, panels, k, t);
    else pack_copied(dst, width, from, inner, panels, k, t);
}

INLINE void pack(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k, kind t)
{
    const int64_t bytes = (int64_t)kind_bytes(t), outer = src.outer * bytes, inner = src.inner * bytes;
    const unsigned char *from = src.data;
    int64_t at = 0;
    if (src.outer == 1 && width % 4 == 0)
        for (int64_t panels; (panels = (valid - at) / width) > 0; at += panels * width) {
            if (panels > TN_GEMM_GROUP) panels = TN_GEMM_GROUP;
            copy_panels(dst + at * k, width, from + at * bytes, inner, panels, k, t);
        }
    for (; at < valid; at += width) {
        const int64_t columns = valid - at < width ? valid - at : width;
        float *panel = dst + at * k;
        int64_t i = src.inner == 1 ? pack_transposed(panel, width, from + at * outer, outer, columns, k, t) : 0;
        for (; i < width; i++)
            pack_column(panel + i, width, i < columns ? from + (at + i) * outer : NULL, inner, 0, k, t);
    }
}

#define PACK(name, kind)                                                                                               \
    static void name(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k)                     \
    {                                                                                                                  \
        pack(dst, width, src, valid, k, kind);                                                                         \
    }
PACK(pack_f32, F32)
PACK(pack_f32_to_bf16, F32_TO_BF16)
PACK(pack_f32_to_f16, F32_TO_F16)
PACK(pack_bf16, BF16)
PACK(pack_bf16_to_f16, BF16_TO_F16)
PACK(pack_f16, F16)
PACK(pack_f16_to_bf16, F16_TO_BF16)

typedef void pack_fn(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k);
static pack_fn *const packs[TN_DTYPES][TN_DTYPES] = {
    /* by type and rounding */
    [TN_F32] = { [TN_F32] = pack_f32, [TN_BF16] = pack_f32_to_bf16, [TN_F16] = pack_f32_to_f16 },
    [TN_BF16] = { [TN_F32] = pack_bf16, [TN_BF16] = pack_bf16, [TN_F16] = pack_bf16_to_f16 },
    [TN_F16] = { [TN_F32] = pack_f16, [TN_BF16] = pack_f16_to_bf16, [TN_F16] = pack_f16 },
};

TN_LEVELED(void, tn__gemm_pack, (float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k),
           (dst, width, src, valid, k))
{
    packs[src.type][src.round](dst, width, src, valid, k);
}
