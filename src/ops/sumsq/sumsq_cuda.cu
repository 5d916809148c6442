/* sumsq on the GPU: a double for each block of each input, then one block adds them in order. How an input is shared out
 * depends on its size and on the GPU alone, so that the order is the same in every run. */
#include "backend/cuda/device.cuh"
#include "ops/sumsq/sumsq.h"

enum { THREADS = 256, MOST_BLOCKS = 1024, EACH = THREADS * 8 * 4 /* numbers that are worth a block */ };

__device__ __forceinline__ double warp_sum(double x)
{
#pragma unroll
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Of a block of at most 1024 threads; thread 0 has it. */
__device__ __forceinline__ double block_sum(double x)
{
    __shared__ double of_warp[32];
    x = warp_sum(x);
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x >= 32) return 0;
    return warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0);
}

__device__ __forceinline__ double squares(const tn_f8 &x)
{
    double s = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) s += (double)x.v[k] * (double)x.v[k];
    return s;
}

/* The inputs are contiguous. */
static __global__ void __launch_bounds__(THREADS)
    sum_blocks(const __grid_constant__ tn_arg x, bool vector, double *partial)
{
    const int64_t n = tn_d_count(x), whole = vector ? n / 8 * 8 : 0, step = (int64_t)gridDim.x * THREADS;
    const int64_t me = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = me * 8; i < whole; i += step * 8) sum += squares(tn_load8(x.data, x.dtype, i));
    for (int64_t i = whole + me; i < n; i += step) {
        const double v = (double)tn_load(x.data, x.dtype, i);
        sum += v * v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(1024) sum_all(const double *partial, int64_t n, float *to)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 1024) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *to = (float)sum;
}

static int64_t blocks_of(int64_t count)
{
    const int64_t want = (count + EACH - 1) / EACH;
    return want < MOST_BLOCKS ? want : MOST_BLOCKS;
}

extern "C" size_t tn_sumsq_work_cuda(const tn_sig *s, bool backward)
{
    int64_t n = 0;
    for (int i = 0; i < s->n_in && !backward; i++) n += blocks_of(tn_dims_count(s->in[i].dims));
    return (size_t)n * sizeof(double);
}

extern "C" tn_status tn_sumsq_forward_cuda(const tn_call *c)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    double *partial = (double *)c->work;
    int64_t n = 0;
    for (int i = 0; i < c->n_in; i++) {
        const int64_t blocks = blocks_of(tn_all_count(&c->in[i]));
        const bool vector = c->in[i].dtype != TN_F64 && (uintptr_t)c->in[i].data % 16 == 0;
        if (blocks) sum_blocks<<<(unsigned)blocks, THREADS, 0, stream>>>(c->in[i], vector, partial + n);
        n += blocks;
    }
    sum_all<<<1, 1024, 0, stream>>>(partial, n, (float *)c->out[0].data);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
