/* masked_mean on the GPU. Forward: a block sums some columns of one sequence, a warp every eighth position, and adds up
 * the warps in order. Backward: a block writes some positions of one sequence. Each adds up the sequence's weights
 * itself: they are few next to x. Positions with weight 0 are not read. Sums are double. */
#include "ops/masked_mean/masked_mean.h"
#include "ops/rows_block.cuh"

enum { WARPS = TN_D_THREADS / 32, POSITIONS = 32 }; /* positions: of a block of the backward pass */

struct job {
    tn_arg mask, from, to; /* (B,T); forward (B,T,d) to (B,d), backward the other way */
    int64_t T, d, across;  /* across: blocks to a sequence */
    bool add, eights;
};

/* One over the sum of the weights of sequence b; 0 when that is 0. */
__device__ __forceinline__ double inverse_of(const job &j, int64_t b, double *shared)
{
    double s = 0;
    for (int64_t t = threadIdx.x; t < j.T; t += blockDim.x) s += (double)tn_d_weight(j.mask, b * j.T + t);
    s = tn_d_block_sum(s, shared);
    return s == 0 ? 0 : 1 / s;
}

/* A lane takes N columns. */
template <int N>
__global__ void __launch_bounds__(TN_D_THREADS) mean_forward(const __grid_constant__ job j)
{
    __shared__ double shared[33], part[WARPS][32 * N];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t b = blockIdx.x / j.across, block = blockIdx.x % j.across * 32 * N, column = block + lane * N;
    if (b >= tn_d_alive(j.from.live, j.from.dims.dim[0])) return;
    const double inverse = inverse_of(j, b, shared);
    double sum[N] = {};
    for (int64_t t = warp; t < j.T && column < j.d; t += WARPS) {
        const float w = tn_d_weight(j.mask, b * j.T + t);
        const int64_t at = (b * j.T + t) * j.d + column;
        if (w == 0.f) continue;
        if constexpr (N == 8) {
            const tn_f8 x = tn_load8(j.from.data, j.from.dtype, at);
#pragma unroll
            for (int e = 0; e < 8; e++) sum[e] += (double)w * (double)x.v[e];
        } else {
            sum[0] += (double)w * (double)tn_load(j.from.data, j.from.dtype, at);
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++) part[warp][lane * N + e] = sum[e];
    __syncthreads();
    if (threadIdx.x >= 32 * N || block + threadIdx.x >= j.d) return;
    double all = 0;
#pragma unroll
    for (int k = 0; k < WARPS; k++) all += part[k][threadIdx.x];
    tn_store(j.to.data, j.to.dtype, b * j.d + block + threadIdx.x, inverse == 0 ? 0.f : (float)(all * inverse));
}

__global__ void __launch_bounds__(TN_D_THREADS) mean_backward(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    const int64_t b = blockIdx.x / j.across, t0 = blockIdx.x % j.across * POSITIONS, left = j.T - t0;
    if (b >= tn_d_alive(j.to.live, j.to.dims.dim[0])) return;
    const double inverse = inverse_of(j, b, shared);
    const int64_t groups = (j.d + 7) / 8, n = (left < POSITIONS ? left : POSITIONS) * groups;
    for (int64_t i = threadIdx.x; i < n; i += TN_D_THREADS) {
        const int64_t at = b * j.T + t0 + i / groups, g = i % groups * 8;
        const float w = (float)((double)tn_d_weight(j.mask, at) * inverse);
        float d[8] = {};
        if (w == 0.f && j.add) continue;
        if (w != 0.f) tn_d_group_get(j.from.data, j.from.dtype, b * j.d, g, j.d, j.eights, 0.f, d);
#pragma unroll
        for (int e = 0; e < 8; e++) d[e] = w == 0.f ? 0.f : w * d[e];
        tn_d_group_put(j.to.data, j.to.dtype, at * j.d, g, j.d, j.eights, d, j.add);
    }
}

static job make_job(const tn_call *c, const tn_arg *x, const tn_arg *from, const tn_arg *to)
{
    job j = {};
    j.mask = c->in[1], j.from = *from, j.to = *to;
    j.T = x->dims.dim[1], j.d = x->dims.dim[2];
    j.eights = tn_d_row_eights(from->data, from->dtype, j.d) && tn_d_row_eights(to->data, to->dtype, j.d);
    return j;
}

extern "C" tn_status tn_masked_mean_forward_cuda(const tn_call *c)
{
    const tn_arg *x = &c->in[0];
    job j = make_job(c, x, x, &c->out[0]);
    const int64_t B = x->dims.dim[0], columns = j.eights ? 256 : 32;
    j.across = (j.d + columns - 1) / columns;
    if (B == 0 || j.d == 0) return TN_OK;
    if (j.eights) mean_forward<8><<<(unsigned)(B * j.across), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j);
    else mean_forward<1><<<(unsigned)(B * j.across), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_masked_mean_backward_cuda(const tn_call *c)
{
    const tn_arg *dx = &c->din[0];
    job j = make_job(c, dx, &c->dout[0], dx);
    const int64_t B = dx->dims.dim[0];
    j.add = c->accumulate & 1;
    j.across = (j.T + POSITIONS - 1) / POSITIONS;
    if (B == 0 || j.d == 0 || j.T == 0) return TN_OK;
    mean_backward<<<(unsigned)(B * j.across), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
