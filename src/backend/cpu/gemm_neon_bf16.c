/* The bf16 micro-kernel for arm64 with BFMMLA: 8 x 12, as blocks of 2 x 2 that one instruction adds a 2 x 4 by 4 x 2
 * product to. 24 registers hold sums, 4 two rows of A each, and B goes through what is left.
 *
 * The instructions are written out: gcc 12 spills sums with the intrinsics. The statements are volatile so that they keep
 * their order, which is what keeps the registers at 32: look at the assembly after any change. Compiled for its own
 * target; gemm_kernel.c calls it only where the machine has it. */
#if defined(__aarch64__)
#include <arm_neon.h>

#if defined(__clang__)
#define TN_TARGET __attribute__((target("bf16")))
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define TN_TARGET __attribute__((target("+bf16")))
#define UNROLL _Pragma("GCC unroll 24")
#endif
#define TN_TO_BF16(x) to_bf16(x)
#include "backend/cpu/gemm_load.h"

TN_TARGET INLINE uint64_t to_bf16(quad x)
{
    quad four;
    __asm__("bfcvtn %0.4h, %1.4s" : "=w"(four) : "w"(x));
    return ((wide)four)[0];
}

#include "backend/cpu/gemm_pack_bf16.h"

#define BFMMLA(sum, a, b) __asm__ volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b))
#define LOAD(x, from) __asm__ volatile("ldr %q0, %1" : "=w"(x) : "m"(*(from)))

typedef struct block8 {
    uint16_t x[8];
} block8; /* 2 rows of A or columns of B, 4 numbers along k each */

/* acc (rows,12): the sums of two neighbouring blocks are two rows of four. */
/* clang-format off */
#define MICRO(rows)                                                                                                    \
    TN_TARGET static void micro_##rows(int64_t k, const void *restrict a_panel, const void *restrict b_panel,          \
                                       int64_t b_step, float *restrict acc, int64_t acc_row)                           \
    {                                                                                                                  \
        const block8 *restrict a = a_panel, *restrict b = b_panel;                                                     \
        float32x4_t sum[(rows) / 2][6], av[(rows) / 2], bv;                                                            \
        (void)b_step;                                                                                                  \
        UNROLL for (int i = 0; i < (rows) / 2; i++)                                                                    \
            UNROLL for (int j = 0; j < 6; j++) sum[i][j] = vdupq_n_f32(0);                                             \
        for (int64_t p = 0; p < k; p += 4, a += (rows) / 2, b += 6) {                                                  \
            UNROLL for (int i = 0; i < (rows) / 2; i++) LOAD(av[i], a + i);                                            \
            UNROLL for (int j = 0; j < 6; j++) {                                                                       \
                LOAD(bv, b + j);                                                                                       \
                UNROLL for (int i = 0; i < (rows) / 2; i++) BFMMLA(sum[i][j], av[i], bv);                              \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int i = 0; i < (rows) / 2; i++)                                                                    \
            UNROLL for (int j = 0; j < 6; j += 2) {                                                                    \
                float *at = acc + 2 * i * acc_row + 2 * j;                                                             \
                const float64x2_t x = vreinterpretq_f64_f32(sum[i][j]), y = vreinterpretq_f64_f32(sum[i][j + 1]);      \
                vst1q_f32(at, vaddq_f32(vld1q_f32(at), vreinterpretq_f32_f64(vzip1q_f64(x, y))));                      \
                at += acc_row;                                                                                         \
                vst1q_f32(at, vaddq_f32(vld1q_f32(at), vreinterpretq_f32_f64(vzip2q_f64(x, y))));                      \
            }                                                                                                          \
    }
/* clang-format on */
MICRO(2)
MICRO(4)
MICRO(8)

TN_TARGET static void pack(uint16_t *restrict dst, tn_gemm_panel to, tn_gemm_source src, int64_t valid, int64_t k)
{
    pack_any(dst, &to, &src, valid, k);
}

TN_TARGET static double probe(int64_t loops, const uint16_t *numbers)
{
    enum { CHAINS = 20, KINDS = 4, FLOPS = 2 * 2 * 2 * 4 };
    float32x4_t sum[CHAINS], a[KINDS], b[KINDS];
    UNROLL for (int i = 0; i < KINDS; i++) a[i] = vld1q_f32((const float *)numbers + 4 * i),
                                           b[i] = vld1q_f32((const float *)numbers + 4 * (KINDS + i));
    UNROLL for (int i = 0; i < CHAINS; i++) sum[i] = vdupq_n_f32((float)i);
    for (int64_t n = 0; n < loops; n++)
        UNROLL for (int i = 0; i < CHAINS; i++) BFMMLA(sum[i], a[i % KINDS], b[i / KINDS % KINDS]);
    UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" : : "w"(sum[i])); /* so that they stay apart */
    return (double)loops * CHAINS * FLOPS;
}

const tn_gemm_ukernel tn__gemm_neon_bf16 = {
    .name = "bfmmla 8x12",
    .type = TN_BF16,
    .a_depth = 4,
    .b_depth = 4,
    .mr = 8,
    .nr = 12,
    .keep_bytes = 1 << 20,
    .tile_m = 384,
    .tile_n = 384,
    .run = { [2] = micro_2, [4] = micro_4, [8] = micro_8 },
    .pack = pack,
    .probe = probe,
};
#else
typedef int tn__gemm_neon_bf16_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
