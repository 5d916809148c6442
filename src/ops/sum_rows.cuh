/* Second stage of a sum over all tokens: kernels leave one row of f32 partial sums per tile, here they are added in
 * double in an order that depends on their number alone, and `finish` takes the totals of a column. One launch:
 * where there are many rows they are cut into slices, and whichever block comes last (an integer counter says so)
 * adds the slices, in their order. Rows of the batch that are not alive are not read. */
#ifndef TN_OPS_SUM_ROWS_CUH
#define TN_OPS_SUM_ROWS_CUH

#include "backend/cuda/device.cuh"

enum { TN_SUM_LANES = 32, TN_SUM_WARPS = 16, TN_SUM_SLICES = 16, TN_SUM_MANY = 1024 };

typedef struct tn_sum_rows {
    const float *partial; /* (B, parts, fields, columns) */
    int64_t B, parts, columns;
    const int32_t *live; /* rows of B alive, or NULL: all */
    double *slice;       /* (TN_SUM_SLICES, fields, columns) */
    unsigned *done;      /* one per TN_SUM_LANES columns; 0 before the launch */
} tn_sum_rows;

static inline int64_t tn_sum_counters(int64_t columns) { return (columns + TN_SUM_LANES - 1) / TN_SUM_LANES; }

/* Memory for slices and counters; a multiple of 64. */
static inline size_t tn_sum_bytes(int fields, int64_t columns)
{
    const size_t bytes = sizeof(double) * (size_t)(TN_SUM_SLICES * fields * columns) +
                         sizeof(unsigned) * (size_t)tn_sum_counters(columns);
    return (bytes + 63) / 64 * 64;
}

/* Lays slices and counters out from `at`. */
static inline void tn_sum_place(tn_sum_rows *s, int fields, void *at)
{
    s->slice = (double *)at;
    s->done = (unsigned *)(s->slice + TN_SUM_SLICES * fields * s->columns);
}

/* For the kernel that makes the partial sums: the counters start at 0. */
__device__ __forceinline__ void tn_sum_clear(const tn_sum_rows &s)
{
    if (blockIdx.x || blockIdx.y) return;
    for (int64_t i = threadIdx.x; i < (s.columns + TN_SUM_LANES - 1) / TN_SUM_LANES; i += blockDim.x) s.done[i] = 0;
}

/* This block's rows of column k, by all warps; the result is in the first warp. */
template <int F>
__device__ __forceinline__ void tn_sum_slice(const tn_sum_rows &s, int64_t k, double *total)
{
    __shared__ double shared[TN_SUM_WARPS][F][TN_SUM_LANES];
    const int lane = threadIdx.x % TN_SUM_LANES, warp = threadIdx.x / TN_SUM_LANES;
    const int64_t n = (s.live && *s.live < s.B ? (*s.live < 0 ? 0 : *s.live) : s.B) * s.parts;
    const int64_t each = (n + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each,
                  last = first + each < n ? first + each : n;
    double sum[F] = { 0 };
    if (k < s.columns) {
#pragma unroll 4
        for (int64_t r = first + warp; r < last; r += TN_SUM_WARPS)
#pragma unroll
            for (int f = 0; f < F; f++) sum[f] += (double)s.partial[(r * F + f) * s.columns + k];
    }
#pragma unroll
    for (int f = 0; f < F; f++) shared[warp][f][lane] = sum[f];
    __syncthreads();
    for (int f = 0; f < F; f++) {
        total[f] = 0;
        for (int w = 0; w < TN_SUM_WARPS && warp == 0; w++) total[f] += shared[w][f][lane];
    }
}

/* Notes this block's slice; true for the last block of these columns. */
template <int F>
__device__ __forceinline__ bool tn_sum_last(const tn_sum_rows &s, int64_t k, const double *total)
{
    __shared__ bool last;
    if (threadIdx.x < TN_SUM_LANES && k < s.columns)
        for (int f = 0; f < F; f++) s.slice[(blockIdx.y * F + f) * s.columns + k] = total[f];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&s.done[blockIdx.x], 1u) == gridDim.y - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/* finish(k, total): total[f] of column k, called once per column. */
template <int F, class Finish>
static __global__ void __launch_bounds__(TN_SUM_LANES *TN_SUM_WARPS) tn_sum_rows_kernel(tn_sum_rows s, Finish finish)
{
    const int64_t k = blockIdx.x * (int64_t)TN_SUM_LANES + threadIdx.x % TN_SUM_LANES;
    double total[F];
    tn_sum_slice<F>(s, k, total);
    if (gridDim.y > 1) {
        if (!tn_sum_last<F>(s, k, total)) return;
        for (int f = 0; f < F; f++) {
            total[f] = 0;
            for (int i = 0; i < (int)gridDim.y && k < s.columns; i++)
                total[f] += __ldcg(&s.slice[(i * F + f) * s.columns + k]);
        }
    }
    if (threadIdx.x < TN_SUM_LANES && k < s.columns) finish(k, total);
}

template <int F, class Finish>
static tn_status tn_sum_rows_run(const tn_call *c, const tn_sum_rows *s, Finish finish)
{
    const dim3 grid((unsigned)tn_sum_counters(s->columns), s->B * s->parts >= TN_SUM_MANY ? TN_SUM_SLICES : 1);
    if (!s->columns) return TN_OK;
    tn_sum_rows_kernel<F><<<grid, TN_SUM_LANES * TN_SUM_WARPS, 0, tn_cuda_stream(c)>>>(*s, finish);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

#endif
