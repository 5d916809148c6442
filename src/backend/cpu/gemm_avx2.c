/* The micro-kernel for x86-64 with AVX2 and FMA: 4 x 24 in vectors of 8, 12 of the 16 registers hold sums. Compiled for
 * its own target; gemm_kernel.c calls it only where the machine has both. */
#if defined(__x86_64__)
#define TN_LANES 8
#define TN_VECS 3
#define TN_TARGET __attribute__((target("avx2,fma")))
#define TN_FMA(sum, a, b) (vec) __builtin_ia32_vfmaddps256((vec){ a, a, a, a, a, a, a, a }, (b), (sum))
#include "backend/cpu/gemm_micro.h"

TN_MICRO(1)
TN_MICRO(2)
TN_MICRO(4)

const tn_gemm_ukernel tn__gemm_avx2 = {
    .name = "avx2 4x24",
    .mr = 4,
    .nr = TN_VECS * TN_LANES,
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4 },
};
#else
typedef int tn__gemm_avx2_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
