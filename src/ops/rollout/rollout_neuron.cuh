/* rollout on the GPU: the neuron of a few rows, by one warp; lane i is unit i of either layer. Its weights lie in shared memory. Rows
 * do not see each other: there are several so that their waits overlap and a weight is fetched once for all. */
#ifndef TN_OPS_ROLLOUT_NEURON_CUH
#define TN_OPS_ROLLOUT_NEURON_CUH

#include "ops/act.cuh"
#include "ops/rollout/rollout_move.cuh"

namespace tn_rollout
{

enum { MOST_IN = 3 + TN_ROLLOUT_ENERGY + TN_ROLLOUT_FIELD };

/* Weights as (inputs,outputs), a number more to a row: lanes meet no bank twice along either axis. */
enum { ROW1 = NEURON + 1, ROW3 = FEATURES + 1 };

struct neuron {
    float v1[MOST_IN * ROW1], v2[NEURON * ROW1], v3[NEURON * ROW3];
    float b1[NEURON], g1[NEURON], c1[NEURON], b2[NEURON], g2[NEURON], c2[NEURON], b3[FEATURES], q[9], qb[3];
};

/* Of R rows. */
template <int R>
struct neuron_state {
    float in[R]; /* lane k: input k */
    float n1[R], scale1[R], y1[R], a1[R], n2[R], scale2[R], y2[R],
        a2[R]; /* normalised, its factor, before gelu, after */
};

/* By a whole block. */
template <int KIND>
__device__ __forceinline__ void load_neuron(const net &m, neuron *w)
{
    const int in = m.P + m.F;
    for (int i = threadIdx.x; i < in * NEURON; i += blockDim.x)
        w->v1[i % in * ROW1 + i / in] = get<KIND>(m.p[TN_ROLLOUT_V1], i);
#pragma unroll 4
    for (int i = threadIdx.x; i < NEURON * NEURON; i += blockDim.x)
        w->v2[i % NEURON * ROW1 + i / NEURON] = get<KIND>(m.p[TN_ROLLOUT_V2], i);
#pragma unroll 8
    for (int i = threadIdx.x; i < NEURON * FEATURES; i += blockDim.x)
        w->v3[i % NEURON * ROW3 + i / NEURON] = get<KIND>(m.p[TN_ROLLOUT_V3], i);
    for (int i = threadIdx.x; i < FEATURES; i += blockDim.x) {
        w->b3[i] = get<KIND>(m.p[TN_ROLLOUT_V3B], i);
        if (i < 9) w->q[i] = get<KIND>(m.p[TN_ROLLOUT_Q], i);
        if (i < 3) w->qb[i] = get<KIND>(m.p[TN_ROLLOUT_QB], i);
        if (i >= NEURON) continue;
        w->b1[i] = get<KIND>(m.p[TN_ROLLOUT_V1B], i), w->g1[i] = get<KIND>(m.p[TN_ROLLOUT_N1G], i);
        w->c1[i] = get<KIND>(m.p[TN_ROLLOUT_N1B], i), w->b2[i] = get<KIND>(m.p[TN_ROLLOUT_V2B], i);
        w->g2[i] = get<KIND>(m.p[TN_ROLLOUT_N2G], i), w->c2[i] = get<KIND>(m.p[TN_ROLLOUT_N2B], i);
    }
    __syncthreads();
}

/* Over the lanes, of R numbers. */
template <int R>
__device__ __forceinline__ void sum_lanes(float (&x)[R])
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
#pragma unroll
        for (int r = 0; r < R; r++) x[r] += __shfl_xor_sync(0xffffffffu, x[r], d);
}

/* y = norm(z) gain + bias, a = gelu(y) */
template <int R>
__device__ __forceinline__ void neuron_layer(float (&z)[R], float gain, float bias, float (&n)[R], float (&scale)[R],
                                             float (&y)[R], float (&a)[R])
{
    float sum[R];
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] = z[r];
    sum_lanes(sum);
#pragma unroll
    for (int r = 0; r < R; r++) {
        z[r] -= sum[r] * (1.f / NEURON);
        sum[r] = z[r] * z[r];
    }
    sum_lanes(sum);
#pragma unroll
    for (int r = 0; r < R; r++) {
        scale[r] = rsqrtf(sum[r] * (1.f / NEURON) + 1e-5f);
        n[r] = z[r] * scale[r];
        y[r] = fmaf(n[r], gain, bias);
        a[r] = tn_d_gelu_erf(y[r]);
    }
}

/* Input `lane` of the neuron. */
__device__ __forceinline__ float neuron_input(const net &m, const neuron *w, int t, int32_t row)
{
    const int lane = threadIdx.x & 31;
    const float *place = places_of(m, t) + (int64_t)row * m.P;
    if (lane < 3)
        return fmaf(w->q[3 * lane + 2], place[2],
                    fmaf(w->q[3 * lane + 1], place[1], fmaf(w->q[3 * lane], place[0], w->qb[lane])));
    if (lane < m.P) return place[lane];
    if (lane >= m.P + m.F || t == 0) return 0.f;
    const int32_t b = slots_of(m, t)[row] / m.N;
    return read_field(m, grid_of(m, t - 1) + (int64_t)b * m.voxels * m.F, corners_of(m, place, false), lane - m.P);
}

template <int R>
__device__ __forceinline__ neuron_state<R> run_neuron(const net &m, const neuron *w, int t, const int32_t (&row)[R])
{
    const int lane = threadIdx.x & 31, in = m.P + m.F;
    neuron_state<R> s;
    float z[R];
#pragma unroll
    for (int r = 0; r < R; r++) s.in[r] = neuron_input(m, w, t, row[r]), z[r] = w->b1[lane];
    for (int k = 0; k < in; k++) {
        const float v = w->v1[k * ROW1 + lane];
#pragma unroll
        for (int r = 0; r < R; r++) z[r] = fmaf(__shfl_sync(0xffffffffu, s.in[r], k), v, z[r]);
    }
    neuron_layer(z, w->g1[lane], w->c1[lane], s.n1, s.scale1, s.y1, s.a1);
#pragma unroll
    for (int r = 0; r < R; r++) z[r] = w->b2[lane];
#pragma unroll 8
    for (int k = 0; k < NEURON; k++) {
        const float v = w->v2[k * ROW1 + lane];
#pragma unroll
        for (int r = 0; r < R; r++) z[r] = fmaf(__shfl_sync(0xffffffffu, s.a1[r], k), v, z[r]);
    }
    neuron_layer(z, w->g2[lane], w->c2[lane], s.n2, s.scale2, s.y2, s.a2);
    return s;
}

} // namespace tn_rollout

#endif
