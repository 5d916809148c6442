/* argmax on the GPU: a block to a row. A thread keeps the first largest of its numbers, and pairs are joined by the same rule:
 * larger, or equal and earlier. The result does not depend on who saw what. */
#include "ops/argmax/argmax.h"
#include "ops/argmax/argmax_best.cuh"

#include <limits.h>

enum { THREADS = 512, WARPS = THREADS / 32 };

__global__ void __launch_bounds__(THREADS)
    argmax_rows(const __grid_constant__ tn_arg x, const __grid_constant__ tn_arg y)
{
    __shared__ tn_d_best shared[WARPS];
    const int rank = x.dims.rank, n = (int)x.dims.dim[rank - 1];
    const int64_t rows = tn_d_rows(x), step = x.stride[rank - 1];
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int64_t from = 0, to = 0, left = r;
        for (int i = rank - 2; i >= 0; i--) {
            from += left % x.dims.dim[i] * x.stride[i];
            to += left % x.dims.dim[i] * y.stride[i];
            left /= x.dims.dim[i];
        }
        tn_d_best mine = { -INFINITY, INT_MAX }; /* beaten by any number, -infinity too */
        for (int i = threadIdx.x; i < n; i += THREADS) {
            const float v = tn_load(x.data, x.dtype, from + i * step);
            const tn_d_best b = { v, v == v ? i : -1 };
            mine = tn_d_better(mine, b);
        }
        mine = tn_d_best_of_warp(mine);
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
        __syncthreads();
        if (threadIdx.x < 32) {
            tn_d_best b = { -INFINITY, INT_MAX };
            if (threadIdx.x < WARPS) b = shared[threadIdx.x];
            b = tn_d_best_of_warp(b);
            if (threadIdx.x == 0) ((int32_t *)y.data)[to] = b.at;
        }
        __syncthreads();
    }
}

extern "C" tn_status tn_argmax_forward_cuda(const tn_call *c)
{
    const tn_dims d = c->in[0].dims;
    const int64_t rows = tn_all_count(&c->in[0]) / d.dim[d.rank - 1];
    if (rows == 0) return TN_OK;
    argmax_rows<<<(unsigned)(rows < 65535 ? rows : 65535), THREADS, 0, tn_cuda_stream(c)>>>(c->in[0], c->out[0]);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
