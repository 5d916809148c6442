/* rollout on the GPU: the neuron of one row, by one warp; lane i is unit i of either layer. Its weights lie in shared memory. */
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

struct neuron_state {
    float in;                                     /* lane k: input k */
    float n1, scale1, y1, a1, n2, scale2, y2, a2; /* normalised, its factor, before gelu, after */
};

/* By a whole block. */
__device__ __forceinline__ void load_neuron(const net &m, neuron *w)
{
    const int in = m.P + m.F;
    for (int i = threadIdx.x; i < in * NEURON; i += blockDim.x)
        w->v1[i / NEURON * ROW1 + i % NEURON] = at(m.p[TN_ROLLOUT_V1], (int64_t)(i % NEURON) * in + i / NEURON);
    for (int i = threadIdx.x; i < NEURON * NEURON; i += blockDim.x)
        w->v2[i / NEURON * ROW1 + i % NEURON] = at(m.p[TN_ROLLOUT_V2], (int64_t)(i % NEURON) * NEURON + i / NEURON);
    for (int i = threadIdx.x; i < NEURON * FEATURES; i += blockDim.x)
        w->v3[i / FEATURES * ROW3 + i % FEATURES] =
            at(m.p[TN_ROLLOUT_V3], (int64_t)(i % FEATURES) * NEURON + i / FEATURES);
    for (int i = threadIdx.x; i < FEATURES; i += blockDim.x) {
        w->b3[i] = at(m.p[TN_ROLLOUT_V3B], i);
        if (i < 9) w->q[i] = at(m.p[TN_ROLLOUT_Q], i);
        if (i < 3) w->qb[i] = at(m.p[TN_ROLLOUT_QB], i);
        if (i >= NEURON) continue;
        w->b1[i] = at(m.p[TN_ROLLOUT_V1B], i), w->g1[i] = at(m.p[TN_ROLLOUT_N1G], i);
        w->c1[i] = at(m.p[TN_ROLLOUT_N1B], i), w->b2[i] = at(m.p[TN_ROLLOUT_V2B], i);
        w->g2[i] = at(m.p[TN_ROLLOUT_N2G], i), w->c2[i] = at(m.p[TN_ROLLOUT_N2B], i);
    }
    __syncthreads();
}

/* y = gelu(norm(z) gain + bias) */
__device__ __forceinline__ float neuron_layer(float z, float gain, float bias, float *n, float *scale, float *y)
{
    const float centred = z - tn_warp_sum(z) * (1.f / NEURON);
    *scale = rsqrtf(tn_warp_sum(centred * centred) * (1.f / NEURON) + 1e-5f);
    *n = centred * *scale;
    *y = fmaf(*n, gain, bias);
    return tn_d_gelu_erf(*y);
}

__device__ __forceinline__ neuron_state run_neuron(const net &m, const neuron *w, int t, int32_t row,
                                                   const float *place)
{
    const int lane = threadIdx.x & 31, in = m.P + m.F;
    neuron_state s;
    s.in = 0;
    if (lane < 3)
        s.in = fmaf(w->q[3 * lane + 2], place[2],
                    fmaf(w->q[3 * lane + 1], place[1], fmaf(w->q[3 * lane], place[0], w->qb[lane])));
    else if (lane < m.P) s.in = place[lane];
    else if (lane < in && t > 0) {
        const int32_t b = slots_of(m, t)[row] / m.N;
        s.in = read_field(m, grid_of(m, t - 1) + (int64_t)b * m.voxels * m.F, corners_of(m, place, false), lane - m.P);
    }
    float z = w->b1[lane];
    for (int k = 0; k < in; k++) z = fmaf(__shfl_sync(0xffffffffu, s.in, k), w->v1[k * ROW1 + lane], z);
    s.a1 = neuron_layer(z, w->g1[lane], w->c1[lane], &s.n1, &s.scale1, &s.y1);
    z = w->b2[lane];
#pragma unroll 8
    for (int k = 0; k < NEURON; k++) z = fmaf(__shfl_sync(0xffffffffu, s.a1, k), w->v2[k * ROW1 + lane], z);
    s.a2 = neuron_layer(z, w->g2[lane], w->c2[lane], &s.n2, &s.scale2, &s.y2);
    return s;
}

} // namespace tn_rollout

#endif
