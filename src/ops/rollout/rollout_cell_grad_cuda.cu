/* rollout on the GPU, backward through the gates of a layer: a thread has a few neighbours of every eighth row of a chunk. Sums over
 * rows stay in registers, then go to the partial sums of the chunk. */
#include "ops/rollout/rollout_grad.cuh"

using namespace tn_rollout;

enum { THREADS = 256, WARPS = THREADS / 32, ROWS = CHUNK / WARPS }; /* ROWS: of a warp */

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
    void *earlier; /* (C,earlier_row): `before` in this step's order; may be where r is; NULL: not wanted */
    int64_t earlier_row;
};

/* Where a row's neighbours in time are. Lane k of a warp looks up those of its k-th row, before any of them is worked on. */
struct around {
    int32_t next, from; /* row of the next step, -1: it landed; of the step before */
    bool kids;
};

__device__ __forceinline__ around around_of(const net &m, const grads &g, int t, int32_t row)
{
    const int32_t bits = bits_of(m, t)[row];
    around a;
    a.next = bits & (TN_ROLLOUT_LEFT | TN_ROLLOUT_LAST | TN_ROLLOUT_OFF) ? -1 : g.next[(int64_t)t * m.C + row];
    a.from = from_of(m, t)[row];
    a.kids = !(bits & TN_ROLLOUT_OFF) && bits >> TN_ROLLOUT_CHILDREN;
    return a;
}

/* By the new state of a row, from its children. */
template <int KIND, int V>
__device__ void add_kids(const net &m, const grads &g, const layer_back &y, int t, int32_t row, int j, numbers<V> &d)
{
    const successor s = successor_of(m, g, t, row);
    for (int k = 0; !s.kids_landed && k < s.kids; k++)
        add(d, load<KIND, V>(m, y.later, (int64_t)(s.kid + k) * m.H + j));
}

/* field: the block's columns of F, (F,32 V), in shared memory; NULL: nothing comes from there. */
template <int KIND, int V>
__device__ __forceinline__ void row_slopes(const net &m, const grads &g, const layer_back &y, int t, int32_t row, int j,
                                           const around &a, const float *field, numbers<V> (&sum)[4])
{
    const int64_t kept = (int64_t)row * 4 * m.H + j;
    numbers<V> dy = load<KIND, V>(m, g.above, (int64_t)row * m.H + j), later = {}, h = {}, d[4], own;
    const numbers<V> r = load<KIND, V>(m, y.gates, kept), z = load<KIND, V>(m, y.gates, kept + m.H),
                     n = load<KIND, V>(m, y.gates, kept + 2 * m.H), q = load<KIND, V>(m, y.gates, kept + 3 * m.H);
    if (a.next >= 0) later = load<KIND, V>(m, y.later, (int64_t)a.next * m.H + j);
    if (y.before) h = load<KIND, V>(m, y.before, (int64_t)a.from * m.H + j);
    add(dy, later);
    if (a.kids) add_kids<KIND, V>(m, g, y, t, row, j, dy);
    for (int f = 0; field && f < m.F; f++) {
        const float x = g.dphi[(int64_t)row * m.F + f];
#pragma unroll
        for (int k = 0; k < V; k++) dy.v[k] = fmaf(x, field[(f * 32 + (threadIdx.x & 31)) * V + k], dy.v[k]);
    }
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
        store<KIND, V>(m, y.to, kept + i * m.H, d[i]);
        add(sum[i], d[i]);
    }
    store<KIND, V>(m, y.own, (int64_t)row * m.H + j, own);
    if (y.earlier) store<KIND, V>(m, y.earlier, row * y.earlier_row + j, h);
}

/* The columns of F that belong to this block's units. */
template <int KIND, int V>
__device__ __forceinline__ void fetch_field(const net &m, float *to)
{
    const int first = (int)blockIdx.y * 32 * V;
    for (int i = threadIdx.x; i < m.F * 32 * V; i += THREADS) {
        const int f = i / (32 * V), unit = first + i % (32 * V);
        to[i] = unit < m.H ? get<KIND>(m.p[TN_ROLLOUT_F], (int64_t)f * m.H + unit) : 0.f;
    }
    __syncthreads();
}

template <int KIND, int V>
__device__ __forceinline__ void chunk_slopes(const net &m, const grads &g, const layer_back &y, int t, float *shared)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, j = ((int)blockIdx.y * 32 + lane) * V;
    const int32_t rows = rows_at(m, t), row0 = (int32_t)blockIdx.x * CHUNK;
    const int32_t last = rows < row0 + CHUNK ? rows : row0 + CHUNK;
    const bool field = m.F && y.l == m.L - 1;
    numbers<V> sum[4] = {};
    around all = {};
    if (field) fetch_field<KIND, V>(m, shared);
    if (lane < ROWS && row0 + warp + WARPS * lane < last) all = around_of(m, g, t, row0 + warp + WARPS * lane);
    for (int k = 0; row0 + warp + WARPS * k < last; k++) {
        around a;
        a.next = __shfl_sync(0xffffffffu, all.next, k), a.from = __shfl_sync(0xffffffffu, all.from, k);
        a.kids = __shfl_sync(0xffffffffu, all.kids, k);
        if (j < m.H) row_slopes<KIND, V>(m, g, y, t, row0 + warp + WARPS * k, j, a, field ? shared : NULL, sum);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int k = 0; k < V; k++) shared[(i * V + k) * THREADS + threadIdx.x] = sum[i].v[k];
    __syncthreads();
    float *part = g.gate_part + ((int64_t)y.l * g.chunks + blockIdx.x) * 4 * m.H;
    for (int e = threadIdx.x; e < 4 * V * 32; e += THREADS) {
        const int i = e / (V * 32), k = e / 32 % V, unit = ((int)blockIdx.y * 32 + e % 32) * V + k;
        float total = 0;
        for (int w = 0; w < WARPS; w++) total += shared[(i * V + k) * THREADS + w * 32 + e % 32];
        if (unit < m.H) part[i * m.H + unit] += total;
    }
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS, 2)
    gate_slopes(TN_GRID net m, TN_GRID grads g, TN_GRID layer_back y, int t)
{
    __shared__ float shared[32 * THREADS];
    if ((int32_t)blockIdx.x * CHUNK >= rows_at(m, t)) return;
    if (m.H % 8 == 0) chunk_slopes<KIND, 8>(m, g, y, t, shared);
    else chunk_slopes<KIND, 1>(m, g, y, t, shared);
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
    if (s.earlier && s.h.before)
        y.earlier = item(s.earlier, m.type, l * m.C * s.earlier_row), y.earlier_row = s.earlier_row;
    TN_ROLLOUT_LAUNCH(gate_slopes, kind_of(m), <<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, g, y, s.t));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
