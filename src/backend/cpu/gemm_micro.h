/* The body of the vector micro-kernels, for files that define TN_LANES (floats per register), TN_VECS (registers per row
 * of the tile), TN_TARGET (an attribute, or nothing) and TN_FMA(sum, a, b) (a number times a vector) before they include
 * it.
 *
 * GCC vector types keep it readable; all loops over constants unroll, and the sums must end up in registers: look at the
 * assembly after any change. */
#include "backend/cpu/gemm_kernel.h"

typedef float vec __attribute__((vector_size(4 * TN_LANES)));
typedef float vec_in_memory __attribute__((vector_size(4 * TN_LANES), aligned(4), may_alias));

#if defined(__clang__)
#define TN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TN_UNROLL _Pragma("GCC unroll 16")
#endif

/* A multiplier comes as a lane of a register where the ISA multiplies by lanes (NEON: 8 numbers take 2 registers, not 8),
 * and as a broadcast from memory elsewhere. */
#if defined(__aarch64__)
#define TN_LOAD_A(rows)                                                                                                \
    vec av[((rows) + 3) / 4];                                                                                          \
    TN_UNROLL for (int q = 0; q < (rows) / 4; q++) av[q] = *(const vec_in_memory *)(a + 4 * q);                        \
    TN_UNROLL for (int i = (rows) & ~3; i < (rows); i++) av[i / 4][i % 4] = a[i]
#define TN_A(i) av[(i) / 4][(i) % 4]
#else
#define TN_LOAD_A(rows) (void)0
#define TN_A(i) a[i]
#endif

/* clang-format off */
#define TN_MICRO(rows)                                                                                                 \
    TN_TARGET static void micro_##rows(int64_t k, const float *restrict a, const float *restrict b,                    \
                                       float *restrict acc, int64_t acc_row)                                           \
    {                                                                                                                  \
        vec sum[rows][TN_VECS];                                                                                        \
        TN_UNROLL for (int i = 0; i < (rows); i++)                                                                     \
            TN_UNROLL for (int v = 0; v < TN_VECS; v++) sum[i][v] = (vec){ 0 };                                        \
        for (int64_t p = 0; p < k; p++) {                                                                              \
            vec bv[TN_VECS];                                                                                           \
            TN_UNROLL for (int v = 0; v < TN_VECS; v++) bv[v] = *(const vec_in_memory *)(b + v * TN_LANES);            \
            TN_LOAD_A(rows);                                                                                           \
            TN_UNROLL for (int i = 0; i < (rows); i++)                                                                 \
                TN_UNROLL for (int v = 0; v < TN_VECS; v++) sum[i][v] = TN_FMA(sum[i][v], TN_A(i), bv[v]);             \
            a += rows;                                                                                                 \
            b += TN_VECS * TN_LANES;                                                                                   \
        }                                                                                                              \
        TN_UNROLL for (int i = 0; i < (rows); i++)                                                                     \
            TN_UNROLL for (int v = 0; v < TN_VECS; v++)                                                                \
                *(vec_in_memory *)(acc + i * acc_row + v * TN_LANES) += sum[i][v];                                     \
    }
/* clang-format on */
