/* The bodies of the fp32 micro-kernels, for files that define TN_LANES (floats per register), TN_TARGET (an attribute,
 * or nothing), TN_FMA(sum, a, b) (a number times a vector) and TN_FMA4 (the same for vectors of 4) before they include
 * it; and TN_QUADS, the vectors of 4 columns that 4 rows can be multiplied by at once. TN_A_AHEAD: so many numbers of A's panels,
 * which come from L2, are fetched in advance.
 *
 * GCC vector types keep it readable; all loops over constants unroll, and the sums must end up in registers: look at the
 * assembly after any change. Whatever the shape, an element's sum is one chain in the order of k from 0. */
#include "backend/cpu/gemm_load.h"

#ifndef TN_A_AHEAD
#define TN_A_AHEAD 0
#endif

typedef float vec __attribute__((vector_size(4 * TN_LANES)));
typedef float vec_in_memory __attribute__((vector_size(4 * TN_LANES), aligned(4), may_alias));
typedef float quad_in_memory __attribute__((vector_size(16), aligned(4), may_alias));
typedef float pairs_in_memory
    __attribute__((vector_size(16), aligned(2), may_alias)); /* of numbers of half precision */

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

/* rows x (vecs * TN_LANES), b along n: packed, or as it lies. ahead: lines of b to fetch in advance, where b_step is too
 * long for the hardware's prefetcher; 0 for packed panels. put: += adds to acc, = is for one that holds nothing yet. */
#define TN_MICRO(name, rows, vecs, ahead, put)                                                                         \
    TN_TARGET static void name(int64_t k, const void *restrict a_panel, const void *restrict b_panel, int64_t b_step,  \
                               float *restrict acc, int64_t acc_row)                                                   \
    {                                                                                                                  \
        const float *restrict a = a_panel, *restrict b = b_panel;                                                      \
        vec sum[rows][vecs];                                                                                           \
        TN_UNROLL for (int i = 0; i < (rows); i++)                                                                     \
            TN_UNROLL for (int v = 0; v < (vecs); v++) sum[i][v] = (vec){ 0 };                                         \
        TN_UNROLL for (int i = 0; i < (rows); i++) {                                                                   \
            __builtin_prefetch(acc + i * acc_row, 1);                                                                  \
            __builtin_prefetch(acc + i * acc_row + (vecs) * TN_LANES - 1, 1);                                          \
        }                                                                                                              \
        for (int64_t p = 0; p < k; p++) {                                                                              \
            if (ahead) TN_UNROLL for (int v = 0; v < (vecs) * TN_LANES; v += 16)                                       \
                __builtin_prefetch((const void *)((uintptr_t)b + (uintptr_t)(4 * ((ahead) * b_step + v))));            \
            if (TN_A_AHEAD) __builtin_prefetch((const void *)((uintptr_t)a + 4 * (uintptr_t)TN_A_AHEAD));              \
            vec bv[vecs];                                                                                              \
            TN_UNROLL for (int v = 0; v < (vecs); v++) bv[v] = *(const vec_in_memory *)(b + v * TN_LANES);             \
            TN_LOAD_A(rows);                                                                                           \
            TN_UNROLL for (int i = 0; i < (rows); i++)                                                                 \
                TN_UNROLL for (int v = 0; v < (vecs); v++) sum[i][v] = TN_FMA(sum[i][v], TN_A(i), bv[v]);              \
            a += rows;                                                                                                 \
            b += b_step;                                                                                               \
        }                                                                                                              \
        TN_UNROLL for (int i = 0; i < (rows); i++)                                                                     \
            TN_UNROLL for (int v = 0; v < (vecs); v++)                                                                 \
                *(vec_in_memory *)(acc + i * acc_row + v * TN_LANES) put sum[i][v];                                    \
    }

/* Of packed panels, micro_SIZE adds and fresh_SIZE puts. */
#define TN_MICROS(size, rows, vecs)                                                                                    \
    TN_MICRO(micro_##size, rows, vecs, 0, +=)                                                                          \
    TN_MICRO(fresh_##size, rows, vecs, 0, =)

/* The last steps of k one by one, and the sums to acc. */
#define TN_ALONG_K_END(rows, quads, kind, bytes)                                                                       \
    for (; p < k; p++, a += (rows), b += (bytes))                                                                      \
        TN_UNROLL for (int v = 0; v < (quads); v++) {                                                                  \
            const quad last = load_columns(b + 4 * v * step, step, kind);                                              \
            TN_UNROLL for (int i = 0; i < (rows); i++) sum[i][v] = TN_FMA4(sum[i][v], a[i], last);                     \
        }                                                                                                              \
    TN_UNROLL for (int i = 0; i < (rows); i++)                                                                         \
        TN_UNROLL for (int v = 0; v < (quads); v++) *(quad_in_memory *)(acc + i * acc_row + v * 4) += sum[i][v];

/* rows x (4 * quads), b as it lies along k, columns b_step apart: blocks of 4 x 4 are turned in registers. No more
 * than 8 columns at once: with powers of two between them, more would not stay in a cache of 4 ways. */
#define TN_ALONG_K(name, rows, quads, kind)                                                                            \
    TN_TARGET static void name(int64_t k, const void *restrict a_panel, const void *restrict b_columns,                \
                               int64_t b_step, float *restrict acc, int64_t acc_row)                                   \
    {                                                                                                                  \
        const float *restrict a = a_panel;                                                                             \
        const unsigned char *b = b_columns;                                                                            \
        const int64_t bytes = (int64_t)kind_bytes(kind), step = b_step * bytes;                                        \
        quad sum[rows][quads], x[4];                                                                                   \
        TN_UNROLL for (int i = 0; i < (rows); i++)                                                                     \
            TN_UNROLL for (int v = 0; v < (quads); v++) sum[i][v] = (quad){ 0 };                                       \
        int64_t p = 0;                                                                                                 \
        for (; p + 4 <= k; p += 4, a += 4 * (rows), b += 4 * bytes) {                                                  \
            TN_LOAD_A(4 * (rows));                                                                                     \
            TN_UNROLL for (int v = 0; v < (quads); v++) {                                                              \
                TN_UNROLL for (int q = 0; q < 4; q++) x[q] = load4(b + (4 * v + q) * step, kind);                      \
                transpose4(x);                                                                                         \
                TN_UNROLL for (int q = 0; q < 4; q++)                                                                  \
                    TN_UNROLL for (int i = 0; i < (rows); i++)                                                         \
                        sum[i][v] = TN_FMA4(sum[i][v], TN_A(q * (rows) + i), x[q]);                                    \
            }                                                                                                          \
        }                                                                                                              \
        TN_ALONG_K_END(rows, quads, kind, bytes)                                                                       \
    }

/* The same for b of halves, 8 steps of k at a time: pairs along k are turned as if they were one number, and then taken apart. */
#define TN_ALONG_K_HALF(name, rows, quads, kind)                                                                       \
    TN_TARGET static void name(int64_t k, const void *restrict a_panel, const void *restrict b_columns,                \
                               int64_t b_step, float *restrict acc, int64_t acc_row)                                   \
    {                                                                                                                  \
        const float *restrict a = a_panel;                                                                             \
        const unsigned char *b = b_columns;                                                                            \
        const int64_t step = 2 * b_step;                                                                               \
        quad sum[rows][quads], x[4], y[8];                                                                             \
        TN_UNROLL for (int i = 0; i < (rows); i++)                                                                     \
            TN_UNROLL for (int v = 0; v < (quads); v++) sum[i][v] = (quad){ 0 };                                       \
        int64_t p = 0;                                                                                                 \
        for (; p + 8 <= k; p += 8, a += 8 * (rows), b += 16) {                                                         \
            TN_LOAD_A(8 * (rows));                                                                                     \
            TN_UNROLL for (int v = 0; v < (quads); v++) {                                                              \
                TN_UNROLL for (int q = 0; q < 4; q++) x[q] = *(const pairs_in_memory *)(b + (4 * v + q) * step);       \
                transpose4(x);                                                                                         \
                split_pairs(x, y, kind);                                                                               \
                TN_UNROLL for (int q = 0; q < 8; q++)                                                                  \
                    TN_UNROLL for (int i = 0; i < (rows); i++)                                                         \
                        sum[i][v] = TN_FMA4(sum[i][v], TN_A(q * (rows) + i), y[q]);                                    \
            }                                                                                                          \
        }                                                                                                              \
        TN_ALONG_K_END(rows, quads, kind, 2)                                                                           \
    }

/* One row times (4 * quads) columns as they lie along k, for all of k: the sum of a block is added to acc, and begins again. While these
 * columns are read, side by side, the memory behind them is fetched from its beginning to its end: the hardware sees no stream in pieces
 * of many columns. */
#define TN_ROW(name, quads, kind)                                                                                      \
    TN_TARGET static void name(int64_t k, const float *restrict a, const void *restrict b_columns, int64_t b_step,     \
                               float *restrict acc)                                                                    \
    {                                                                                                                  \
        enum { STEPS = (kind) == F32 ? 4 : 8 }; /* in 16 bytes */                                                      \
        const unsigned char *b = b_columns;                                                                            \
        const int64_t bytes = (int64_t)kind_bytes(kind), step = b_step * bytes;                                        \
        uintptr_t ahead = (uintptr_t)b + (uintptr_t)(4 * (quads) * step);                                              \
        for (int64_t left = k; left > 0; left -= TN_GEMM_KC) {                                                         \
            const int64_t n = left < TN_GEMM_KC ? left : TN_GEMM_KC;                                                   \
            quad sum[quads], x[4], y[8];                                                                               \
            TN_UNROLL for (int v = 0; v < (quads); v++) sum[v] = (quad){ 0 };                                          \
            int64_t p = 0;                                                                                             \
            for (; p + STEPS <= n; p += STEPS, a += STEPS, b += 16, ahead += 64 * (quads)) {                           \
                TN_LOAD_A(STEPS);                                                                                      \
                TN_UNROLL for (int v = 0; v < (quads); v++) __builtin_prefetch((const void *)(ahead + 64u * (unsigned)v)); \
                TN_UNROLL for (int v = 0; v < (quads); v++) {                                                          \
                    TN_UNROLL for (int q = 0; q < 4; q++) x[q] = *(const pairs_in_memory *)(b + (4 * v + q) * step);   \
                    transpose4(x);                                                                                     \
                    split_pairs(x, y, kind);                                                                           \
                    TN_UNROLL for (int q = 0; q < STEPS; q++) sum[v] = TN_FMA4(sum[v], TN_A(q), y[q]);                 \
                }                                                                                                      \
            }                                                                                                          \
            for (; p < n; p++, a++, b += bytes)                                                                        \
                TN_UNROLL for (int v = 0; v < (quads); v++)                                                            \
                    sum[v] = TN_FMA4(sum[v], a[0], load_columns(b + 4 * v * step, step, kind));                        \
            TN_UNROLL for (int v = 0; v < (quads); v++) *(quad_in_memory *)(acc + v * 4) += sum[v];                    \
        }                                                                                                              \
    }

/* All of them, and their entry in a tn_gemm_ukernel. */
#define TN_ROW_ALL                                                                                                     \
    TN_ROW(row_8, 2, F32)                                                                                              \
    TN_ROW(row_4, 1, F32)                                                                                              \
    TN_ROW(row_bf16_8, 2, BF16)                                                                                        \
    TN_ROW(row_bf16_4, 1, BF16)                                                                                        \
    TN_ROW(row_f16_8, 2, F16)                                                                                          \
    TN_ROW(row_f16_4, 1, F16)
#define TN_ROW_TABLE                                                                                                   \
    {                                                                                                                  \
        [TN_GEMM_AS_F32] = { [TN_GEMM_ROW_8] = row_8, [TN_GEMM_ROW_4] = row_4 },                                       \
        [TN_GEMM_AS_BF16] = { [TN_GEMM_ROW_8] = row_bf16_8, [TN_GEMM_ROW_4] = row_bf16_4 },                            \
        [TN_GEMM_AS_F16] = { [TN_GEMM_ROW_8] = row_f16_8, [TN_GEMM_ROW_4] = row_f16_4 },                               \
    }

/* All of the second kind, and their entries in a tn_gemm_ukernel: those of plain numbers and bf16, which an architecture may have wider
 * ones for, and the others. */
#define TN_ALONG_K_PLAIN                                                                                               \
    TN_ALONG_K(along_k_1, 1, 2, F32)                                                                                   \
    TN_ALONG_K(along_k_2, 2, 2, F32)                                                                                   \
    TN_ALONG_K(along_k_4, 4, TN_QUADS, F32)                                                                            \
    TN_ALONG_K_HALF(along_k_bf16_1, 1, 2, BF16)                                                                        \
    TN_ALONG_K_HALF(along_k_bf16_2, 2, 2, BF16)                                                                        \
    TN_ALONG_K_HALF(along_k_bf16_4, 4, TN_QUADS, BF16)
#define TN_ALONG_K_OTHERS                                                                                              \
    TN_ALONG_K(along_k_to_bf16_1, 1, 2, F32_TO_BF16)                                                                   \
    TN_ALONG_K(along_k_to_bf16_2, 2, 2, F32_TO_BF16)                                                                   \
    TN_ALONG_K(along_k_to_bf16_4, 4, TN_QUADS, F32_TO_BF16)                                                            \
    TN_ALONG_K(along_k_to_f16_1, 1, 2, F32_TO_F16)                                                                     \
    TN_ALONG_K(along_k_to_f16_2, 2, 2, F32_TO_F16)                                                                     \
    TN_ALONG_K(along_k_to_f16_4, 4, TN_QUADS, F32_TO_F16)                                                              \
    TN_ALONG_K_HALF(along_k_f16_1, 1, 2, F16)                                                                          \
    TN_ALONG_K_HALF(along_k_f16_2, 2, 2, F16)                                                                          \
    TN_ALONG_K_HALF(along_k_f16_4, 4, TN_QUADS, F16)
#define TN_ALONG_K_ALL TN_ALONG_K_PLAIN TN_ALONG_K_OTHERS
#define TN_ALONG_K_ENTRY(one, two, four, few, many) { [1] = { one, few }, [2] = { two, few }, [4] = { four, many } }
#define TN_ALONG_K_OTHER_ENTRIES                                                                                       \
    [TN_GEMM_F32_TO_BF16] = TN_ALONG_K_ENTRY(along_k_to_bf16_1, along_k_to_bf16_2, along_k_to_bf16_4, 8, 4 * TN_QUADS), \
    [TN_GEMM_F32_TO_F16] = TN_ALONG_K_ENTRY(along_k_to_f16_1, along_k_to_f16_2, along_k_to_f16_4, 8, 4 * TN_QUADS),     \
    [TN_GEMM_AS_F16] = TN_ALONG_K_ENTRY(along_k_f16_1, along_k_f16_2, along_k_f16_4, 8, 4 * TN_QUADS)
#define TN_ALONG_K_TABLE                                                                                               \
    {                                                                                                                  \
        [TN_GEMM_AS_F32] = TN_ALONG_K_ENTRY(along_k_1, along_k_2, along_k_4, 8, 4 * TN_QUADS),                         \
        [TN_GEMM_AS_BF16] = TN_ALONG_K_ENTRY(along_k_bf16_1, along_k_bf16_2, along_k_bf16_4, 8, 4 * TN_QUADS),         \
        TN_ALONG_K_OTHER_ENTRIES                                                                                       \
    }
/* clang-format on */
