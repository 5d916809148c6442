/* cache_shift on the GPU: a block for each sequence and head moves as many rows at once as the shift is long, so that none is written
 * before it is read. The shift is read on the device. One that is out of range is no error here: all rows of the sequence become NaN,
 * so that whatever reads them shows it. */
#include "backend/cuda/device.cuh"
#include "ops/cache_shift/cache_shift.h"

enum { CACHE, SHIFT, THREADS = 256 };

/* A cache in units of `unit` bytes, D of them in a row of a head. */
struct tn_d_cache {
    char *data;
    tn_dtype dtype;
    int64_t S, KV, D, stride[4]; /* units */
};

template <class U>
__global__ void __launch_bounds__(THREADS) move_rows(TN_GRID tn_d_cache c, const int32_t *shift)
{
    const int64_t b = blockIdx.x / c.KV, by = shift[b];
    U *x = (U *)c.data + b * c.stride[0] + blockIdx.x % c.KV * c.stride[2];
    if (by < 0 || by > c.S) {
        const int numbers = sizeof(U) / (c.dtype == TN_F32 ? 4 : 2);
        for (int64_t i = threadIdx.x; i < c.S * c.D; i += THREADS)
            for (int n = 0; n < numbers; n++)
                tn_store(x + i / c.D * c.stride[1] + i % c.D * c.stride[3], c.dtype, n, NAN);
        return;
    }
    const int64_t moved = c.S - by, at_once = by < moved ? by : moved;
    for (int64_t first = 0; by > 0 && first < moved; first += at_once) {
        const int64_t n = (moved - first < at_once ? moved - first : at_once) * c.D;
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < n; i += THREADS) {
            const int64_t at = (first + i / c.D) * c.stride[1] + i % c.D * c.stride[3];
            x[at] = x[at + by * c.stride[1]];
        }
        __syncthreads(); /* what was read just now is written next */
    }
}

/* Rows of all heads begin at multiples of 16 bytes. */
static bool by_sixteens(const tn_arg *a, int64_t each)
{
    bool even = a->stride[3] == 1 && (uintptr_t)a->data % 16 == 0 && a->dims.dim[3] * each % 16 == 0;
    for (int i = 0; even && i < 3; i++) even = a->stride[i] * each % 16 == 0;
    return even;
}

extern "C" tn_status tn_cache_shift_forward_cuda(const tn_call *c)
{
    const tn_arg *a = &c->out[0];
    const int64_t each = a->dtype == TN_F32 ? 4 : 2, n = tn_dims_count(a->dims);
    const bool sixteens = by_sixteens(a, each);
    const int64_t unit = sixteens ? 16 / each : 1;
    const tn_d_cache x = {
        (char *)a->data,       a->dtype,
        a->dims.dim[1],        a->dims.dim[2],
        a->dims.dim[3] / unit, { a->stride[0] / unit, a->stride[1] / unit, a->stride[2] / unit, a->stride[3] }
    };
    const unsigned blocks = (unsigned)(a->dims.dim[0] * a->dims.dim[2]);
    const int32_t *shift = (const int32_t *)c->in[SHIFT].data;
    const cudaStream_t stream = tn_cuda_stream(c);
    if (n == 0) return TN_OK;
    if (sixteens) move_rows<uint4><<<blocks, THREADS, 0, stream>>>(x, shift);
    else if (each == 4) move_rows<uint32_t><<<blocks, THREADS, 0, stream>>>(x, shift);
    else move_rows<uint16_t><<<blocks, THREADS, 0, stream>>>(x, shift);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
