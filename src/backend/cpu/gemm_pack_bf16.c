/* The packer of bf16 panels for any machine. ISAs with an instruction for the rounding bring their own. */
#define TN_TARGET
#define TN_TO_BF16(x) to_bf16(x)
#include "backend/cpu/gemm_load.h"

INLINE uint64_t to_bf16(quad x)
{
    const halves h = (halves)round_to_bf16(x);
    return ((wide)__builtin_shufflevector(h, h, 1, 3, 5, 7, 1, 3, 5, 7))[0];
}

#include "backend/cpu/gemm_pack_bf16.h"

void tn__gemm_pack_bf16(uint16_t *restrict dst, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k)
{
    pack_any(dst, &to, &src, valid, k);
}
