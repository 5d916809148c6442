/* Anderson acceleration on the GPU: as ops/anderson.c, a block to a sample. A thread has the same elements of a state in
 * every pass; sums are in double, in a fixed order. The small system is one thread's. */
#ifndef TN_OPS_ANDERSON_CUH
#define TN_OPS_ANDERSON_CUH

#include "ops/anderson.h"
#include "ops/rows_block.cuh"

/* A block's own, in shared memory. */
struct tn_d_solving {
    double sums[33], weight[TN_ANDERSON_MOST], factor[TN_ANDERSON_MOST][TN_ANDERSON_MOST];
    bool solved;
};

#define TN_D_EACH(i, n) for (int64_t i = threadIdx.x; i < (n); i += blockDim.x)

/* Every thread gets the sum; `q->sums` may be used again at once. */
__device__ __forceinline__ double tn_d_total(double x, tn_d_solving *q)
{
    const double all = tn_d_block_sum(x, q->sums);
    __syncthreads();
    return all;
}

/* x becomes y; returns (y - x)^2. */
__device__ __forceinline__ double tn_d_advance(float *x, float y)
{
    const double d = (double)y - (double)*x;
    *x = y;
    return d * d;
}

/* x <- (1-damping) x + damping f; returns |x_next - x|^2. */
__device__ __forceinline__ double tn_d_damped_step(int64_t width, float damping, float *x, const float *f, tn_d_solving *q)
{
    double moved = 0;
    TN_D_EACH(i, width) moved += tn_d_advance(&x[i], (1 - damping) * x[i] + damping * f[i]);
    return tn_d_total(moved, q);
}

/* (G + e tr/n I) weight = 1 by Cholesky, then scaled to sum 1; false if that cannot be done. */
__device__ inline bool tn_d_weigh(const double *gram, int m, int n, tn_d_solving *q)
{
    double(*c)[TN_ANDERSON_MOST] = q->factor, *weight = q->weight, trace = 0, sum = 0;
    for (int i = 0; i < n; i++) trace += gram[i * m + i];
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            double s = gram[i * m + k] + (i == k ? TN_ANDERSON_REGULAR * trace / n : 0);
            for (int j = 0; j < k; j++) s -= c[i][j] * c[k][j];
            if (k < i) c[i][k] = s / c[k][k];
            else if (s > 0 && isfinite(s)) c[i][i] = sqrt(s);
            else return false;
        }
    for (int i = 0; i < n; i++) {
        double s = 1;
        for (int j = 0; j < i; j++) s -= c[i][j] * weight[j];
        weight[i] = s / c[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        double s = weight[i];
        for (int j = i + 1; j < n; j++) s -= c[j][i] * weight[j];
        weight[i] = s / c[i][i];
        sum += weight[i];
    }
    for (int i = 0; i < n; i++) weight[i] /= sum;
    return sum > 0 && isfinite(sum);
}

/* x = f_at + sum_k weight_k (f_k - f_at); returns |x_next - x|^2. */
__device__ __forceinline__ double tn_d_combine(int64_t width, const float *f, int n, int at, float *x, tn_d_solving *q)
{
    double moved = 0;
    TN_D_EACH(i, width)
    {
        const float newest = f[at * width + i];
        float y = 0;
        for (int k = 0; k < n; k++) y += (float)q->weight[k] * (f[k * width + i] - newest);
        moved += tn_d_advance(&x[i], newest + y);
    }
    return tn_d_total(moved, q);
}

/* x (width) becomes the next point, given f = f(x) and distance = |f - x|^2; returns |x_next - x|^2. All threads call it. */
__device__ inline double tn_d_anderson_step(const tn_anderson &a, int64_t sample, float damping, float *x, const float *f,
                                            double distance, tn_d_solving *q)
{
    const int64_t width = a.width;
    const int m = a.memory;
    float *rs = a.r + sample * m * width, *fs = a.f + sample * m * width;
    double *gram = a.gram + sample * m * m;
    int kept = a.kept[sample], at = a.newest[sample];
    const double before = a.before[sample], r = sqrt(distance);
    __syncthreads(); /* all have read them */
    if (!isfinite(distance)) {
        if (threadIdx.x == 0) a.kept[sample] = a.newest[sample] = 0;
        if (kept <= 1) return tn_d_damped_step(width, damping, x, f, q);
        double moved = 0; /* back to the damped step from the last pair */
        TN_D_EACH(i, width) moved += tn_d_advance(&x[i], fs[at * width + i] - (1 - damping) * rs[at * width + i]);
        return tn_d_total(moved, q);
    }
    if (kept && r > TN_ANDERSON_GROWTH * before) kept = 0;
    at = kept ? (at + 1) % m : 0;
    kept = kept < m ? kept + 1 : m;
    TN_D_EACH(i, width) rs[at * width + i] = f[i] - x[i], fs[at * width + i] = f[i];
    for (int k = 0; k < kept; k++) {
        double dot = 0;
        TN_D_EACH(i, width) dot += (double)rs[at * width + i] * (double)rs[k * width + i];
        dot = tn_d_total(dot, q);
        if (threadIdx.x == 0) gram[at * m + k] = gram[k * m + at] = dot;
    }
    if (threadIdx.x == 0) {
        q->solved = kept > 1 && tn_d_weigh(gram, m, kept, q);
        const bool restart = kept > 1 && !q->solved;
        a.before[sample] = r;
        a.kept[sample] = restart ? 0 : kept;
        a.newest[sample] = restart ? 0 : at;
    }
    __syncthreads();
    return q->solved ? tn_d_combine(width, fs, kept, at, x, q) : tn_d_damped_step(width, damping, x, f, q);
}

#endif
