/* The micro-kernel for x86-64 with AVX2 and FMA: 4 x 24 in vectors of 8, 12 of the 16 registers hold sums. Compiled for
 * its own target; gemm_kernel.c calls it only where the machine has both. */
#if defined(__x86_64__)
#define TN_LANES 8
#define TN_QUADS 1
#define TN_TARGET __attribute__((target("avx2,fma")))
#define TN_FMA(sum, a, b) (vec) __builtin_ia32_vfmaddps256((vec){ a, a, a, a, a, a, a, a }, (b), (sum))
#define TN_FMA4(sum, a, b) (quad) __builtin_ia32_vfmaddps((quad){ a, a, a, a }, (b), (sum))
#include "backend/cpu/gemm_micro.h"

TN_MICROS(1, 1, 3)
TN_MICROS(2, 2, 3)
TN_MICROS(4, 4, 3)
TN_MICRO(along_n_1, 1, 8, 8, +=)
TN_MICRO(along_n_2, 2, 4, 8, +=)
TN_MICRO(along_n_4, 4, 2, 8, +=)
TN_ALONG_K_ALL
TN_ROW_ALL

const tn_gemm_ukernel tn__gemm_avx2 = {
    .name = "avx2 4x24",
    .type = TN_F32,
    .a_depth = 1,
    .b_depth = 1,
    .mr = 4,
    .nr = 24,
    .tile_m = 256,
    .tile_n = 256,
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4 },
    .fresh = { [1] = fresh_1, [2] = fresh_2, [4] = fresh_4 },
    .along_n = { [1] = { along_n_1, 64 }, [2] = { along_n_2, 32 }, [4] = { along_n_4, 16 } },
    .along_k = TN_ALONG_K_TABLE,
    .row = TN_ROW_TABLE,
    .pack_f32 = tn__gemm_pack_avx2,
};
#else
typedef int tn__gemm_avx2_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
