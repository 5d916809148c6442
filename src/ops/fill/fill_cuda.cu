/* fill on the GPU: the whole capacity, whatever is alive. Zeros of a contiguous tensor, which is what the planner asks
 * for, are a memset; everything else is the value's bits, stored 16 bytes at a time where that fits. */
#include "backend/cuda/device.cuh"
#include "ops/fill/fill.h"

#include <cstring>

enum { THREADS = 256 };

template <class T>
__global__ void fill_numbers(const __grid_constant__ tn_arg y, int64_t n, T value)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        ((T *)y.data)[tn_d_offset(y, i)] = value;
}

__global__ void fill_vectors(uint4 *y, int64_t n, uint4 value)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = value;
}

/* The bits of x as a number of type t; the bytes used are the first. */
static uint64_t bits_of(tn_dtype t, float x)
{
    uint64_t bits = 0;
    const __nv_bfloat16 b = __float2bfloat16_rn(x);
    const __half h = __float2half_rn(x);
    const double d = x;
    switch (t) {
    case TN_F32: memcpy(&bits, &x, sizeof x); break;
    case TN_BF16: memcpy(&bits, &b, sizeof b); break;
    case TN_F16: memcpy(&bits, &h, sizeof h); break;
    case TN_F64: memcpy(&bits, &d, sizeof d); break;
    case TN_I32: bits = (uint32_t)(int32_t)x; break;
    case TN_I64: bits = (uint64_t)(int64_t)x; break;
    default: bits = (uint8_t)x; break;
    }
    return bits;
}

static uint4 sixteen_bytes(uint64_t bits, size_t bytes)
{
    uint4 v;
    for (size_t i = 0; i < sizeof v; i += bytes) memcpy((char *)&v + i, &bits, bytes);
    return v;
}

extern "C" tn_status tn_fill_forward_cuda(const tn_call *c)
{
    const tn_arg *y = &c->out[0];
    const uint64_t bits = bits_of(y->dtype, ((const tn_fill_attr *)c->attr)->value);
    const size_t bytes = tn_dtype_bytes(y->dtype);
    const int64_t n = tn_all_count(y);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (n == 0) return TN_OK;
    const bool whole = tn_arg_contiguous(y);
    if (whole && bits == 0) {
        TN_CUDA_TRY(cudaMemsetAsync(y->data, 0, (size_t)n * bytes, stream));
        return TN_OK;
    }
    const unsigned blocks = tn_blocks(c, n, THREADS);
    if (whole && (size_t)n * bytes % 16 == 0 && (uintptr_t)y->data % 16 == 0)
        fill_vectors<<<tn_blocks(c, n * (int64_t)bytes / 16, THREADS), THREADS, 0, stream>>>(
            (uint4 *)y->data, n * (int64_t)bytes / 16, sixteen_bytes(bits, bytes));
    else if (bytes == 1) fill_numbers<uint8_t><<<blocks, THREADS, 0, stream>>>(*y, n, (uint8_t)bits);
    else if (bytes == 2) fill_numbers<uint16_t><<<blocks, THREADS, 0, stream>>>(*y, n, (uint16_t)bits);
    else if (bytes == 4) fill_numbers<uint32_t><<<blocks, THREADS, 0, stream>>>(*y, n, (uint32_t)bits);
    else fill_numbers<uint64_t><<<blocks, THREADS, 0, stream>>>(*y, n, bits);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
