/* For CUDA kernels that give a block to a row of contiguous numbers (softmax, l2norm, kl, ...): a thread takes groups
 * of 8 neighbours, read at once where every row begins at 16 bytes, and reads them again in each pass (they are still
 * in the cache). Which thread takes which group depends on the row's length alone, so sums have one order. */
#ifndef TN_OPS_ROWS_BLOCK_CUH
#define TN_OPS_ROWS_BLOCK_CUH

#include "ops/elem.cuh"

/* Threads for a row of n numbers. */
static inline unsigned tn_d_row_threads(int64_t n) { return n <= 512 ? 32 : n <= 4096 ? 128 : n <= 16384 ? 256 : 512; }

static inline unsigned tn_d_row_blocks(int64_t rows) { return (unsigned)(rows < 1 << 20 ? rows : 1 << 20); }

/* Rows of n numbers, one after another, from `data` on can be read 8 at a time. Absent tensors do not mind. */
static inline bool tn_d_row_eights(const void *data, tn_dtype t, int64_t n)
{
    return !data || (n % 8 == 0 && t != TN_F64 && (uintptr_t)data % 16 == 0);
}

/* The loop of a thread over its groups. */
#define TN_D_GROUPS(g, n) for (int64_t g = (int64_t)threadIdx.x * 8; g < (n); g += (int64_t)blockDim.x * 8)

/* Numbers g .. g+7 of the row of n at `base`; `fill` beyond its end. */
__device__ __forceinline__ void tn_d_group_get(const void *data, tn_dtype t, int64_t base, int64_t g, int64_t n,
                                               bool eights, float fill, float (&x)[8])
{
    if (eights && g + 8 <= n) {
        const tn_f8 r = tn_load8(data, t, base + g);
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = r.v[e];
    } else {
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = g + e < n ? tn_load(data, t, base + g + e) : fill;
    }
}

__device__ __forceinline__ void tn_d_group_put(void *data, tn_dtype t, int64_t base, int64_t g, int64_t n, bool eights,
                                               const float (&y)[8], bool add)
{
    if (eights && g + 8 <= n) {
        tn_d_put8(data, t, base + g, 8, y, add);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (g + e < n) tn_put(data, t, base + g + e, y[e], add);
}

/* Over a block of at most 1024 threads; every thread gets the result. `shared` may be used again after the next
 * barrier. */
__device__ __forceinline__ double tn_d_block_sum(double x, double *shared /* (33) */)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        double all = 0;
        for (int w = 0; w < warps; w++) all += shared[w];
        shared[32] = all;
    }
    __syncthreads();
    return shared[32];
}

/* NaN is left out. */
__device__ __forceinline__ float tn_d_block_max(float x, float *shared /* (33) */)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = tn_warp_max(x);
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    if (warp == 0) {
        const float y = tn_warp_max(lane < warps ? shared[lane] : -INFINITY);
        if (lane == 0) shared[32] = y;
    }
    __syncthreads();
    return shared[32];
}

/* Length of a row: a vector with a live extent is cut. */
__device__ __forceinline__ int64_t tn_d_live_length(const tn_arg &a)
{
    return a.dims.rank == 1 ? tn_d_count(a) : a.dims.rank ? a.dims.dim[a.dims.rank - 1] : 1;
}

/* A weight or mask of any type. */
__device__ __forceinline__ float tn_d_weight(const tn_arg &w, int64_t i)
{
    return w.dtype == TN_I32 ? (float)((const int32_t *)w.data)[i] : tn_load(w.data, w.dtype, i);
}

#endif
