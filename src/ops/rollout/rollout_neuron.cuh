/* rollout on the GPU: the neuron, by blocks of 128 threads for 64 rows. A thread has half the units of a row, 16 of 32; what the
 * other half needs goes through shared memory, unit by unit with rows as neighbours. A warp's threads have the same units, so that
 * a weight is one word for all of them: no shuffles, and products as fast as their sums can be added. */
#ifndef TN_OPS_ROLLOUT_NEURON_CUH
#define TN_OPS_ROLLOUT_NEURON_CUH

#include "ops/rollout/rollout_gelu.cuh"
#include "ops/rollout/rollout_move.cuh"

namespace tn_rollout
{

enum { MOST_IN = 3 + TN_ROLLOUT_ENERGY + TN_ROLLOUT_FIELD };
/* ROOM: from one unit to the next, so that rows of four units are in different banks. SLOTS: numbers that halves exchange. */
enum { NEURON_ROWS = 64, NEURON_THREADS = 128, UNITS = NEURON / 2, ROOM = NEURON_ROWS + 4, SLOTS = 8 };
static_assert((int)MOST_IN <= (int)NEURON, "inputs have room where units have");

/* Weights as (inputs,outputs). */
struct neuron {
    float v1[MOST_IN * NEURON], v2[NEURON * NEURON];
    float b1[NEURON], g1[NEURON], c1[NEURON], b2[NEURON], g2[NEURON], c2[NEURON], q[12], qb[4];
};

/* What a block keeps of its rows. */
struct neuron_rows {
    float in[NEURON * ROOM], a1[NEURON * ROOM];
    float half[SLOTS * NEURON_THREADS];
};

/* A thread's units of a layer: normalised, before gelu; their factor. */
struct neuron_units {
    float n[UNITS], y[UNITS], scale;
};

__device__ __forceinline__ int own_row() { return (int)threadIdx.x % NEURON_ROWS; }
__device__ __forceinline__ int own_half() { return (int)threadIdx.x / NEURON_ROWS; }

/* to (k,OUTPUTS) = w (OUTPUTS,k) turned, k at most MOST. Neighbours write neighbours; all are on their way before the first has come. */
template <int KIND, int MOST, int OUTPUTS>
__device__ __forceinline__ void load_turned(float *to, const weight &w, int k)
{
    float x[MOST * OUTPUTS / NEURON_THREADS + 1];
#pragma unroll
    for (int n = 0; n * NEURON_THREADS < MOST * OUTPUTS; n++) {
        const int i = n * NEURON_THREADS + (int)threadIdx.x;
        x[n] = i < k * OUTPUTS ? get<KIND>(w, (int64_t)(i % OUTPUTS) * k + i / OUTPUTS) : 0.f;
    }
#pragma unroll
    for (int n = 0; n * NEURON_THREADS < MOST * OUTPUTS; n++) {
        const int i = n * NEURON_THREADS + (int)threadIdx.x;
        if (i < k * OUTPUTS) to[i] = x[n];
    }
}

/* By a whole block; the caller waits for all. */
template <int KIND>
__device__ __forceinline__ void load_neuron(const net &m, neuron *w)
{
    const int i = (int)threadIdx.x;
    load_turned<KIND, MOST_IN, NEURON>(w->v1, m.p[TN_ROLLOUT_V1], m.P + m.F);
    load_turned<KIND, NEURON, NEURON>(w->v2, m.p[TN_ROLLOUT_V2], NEURON);
    if (i < 9) w->q[i] = get<KIND>(m.p[TN_ROLLOUT_Q], i);
    if (i < 3) w->qb[i] = get<KIND>(m.p[TN_ROLLOUT_QB], i);
    if (i >= NEURON) return;
    w->b1[i] = get<KIND>(m.p[TN_ROLLOUT_V1B], i), w->g1[i] = get<KIND>(m.p[TN_ROLLOUT_N1G], i);
    w->c1[i] = get<KIND>(m.p[TN_ROLLOUT_N1B], i), w->b2[i] = get<KIND>(m.p[TN_ROLLOUT_V2B], i);
    w->g2[i] = get<KIND>(m.p[TN_ROLLOUT_N2G], i), w->c2[i] = get<KIND>(m.p[TN_ROLLOUT_N2B], i);
}

/* x and the other half's, added. Every call has a slot of its own until all have gone on to another batch. */
__device__ __forceinline__ float both_halves(float x, float *half, int slot)
{
    half += slot * NEURON_THREADS;
    half[threadIdx.x] = x;
    __syncthreads();
    return x + half[threadIdx.x ^ NEURON_ROWS];
}

/* sum (outputs of a thread, N) += x(k) w(k, ..) for k below n; w (n,stride) in shared memory. */
template <int N>
__device__ __forceinline__ void add_products(float (&sum)[N], const float *x, const float *w, int n, int stride)
{
#pragma unroll 4
    for (int k = 0; k < n; k++) {
        const float a = x[k * ROOM];
#pragma unroll
        for (int j = 0; j < N; j += 4) {
            const float4 v = *(const float4 *)(w + k * stride + j);
            sum[j] = fmaf(a, v.x, sum[j]), sum[j + 1] = fmaf(a, v.y, sum[j + 1]);
            sum[j + 2] = fmaf(a, v.z, sum[j + 2]), sum[j + 3] = fmaf(a, v.w, sum[j + 3]);
        }
    }
}

/* y = norm(z) gain + bias; to: gelu(y), unit by unit. slot: two of them are used. */
template <int KIND>
__device__ __forceinline__ void neuron_layer(const float (&z)[UNITS], const float *gain, const float *bias, float *half,
                                             int slot, neuron_units *s, float *to)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < UNITS; j++) sum += z[j];
    const float mean = both_halves(sum, half, slot) * (1.f / NEURON);
    sum = 0;
#pragma unroll
    for (int j = 0; j < UNITS; j++) sum = fmaf(z[j] - mean, z[j] - mean, sum);
    s->scale = rsqrtf(both_halves(sum, half, slot + 1) * (1.f / NEURON) + 1e-5f);
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
        s->n[j] = (z[j] - mean) * s->scale;
        s->y[j] = fmaf(s->n[j], gain[j], bias[j]);
        to[j * ROOM] = gelu<KIND>(s->y[j]);
    }
}

/* The neuron's inputs of a row: one half has place and energy, the other what it reads of the field. */
__device__ __forceinline__ void read_inputs(const net &m, const neuron *w, int t, int32_t row, float *in)
{
    const float *place = places_of(m, t) + (int64_t)row * m.P;
    if (own_half() == 0) {
        const float p[3] = { place[0], place[1], place[2] };
#pragma unroll
        for (int i = 0; i < 3; i++)
            in[i * ROOM] = fmaf(w->q[3 * i + 2], p[2], fmaf(w->q[3 * i + 1], p[1], fmaf(w->q[3 * i], p[0], w->qb[i])));
        for (int k = 3; k < m.P; k++) in[k * ROOM] = place[k];
        return;
    }
    if (m.F == 0) return;
    const bool any = t > 0;
    const int32_t b = any ? slots_of(m, t)[row] / m.N : 0;
    const float *field = any ? grid_of(m, t - 1) + (int64_t)b * m.voxels * m.F : NULL;
    const corners c = corners_of(m, place, false);
    for (int f = 0; f < m.F; f++) in[(m.P + f) * ROOM] = any ? read_field(m, field, c, f) : 0.f;
}

/* Both layers for a block's rows: rows->in and a1, and a2 (units,ROOM), which all may read after this. */
template <int KIND>
__device__ __forceinline__ void run_neuron(const net &m, const neuron *w, int t, int32_t row, neuron_rows *rows,
                                           float *a2, neuron_units *s1, neuron_units *s2)
{
    const int own = own_row(), first = own_half() * UNITS;
    float z[UNITS];
    read_inputs(m, w, t, row, rows->in + own);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < UNITS; j++) z[j] = w->b1[first + j];
    add_products(z, rows->in + own, w->v1 + first, m.P + m.F, NEURON);
    neuron_layer<KIND>(z, w->g1 + first, w->c1 + first, rows->half, 0, s1, rows->a1 + first * ROOM + own);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < UNITS; j++) z[j] = w->b2[first + j];
    add_products(z, rows->a1 + own, w->v2 + first, NEURON, NEURON);
    neuron_layer<KIND>(z, w->g2 + first, w->c2 + first, rows->half, 2, s2, a2 + first * ROOM + own);
    __syncthreads();
}

/* Numbers [first, first + 32) of a row of x, from the thread's sums or from what comes behind the features. */
template <int KIND>
__device__ __forceinline__ void put_numbers(const net &m, void *x, int32_t row, int first, const float (&v)[32])
{
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        tn_f8 r;
#pragma unroll
        for (int i = 0; i < 8; i++) r.v[i] = v[k + i];
        tn_store8(x, KIND == ANY ? m.type : (tn_dtype)KIND, (int64_t)row * X_ROOM + first + k, r);
    }
}

/* What a row's layers take, x (C,X_ROOM): of the thread's half f, its features, and of what comes behind them. */
template <int KIND>
__device__ __forceinline__ void put_inputs(const net &m, int t, int32_t row, const float (&f)[32], void *x)
{
    const int half = own_half();
    float behind[32];
    put_numbers<KIND>(m, x, row, half * 32, f);
#pragma unroll
    for (int j = 0; j < 32; j++) behind[j] = half == 0 && j < m.E ? places_of(m, t)[(int64_t)row * m.P + 3 + j] : 0.f;
    put_numbers<KIND>(m, x, row, FEATURES + half * 32, behind);
}

} // namespace tn_rollout

#endif
