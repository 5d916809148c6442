/* For relax_cuda.cu: products of 16 rows by a block of 8 warps, and samples as numbers in the lanes of a warp. */
#ifndef TN_OPS_RELAX_ROWS_CUH
#define TN_OPS_RELAX_ROWS_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/mma.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* --- products of 16 rows ------------------------------------------------------------------------------------------------ */

/* put(row, column, x (row) . w (column), x (row) . w (column + 1)) for 16 rows x (.., k) and n rows w (.., k); n is even. */
template <typename Put>
__device__ __forceinline__ void product(const __nv_bfloat16 *x, int x_row, const __nv_bfloat16 *w, int w_row, int n, int k, Put put)
{
    const int lane = threadIdx.x & 31;
    for (int tile = threadIdx.x >> 5; tile * 8 < n; tile += WARPS) {
        float even[4] = { 0, 0, 0, 0 }, odd[4] = { 0, 0, 0, 0 };
#pragma unroll 4
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
        put(row, column, even[0] + odd[0], even[1] + odd[1]);
        put(row + 8, column, even[2] + odd[2], even[3] + odd[3]);
    }
}

/* A thread has R rows of two neighbouring columns. */
template <int R, typename Put>
__device__ __forceinline__ void product_rows(const float *x, int x_row, const float *w, int w_row, int n, int k, Put put)
{
    for (int o = threadIdx.x; o < n / 2 * (16 / R); o += THREADS) {
        const int column = o % (n / 2) * 2, first = o / (n / 2) * R;
        float sum[R][2] = { { 0 } };
        for (int i = 0; i < k; i += 4) {
            const float4 b = *(const float4 *)(w + column * w_row + i), c = *(const float4 *)(w + (column + 1) * w_row + i);
#pragma unroll
            for (int r = 0; r < R; r++) {
                const float4 a = *(const float4 *)(x + (first + r) * x_row + i);
                sum[r][0] = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum[r][0]))));
                sum[r][1] = fmaf(a.w, c.w, fmaf(a.z, c.z, fmaf(a.y, c.y, fmaf(a.x, c.x, sum[r][1]))));
            }
        }
#pragma unroll
        for (int r = 0; r < R; r++) put(first + r, column, sum[r][0], sum[r][1]);
    }
}

template <typename Put>
__device__ __forceinline__ void product(const float *x, int x_row, const float *w, int w_row, int n, int k, Put put)
{
    if (n > 64) product_rows<4>(x, x_row, w, w_row, n, k, put);
    else product_rows<2>(x, x_row, w, w_row, n, k, put);
}

__device__ __forceinline__ void put_as(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }
__device__ __forceinline__ void put_as(float *p, float x) { *p = x; }

/* to (n,k) = element (n,k) of a matrix with steps; 0 behind n_there and k_there. The axis with step 1 is along the lanes. */
template <typename T>
__device__ __forceinline__ void load_matrix(T *to, int row, int n, int k, const float *from, int64_t step_n, int64_t step_k,
                                            int n_there, int k_there)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool rows = step_k == 1;
    const int outer = rows ? n : k, inner = rows ? k : n;
#pragma unroll 4
    for (int o = warp; o < outer; o += WARPS)
#pragma unroll 4
        for (int i = lane; i < inner; i += 32) {
            const int a = rows ? o : i, b = rows ? i : o;
            put_as(&to[a * row + b], a < n_there && b < k_there ? from[a * step_n + b * step_k] : 0.f);
        }
}

/* --- messages within a cluster ------------------------------------------------------------------------------------------ */

/* Stores into the shared memory of another CTA that count at a barrier there. A barrier's phase is over when its one arrival has
 * come, which says how many bytes to wait for, and all of them have. From sm_90 on. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t tn_shared_of(uint32_t at, int rank)
{
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

__device__ __forceinline__ void tn_barrier_make(uint32_t barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void tn_barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void tn_barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void tn_barrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t over;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!over);
}

__device__ __forceinline__ void tn_send(uint32_t to, uint32_t barrier, uint32_t a)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to), "r"(a), "r"(barrier) : "memory");
}

__device__ __forceinline__ void tn_send(uint32_t to, uint32_t barrier, uint32_t a, uint32_t b)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(a), "r"(b),
                 "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void tn_send(uint32_t to, uint32_t barrier, uint4 a)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "r"(a.x),
                 "r"(a.y), "r"(a.z), "r"(a.w), "r"(barrier)
                 : "memory");
}

#endif

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

/* N sums over a warp at once: one waits no longer than several. */
template <int N>
__device__ __forceinline__ void warp_sums(float (&s)[N])
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
#pragma unroll
        for (int i = 0; i < N; i++) s[i] += __shfl_xor_sync(0xffffffffu, s[i], d);
}

/* This lane's part of a . b. */
template <int V>
__device__ __forceinline__ float along(const numbers<V> &a, const numbers<V> &b)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < V; i++) s = fmaf(a.v[i], b.v[i], s);
    return s;
}

/* A norm in one pass: sums of w - w_0 and its square, which are as large as they must be; then (w - mean) / deviation, 0 behind d.
 * *inverse = 1 / deviation. */
template <int V>
__device__ __forceinline__ numbers<V> norm_begin(const numbers<V> &w, int d, float *sum, float *squares)
{
    numbers<V> p;
    const float shift = __shfl_sync(0xffffffffu, w.v[0], 0);
    *sum = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        p.v[i] = (int)(threadIdx.x & 31) * V + i < d ? w.v[i] - shift : 0.f;
        *sum += p.v[i];
    }
    *squares = along(p, p);
    return p;
}

template <int V>
__device__ __forceinline__ numbers<V> norm_end(const numbers<V> &p, int d, float sum, float squares, float *inverse)
{
    numbers<V> n;
    const float over = 1.f / (float)d, mean = sum * over, variance = squares * over - mean * mean;
    *inverse = rsqrtf((variance < 0 ? 0 : variance) + 1e-5f); /* NaN stays */
#pragma unroll
    for (int i = 0; i < V; i++) n.v[i] = (int)(threadIdx.x & 31) * V + i < d ? (p.v[i] - mean) * *inverse : 0.f;
    return n;
}

template <int V>
__device__ __forceinline__ numbers<V> normalize(const numbers<V> &w, int d, float *inverse)
{
    float s[2];
    const numbers<V> p = norm_begin(w, d, &s[0], &s[1]);
    warp_sums(s);
    return norm_end(p, d, s[0], s[1], inverse);
}

template <int V>
__device__ __forceinline__ numbers<V> scaled(const numbers<V> &n, const numbers<V> &gain, const numbers<V> &bias)
{
    numbers<V> y;
#pragma unroll
    for (int i = 0; i < V; i++) y.v[i] = fmaf(n.v[i], gain.v[i], bias.v[i]);
    return y;
}

/* Back through a norm: what reaches its input, given g, what comes to its output times the gain, and the sums of g and g n. */
template <int V>
__device__ __forceinline__ numbers<V> back_end(const numbers<V> &g, const numbers<V> &n, int d, float sum, float with_n, float inverse)
{
    numbers<V> r;
    const float over = 1.f / (float)d;
#pragma unroll
    for (int i = 0; i < V; i++)
        r.v[i] = (int)(threadIdx.x & 31) * V + i < d ? inverse * (g.v[i] - sum * over - n.v[i] * (with_n * over)) : 0.f;
    return r;
}

template <int V>
__device__ __forceinline__ numbers<V> times(const numbers<V> &a, const numbers<V> &b)
{
    numbers<V> r;
#pragma unroll
    for (int i = 0; i < V; i++) r.v[i] = a.v[i] * b.v[i];
    return r;
}

template <int V>
__device__ __forceinline__ float sum_in(const numbers<V> &a)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < V; i++) s += a.v[i];
    return s;
}

template <int V>
__device__ __forceinline__ numbers<V> back(const numbers<V> &dy, const numbers<V> &gain, const numbers<V> &n, float inverse, int d)
{
    const numbers<V> g = times(dy, gain);
    float s[2] = { sum_in(g), along(g, n) };
    warp_sums(s);
    return back_end(g, n, d, s[0], s[1], inverse);
}

#endif
