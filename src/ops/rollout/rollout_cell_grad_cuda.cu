/* rollout on the GPU, backward: through the gates of a layer, each thread a few neighbours of every eighth row of a chunk; through
 * the neuron, a warp a row. Sums over rows stay in registers, then go to the partial sums of the chunk or block. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_neuron.cuh"

using namespace tn_rollout;

enum { THREADS = 256, WARPS = THREADS / 32 };

/* --- gates --------------------------------------------------------------------------------------------------------------- */

template <int V>
struct numbers {
    float v[V];
};

template <int V>
__device__ __forceinline__ numbers<V> load(const void *p, tn_dtype type, int64_t i)
{
    numbers<V> r;
    if constexpr (V == 8) {
        const tn_f8 x = tn_load8(p, type, i);
#pragma unroll
        for (int k = 0; k < 8; k++) r.v[k] = x.v[k];
    } else r.v[0] = tn_load(p, type, i);
    return r;
}

template <int V>
__device__ __forceinline__ void store(void *p, tn_dtype type, int64_t i, const numbers<V> &x)
{
    if constexpr (V == 8) {
        tn_f8 r;
#pragma unroll
        for (int k = 0; k < 8; k++) r.v[k] = x.v[k];
        tn_store8(p, type, i, r);
    } else tn_store(p, type, i, x.v[0]);
}

template <int V>
__device__ __forceinline__ void add(numbers<V> &x, const numbers<V> &y)
{
#pragma unroll
    for (int k = 0; k < V; k++) x.v[k] += y.v[k];
}

struct layer_back {
    int l;
    const void *gates, *before; /* (C,4H) (C,H) by `from`, NULL: zeros */
    const void *later;          /* (C,H): gradients by the states before the next step */
    void *to, *own;             /* (C,4H); (C,H): gradients by the states before this one */
};

/* The gradient by a row's new state, V neighbours from j on. */
template <int V>
__device__ __forceinline__ numbers<V> arriving(const net &m, const grads &g, const layer_back &y, int t, int32_t row,
                                               int j)
{
    const successor s = successor_of(m, g, t, row);
    numbers<V> d = load<V>(g.above, m.type, (int64_t)row * m.H + j);
    if (!s.landed) add(d, load<V>(y.later, m.type, (int64_t)s.next * m.H + j));
    for (int k = 0; !s.kids_landed && k < s.kids; k++) add(d, load<V>(y.later, m.type, (int64_t)(s.kid + k) * m.H + j));
    for (int f = 0; y.l == m.L - 1 && f < m.F; f++) {
        const float x = g.dphi[(int64_t)row * m.F + f];
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = fmaf(x, at(m.p[TN_ROLLOUT_F], (int64_t)f * m.H + j + k), d.v[k]);
    }
    return d;
}

template <int V>
__device__ __forceinline__ void row_slopes(const net &m, const grads &g, const layer_back &y, int t, int32_t row, int j,
                                           numbers<V> (&sum)[4])
{
    const int64_t kept = (int64_t)row * 4 * m.H + j;
    const numbers<V> dy = arriving<V>(m, g, y, t, row, j), r = load<V>(y.gates, m.type, kept),
                     z = load<V>(y.gates, m.type, kept + m.H), n = load<V>(y.gates, m.type, kept + 2 * m.H),
                     q = load<V>(y.gates, m.type, kept + 3 * m.H);
    numbers<V> h = {}, d[4], own;
    if (y.before) h = load<V>(y.before, m.type, (int64_t)from_of(m, t)[row] * m.H + j);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float dn = dy.v[k] * (1.f - z.v[k]) * (1.f - n.v[k] * n.v[k]);
        d[0].v[k] = dn * q.v[k] * (r.v[k] * (1.f - r.v[k]));
        d[1].v[k] = dy.v[k] * (h.v[k] - n.v[k]) * (z.v[k] * (1.f - z.v[k]));
        d[2].v[k] = dn;
        d[3].v[k] = dn * r.v[k];
        own.v[k] = dy.v[k] * z.v[k];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        store<V>(y.to, m.type, kept + i * m.H, d[i]);
        add(sum[i], d[i]);
    }
    store<V>(y.own, m.type, (int64_t)row * m.H + j, own);
}

template <int V>
static __global__ void __launch_bounds__(THREADS)
    gate_slopes(TN_GRID net m, TN_GRID grads g, TN_GRID layer_back y, int t)
{
    __shared__ float shared[4 * V * THREADS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, j = ((int)blockIdx.y * 32 + lane) * V;
    const int32_t rows = rows_at(m, t), row0 = (int32_t)blockIdx.x * CHUNK;
    const int32_t last = rows < row0 + CHUNK ? rows : row0 + CHUNK;
    if (row0 >= rows) return;
    numbers<V> sum[4] = {};
    for (int32_t row = row0 + warp; j < m.H && row < last; row += WARPS) row_slopes<V>(m, g, y, t, row, j, sum);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int k = 0; k < V; k++) shared[(i * V + k) * THREADS + threadIdx.x] = sum[i].v[k];
    __syncthreads();
    float *part = g.gate_part + ((int64_t)y.l * g.chunks + blockIdx.x) * 4 * m.H;
    for (int e = threadIdx.x; e < 4 * V * 32; e += THREADS) {
        const int i = e / (V * 32), k = e / 32 % V, unit = ((int)blockIdx.y * 32 + e % 32) * V + k;
        float all = 0;
        for (int w = 0; w < WARPS; w++) all += shared[(i * V + k) * THREADS + w * 32 + e % 32];
        if (unit < m.H) part[i * m.H + unit] += all;
    }
}

tn_status tn_rollout::gates_back(const tn_call *c, const net &m, const grads &g, const cell &s, int l)
{
    const int64_t states = (int64_t)m.C * m.H;
    const int wide = m.H % 8 == 0 ? 8 : 1;
    const dim3 grid((unsigned)g.chunks, (unsigned)((m.H + 32 * wide - 1) / (32 * wide)));
    layer_back y = {};
    y.l = l;
    y.gates = item(s.gates, m.type, 4 * l * states);
    y.before = s.h.before ? item(s.h.before, m.type, l * states) : NULL;
    y.later = dh_of(m, g, s.t + 1, l), y.own = dh_of(m, g, s.t, l);
    y.to = item(g.gates, m.type, 4 * l * states);
    if (wide == 8) gate_slopes<8><<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, g, y, s.t);
    else gate_slopes<1><<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, g, y, s.t);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- neuron -------------------------------------------------------------------------------------------------------------- */

/* Lane i: row i of the weights' gradients, of V3 also row 32 + i; of Q lanes 0..2. */
struct neuron_sums {
    float v1[MOST_IN], v2[NEURON], v3[2][NEURON], v3b[2], b1, g1, c1, b2, g2, c2, q[3], qb;
};

/* The gradient before a layer's norm from that after gelu. */
__device__ __forceinline__ float layer_slope(float da, float y, float n, float scale, float gain, float *dg, float *dc)
{
    const float dy = da * tn_d_gelu_erf_grad(y), g = dy * gain;
    *dg = fmaf(dy, n, *dg);
    *dc += dy;
    const float mean = tn_warp_sum(g) * (1.f / NEURON), along = tn_warp_sum(g * n) * (1.f / NEURON);
    return scale * (g - mean - n * along);
}

/* Of a read of the field: by the place, in all lanes. */
__device__ __forceinline__ void read_back(const net &m, const grads &g, int t, int32_t row, const float *place, float d,
                                          float (&dp)[3])
{
    const int f = (threadIdx.x & 31) - m.P;
    const bool mine = f >= 0 && f < m.F;
    const float *field = grid_of(m, t - 1) + (int64_t)(slots_of(m, t)[row] / m.N) * m.voxels * m.F;
    const corners c = corners_of(m, place, false);
    float slope[3] = { 0, 0, 0 };
    if (mine) g.dread[(int64_t)row * m.F + f] = d;
    for (int k = 0; mine && k < 8; k++) {
        const float x = d * field[(int64_t)(c.first + corner_offset(m, k)) * m.F + f];
        for (int i = 0; i < 3; i++) slope[i] = fmaf(corner_slope(m, c, k, i), x, slope[i]);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) dp[i] += tn_warp_sum(slope[i]);
}

/* By place and energy before the step: added to what the move has left there. */
__device__ __forceinline__ void put_place(const net &m, const grads &g, int t, int32_t row, const float (&dp)[3],
                                          float de)
{
    const int lane = threadIdx.x & 31;
    float *to = dplace_of(m, g, t) + (int64_t)row * m.P;
    if (lane < 3) to[lane] += lane == 0 ? dp[0] : lane == 1 ? dp[1] : dp[2];
    if (lane < 3 || lane >= m.P) return;
    to[lane] = de;
    if (t || !g.de0 || (bits_of(m, 0)[row] & TN_ROLLOUT_OFF)) return;
    const int32_t slot = slots_of(m, 0)[row], b = slot / m.N;
    tn_put(g.de0, g.de0_type, ((int64_t)b * m.S + slot - b * m.N) * m.E + lane - 3, de, g.de0_add);
}

__device__ __forceinline__ void neuron_row(const net &m, const grads &g, const neuron *w, int t, int32_t row,
                                           neuron_sums &sum)
{
    const int lane = threadIdx.x & 31, in = m.P + m.F;
    const float *place = places_of(m, t) + (int64_t)row * m.P;
    const neuron_state s = run_neuron(m, w, t, row, place);
    const int64_t x = (int64_t)row * X_ROOM + lane;
    const float df[2] = { tn_load(g.dx, m.type, x), tn_load(g.dx, m.type, x + 32) };
    float da = 0, dp[3] = { 0, 0, 0 };
    sum.v3b[0] += df[0], sum.v3b[1] += df[1];
#pragma unroll
    for (int i = 0; i < NEURON; i++) {
        da = fmaf(__shfl_sync(0xffffffffu, df[0], i), w->v3[lane * ROW3 + i], da);
        da = fmaf(__shfl_sync(0xffffffffu, df[1], i), w->v3[lane * ROW3 + i + 32], da);
        const float a = __shfl_sync(0xffffffffu, s.a2, i);
        sum.v3[0][i] = fmaf(df[0], a, sum.v3[0][i]);
        sum.v3[1][i] = fmaf(df[1], a, sum.v3[1][i]);
    }
    const float dz2 = layer_slope(da, s.y2, s.n2, s.scale2, w->g2[lane], &sum.g2, &sum.c2);
    sum.b2 += dz2;
    da = 0;
#pragma unroll
    for (int i = 0; i < NEURON; i++) {
        da = fmaf(__shfl_sync(0xffffffffu, dz2, i), w->v2[lane * ROW1 + i], da);
        sum.v2[i] = fmaf(dz2, __shfl_sync(0xffffffffu, s.a1, i), sum.v2[i]);
    }
    const float dz1 = layer_slope(da, s.y1, s.n1, s.scale1, w->g1[lane], &sum.g1, &sum.c1);
    sum.b1 += dz1;
#pragma unroll
    for (int k = 0; k < MOST_IN; k++) {
        const float x_k = __shfl_sync(0xffffffffu, s.in, k);
        if (k < in) sum.v1[k] = fmaf(dz1, x_k, sum.v1[k]);
    }
    float d = 0; /* lane k: by input k */
#pragma unroll 8
    for (int i = 0; i < NEURON; i++) {
        const float z = __shfl_sync(0xffffffffu, dz1, i);
        if (lane < in) d = fmaf(z, w->v1[lane * ROW1 + i], d);
    }
    if (lane < 3) {
        sum.qb += d;
#pragma unroll
        for (int k = 0; k < 3; k++) sum.q[k] = fmaf(d, place[k], sum.q[k]);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const float dq = __shfl_sync(0xffffffffu, d, i);
#pragma unroll
        for (int k = 0; k < 3; k++) dp[k] = fmaf(dq, w->q[3 * i + k], dp[k]);
    }
    if (m.F && t > 0) read_back(m, g, t, row, place, d, dp);
    const float de = lane >= 3 && lane < m.P ? tn_load(g.dx, m.type, (int64_t)row * X_ROOM + FEATURES + lane - 3) : 0.f;
    put_place(m, g, t, row, dp, d + de);
}

/* A warp's sums, added to the block's. */
__device__ __forceinline__ void add_sums(const net &m, const neuron_sums &s, float *to)
{
    const int lane = threadIdx.x & 31, in = m.P + m.F;
#pragma unroll
    for (int k = 0; k < NEURON; k++) {
        to[SUM_V2 + lane * NEURON + k] += s.v2[k];
        to[SUM_V3 + lane * NEURON + k] += s.v3[0][k];
        to[SUM_V3 + (lane + 32) * NEURON + k] += s.v3[1][k];
    }
#pragma unroll
    for (int k = 0; k < MOST_IN; k++)
        if (k < in) to[SUM_V1 + lane * in + k] += s.v1[k];
    to[SUM_V3B + lane] += s.v3b[0], to[SUM_V3B + lane + 32] += s.v3b[1];
    to[SUM_V1B + lane] += s.b1, to[SUM_N1G + lane] += s.g1, to[SUM_N1B + lane] += s.c1;
    to[SUM_V2B + lane] += s.b2, to[SUM_N2G + lane] += s.g2, to[SUM_N2B + lane] += s.c2;
    if (lane >= 3) return;
    to[SUM_QB + lane] += s.qb;
#pragma unroll
    for (int k = 0; k < 3; k++) to[SUM_Q + 3 * lane + k] += s.q[k];
}

static __global__ void __launch_bounds__(THREADS, 1) neuron_slopes(TN_GRID net m, TN_GRID grads g, int t)
{
    __shared__ neuron w;
    __shared__ float total[SUM_MOST];
    const int warp = threadIdx.x >> 5;
    const int32_t n = rows_at(m, t), step = (int32_t)gridDim.x * WARPS;
    if ((int32_t)blockIdx.x * WARPS >= n) return;
    load_neuron(m, &w);
    for (int i = threadIdx.x; i < SUM_MOST; i += THREADS) total[i] = 0.f;
    neuron_sums sum = {};
    for (int32_t row = (int32_t)blockIdx.x * WARPS + warp; row < n; row += step) neuron_row(m, g, &w, t, row, sum);
    for (int k = 0; k < WARPS; k++) {
        __syncthreads();
        if (k == warp) add_sums(m, sum, total);
    }
    __syncthreads();
    float *part = g.neuron_part + (int64_t)blockIdx.x * SUM_MOST;
    for (int i = threadIdx.x; i < SUM_MOST; i += THREADS) part[i] += total[i];
}

tn_status tn_rollout::neuron_back(const tn_call *c, const net &m, const grads &g, int t)
{
    neuron_slopes<<<(unsigned)g.blocks, THREADS, 0, tn_cuda_stream(c)>>>(m, g, t);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
