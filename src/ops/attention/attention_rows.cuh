/* Attention forward on tensor cores, by one warp: rows of q against a tile of keys, and what comes of all tiles. Scores,
 * weights and sums stay in registers. Which keys and tiles, and who copies them, is the block's (attention_cuda.cu,
 * attention_few_cuda.cu).
 *
 * NaN and infinity in values that a row does not see must not reach it, but 0 times NaN is NaN: a block whose result
 * is not finite is computed once more, with such values kept apart. */
#ifndef TN_OPS_ATTENTION_ROWS_CUH
#define TN_OPS_ATTENTION_ROWS_CUH

#include "ops/attention/attention_cuda.cuh"

#include <string.h>

namespace tn_attention
{

enum { WARPS = 4, THREADS = 32 * WARPS /* of a block */ };
static const float LOOSE = 8; /* weights may grow to 2^LOOSE before sums are scaled down */

/* Keys shared out among blocks: here, and where attention_few_cuda.cu or attention_hopper.cuh takes over, a row's bits depend on how many keys
 * and rows there are. */
struct shares {
    int n;
    float *o;   /* (heads, n, rows, D) sums of weight times value */
    float2 *ml; /* (heads, n, rows) maximum and sum of weights */
};

/* --- one warp and one tile ---------------------------------------------------------------------------------------- */

template <int WIDTH, int MT>
struct rows_state {
    float o[MT][WIDTH / 8][4];
    float max[MT][2], sum[MT][2]; /* of this lane's columns alone */
};

template <int WIDTH, int MT>
__device__ __forceinline__ void clear(rows_state<WIDTH, MT> &r)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        r.max[m][0] = r.max[m][1] = -INFINITY;
        r.sum[m][0] = r.sum[m][1] = 0;
#pragma unroll
        for (int d = 0; d < WIDTH / 8; d++) r.o[m][d][0] = r.o[m][d][1] = r.o[m][d][2] = r.o[m][d][3] = 0;
    }
}

template <int WIDTH, int MT>
__device__ __forceinline__ bool finite(const rows_state<WIDTH, MT> &r)
{
    bool all = true;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int d = 0; d < WIDTH / 8; d++)
#pragma unroll
            for (int e = 0; e < 4; e++) all &= fabsf(r.o[m][d][e]) < INFINITY;
    return all;
}

/* s = q k^T. kept: fragments of q, where they stay in registers. */
template <int WIDTH, int MT, int BN, bool KEPT>
__device__ __forceinline__ void scores(float (&s)[MT][BN / 8][4],
                                       const uint32_t (&kept)[KEPT ? MT : 1][KEPT ? WIDTH / 16 : 1][4],
                                       const __nv_bfloat16 *q, const __nv_bfloat16 *k)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < BN / 8; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++) {
        uint32_t a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if (!KEPT) load_a<WIDTH>(a[m], q, m * 16, d * 16);
#pragma unroll
            for (int i = 0; KEPT && i < 4; i++) a[m][i] = kept[KEPT ? m : 0][KEPT ? d : 0][i];
        }
#pragma unroll
        for (int n = 0; n < BN / 16; n++) {
            load_b_rows<WIDTH>(b, k, n * 16, d * 16);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                tn_mma(s[m][2 * n], a[m], b[0], b[1]);
                tn_mma(s[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

template <int MT, int BN>
__device__ __forceinline__ void hide(float (&s)[MT][BN / 8][4], const problem &p, const sequence &q, int w0, int s0,
                                     const int *documents)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const sight x = sight_of(p, q, w0 + m * 16 + h * 8 + lane / 4);
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (!sees(p, x, s0 + n * 8 + lane % 4 * 2 + e, s0, documents)) s[m][n][2 * h + e] = -INFINITY;
        }
}

__device__ __forceinline__ float base_of(float max, float scale2)
{
    return max == -INFINITY ? 0.f : __fmul_rn(max, scale2); /* nothing seen so far: all are 2^-inf = 0 */
}

/* Scores become weights, as fragments for the product with values; sums so far follow where a maximum moves. */
template <int WIDTH, int MT, int BN>
__device__ __forceinline__ void soften(rows_state<WIDTH, MT> &r, float (&s)[MT][BN / 8][4],
                                       uint32_t (&w)[MT][BN / 16][4], float scale2)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float keep[2], base[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = -INFINITY;
#pragma unroll
            for (int n = 0; n < BN / 8; n++) top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float old = r.max[m][h];
            const bool moves = (top - old) * scale2 > LOOSE; /* -inf to -inf is NaN: no */
            r.max[m][h] = moves ? top : old;
            base[h] = base_of(r.max[m][h], scale2);
            keep[h] = moves ? tn_exp2(__fmul_rn(old, scale2) - base[h]) : 1.f;
            r.sum[m][h] *= keep[h];
        }
        if (__any_sync(0xffffffffu, keep[0] != 1.f || keep[1] != 1.f))
#pragma unroll
            for (int d = 0; d < WIDTH / 8; d++)
                r.o[m][d][0] *= keep[0], r.o[m][d][1] *= keep[0], r.o[m][d][2] *= keep[1], r.o[m][d][3] *= keep[1];
#pragma unroll
        for (int n = 0; n < BN / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][n][i] = tn_exp2(fmaf(s[m][n][i], scale2, -base[i / 2]));
            r.sum[m][0] += s[m][n][0] + s[m][n][1];
            r.sum[m][1] += s[m][n][2] + s[m][n][3];
            w[m][n / 2][n % 2 * 2] = tn_pack_bf16(s[m][n][0], s[m][n][1]);
            w[m][n / 2][n % 2 * 2 + 1] = tn_pack_bf16(s[m][n][2], s[m][n][3]);
        }
    }
}

/* o += w v */
template <int WIDTH, int MT, int BN>
__device__ __forceinline__ void add_values(rows_state<WIDTH, MT> &r, const uint32_t (&w)[MT][BN / 16][4],
                                           const __nv_bfloat16 *v)
{
#pragma unroll
    for (int n = 0; n < BN / 16; n++)
#pragma unroll
        for (int d = 0; d < WIDTH / 16; d++) {
            uint32_t b[4];
            load_b_columns<WIDTH>(b, v, n * 16, d * 16);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                tn_mma(r.o[m][2 * d], w[m][n], b[0], b[1]);
                tn_mma(r.o[m][2 * d + 1], w[m][n], b[2], b[3]);
            }
        }
}

/* --- values that are not finite ----------------------------------------------------------------------------------- */

/* Of two bf16: those that fit `what` as 1 (or, FINITE, as they are), the others as 0. */
enum kind { FINITE, UP, DOWN }; /* UP: +infinity or NaN; DOWN: -infinity or NaN */

__device__ __forceinline__ uint32_t pick(uint32_t two, kind what)
{
    uint32_t r = 0;
#pragma unroll
    for (int shift = 0; shift < 32; shift += 16) {
        const uint32_t x = two >> shift & 0xffffu;
        const bool odd = (x & 0x7f80u) == 0x7f80u, nan = odd && (x & 0x7fu);
        if (what == FINITE) r |= (odd ? 0u : x) << shift;
        else r |= (nan || (odd && (x >> 15 ? DOWN : UP) == what) ? 0x3f80u : 0u) << shift;
    }
    return r;
}

/* 1 where a weight is not 0. */
__device__ __forceinline__ uint32_t not_zero(uint32_t two)
{
    return (two & 0x7fffu ? 0x3f80u : 0u) | (two & 0x7fff0000u ? 0x3f800000u : 0u);
}

/* add_values with the finite values alone; then what is seen of the others, counted, makes infinity or NaN. Loops
 * that stay loops, over copies in memory: rare, and no load on the registers of the common case. */
template <int WIDTH, int MT, int BN>
__device__ __forceinline__ void add_values_apart(rows_state<WIDTH, MT> &r, const uint32_t (&w)[MT][BN / 16][4],
                                                 const __nv_bfloat16 *v)
{
    float o[MT][WIDTH / 8][4];
    uint32_t weight[MT][BN / 16][4];
    memcpy(o, r.o, sizeof o);
    memcpy(weight, w, sizeof weight);
#pragma unroll 1
    for (int i = 0; i < MT * (WIDTH / 8); i++) {
        const int m = i % MT, d = i / MT;
        float sum[4], up[4] = {}, down[4] = {};
        for (int e = 0; e < 4; e++) sum[e] = o[m][d][e];
#pragma unroll 1
        for (int n = 0; n < BN / 16; n++) {
            uint32_t b[4], one[4], a[4];
            load_b_columns<WIDTH>(b, v, n * 16, d / 2 * 16);
            const uint32_t b0 = b[d % 2 ? 2 : 0], b1 = b[d % 2 ? 3 : 1];
            for (int e = 0; e < 4; e++) a[e] = weight[m][n][e], one[e] = not_zero(a[e]);
            tn_mma(sum, a, pick(b0, FINITE), pick(b1, FINITE));
            tn_mma(up, one, pick(b0, UP), pick(b1, UP));
            tn_mma(down, one, pick(b0, DOWN), pick(b1, DOWN));
        }
        for (int e = 0; e < 4; e++) o[m][d][e] = sum[e] + (up[e] > 0 ? INFINITY : 0.f) - (down[e] > 0 ? INFINITY : 0.f);
    }
    memcpy(r.o, o, sizeof o);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

template <int WIDTH, int MT>
__device__ __forceinline__ void finish(const rows_state<WIDTH, MT> &r, const problem &p, const sequence &q, int head,
                                       int kv, int w0, const shares &share, int part)
{
    const int lane = threadIdx.x & 31, c = lane % 4 * 2;
    const float scale2 = fabsf(p.scale) * LOG2E;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = w0 + m * 16 + h * 8 + lane / 4;
            float sum = r.sum[m][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (row >= p.rows) continue;
            if (share.n > 1) {
                const int64_t at = ((int64_t)head * share.n + part) * p.rows + row;
                if (c == 0) share.ml[at] = make_float2(r.max[m][h], sum);
#pragma unroll
                for (int d = 0; d < WIDTH / 8; d++)
                    for (int e = 0; e < 2; e++)
                        if (d * 8 + c + e < p.D) share.o[at * p.D + d * 8 + c + e] = r.o[m][d][2 * h + e];
                continue;
            }
            const float factor = q.bad ? NAN : sum == 0 ? 0.f : 1 / sum;
            const int64_t at = row_at(p.y, p, q.b, kv, row);
            store_row<WIDTH>(r.o[m], 2 * h, p.y, at, p.D, factor, false);
            if (p.lse && c == 0) {
                const int t = token_of(p, row), head_in = kv * p.group + row - t * p.group;
                p.lse[q.b * p.lse_b + head_in * p.lse_h + t * p.lse_t] =
                    q.bad      ? NAN
                    : sum == 0 ? -INFINITY
                               : (base_of(r.max[m][h], scale2) + log2f(sum)) * LN2;
            }
        }
}

} // namespace tn_attention

/* Few rows, of key heads whose keys may be shared out among blocks: attention_few_cuda.cu. */
bool tn_attention_few_takes(const tn_attention::problem *p);
tn_status tn_attention_few_forward_cuda(const tn_call *c, const tn_attention::problem *p, tn_attention::shares share);

#endif
