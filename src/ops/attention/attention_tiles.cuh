/* f32 tiles for the kernels of attention that need every bit rather than speed: 64 x 64 products out of shared
 * memory, 256 threads with 4 x 4 sums each. Thread (y,x), y = id / 16, x = id % 16, has rows 4y.. and columns 4x..
 * of a tile, so a row is within half a warp. Tensors of any type and strides; zeros beyond their ends. */
#ifndef TN_OPS_ATTENTION_TILES_CUH
#define TN_OPS_ATTENTION_TILES_CUH

#include "ops/attention/attention_cuda.cuh"

namespace tn_attention
{

enum { SIDE = 64, APART_BY = SIDE + 4, TILE_THREADS = 256, TILE_FLOATS = SIDE * APART_BY };

typedef float sums[4][4];

__device__ __forceinline__ void sums_clear(sums &s)
{
#pragma unroll
    for (int i = 0; i < 16; i++) s[i / 4][i % 4] = 0;
}

/* Rows r0.. (of queries, or keys), numbers d0.. of x: to[r][d], or turned: to[d][r]. */
template <bool is_row, bool turned>
__device__ __forceinline__ void tile_load(float *to, const view &x, const problem &p, int b, int kv, int r0, int end,
                                          int d0, int D)
{
    for (int i = threadIdx.x; i < SIDE * SIDE; i += TILE_THREADS) {
        const int r = i / SIDE, d = i % SIDE;
        float v = 0;
        if (r0 + r < end && d0 + d < D) {
            const int64_t at = is_row ? row_at(x, p, b, kv, r0 + r) : key_at(x, b, kv, r0 + r);
            v = tn_load(x.data, x.type, at + (d0 + d) * x.d);
        }
        to[turned ? d * APART_BY + r : r * APART_BY + d] = v;
    }
}

/* s += a^T b, a and b (SIDE, SIDE) with rows along the sum. `seen`: without the terms of a that are 0, so that they
 * hide NaN. */
template <bool seen>
__device__ __forceinline__ void tile_multiply(sums &s, const float *a, const float *b)
{
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll 4
    for (int k = 0; k < SIDE; k++) {
        const float4 u = *(const float4 *)(a + k * APART_BY + y), v = *(const float4 *)(b + k * APART_BY + x);
        const float l[4] = { u.x, u.y, u.z, u.w }, r[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (!seen || l[i] != 0) s[i][j] = fmaf(l[i], r[j], s[i][j]);
    }
}

/* s = rows r0.. of x times keys s0.. of y, over D; uses the tiles a and b. */
__device__ __forceinline__ void tile_products(sums &s, float *a, float *b, const view &x, const view &y,
                                              const problem &p, int seq, int kv, int r0, int s0)
{
    sums_clear(s);
    for (int d0 = 0; d0 < p.D; d0 += SIDE) {
        __syncthreads();
        tile_load<true, true>(a, x, p, seq, kv, r0, p.rows, d0, p.D);
        tile_load<false, true>(b, y, p, seq, kv, s0, p.S, d0, p.D);
        __syncthreads();
        tile_multiply<false>(s, a, b);
    }
}

/* The sums to shared memory: to[row][column], or turned. */
template <bool turned>
__device__ __forceinline__ void tile_store(float *to, const sums &s)
{
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) to[turned ? (x + j) * APART_BY + y + i : (y + i) * APART_BY + x + j] = s[i][j];
}

/* Over the 16 threads of a row. */
__device__ __forceinline__ float across_sum(float x)
{
#pragma unroll
    for (int k = 8; k; k >>= 1) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

__device__ __forceinline__ float across_max(float x)
{
#pragma unroll
    for (int k = 8; k; k >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

__device__ __forceinline__ bool row_sees(const problem &p, const sequence &q, const sight &x, int s)
{
    return s >= x.keys.x && s < x.keys.y && (!p.document || document_at(p, q.b, s) == x.document);
}

} // namespace tn_attention

#endif
