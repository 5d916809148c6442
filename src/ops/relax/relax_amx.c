/* Products of tiles where operands are rounded to bf16 and the processor has AMX: out (n,16) = w (n,k) in (k,16).
 *
 * Sixteen rows of w by sixteen samples are one tile register of sums, and what a product makes lies as the next one wants it: only
 * the samples' numbers are rounded and paired before each product, the weights once for a call. A sample is a column of its
 * own throughout, so its bits depend on nobody else. A thread has the registers' shapes set from tn__relax_amx_begin to _end
 * (gemm_amx.c says why they are given back). */
#include "ops/relax/relax_cpu.h"

#if defined(__x86_64__)
#include "backend/cpu/gemm_kernel.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))

enum { SIDE = 16, DEPTH = 32, LINE = 64, TILE = SIDE * LINE, AT_ONCE = 4 }; /* LINE, TILE: bytes */

static int64_t depth_of(const tn_relax_matrix *m) { return (m->k + DEPTH - 1) / DEPTH * DEPTH; }

bool tn__relax_amx(void) { return tn__gemm_kernel_bf16() == &tn__gemm_amx && tn_relax_width(1) == SIDE; }

int64_t tn__relax_amx_panels(const tn_relax_matrix *m) { return (m->n + SIDE - 1) / SIDE; }

size_t tn__relax_amx_bytes(const tn_relax_matrix *m)
{
    return (size_t)(tn__relax_amx_panels(m) * SIDE * depth_of(m)) * sizeof(uint16_t);
}

void tn__relax_amx_panel(const tn_relax_matrix *m, int64_t i)
{
    const int64_t depth = depth_of(m), left = m->n - i * SIDE;
    tn__gemm_pack_avx512(
        (uint16_t *)m->packed + i * SIDE * depth, (tn_gemm_panel){ SIDE, DEPTH, depth },
        (tn_gemm_source){
            .data = m->w + i * SIDE * m->row, .type = TN_F32, .outer = m->row, .inner = m->col, .round = TN_BF16 },
        left < SIDE ? left : SIDE, m->k);
}

/* Tiles 0..3 sums, 4 and 5 w, 6 in. A panel of w is (depth/32,16,32), `in` (depth/2,16,2). */
TARGET static void four_panels(int64_t depth, const unsigned char *w, const unsigned char *in, float *out)
{
    const int64_t panel = depth / DEPTH * TILE;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t p = 0; p < depth; p += DEPTH, w += TILE, in += TILE) {
        _tile_loadd(6, in, LINE);
        _tile_loadd(4, w, LINE);
        _tile_loadd(5, w + panel, LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(4, w + 2 * panel, LINE);
        _tile_loadd(5, w + 3 * panel, LINE);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 5, 6);
    }
    _tile_stored(0, out, LINE);
    _tile_stored(1, out + SIDE * SIDE, LINE);
    _tile_stored(2, out + 2 * SIDE * SIDE, LINE);
    _tile_stored(3, out + 3 * SIDE * SIDE, LINE);
}

TARGET static void one_panel(int64_t depth, const unsigned char *w, const unsigned char *in, float *out)
{
    _tile_zero(0);
    for (int64_t p = 0; p < depth; p += DEPTH, w += TILE, in += TILE) {
        _tile_loadd(6, in, LINE);
        _tile_loadd(4, w, LINE);
        _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, out, LINE);
}

/* (k,16) rounded to bf16, two rows to a line of pairs; rows of 0 behind them, to depth. */
__attribute__((target("avx512f,avx512bw,avx512bf16"))) static void pair_rows(const float *in, int64_t k, int64_t depth,
                                                                             uint16_t *to)
{
    static const uint16_t turns[32] = { 0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
    const __m512i turn = _mm512_loadu_si512(turns);
    for (int64_t p = 0; p < depth; p += 2, to += 2 * SIDE) {
        const __m512 zero = _mm512_setzero_ps();
        const __m512 a = p < k ? _mm512_loadu_ps(in + p * SIDE) : zero,
                     b = p + 1 < k ? _mm512_loadu_ps(in + (p + 1) * SIDE) : zero;
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(turn, (__m512i)_mm512_cvtne2ps_pbh(b, a)));
    }
}

void tn__relax_amx_begin(void) { tn__gemm_amx.begin(); }
void tn__relax_amx_end(void) { tn__gemm_amx.end(); }

void tn__relax_amx_product(const tn_relax_matrix *m, const float *in, float *out, void *paired)
{
    const int64_t depth = depth_of(m), panel = depth / DEPTH * TILE, whole = m->n / SIDE, left = m->n % SIDE;
    const unsigned char *w = m->packed;
    float edge[SIDE * SIDE];
    int64_t i = 0;
    pair_rows(in, m->k, depth, paired);
    __asm__ volatile("" ::: "memory"); /* tiles are loaded behind the compiler's back */
    for (; i + AT_ONCE <= whole; i += AT_ONCE) four_panels(depth, w + i * panel, paired, out + i * SIDE * SIDE);
    for (; i < whole; i++) one_panel(depth, w + i * panel, paired, out + i * SIDE * SIDE);
    if (left) one_panel(depth, w + i * panel, paired, edge);
    if (left) memcpy(out + i * SIDE * SIDE, edge, sizeof *edge * (size_t)(left * SIDE));
}
#else
bool tn__relax_amx(void) { return false; }
int64_t tn__relax_amx_panels(const tn_relax_matrix *m) { return m->n; }
size_t tn__relax_amx_bytes(const tn_relax_matrix *m) { return (size_t)m->n; }
void tn__relax_amx_panel(const tn_relax_matrix *m, int64_t i) { (void)m, (void)i; }
void tn__relax_amx_begin(void) {}
void tn__relax_amx_end(void) {}
void tn__relax_amx_product(const tn_relax_matrix *m, const float *in, float *out, void *paired)
{
    (void)m, (void)in, (void)out, (void)paired;
}
#endif
