/* For relax_cuda.cu: products of 16 rows by a block of 8 warps, and samples as numbers in the lanes of a warp. */
#ifndef TN_OPS_RELAX_ROWS_CUH
#define TN_OPS_RELAX_ROWS_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/mma.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* --- products of 16 rows ------------------------------------------------------------------------------------------------ */

/* put(row, column, x (row) . w (column)) for 16 rows x (.., k) and n rows w (.., k). */
template <typename Put>
__device__ __forceinline__ void product(const __nv_bfloat16 *x, int x_row, const __nv_bfloat16 *w, int w_row, int n,
                                        int k, Put put)
{
    const int lane = threadIdx.x & 31;
    for (int tile = threadIdx.x >> 5; tile * 8 < n; tile += WARPS) {
        float even[4] = { 0, 0, 0, 0 }, odd[4] = { 0, 0, 0, 0 };
        for (int i = 0; i < k; i += 32) {
            uint32_t a[4], b[4];
            tn_ldmatrix(b, w + (tile * 8 + (lane & 7)) * w_row + i + (lane >> 3) * 8);
            tn_ldmatrix(a, x + (lane & 15) * x_row + i + (lane >> 4) * 8);
            tn_mma(even, a, b[0], b[1]);
            if (i + 16 < k) {
                tn_ldmatrix(a, x + (lane & 15) * x_row + i + 16 + (lane >> 4) * 8);
                tn_mma(odd, a, b[2], b[3]);
            }
        }
        const int row = lane >> 2, column = tile * 8 + (lane & 3) * 2;
        put(row, column, even[0] + odd[0]);
        put(row, column + 1, even[1] + odd[1]);
        put(row + 8, column, even[2] + odd[2]);
        put(row + 8, column + 1, even[3] + odd[3]);
    }
}

template <typename Put>
__device__ __forceinline__ void product(const float *x, int x_row, const float *w, int w_row, int n, int k, Put put)
{
    for (int o = threadIdx.x; o < 4 * n; o += THREADS) {
        const int column = o % n, first = o / n * 4;
        float sum[4] = { 0, 0, 0, 0 };
        for (int i = 0; i < k; i += 4) {
            const float4 b = *(const float4 *)(w + column * w_row + i);
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const float4 a = *(const float4 *)(x + (first + r) * x_row + i);
                sum[r] = fmaf(a.x, b.x, sum[r]), sum[r] = fmaf(a.y, b.y, sum[r]);
                sum[r] = fmaf(a.z, b.z, sum[r]), sum[r] = fmaf(a.w, b.w, sum[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < 4; r++) put(first + r, column, sum[r]);
    }
}

__device__ __forceinline__ void put_as(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }
__device__ __forceinline__ void put_as(float *p, float x) { *p = x; }

/* to (n,k) = element (n,k) of a matrix with steps; 0 behind n_there and k_there. The axis with step 1 is walked first. */
template <typename T>
__device__ __forceinline__ void load_matrix(T *to, int row, int n, int k, const float *from, int64_t step_n,
                                            int64_t step_k, int n_there, int k_there)
{
#pragma unroll 8
    for (int i = threadIdx.x; i < n * k; i += THREADS) {
        const int a = step_k == 1 ? i / k : i % n, b = step_k == 1 ? i % k : i / n;
        put_as(&to[a * row + b], a < n_there && b < k_there ? from[a * step_n + b * step_k] : 0.f);
    }
}

/* --- a sample: V numbers in each lane ----------------------------------------------------------------------------------- */

template <int V>
struct numbers {
    float v[V];
};

template <int V>
__device__ __forceinline__ numbers<V> get(const float *shared)
{
    numbers<V> r;
#pragma unroll
    for (int i = 0; i < V; i += 4) *(float4 *)&r.v[i] = *(const float4 *)(shared + (threadIdx.x & 31) * V + i);
    return r;
}

template <int V>
__device__ __forceinline__ void set(float *shared, const numbers<V> &r)
{
#pragma unroll
    for (int i = 0; i < V; i += 4) *(float4 *)(shared + (threadIdx.x & 31) * V + i) = *(const float4 *)&r.v[i];
}

template <int V>
__device__ __forceinline__ numbers<V> get_row(const float *row, int d)
{
    numbers<V> r;
#pragma unroll
    for (int i = 0; i < V; i++) {
        const int k = (threadIdx.x & 31) * V + i;
        r.v[i] = row && k < d ? row[k] : 0.f;
    }
    return r;
}

template <int V>
__device__ __forceinline__ void set_row(float *row, int d, const numbers<V> &r)
{
#pragma unroll
    for (int i = 0; i < V; i++)
        if ((int)(threadIdx.x & 31) * V + i < d) row[(threadIdx.x & 31) * V + i] = r.v[i];
}

template <int V>
__device__ __forceinline__ float dot(const numbers<V> &a, const numbers<V> &b)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < V; i++) s = fmaf(a.v[i], b.v[i], s);
    return tn_warp_sum(s);
}

/* (w - mean) / deviation, 0 behind d; *inverse = 1 / deviation. */
template <int V>
__device__ __forceinline__ numbers<V> normalize(const numbers<V> &w, int d, float *inverse)
{
    numbers<V> n;
    float s = 0;
#pragma unroll
    for (int i = 0; i < V; i++) s += w.v[i];
    const float mean = tn_warp_sum(s) / (float)d;
#pragma unroll
    for (int i = 0; i < V; i++) n.v[i] = (int)(threadIdx.x & 31) * V + i < d ? w.v[i] - mean : 0.f;
    *inverse = rsqrtf(dot(n, n) / (float)d + 1e-5f);
#pragma unroll
    for (int i = 0; i < V; i++) n.v[i] *= *inverse;
    return n;
}

template <int V>
__device__ __forceinline__ numbers<V> scaled(const numbers<V> &n, const numbers<V> &gain, const numbers<V> &bias)
{
    numbers<V> y;
#pragma unroll
    for (int i = 0; i < V; i++) y.v[i] = fmaf(n.v[i], gain.v[i], bias.v[i]);
    return y;
}

/* Back through a norm: what reaches its input, given what comes to its output. */
template <int V>
__device__ __forceinline__ numbers<V> back(const numbers<V> &dy, const numbers<V> &gain, const numbers<V> &n,
                                           float inverse, int d)
{
    numbers<V> g, r;
    float s = 0;
#pragma unroll
    for (int i = 0; i < V; i++) g.v[i] = dy.v[i] * gain.v[i], s += g.v[i];
    const float mean = tn_warp_sum(s) / (float)d, along = dot(g, n) / (float)d;
#pragma unroll
    for (int i = 0; i < V; i++)
        r.v[i] = (int)(threadIdx.x & 31) * V + i < d ? inverse * (g.v[i] - mean - n.v[i] * along) : 0.f;
    return r;
}

#endif
