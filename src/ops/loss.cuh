/* Shared by losses with weights on the GPU (mse, kl): one block adds up what the first pass left, and the weights. The
 * order of the sums depends on sizes alone; they are double. */
#ifndef TN_OPS_LOSS_CUH
#define TN_OPS_LOSS_CUH

#include "ops/rows_block.cuh"

enum { TN_D_LAST_THREADS = 1024 }; /* of the single block that ends a loss */

/* Sum of n weights, n where there are none. Every thread of the block calls it and gets the sum. */
__device__ __forceinline__ double tn_d_weights_sum(const tn_arg &w, int64_t n, double *shared /* (33) */)
{
    if (!w.data) return (double)n;
    double s = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += (double)tn_load(w.data, w.dtype, i);
    return tn_d_block_sum(s, shared);
}

/* The gradient of a loss, 0 where none comes in. */
__device__ __forceinline__ double tn_d_incoming(const tn_arg &dy)
{
    return dy.data ? (double)tn_load(dy.data, dy.dtype, 0) : 0;
}

/* The smaller count of two tensors' live elements or rows. */
__device__ __forceinline__ int64_t tn_d_least(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
