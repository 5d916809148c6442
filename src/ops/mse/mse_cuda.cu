/* mse on the GPU. Elements lie in runs of `run` that share a weight (all of them without weights). Forward: a block
 * sums a tile of elements, one block adds up tiles and weights. Backward: one block makes the factor, then both
 * gradients come from one pass; the weights' gradient has a block for each run. Sums are double. */
#include "ops/loss.cuh"
#include "ops/mse/mse.h"

enum { TILE = 16384 };

struct job {
    tn_arg a, b, w; /* (all), (all) or without data, (all / run) or without data */
    int64_t all, run;
    tn_arg loss, dy; /* one number */
    tn_arg d[3];     /* gradients by a, b, w */
    unsigned add;
    bool eights;
    double *work; /* forward: (tiles); backward: dy over the sum of the weights of all elements */
};

__device__ __forceinline__ int64_t alive(const job &j)
{
    return j.b.data ? tn_d_least(tn_d_count(j.a), tn_d_count(j.b)) : tn_d_count(j.a);
}

/* 1 / (run * sum of the weights alive), 0 when that sum is 0. A run is longer than what is alive only where one weight
 * is for the whole. */
__device__ __forceinline__ double inverse_total(const job &j, int64_t n, double *shared)
{
    const double sum = tn_d_weights_sum(j.w, j.w.data ? (n + j.run - 1) / j.run : n, shared);
    const double total = j.w.data ? (double)tn_d_least(j.run, n) * sum : sum;
    return total == 0 ? 0 : 1 / total;
}

/* a - b, or a, of 8 neighbours, 0 from n on. */
__device__ __forceinline__ void differences(const job &j, int64_t i, int64_t n, float (&x)[8])
{
    float b[8];
    tn_d_group_get(j.a.data, j.a.dtype, 0, i, n, j.eights, 0.f, x);
    if (!j.b.data) return;
    tn_d_group_get(j.b.data, j.b.dtype, 0, i, n, j.eights, 0.f, b);
#pragma unroll
    for (int e = 0; e < 8; e++) x[e] -= b[e];
}

/* Weights of 8 neighbours, of which those below n exist. */
__device__ __forceinline__ void weights(const job &j, int64_t i, int64_t n, float (&w)[8])
{
    int64_t r = i / j.run, within = i - r * j.run;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        w[e] = j.w.data && i + e < n ? tn_load(j.w.data, j.w.dtype, r) : 1.f;
        if (++within == j.run) r++, within = 0;
    }
}

__global__ void __launch_bounds__(TN_D_THREADS) mse_tiles(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    const int64_t n = alive(j), lo = (int64_t)blockIdx.x * TILE, hi = tn_d_least(lo + TILE, n);
    double sum = 0;
    for (int64_t i = lo + threadIdx.x * 8; i < hi; i += TN_D_THREADS * 8) {
        float x[8], w[8];
        differences(j, i, hi, x);
        weights(j, i, hi, w);
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (i + e < hi) sum += (double)w[e] * (double)(x[e] * x[e]);
    }
    sum = tn_d_block_sum(sum, shared);
    if (threadIdx.x == 0) j.work[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(TN_D_LAST_THREADS) mse_loss(const __grid_constant__ job j, int64_t tiles)
{
    __shared__ double shared[2][33];
    double sum = 0;
    for (int64_t t = threadIdx.x; t < tiles; t += blockDim.x) sum += j.work[t];
    sum = tn_d_block_sum(sum, shared[0]);
    const double scale = inverse_total(j, alive(j), shared[1]);
    if (threadIdx.x == 0) tn_store(j.loss.data, j.loss.dtype, 0, scale == 0 ? 0.f : (float)(sum * scale));
}

__global__ void __launch_bounds__(TN_D_LAST_THREADS) mse_factor(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    const double scale = inverse_total(j, alive(j), shared);
    if (threadIdx.x == 0) j.work[0] = tn_d_incoming(j.dy) * scale;
}

/* d[0] = 2 scale w (a - b), d[1] its negative; zeros where only the gradient's own tensor is alive. */
__global__ void __launch_bounds__(TN_D_THREADS) mse_differences(const __grid_constant__ job j)
{
    const int64_t n = alive(j), step = (int64_t)gridDim.x * TN_D_THREADS * 8;
    const double scale = 2 * j.work[0];
    for (int64_t i = ((int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x) * 8; i < j.all; i += step) {
        float x[8] = {}, w[8];
        if (i < n) {
            differences(j, i, n, x);
            weights(j, i, n, w);
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] = i + e < n ? __fmul_rn((float)(scale * (double)w[e]), x[e]) : 0.f;
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const bool add = j.add >> k & 1;
            if (!j.d[k].data) continue;
            if (k == 1)
#pragma unroll
                for (int e = 0; e < 8; e++) x[e] = -x[e];
            const int64_t end = add ? n : tn_d_count(j.d[k]);
            if (i < end) tn_d_group_put(j.d[k].data, j.d[k].dtype, 0, i, end, j.eights, x, add);
        }
    }
}

/* dloss/dw_r = scale (sum over the run of (a-b)^2 - length * loss). */
__global__ void mse_weights(const __grid_constant__ job j, int64_t count)
{
    __shared__ double shared[33];
    const int64_t n = alive(j), runs = (n + j.run - 1) / j.run, end = tn_d_count(j.d[2]);
    const bool add = j.add >> 2 & 1;
    const double loss = (double)tn_load(j.loss.data, j.loss.dtype, 0);
    for (int64_t r = blockIdx.x; r < count; r += gridDim.x) {
        const int64_t lo = r * j.run, hi = tn_d_least(lo + j.run, n);
        double sum = 0;
        for (int64_t i = lo + threadIdx.x; i < hi; i += blockDim.x) {
            const float x = tn_load(j.a.data, j.a.dtype, i) - (j.b.data ? tn_load(j.b.data, j.b.dtype, i) : 0.f);
            sum += (double)(x * x);
        }
        sum = tn_d_block_sum(sum, shared);
        if (threadIdx.x == 0 && r < runs)
            tn_put(j.d[2].data, j.d[2].dtype, r, (float)(j.work[0] * (sum - loss * (double)(hi - lo))), add);
        else if (threadIdx.x == 0 && !add && r < end) tn_store(j.d[2].data, j.d[2].dtype, r, 0.f);
        __syncthreads(); /* shared is used again */
    }
}

static bool flat_eights(const tn_arg *a) { return !a->data || (a->dtype != TN_F64 && (uintptr_t)a->data % 16 == 0); }

static job make_job(const tn_call *c)
{
    job j = {};
    j.a = c->in[0], j.b = c->in[1], j.w = c->in[2], j.loss = c->out[0];
    j.all = tn_all_count(&j.a);
    const int64_t count = j.w.data ? tn_all_count(&j.w) : 1;
    j.run = count && j.all ? j.all / count : 1;
    j.eights = flat_eights(&j.a) && flat_eights(&j.b);
    j.work = (double *)c->work;
    return j;
}

extern "C" size_t tn_mse_work_cuda(const tn_sig *s, bool backward)
{
    return sizeof(double) * (size_t)(backward ? 1 : (tn_dims_count(s->in[0].dims) + TILE - 1) / TILE + 1);
}

extern "C" tn_status tn_mse_forward_cuda(const tn_call *c)
{
    const job j = make_job(c);
    const int64_t tiles = (j.all + TILE - 1) / TILE;
    const cudaStream_t stream = tn_cuda_stream(c);
    if (tiles) {
        mse_tiles<<<(unsigned)tiles, TN_D_THREADS, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    mse_loss<<<1, TN_D_LAST_THREADS, 0, stream>>>(j, tiles);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_mse_backward_cuda(const tn_call *c)
{
    job j = make_job(c);
    const cudaStream_t stream = tn_cuda_stream(c);
    j.dy = c->dout[0], j.add = c->accumulate & 7;
    for (int i = 0; i < 3; i++) j.d[i] = c->din[i];
    j.eights = j.eights && flat_eights(&j.d[0]) && flat_eights(&j.d[1]);
    mse_factor<<<1, TN_D_LAST_THREADS, 0, stream>>>(j);
    TN_CUDA_LAUNCHED();
    if (j.all && (j.d[0].data || j.d[1].data)) {
        mse_differences<<<tn_blocks(c, (j.all + 7) / 8, TN_D_THREADS), TN_D_THREADS, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    const int64_t count = j.d[2].data ? tn_all_count(&j.d[2]) : 0;
    if (count) {
        mse_weights<<<tn_d_row_blocks(count), tn_d_row_threads(j.run), 0, stream>>>(j, count);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}
