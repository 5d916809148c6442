/* Steps of fixed-point iterations on the GPU: as ops/anderson.c, a block to a sample, in two passes over the state: one takes all
 * sums, one moves it. A thread has the same elements in both; sums are in double, in a fixed order. The small system is one
 * thread's. M: the most pairs a kernel is made for. */
#ifndef TN_OPS_ANDERSON_CUH
#define TN_OPS_ANDERSON_CUH

#include "ops/anderson.h"
#include "ops/rows_block.cuh"

#define TN_D_EACH(i, n) for (int64_t i = threadIdx.x; i < (n); i += blockDim.x)

/* Sums of a step: |f - x|^2, |f|^2, r . r and r . r_k of each pair k, r = f - x as it is kept: rounded, so that the products of
 * all pairs belong to the same vectors. What a system without that would solve, nobody knows. */
enum { TN_D_DISTANCE, TN_D_SIZE, TN_D_SELF, TN_D_DOTS };

/* A block's own, in shared memory. */
template <int M>
struct tn_d_solving {
    double part[M + TN_D_DOTS][32], sum[M + TN_D_DOTS], weight[M], factor[M * M];
    bool solved;
};

/* q->sum[0 .. N) = the sums of v[0 .. N) over the block; all threads may read them. */
template <int N, int M>
__device__ __forceinline__ void tn_d_totals(const double *v, tn_d_solving<M> *q)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
    for (int i = 0; i < N; i++) {
        double x = v[i];
#pragma unroll
        for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
        if (lane == 0) q->part[i][warp] = x;
    }
    __syncthreads();
    for (int i = warp; i < N; i += warps) {
        double x = lane < warps ? q->part[i][lane] : 0;
#pragma unroll
        for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
        if (lane == 0) q->sum[i] = x;
    }
    __syncthreads();
}

/* What moves in a step: the state x, the target f (+ factor extra, where there is one), pairs of earlier steps. (width) each. */
struct tn_d_step {
    int64_t width;
    float *x, *f;
    const float *extra;
    float factor;
    float *rs, *fs; /* (m,width) */
    int kept;       /* pairs to take sums with; 0: none */
};

template <int M>
__device__ __forceinline__ void tn_d_measure_one(const tn_d_step &s, int64_t i, double *v)
{
    float f = s.f[i];
    if (s.extra) s.f[i] = f = fmaf(s.factor, s.extra[i], f);
    const float x = s.x[i], r = f - x;
    const double d = (double)f - (double)x;
    v[TN_D_DISTANCE] += d * d;
    v[TN_D_SIZE] += (double)f * (double)f;
    v[TN_D_SELF] += (double)r * (double)r;
#pragma unroll
    for (int k = 0; k < M; k++)
        if (k < s.kept) v[TN_D_DOTS + k] += (double)r * (double)s.rs[k * s.width + i];
}

/* f becomes the whole target, and q->sum the sums of it. */
template <int M>
__device__ __forceinline__ void tn_d_measure(const tn_d_step &s, tn_d_solving<M> *q)
{
    double v[M + TN_D_DOTS] = { 0 };
#pragma unroll 2
    TN_D_EACH(i, s.width) tn_d_measure_one<M>(s, i, v);
    if (s.kept) tn_d_totals<M + TN_D_DOTS>(v, q);
    else tn_d_totals<(int)TN_D_DOTS>(v, q);
}

enum tn_d_way { TN_D_DAMPED, TN_D_MIXED, TN_D_BACK }; /* how x moves: see tn_d_move */

/* x becomes (1-d) x + d f; or f + sum_k weight_k (f_k - f); or f_at - (1-d) r_at. `keep`: the pair goes to place `at`, whose own
 * weight multiplies 0. Returns this thread's part of |x_next - x|^2. */
template <int M>
__device__ __forceinline__ double tn_d_move(const tn_d_step &s, tn_d_way way, float damping, int at, int n, bool keep,
                                            const tn_d_solving<M> *q)
{
    double moved = 0;
#pragma unroll 2
    TN_D_EACH(i, s.width)
    {
        const float x = s.x[i], f = s.f[i];
        float y = (1 - damping) * x + damping * f;
        if (way == TN_D_BACK) y = s.fs[at * s.width + i] - (1 - damping) * s.rs[at * s.width + i];
        if (way == TN_D_MIXED) {
            y = 0;
#pragma unroll
            for (int k = 0; k < M; k++)
                if (k < n && k != at) y += (float)q->weight[k] * (s.fs[k * s.width + i] - f);
            y += f;
        }
        if (keep) s.rs[at * s.width + i] = f - x, s.fs[at * s.width + i] = f;
        s.x[i] = y;
        moved += ((double)y - (double)x) * ((double)y - (double)x);
    }
    return moved;
}

/* After tn_d_measure: Anderson's next point, by all threads. Returns this thread's part of |x_next - x|^2. */
template <int M>
__device__ inline double tn_d_anderson(const tn_anderson &a, int64_t sample, const tn_d_step &s, float damping,
                                       tn_d_solving<M> *q)
{
    const int m = a.memory;
    double *gram = a.gram + sample * m * m;
    int kept = a.kept[sample], at = a.newest[sample];
    const double before = a.before[sample], distance = q->sum[TN_D_DISTANCE], r = sqrt(distance);
    __syncthreads(); /* all have read them */
    if (!isfinite(distance)) {
        if (threadIdx.x == 0) a.kept[sample] = a.newest[sample] = 0;
        return tn_d_move(s, kept > 1 ? TN_D_BACK : TN_D_DAMPED, damping, at, 0, false, q);
    }
    kept = tn_anderson_pairs(m, kept, r, before);
    at = kept > 1 ? (at + 1) % m : 0;
    if (threadIdx.x == 0) {
        for (int k = 0; k < kept; k++)
            gram[at * m + k] = gram[k * m + at] = q->sum[k == at ? (int)TN_D_SELF : TN_D_DOTS + k];
        q->solved = kept > 1 && tn_anderson_weigh(gram, m, kept, q->factor, M, q->weight);
        const bool restart = kept > 1 && !q->solved;
        a.before[sample] = r;
        a.kept[sample] = restart ? 0 : kept;
        a.newest[sample] = restart ? 0 : at;
    }
    __syncthreads();
    return tn_d_move(s, q->solved ? TN_D_MIXED : TN_D_DAMPED, damping, at, kept, true, q);
}

#endif
