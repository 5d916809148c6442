/* Sums over some axes of a space on the GPU: gradients of broadcast inputs, and the reductions (on the CPU:
 * elem_sum.c).
 *
 * A result k is the sum over s of what f makes of the arguments there; k and s are row-major positions among the kept
 * and the summed axes. Where the last axis is kept, neighbouring lanes take neighbouring results (columns); where it is
 * summed, a warp takes one result, or fewer of its lanes a short one (rows). Long sums are cut into segments, joined in order. The cut and the order come
 * from sizes alone, never from where numbers lie or what is alive. Sums are double, but for the two or four numbers of
 * a column that a thread reads at once: those are added in f32, in pairs. */
#ifndef TN_OPS_ELEM_SUM_CUH
#define TN_OPS_ELEM_SUM_CUH

#include "ops/elem.cuh"

enum { TN_D_WARPS = TN_D_THREADS / 32 };

/* What follows from the shapes. */
struct tn_d_sum_cut {
    int64_t kept, summed;           /* results, numbers to each; without what is dead */
    int64_t kept_rest, summed_rest; /* the same for one position of axis 0 */
    int64_t first;                  /* size of axis 0 */
    bool first_kept, columns;
    int64_t segments, each; /* each: numbers of a segment */
};

struct tn_d_sum {
    tn_d_sum_cut cut;
    tn_d_axes kept, summed; /* arguments: the inputs, then the result (kept only) */
    void *data[TN_D_ARGS];
    tn_dtype dtype[TN_D_ARGS];
    const int32_t *live;
    bool eights, add, mean;
    double *partial; /* (segments, kept) */
};

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* Axis i of the space is one of the result's (a single position counts as summed). */
static inline bool tn_d_kept(tn_dims space, tn_dims result, int i)
{
    const int own = i - (space.rank - result.rank);
    return own >= 0 && space.dim[i] != 1 && result.dim[own] == space.dim[i];
}

static inline tn_d_sum_cut tn_d_sum_measure(tn_dims space, tn_dims result)
{
    tn_d_sum_cut m = {};
    m.kept_rest = m.summed_rest = 1;
    m.first = space.rank ? space.dim[0] : 1;
    m.first_kept = space.rank && tn_d_kept(space, result, 0);
    for (int i = 0; i < space.rank; i++) {
        const bool kept = tn_d_kept(space, result, i);
        if (space.dim[i] != 1) m.columns = kept;
        if (i > 0) *(kept ? &m.kept_rest : &m.summed_rest) *= space.dim[i];
    }
    m.kept = m.kept_rest * (m.first_kept ? m.first : 1);
    m.summed = m.summed_rest * (m.first_kept ? 1 : m.first);
    m.segments = 1;
    m.each = m.summed;
    if (m.kept == 0 || m.summed == 0) return m;
    /* enough blocks for a large GPU; a segment has work for every warp or lane of its block */
    const int64_t least = m.columns ? 64 : 2048, blocks = (m.kept + 255) / 256;
    int64_t want = m.columns ? 1024 / blocks : 4096 / m.kept;
    const int64_t most = (m.summed + least - 1) / least;
    want = want < 1 ? 1 : want < most ? want : most;
    m.each = (m.summed + want - 1) / want;
    if (!m.columns) m.each = (m.each + 255) / 256 * 256;
    m.segments = (m.summed + m.each - 1) / m.each;
    return m;
}

/* Bytes of workspace. */
static inline size_t tn_d_sum_work(tn_dims space, tn_dims result)
{
    const tn_d_sum_cut m = tn_d_sum_measure(space, result);
    return m.segments > 1 ? sizeof(double) * (size_t)(m.segments * m.kept) : 0;
}

/* args: n inputs, then the result. Its axis 0 is cut to *live. work: tn_d_sum_work bytes. */
static inline tn_d_sum tn_d_sum_make(tn_dims dims, const int32_t *live, int n, const tn_arg *const *args, bool add,
                                     bool mean, void *work)
{
    tn_d_sum m = {};
    m.cut = tn_d_sum_measure(dims, args[n]->dims);
    m.live = dims.rank ? live : NULL;
    m.add = add, m.mean = mean, m.partial = (double *)work;
    for (int i = 0; i < dims.rank; i++) {
        int64_t stride[TN_D_ARGS];
        if (dims.dim[i] == 1) continue;
        for (int k = 0; k <= n; k++) stride[k] = tn_d_stride(args[k], dims.rank, i);
        tn_d_push(tn_d_kept(dims, args[n]->dims, i) ? &m.kept : &m.summed, n + 1, dims.dim[i], stride);
    }
    tn_d_finish(&m.kept);
    tn_d_finish(&m.summed);
    const tn_d_axes *in = m.cut.columns ? &m.kept : &m.summed, *out = m.cut.columns ? &m.summed : &m.kept;
    const int inner = in->rank - 1;
    m.eights = inner >= 0 && in->dim[inner] % 8 == 0;
    for (int k = 0; k <= n; k++) {
        m.data[k] = args[k]->data;
        m.dtype[k] = args[k]->dtype;
        if (k == n || !m.data[k]) continue;
        m.eights = m.eights && tn_d_eights(in, k, inner, m.data[k], m.dtype[k]);
        for (int i = 0; m.eights && i < out->rank && in->stride[k][inner] != 0; i++)
            m.eights = out->stride[k][i] * tn_d_bytes(m.dtype[k]) % 16 == 0;
    }
    return m;
}

/* --- on the device ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ int64_t tn_d_sum_kept(const tn_d_sum &m)
{
    return m.cut.first_kept ? tn_d_alive(m.live, m.cut.first) * m.cut.kept_rest : m.cut.kept;
}

__device__ __forceinline__ int64_t tn_d_sum_summed(const tn_d_sum &m)
{
    return m.cut.first_kept ? m.cut.summed : tn_d_alive(m.live, m.cut.first) * m.cut.summed_rest;
}

template <int IN>
__device__ __forceinline__ void tn_d_sum_write(const tn_d_sum &m, int64_t k, double x)
{
    int64_t at[IN + 1] = {};
    const int64_t n = tn_d_sum_summed(m);
    tn_d_locate(m.kept, k, at);
    if (m.mean) x = n ? x * (1 / (double)n) : 0;
    tn_put(m.data[IN], m.dtype[IN], at[IN], (float)x, m.add);
}

/* A segment's sum for result k, or all of it. */
template <int IN>
__device__ __forceinline__ void tn_d_sum_keep(const tn_d_sum &m, int64_t segment, int64_t k, double x)
{
    if (m.cut.segments > 1) m.partial[segment * m.cut.kept + k] = x;
    else tn_d_sum_write<IN>(m, k, x);
}

__device__ __forceinline__ double tn_d_warp_sum(double x)
{
#pragma unroll
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Over `lanes` neighbouring threads, a power of two: the bits that a whole warp gives whose other lanes have nothing. */
__device__ __forceinline__ double tn_d_lanes_sum(double x, int lanes)
{
    const unsigned all = lanes == 32 ? 0xffffffffu : ((1u << lanes) - 1) << (threadIdx.x & 31 & ~(lanes - 1));
    for (int d = lanes / 2; d; d >>= 1) x += __shfl_xor_sync(all, x, d);
    return x;
}

/* What f makes of N neighbours in R rows, TN_D_WARPS apart from s on, added in pairs; rows from hi on count as 0. */
template <int IN, int N, int R, class F>
__device__ __forceinline__ void tn_d_sum_batch(const tn_d_sum &m, const int64_t (&base)[IN], int64_t s, int64_t hi,
                                               const F &f, float (&all)[N])
{
    const int inner = m.kept.rank - 1;
    int64_t at[R][IN];
    tn_d_raw raw[R][IN];
    float y[R][1][N];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int k = 0; k < IN; k++) at[r][k] = base[k];
        if (s + r * TN_D_WARPS >= hi) continue;
        tn_d_locate(m.summed, s + r * TN_D_WARPS, at[r]);
#pragma unroll
        for (int k = 0; k < IN; k++)
            if (N == 8 && m.data[k] && m.kept.stride[k][inner]) tn_d_ask8(m.data[k], m.dtype[k], at[r][k], raw[r][k]);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float x[IN][N];
#pragma unroll
        for (int e = 0; e < N; e++) y[r][0][e] = 0.f;
        if (s + r * TN_D_WARPS >= hi) continue;
#pragma unroll
        for (int k = 0; k < IN; k++) {
            const bool repeated = m.kept.stride[k][inner] == 0;
            if constexpr (N == 8) tn_d_take8(m.data[k], m.dtype[k], at[r][k], repeated, 8, raw[r][k], x[k]);
            else x[k][0] = m.data[k] ? tn_load(m.data[k], m.dtype[k], at[r][k]) : 0.f;
        }
        f((int64_t)0, x, y[r]);
    }
#pragma unroll
    for (int e = 0; e < N; e++) {
        all[e] = y[0][0][e] + y[1][0][e];
        if constexpr (R == 4) all[e] += y[2][0][e] + y[3][0][e];
    }
}

/* A lane takes N neighbouring results, the warps of a block every eighth number each. */
template <int IN, int N, class F>
__global__ void __launch_bounds__(TN_D_THREADS, 2) tn_d_sum_columns(const __grid_constant__ tn_d_sum m, F f)
{
    constexpr int R = IN == 1 ? 4 : 2; /* rows at once: what the registers hold */
    __shared__ double part[TN_D_WARPS][32 * N];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t across = (m.cut.kept + 32 * N - 1) / (32 * N), segment = blockIdx.x / across;
    const int64_t block = (blockIdx.x % across) * 32 * N, k0 = block + lane * N;
    const int64_t kept = tn_d_sum_kept(m), n = tn_d_sum_summed(m), lo = segment * m.cut.each;
    const int64_t hi = lo + m.cut.each < n ? lo + m.cut.each : n;
    double sum[N] = {};
    if (k0 < kept) {
        int64_t base[IN] = {};
        tn_d_locate(m.kept, k0, base);
#pragma unroll 1
        for (int64_t s = lo + warp; s < hi; s += TN_D_WARPS * R) {
            float y[N];
            tn_d_sum_batch<IN, N, R>(m, base, s, hi, f, y);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += (double)y[e];
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++) part[warp][lane * N + e] = sum[e];
    __syncthreads();
    const int64_t k = block + threadIdx.x;
    if (threadIdx.x >= 32 * N || k >= kept) return;
    double all = 0;
#pragma unroll
    for (int w = 0; w < TN_D_WARPS; w++) all += part[w][threadIdx.x];
    tn_d_sum_keep<IN>(m, segment, k, all);
}

/* `lanes` threads take one segment of one result, each 8 neighbouring numbers of every 8 lanes. */
template <int IN, bool EIGHTS, class F>
__global__ void __launch_bounds__(TN_D_THREADS) tn_d_sum_rows(const __grid_constant__ tn_d_sum m, int lanes, F f)
{
    const int lane = threadIdx.x & (lanes - 1), at_once = TN_D_THREADS / lanes;
    const int64_t items = tn_d_sum_kept(m) * m.cut.segments, n = tn_d_sum_summed(m);
    const int64_t step = (int64_t)gridDim.x * at_once;
    for (int64_t item = (int64_t)blockIdx.x * at_once + threadIdx.x / lanes; item < items; item += step) {
        const int64_t k = item / m.cut.segments, segment = item % m.cut.segments, lo = segment * m.cut.each;
        const int64_t hi = lo + m.cut.each < n ? lo + m.cut.each : n;
        int64_t base[IN] = {};
        double sum = 0;
        tn_d_locate(m.kept, k, base);
        for (int64_t s = lo + lane * 8; s < hi; s += lanes * 8) {
            float x[IN][8], y[1][8];
#pragma unroll
            for (int e = 0; e < (EIGHTS ? 1 : 8); e++) {
                int64_t at[IN];
#pragma unroll
                for (int i = 0; i < IN; i++) at[i] = base[i];
                if (s + e < hi) tn_d_locate(m.summed, s + e, at);
#pragma unroll
                for (int i = 0; i < IN; i++) {
                    if constexpr (EIGHTS)
                        tn_d_get8(m.data[i], m.dtype[i], at[i], m.summed.stride[i][m.summed.rank - 1] == 0, hi - s,
                                  x[i]);
                    else x[i][e] = m.data[i] && s + e < hi ? tn_load(m.data[i], m.dtype[i], at[i]) : 0.f;
                }
            }
            f((int64_t)0, x, y);
            double d[8];
#pragma unroll
            for (int e = 0; e < 8; e++) d[e] = s + e < hi ? (double)y[0][e] : 0;
            sum += ((d[0] + d[1]) + (d[2] + d[3])) + ((d[4] + d[5]) + (d[6] + d[7]));
        }
        sum = tn_d_lanes_sum(sum, lanes);
        if (lane == 0) tn_d_sum_keep<IN>(m, segment, k, sum);
    }
}

/* A warp joins the segments of one result. */
template <int IN>
__global__ void __launch_bounds__(TN_D_THREADS) tn_d_sum_join(const __grid_constant__ tn_d_sum m)
{
    const int64_t kept = tn_d_sum_kept(m), step = (int64_t)gridDim.x * TN_D_WARPS;
    for (int64_t k = (int64_t)blockIdx.x * TN_D_WARPS + (threadIdx.x >> 5); k < kept; k += step) {
        double sum = 0;
#pragma unroll 4
        for (int64_t s = threadIdx.x & 31; s < m.cut.segments; s += 32) sum += m.partial[s * m.cut.kept + k];
        sum = tn_d_warp_sum(sum);
        if ((threadIdx.x & 31) == 0) tn_d_sum_write<IN>(m, k, sum);
    }
}

template <int IN, class F>
static tn_status tn_d_sum_run(const tn_call *c, const tn_d_sum &m, F f)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t kept = m.cut.kept;
    int lanes = 1; /* of a warp, to a short sum along rows */
    while (lanes < 32 && lanes * 8 < m.cut.each && lanes * 8 < m.cut.summed) lanes *= 2;
    if (kept == 0) return TN_OK;
    if (m.cut.columns && m.eights)
        tn_d_sum_columns<IN, 8, F><<<(unsigned)((kept + 255) / 256 * m.cut.segments), TN_D_THREADS, 0, stream>>>(m, f);
    else if (m.cut.columns)
        tn_d_sum_columns<IN, 1, F><<<(unsigned)((kept + 31) / 32 * m.cut.segments), TN_D_THREADS, 0, stream>>>(m, f);
    else
        (m.eights ? tn_d_sum_rows<IN, true, F>
                  : tn_d_sum_rows<IN, false, F>)<<<tn_blocks(c, kept * m.cut.segments, TN_D_THREADS / lanes),
                                                   TN_D_THREADS, 0, stream>>>(m, lanes, f);
    TN_CUDA_LAUNCHED();
    if (m.cut.segments > 1) {
        tn_d_sum_join<IN><<<tn_blocks(c, kept, TN_D_WARPS), TN_D_THREADS, 0, stream>>>(m);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}

#endif
