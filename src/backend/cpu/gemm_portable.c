/* The micro-kernel for any machine: 8 x 12 in vectors of 4, which fills 24 of NEON's 32 registers with sums: on arm64 it is the one for
 * fp32. Where there is no FMA it is still right, in other bits. */
#define TN_LANES 4
#define TN_QUADS 2
#if defined(__aarch64__)
#define TN_A_AHEAD 256 /* Neoverse-N1: 38.9 instead of 38.5 of 40 GFLOP/s */
#endif
#define TN_TARGET
#if defined(__aarch64__)
#include <arm_neon.h>
#define TN_FMA(sum, a, b) (vec) vfmaq_f32((float32x4_t)(sum), (float32x4_t)(b), vdupq_n_f32(a))
#else
#define TN_FMA(sum, a, b) ((sum) + (a) * (b)) /* fused where the machine the compiler aims at can */
#endif
#define TN_FMA4 TN_FMA
#include "backend/cpu/gemm_micro.h"

TN_MICROS(1, 1, 3)
TN_MICROS(2, 2, 3)
TN_MICROS(4, 4, 3)
TN_MICROS(8, 8, 3)
/* For the last columns: 8 x 4 is the least that keeps two multiply-adds a cycle of latency 4 busy. */
#define NARROW(rows)                                                                                                   \
    TN_MICROS(rows##_of_4, rows, 1)                                                                                    \
    TN_MICROS(rows##_of_8, rows, 2)
NARROW(1)
NARROW(2)
NARROW(4)
NARROW(8)
TN_MICRO(along_n_1, 1, 16, 8, +=)
TN_MICRO(along_n_2, 2, 8, 8, +=)
TN_MICRO(along_n_4, 4, 4, 8, +=)
TN_ALONG_K_ALL
TN_ROW_ALL

const tn_gemm_ukernel tn__gemm_portable = {
#if defined(__aarch64__)
    .name = "neon 8x12",
#else
    .name = "portable 8x12",
#endif
    .type = TN_F32,
    .a_depth = 1,
    .b_depth = 1,
    .mr = 8,
    .nr = 12,
    .keep_bytes = 1 << 20,
    .tile_m = 256,
    .tile_n = 264, /* whole panels: a width of 256 is one tile */
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4, [8] = micro_8 },
    .fresh = { [1] = fresh_1, [2] = fresh_2, [4] = fresh_4, [8] = fresh_8 },
    .narrow = { { 4,
                  { [1] = micro_1_of_4, [2] = micro_2_of_4, [4] = micro_4_of_4, [8] = micro_8_of_4 },
                  { [1] = fresh_1_of_4, [2] = fresh_2_of_4, [4] = fresh_4_of_4, [8] = fresh_8_of_4 } },
                { 8,
                  { [1] = micro_1_of_8, [2] = micro_2_of_8, [4] = micro_4_of_8, [8] = micro_8_of_8 },
                  { [1] = fresh_1_of_8, [2] = fresh_2_of_8, [4] = fresh_4_of_8, [8] = fresh_8_of_8 } } },
    .along_n = { [1] = { along_n_1, 64 }, [2] = { along_n_2, 32 }, [4] = { along_n_4, 16 } },
    .along_k = TN_ALONG_K_TABLE,
    .row = TN_ROW_TABLE,
    .pack_f32 = tn__gemm_pack,
};
