/* The body of a packer of bf16 panels, for files that define TN_TARGET (an attribute, or nothing) and
 * TN_TO_BF16(quad) (four numbers rounded to nearest even, as a uint64_t) before they include it.
 *
 * Blocks of 4 x 4 go through registers when either stride is 1 (turned if need be); what is left goes one number at a
 * time, in the same arithmetic. A number's place is tn_gemm_panel's. */
#include "backend/cpu/gemm_load.h"

/* What rounding x to bf16 leaves, exactly; nothing of an infinity, of a NaN and of what rounding makes infinite. */
INLINE quad left_by_bf16(quad x)
{
    const quad rounded = round_to_bf16(x);
    const bits finite = (bits)(((bits)rounded & 0x7f800000u) != 0x7f800000u);
    return (quad)((bits)(x - rounded) & finite);
}

INLINE quad part_of(quad x, int part)
{
    for (int i = 0; i < part; i++) x = left_by_bf16(x);
    return x;
}

/* Numbers (i,p) .. (i,p+3), p a multiple of 4; a depth below 4 is 2. */
INLINE void put4(uint16_t *restrict dst, const tn_gemm_panel *to, int64_t i, int64_t p, uint64_t four)
{
    const int64_t depth = to->depth;
    uint16_t *at = dst + (p / depth * to->width + i) * depth + p % depth;
    if (depth >= 4) {
        memcpy(at, &four, 8);
        return;
    }
    const uint32_t low = (uint32_t)four, high = (uint32_t)(four >> 32);
    memcpy(at, &low, 4);
    memcpy(at + to->width * depth, &high, 4);
}

/* Any strides, and what is beyond k: one number at a time. */
TN_TARGET INLINE uint64_t gather4(const unsigned char *from, int64_t inner, int64_t count, int part, kind t)
{
    quad x = { 0 };
    for (int q = 0; q < 4; q++)
        if (q < count) x[q] = load1(from + q * inner, t);
    return TN_TO_BF16(part_of(x, part));
}

/* Four k from p on of one panel with `columns` real columns; in bytes: outer, inner. */
TN_TARGET INLINE void pack_four(uint16_t *restrict dst, const tn_gemm_panel *to, const unsigned char *from,
                                int64_t outer, int64_t inner, int64_t columns, int64_t p, int64_t k, int part, kind t)
{
    const int64_t bytes = (int64_t)kind_bytes(t);
    int64_t i = 0;
    if (p + 4 <= k && inner == bytes)
        for (; i < columns; i++) put4(dst, to, i, p, TN_TO_BF16(part_of(load4(from + i * outer, t), part)));
    else if (p + 4 <= k && outer == bytes)
        for (; i + 4 <= columns; i += 4) {
            quad x[4];
            for (int q = 0; q < 4; q++) x[q] = part_of(load4(from + i * bytes + q * inner, t), part);
            transpose4(x);
            for (int q = 0; q < 4; q++) put4(dst, to, i + q, p, TN_TO_BF16(x[q]));
        }
    for (; i < columns; i++) put4(dst, to, i, p, gather4(from + i * outer, inner, k - p, part, t));
    for (; i < to->width; i++) put4(dst, to, i, p, 0);
}

TN_TARGET INLINE void pack_panels(uint16_t *restrict dst, const tn_gemm_panel *to, const tn_gemm_source *src,
                                  int64_t valid, int64_t k, kind t)
{
    const int64_t bytes = (int64_t)kind_bytes(t), outer = src->outer * bytes, inner = src->inner * bytes;
    for (int64_t at = 0; at < valid; at += to->width) {
        const unsigned char *from = (const unsigned char *)src->data + at * outer;
        const int64_t columns = valid - at < to->width ? valid - at : to->width;
        for (int64_t p = 0; p < to->k; p += 4)
            pack_four(dst + at * to->k, to, from + p * inner, outer, inner, columns, p, k, src->part, t);
    }
}

TN_TARGET static void pack_any(uint16_t *restrict dst, const tn_gemm_panel *to, const tn_gemm_source *src,
                               int64_t valid, int64_t k)
{
    if (src->type == TN_F32) pack_panels(dst, to, src, valid, k, F32);
    else if (src->type == TN_BF16) pack_panels(dst, to, src, valid, k, BF16);
    else pack_panels(dst, to, src, valid, k, F16);
}
