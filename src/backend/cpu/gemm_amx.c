/* The bf16 micro-kernel for x86-64 with AMX: 32 x 32 as 2 x 2 tiles of sums, 32 numbers along k per step. It goes on from
 * the sums it finds instead of adding a block to them: a tile register cannot be added to another. Moving the sums from
 * and to memory takes as long as six steps, so a block along k is long.
 *
 * A thread sets the tiles' shapes before a row of calls and gives the registers back after it, or every switch of
 * context would save 8 KiB. Compiled for its own target; gemm_kernel.c calls it only where the machine has it and Linux
 * has granted it. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include <immintrin.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { ROWS = 16, COLUMNS = 16, DEPTH = 32, LINE = 64, TILE = ROWS * LINE }; /* LINE, TILE: bytes */

/* The layout is the processor's. Constant, as compilers lose stores to one they believe to be read in part only. */
static const struct {
    uint8_t palette, start_row, zero[14];
    uint16_t line_bytes[16];
    uint8_t rows[16];
} shapes = {
    .palette = 1,
    .line_bytes = { LINE, LINE, LINE, LINE, LINE, LINE, LINE, LINE },
    .rows = { ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS },
};

TARGET static void begin(void) { _tile_loadconfig(&shapes); }

TARGET static void end(void) { _tile_release(); }

/* Tiles 0..3 sums, 4 and 5 A, 6 and 7 B. A panel of A is (k/32,rows,32); two of B are (k/2,16,2) each, b_step along k,
 * so that every tile is 1 KiB in one piece (with lines 128 bytes apart loads took half as long again). */
INLINE void micro(int rows, bool fresh, int64_t k, const unsigned char *a, const unsigned char *b, int64_t b_step,
                  float *acc, int64_t acc_row)
{
    const unsigned char *right = b + b_step * (LINE / 2);
    const int64_t row = acc_row * (int64_t)sizeof *acc;
    float *low = acc + ROWS * acc_row;
    const bool both = rows == 2 * ROWS;
    if (fresh) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, acc, row);
        _tile_loadd(1, acc + COLUMNS, row);
        if (both) _tile_loadd(2, low, row);
        if (both) _tile_loadd(3, low + COLUMNS, row);
    }
    for (int64_t p = 0; p < k; p += DEPTH, a += rows * LINE, b += TILE, right += TILE) {
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, LINE);
        _tile_loadd(7, right, LINE);
        _tile_dpbf16ps(0, 4, 6);
        if (both) _tile_loadd(5, a + TILE, LINE);
        _tile_dpbf16ps(1, 4, 7);
        if (both) _tile_dpbf16ps(2, 5, 6);
        if (both) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, acc, row);
    _tile_stored(1, acc + COLUMNS, row);
    if (both) _tile_stored(2, low, row);
    if (both) _tile_stored(3, low + COLUMNS, row);
}

#define MICRO(name, rows, is_fresh)                                                                                    \
    TARGET static void name(int64_t k, const void *restrict a, const void *restrict b, int64_t b_step,                 \
                            float *restrict acc, int64_t acc_row)                                                      \
    {                                                                                                                  \
        micro(rows, is_fresh, k, a, b, b_step, acc, acc_row);                                                          \
    }
MICRO(micro_16, 16, false)
MICRO(micro_32, 32, false)
MICRO(fresh_16, 16, true)
MICRO(fresh_32, 32, true)

TARGET static double probe(int64_t loops, const uint16_t *numbers)
{
    enum { CHAINS = 4, FLOPS = 2 * ROWS * COLUMNS * DEPTH };
    begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, numbers, LINE);
    _tile_loadd(5, numbers + 1 * TILE / 2, LINE);
    _tile_loadd(6, numbers + 2 * TILE / 2, LINE);
    _tile_loadd(7, numbers + 3 * TILE / 2, LINE);
    for (int64_t n = 0; n < loops; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    end();
    return (double)loops * CHAINS * FLOPS;
}

const tn_gemm_ukernel tn__gemm_amx = {
    .name = "amx 32x32",
    .type = TN_BF16,
    .a_depth = DEPTH,
    .b_depth = 2,
    .mr = 32,
    .nr = 32,
    .b_width = COLUMNS,
    .kc = 512,
    .keep_bytes = 2 << 20,
    .tile_m = 512,
    .tile_n = 256,
    .split_pays = true,
    .run = { [16] = micro_16, [32] = micro_32 },
    .fresh = { [16] = fresh_16, [32] = fresh_32 },
    .pack = tn__gemm_pack_avx512,
    .begin = begin,
    .end = end,
    .probe = probe,
};
#else
typedef int tn__gemm_amx_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
