/* The bf16 micro-kernel for x86-64 with AVX512-BF16: 12 x 32, VDPBF16PS adds the product of two numbers along k at a
 * time; 24 of the 32 registers hold sums. A lies 32 numbers of a row together, as the packer that AMX has too makes it;
 * pairs of it are broadcast. Compiled for its own target; gemm_kernel.c calls it only where the machine has it. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512bf16,avx2,fma")))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { DEPTH = 32, PAIRS = DEPTH / 2 };
typedef int pair __attribute__((may_alias)); /* two bf16 along k */

/* clang-format off */
#define MICRO(rows)                                                                                                    \
    TARGET static void micro_##rows(int64_t k, const void *restrict a_panel, const void *restrict b_panel,             \
                                    int64_t b_step, float *restrict acc, int64_t acc_row)                              \
    {                                                                                                                  \
        const pair *restrict a = a_panel;                                                                              \
        const __m512i *restrict b = b_panel;                                                                           \
        __m512 sum[rows][2];                                                                                           \
        (void)b_step;                                                                                                  \
        UNROLL for (int i = 0; i < (rows); i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();                           \
        for (int64_t p = 0; p < k; p += DEPTH, a += (rows) * PAIRS)                                                    \
            for (int q = 0; q < PAIRS; q++, b += 2) {                                                                  \
                const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 1);         \
                UNROLL for (int i = 0; i < (rows); i++) {                                                              \
                    const __m512bh x = (__m512bh)_mm512_set1_epi32(a[i * PAIRS + q]);                                  \
                    sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);                                                    \
                    sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);                                                    \
                }                                                                                                      \
            }                                                                                                          \
        UNROLL for (int i = 0; i < (rows); i++) {                                                                      \
            float *at = acc + i * acc_row;                                                                             \
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum[i][0]));                                       \
            _mm512_storeu_ps(at + 16, _mm512_add_ps(_mm512_loadu_ps(at + 16), sum[i][1]));                             \
        }                                                                                                              \
    }
/* clang-format on */
MICRO(1)
MICRO(2)
MICRO(4)
MICRO(8)
MICRO(12)

TARGET static double probe(int64_t loops, const uint16_t *numbers)
{
    enum { CHAINS = 16, KINDS = 4, FLOPS = 2 * 2 * 16 };
    __m512 sum[CHAINS];
    __m512i a[KINDS], b[KINDS];
    UNROLL for (int i = 0; i < KINDS; i++) a[i] = _mm512_loadu_si512(numbers + 32 * i),
                                           b[i] = _mm512_loadu_si512(numbers + 32 * (KINDS + i));
    UNROLL for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int64_t n = 0; n < loops; n++) {
        UNROLL for (int i = 0; i < KINDS;
                    i++) __asm__ volatile("" : "+v"(a[i])); /* a new number each time, for all the compiler knows */
        UNROLL for (int i = 0; i < CHAINS; i++) sum[i] =
            _mm512_dpbf16_ps(sum[i], (__m512bh)a[i % KINDS], (__m512bh)b[i / KINDS % KINDS]);
    }
    UNROLL for (int i = 0; i < CHAINS; i++) __asm__ volatile("" : : "v"(sum[i]));
    return (double)loops * CHAINS * FLOPS;
}

const tn_gemm_ukernel tn__gemm_avx512_bf16 = {
    .name = "avx512-bf16 12x32",
    .type = TN_BF16,
    .a_depth = DEPTH,
    .b_depth = 2,
    .mr = 12,
    .nr = 32,
    .tile_m = 384,
    .tile_n = 384,
    .run = { [1] = micro_1, [2] = micro_2, [4] = micro_4, [8] = micro_8, [12] = micro_12 },
    .pack = tn__gemm_pack_avx512,
    .probe = probe,
};
#else
typedef int tn__gemm_avx512_bf16_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
