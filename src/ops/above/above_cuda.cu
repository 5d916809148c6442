/* above on the GPU: a thread to a number. */
#include "backend/cuda/device.cuh"
#include "ops/above/above.h"

enum { THREADS = 256 };

__global__ void above_flags(const __grid_constant__ tn_arg x, const __grid_constant__ tn_arg keep, tn_above_attr a)
{
    const int64_t n = tn_d_count(x), step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        ((int32_t *)keep.data)[i * keep.stride[0]] =
            (tn_load(x.data, x.dtype, i * x.stride[0]) > a.threshold) != a.invert;
}

extern "C" tn_status tn_above_forward_cuda(const tn_call *c)
{
    const int64_t n = tn_all_count(&c->in[0]);
    if (n == 0) return TN_OK;
    above_flags<<<tn_blocks(c, n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(c->in[0], c->out[0],
                                                                             *(const tn_above_attr *)c->attr);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
