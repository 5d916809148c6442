/* The fp32 micro-kernel for x86-64 with AVX-512: 12 x 32 in vectors of 16, 24 of the 32 registers hold sums. 14 rows
 * would fit, but 12 pack in blocks of 4. Compiled for its own target; gemm_kernel.c calls it only where the machine has
 * it. */
#if defined(__x86_64__)
#include <immintrin.h>
#define TN_LANES 16
#define TN_QUADS 2
#define TN_TARGET __attribute__((target("avx512f,avx512vl,avx2,fma")))
#define TN_FMA(sum, a, b) (vec) _mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)(b), (__m512)(sum))
#define TN_FMA4(sum, a, b) (quad) _mm_fmadd_ps(_mm_set1_ps(a), (__m128)(b), (__m128)(sum))
#include "backend/cpu/gemm_micro.h"

TN_MICROS(1, 1, 2)
TN_MICROS(2, 2, 2)
TN_MICROS(4, 4, 2)
TN_MICROS(8, 8, 2)
TN_MICROS(12, 12, 2)
TN_MICRO(along_n_1, 1, 8, 8, +=)
TN_MICRO(along_n_2, 2, 8, 8, +=)
TN_MICRO(along_n_4, 4, 4, 8, +=)
TN_ALONG_K_OTHERS
TN_ROW_ALL

#define ALONG                                                                                                          \
    {                                                                                                                  \
        [TN_GEMM_AS_F32] =                                                                                             \
            TN_ALONG_K_ENTRY(tn__gemm_along_avx512_1, tn__gemm_along_avx512_2, tn__gemm_along_avx512_4, 16, 16),       \
        [TN_GEMM_AS_BF16] = TN_ALONG_K_ENTRY(tn__gemm_along_bf16_avx512_1, tn__gemm_along_bf16_avx512_2,               \
                                             tn__gemm_along_bf16_avx512_4, 16, 16),                                    \
        TN_ALONG_K_OTHER_ENTRIES                                                                                       \
    }

#define ROWS                                                                                                           \
    {                                                                                                                  \
        [TN_GEMM_AS_F32] = { tn__gemm_row_avx512, row_8, row_4 },                                                      \
        [TN_GEMM_AS_BF16] = { tn__gemm_row_bf16_avx512, row_bf16_8, row_bf16_4 },                                      \
        [TN_GEMM_AS_F16] = { NULL, row_f16_8, row_f16_4 },                                                             \
    }

const tn_gemm_ukernel tn__gemm_avx512 = {
    .name = "avx512 12x32",
    .type = TN_F32,
    .a_depth = 1,
    .b_depth = 1,
    .mr = 12,
    .nr = 32,
    .tile_m = 384,
    .keep_bytes = 1 << 20,
    .tile_n = 384,
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4, [8] = micro_8, [12] = micro_12 },
    .fresh = { [1] = fresh_1, [2] = fresh_2, [4] = fresh_4, [8] = fresh_8, [12] = fresh_12 },
    .along_n = { [1] = { along_n_1, 128 }, [2] = { along_n_2, 128 }, [4] = { along_n_4, 64 } },
    .along_k = ALONG,
    .row = ROWS,
    .pack_f32 = tn__gemm_pack_f32_avx512,
};

/* For attention, whose tiles of 64 keys 12 rows do not divide. */
const tn_gemm_ukernel tn__gemm_avx512_8 = {
    .name = "avx512 8x32",
    .type = TN_F32,
    .a_depth = 1,
    .b_depth = 1,
    .mr = 8,
    .nr = 32,
    .tile_m = 384,
    .tile_n = 384,
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4, [8] = micro_8 },
    .fresh = { [1] = fresh_1, [2] = fresh_2, [4] = fresh_4, [8] = fresh_8 },
    .along_n = { [1] = { along_n_1, 128 }, [2] = { along_n_2, 128 }, [4] = { along_n_4, 64 } },
    .along_k = ALONG,
    .row = ROWS,
    .pack_f32 = tn__gemm_pack_f32_avx512,
};
#else
typedef int tn__gemm_avx512_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
