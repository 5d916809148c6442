/* The micro-kernel for any machine: 8 x 12 in vectors of 4, which fills 24 of NEON's 32 registers with sums. Where there
 * is no FMA it is still right, in other bits. */
#define TN_LANES 4
#define TN_VECS 3
#define TN_TARGET
#if defined(__aarch64__)
#include <arm_neon.h>
#define TN_FMA(sum, a, b) (vec) vfmaq_f32((float32x4_t)(sum), (float32x4_t)(b), vdupq_n_f32(a))
#else
#define TN_FMA(sum, a, b) ((sum) + (a) * (b)) /* fused where the machine the compiler aims at can */
#endif
#include "backend/cpu/gemm_micro.h"

TN_MICRO(1)
TN_MICRO(2)
TN_MICRO(4)
TN_MICRO(8)

const tn_gemm_ukernel tn__gemm_portable = {
    .name = "portable 8x12",
    .mr = 8,
    .nr = TN_VECS * TN_LANES,
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4, [8] = micro_8 },
};
