/* The bf16 micro-kernel for x86-64 with AMX: 32 x 32 as 2 x 2 tiles of sums, 32 numbers along k per step. It goes on from
 * the sums it finds instead of adding a block to them: a tile register cannot be added to another.
 *
 * A thread sets the tiles' shapes before a row of calls and gives the registers back after it, or every switch of
 * context would save 8 KiB. Compiled for its own target; gemm_kernel.c calls it only where the machine has it and Linux
 * has granted it. */
#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include <immintrin.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))

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

/* Tiles 0..3 sums, 4 and 5 A, 6 and 7 B. A panel of A is (k/32,rows,32) and one of B (k/2,32,2). */
TARGET static void micro_32(int64_t k, const void *restrict a_panel, const void *restrict b_panel, int64_t b_step,
                            float *restrict acc, int64_t acc_row)
{
    const unsigned char *a = a_panel, *b = b_panel;
    const int64_t row = acc_row * (int64_t)sizeof *acc;
    float *low = acc + ROWS * acc_row;
    (void)b_step;
    _tile_loadd(0, acc, row);
    _tile_loadd(1, acc + COLUMNS, row);
    _tile_loadd(2, low, row);
    _tile_loadd(3, low + COLUMNS, row);
    for (int64_t p = 0; p < k; p += DEPTH, a += 2 * TILE, b += 2 * TILE) {
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, 2 * LINE);
        _tile_loadd(7, b + LINE, 2 * LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + TILE, LINE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, acc, row);
    _tile_stored(1, acc + COLUMNS, row);
    _tile_stored(2, low, row);
    _tile_stored(3, low + COLUMNS, row);
}

TARGET static void micro_16(int64_t k, const void *restrict a_panel, const void *restrict b_panel, int64_t b_step,
                            float *restrict acc, int64_t acc_row)
{
    const unsigned char *a = a_panel, *b = b_panel;
    const int64_t row = acc_row * (int64_t)sizeof *acc;
    (void)b_step;
    _tile_loadd(0, acc, row);
    _tile_loadd(1, acc + COLUMNS, row);
    for (int64_t p = 0; p < k; p += DEPTH, a += TILE, b += 2 * TILE) {
        _tile_loadd(4, a, LINE);
        _tile_loadd(6, b, 2 * LINE);
        _tile_loadd(7, b + LINE, 2 * LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, acc, row);
    _tile_stored(1, acc + COLUMNS, row);
}

TARGET static double probe(int64_t loops)
{
    enum { CHAINS = 4, FLOPS = 2 * ROWS * COLUMNS * DEPTH };
    begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
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
    .tile_m = 512,
    .tile_n = 512,
    .split_pays = true,
    .run = { [16] = micro_16, [32] = micro_32 },
    .pack = tn__gemm_pack_avx512,
    .begin = begin,
    .end = end,
    .probe = probe,
};
#else
typedef int tn__gemm_amx_is_not_for_this_machine; /* ISO C wants a declaration in every file */
#endif
