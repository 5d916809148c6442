/* text_part on the GPU: a thread to a token. */
#include "backend/cuda/device.cuh"
#include "ops/text_part/text_part.h"

enum { THREADS = 256 };

__global__ void text_parts(TN_GRID tn_arg lengths, TN_GRID tn_arg y, tn_text_part_attr a)
{
    const int64_t T = a.length, n = tn_d_count(lengths) * T, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const int64_t b = i / T, t = i % T;
        ((int32_t *)y.data)[b * y.stride[0] + t * y.stride[1]] =
            tn_text_part_of(a, t, ((const int32_t *)lengths.data)[b * lengths.stride[0]]);
    }
}

extern "C" tn_status tn_text_part_forward_cuda(const tn_call *c)
{
    const tn_text_part_attr a = *(const tn_text_part_attr *)c->attr;
    const int64_t n = tn_all_count(&c->in[0]) * a.length;
    if (n == 0) return TN_OK;
    text_parts<<<tn_blocks(c, n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(c->in[0], c->out[0], a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
