/* rollout on the GPU, backward through the neuron: a warp a few rows at a time. Sums over rows stay in registers, then go to the
 * partial sums of the block. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_neuron.cuh"

using namespace tn_rollout;

enum { THREADS = 256, WARPS = THREADS / 32, AT_ONCE = 2 }; /* AT_ONCE: rows of a warp, whose waits overlap */

/* --- neuron -------------------------------------------------------------------------------------------------------------- */

/* Sums of a lane: row `lane` of the weights' gradients, of V3 also row 32 + lane; of Q lanes 0..2. */
enum {
    OF_V2 = 0,
    OF_V3 = OF_V2 + NEURON, /* two rows */
    OF_V3B = OF_V3 + 2 * NEURON,
    OF_B1 = OF_V3B + 2,
    OF_G1,
    OF_C1,
    OF_B2,
    OF_G2,
    OF_C2,
    OF_Q,
    OF_QB = OF_Q + 3,
    OF_V1,
    OF_ALL = OF_V1 + MOST_IN
};

struct neuron_sums {
    float of[OF_ALL];
};

/* Where sum k of a lane belongs among the block's partial sums; -1: nowhere. */
__device__ __forceinline__ int belongs(int k, int lane, int in)
{
    if (k < OF_V3) return SUM_V2 + lane * NEURON + k;
    if (k < OF_V3B) return SUM_V3 + (lane + (k - OF_V3) / NEURON * 32) * NEURON + (k - OF_V3) % NEURON;
    if (k < OF_B1) return SUM_V3B + lane + (k - OF_V3B) * 32;
    if (k >= OF_V1) return k - OF_V1 < in ? SUM_V1 + lane * in + k - OF_V1 : -1;
    if (k >= OF_Q) return lane >= 3 ? -1 : k == OF_QB ? SUM_QB + lane : SUM_Q + 3 * lane + k - OF_Q;
    const int of[] = { SUM_V1B, SUM_N1G, SUM_N1B, SUM_V2B, SUM_N2G, SUM_N2B };
    return of[k - OF_B1] + lane;
}

/* The gradient before a layer's norm from that after gelu. */
template <int R>
__device__ __forceinline__ void layer_slope(float (&d)[R], const float (&y)[R], const float (&n)[R],
                                            const float (&scale)[R], float gain, float *dg, float *dc)
{
    float mean[R], along[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float dy = d[r] * tn_d_gelu_erf_grad(y[r]);
        *dg = fmaf(dy, n[r], *dg);
        *dc += dy;
        mean[r] = d[r] = dy * gain;
        along[r] = d[r] * n[r];
    }
    sum_lanes(mean), sum_lanes(along);
#pragma unroll
    for (int r = 0; r < R; r++)
        d[r] = scale[r] * (d[r] - mean[r] * (1.f / NEURON) - n[r] * (along[r] * (1.f / NEURON)));
}

/* Of a read of the field: by the place, in all lanes. */
__device__ __forceinline__ void read_back(const net &m, const grads &g, int t, int32_t row, float d, float (&dp)[3])
{
    const int f = (threadIdx.x & 31) - m.P;
    const bool mine = f >= 0 && f < m.F;
    const float *field = grid_of(m, t - 1) + (int64_t)(slots_of(m, t)[row] / m.N) * m.voxels * m.F;
    const corners c = corners_of(m, places_of(m, t) + (int64_t)row * m.P, false);
    float slope[3] = { 0, 0, 0 };
    if (mine) g.dread[(int64_t)row * m.F + f] = d;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float x = mine ? d * field[(int64_t)(c.first + corner_offset(m, k)) * m.F + f] : 0.f;
        for (int i = 0; i < 3; i++) slope[i] = fmaf(corner_slope(m, c, k, i), x, slope[i]);
    }
    sum_lanes(slope);
#pragma unroll
    for (int i = 0; i < 3; i++) dp[i] += slope[i];
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

/* Through the second layer and the first: dz2 from df, then dz1, which d holds in the end; sums of all weights above the inputs. */
template <int R>
__device__ __forceinline__ void layers_back(const neuron *w, const neuron_state<R> &s, const float (&df)[R][2],
                                            float (&d)[R], neuron_sums &sum)
{
    const int lane = threadIdx.x & 31;
    float dz[R];
#pragma unroll
    for (int r = 0; r < R; r++) sum.of[OF_V3B] += df[r][0], sum.of[OF_V3B + 1] += df[r][1], d[r] = 0;
#pragma unroll
    for (int i = 0; i < NEURON; i++) {
        const float v[2] = { w->v3[lane * ROW3 + i], w->v3[lane * ROW3 + i + 32] };
#pragma unroll
        for (int r = 0; r < R; r++) {
            d[r] = fmaf(__shfl_sync(0xffffffffu, df[r][0], i), v[0], d[r]);
            d[r] = fmaf(__shfl_sync(0xffffffffu, df[r][1], i), v[1], d[r]);
            const float a = __shfl_sync(0xffffffffu, s.a2[r], i);
            sum.of[OF_V3 + i] = fmaf(df[r][0], a, sum.of[OF_V3 + i]);
            sum.of[OF_V3 + NEURON + i] = fmaf(df[r][1], a, sum.of[OF_V3 + NEURON + i]);
        }
    }
    layer_slope(d, s.y2, s.n2, s.scale2, w->g2[lane], &sum.of[OF_G2], &sum.of[OF_C2]);
#pragma unroll
    for (int r = 0; r < R; r++) sum.of[OF_B2] += d[r], dz[r] = d[r], d[r] = 0;
#pragma unroll
    for (int i = 0; i < NEURON; i++) {
        const float v = w->v2[lane * ROW1 + i];
#pragma unroll
        for (int r = 0; r < R; r++) {
            d[r] = fmaf(__shfl_sync(0xffffffffu, dz[r], i), v, d[r]);
            sum.of[OF_V2 + i] = fmaf(dz[r], __shfl_sync(0xffffffffu, s.a1[r], i), sum.of[OF_V2 + i]);
        }
    }
    layer_slope(d, s.y1, s.n1, s.scale1, w->g1[lane], &sum.of[OF_G1], &sum.of[OF_C1]);
#pragma unroll
    for (int r = 0; r < R; r++) sum.of[OF_B1] += d[r];
}

/* By the neuron's inputs from dz1: lane k of d then has that by input k. */
template <int R>
__device__ __forceinline__ void inputs_back(const neuron *w, const neuron_state<R> &s, int in, float (&d)[R],
                                            neuron_sums &sum)
{
    const int lane = threadIdx.x & 31;
    float dz[R];
#pragma unroll
    for (int k = 0; k < MOST_IN; k++)
        if (k < in) {
#pragma unroll
            for (int r = 0; r < R; r++)
                sum.of[OF_V1 + k] = fmaf(d[r], __shfl_sync(0xffffffffu, s.in[r], k), sum.of[OF_V1 + k]);
        }
#pragma unroll
    for (int r = 0; r < R; r++) dz[r] = d[r], d[r] = 0;
#pragma unroll 8
    for (int i = 0; i < NEURON; i++) {
        const float v = lane < in ? w->v1[lane * ROW1 + i] : 0.f;
#pragma unroll
        for (int r = 0; r < R; r++) d[r] = fmaf(__shfl_sync(0xffffffffu, dz[r], i), v, d[r]);
    }
}

/* valid: of R rows, how many there are; the others repeat the first and add zeros. */
template <int KIND, int R>
__device__ __forceinline__ void rows_of_neuron(const net &m, const grads &g, const neuron *w, int t,
                                               const int32_t (&row)[R], int valid, neuron_sums &sum)
{
    const int lane = threadIdx.x & 31;
    float df[R][2], de[R], d[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t x = (int64_t)row[r] * X_ROOM + lane;
        df[r][0] = r < valid ? get<KIND>(m, g.dx, x) : 0.f, df[r][1] = r < valid ? get<KIND>(m, g.dx, x + 32) : 0.f;
        de[r] = lane >= 3 && lane < m.P ? get<KIND>(m, g.dx, x + FEATURES - 3) : 0.f;
    }
    const neuron_state<R> s = run_neuron(m, w, t, row);
    layers_back(w, s, df, d, sum);
    inputs_back(w, s, m.P + m.F, d, sum);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float *place = places_of(m, t) + (int64_t)row[r] * m.P;
        float dp[3] = { 0, 0, 0 };
        if (lane < 3) {
            sum.of[OF_QB] += d[r];
#pragma unroll
            for (int k = 0; k < 3; k++) sum.of[OF_Q + k] = fmaf(d[r], place[k], sum.of[OF_Q + k]);
        }
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const float dq = __shfl_sync(0xffffffffu, d[r], i);
#pragma unroll
            for (int k = 0; k < 3; k++) dp[k] = fmaf(dq, w->q[3 * i + k], dp[k]);
        }
        if (r >= valid) break;
        if (m.F && t > 0) read_back(m, g, t, row[r], d[r], dp);
        put_place(m, g, t, row[r], dp, d[r] + de[r]);
    }
}

/* The warps' sums, ROUND of them at a time, through shared memory and on to the block's partial sums, in the order of warps. */
enum { ROUND = 45 };

union neuron_room {
    neuron w;
    float sums[ROUND * THREADS];
};

template <int FIRST>
__device__ __forceinline__ void add_round(const net &m, const neuron_sums &s, float *shared, float *part)
{
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ROUND && FIRST + k < OF_ALL; k++) shared[k * THREADS + threadIdx.x] = s.of[FIRST + k];
    __syncthreads();
    for (int i = threadIdx.x; i < ROUND * 32 && FIRST + i / 32 < OF_ALL; i += THREADS) {
        const int to = belongs(FIRST + i / 32, i % 32, m.P + m.F);
        float all = 0;
        for (int w = 0; w < WARPS; w++) all += shared[i / 32 * THREADS + w * 32 + i % 32];
        if (to >= 0) part[to] += all;
    }
    if constexpr (FIRST + ROUND < OF_ALL) add_round<FIRST + ROUND>(m, s, shared, part);
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS, 1) neuron_slopes(TN_GRID net m, TN_GRID grads g, int t)
{
    __shared__ neuron_room room;
    const int warp = threadIdx.x >> 5;
    const int32_t n = rows_at(m, t), step = (int32_t)gridDim.x * WARPS;
    if ((int32_t)blockIdx.x * WARPS >= n) return;
    load_neuron<KIND>(m, &room.w);
    neuron_sums sum = {};
    for (int32_t row0 = (int32_t)blockIdx.x * WARPS + warp; row0 < n; row0 += AT_ONCE * step) {
        int32_t row[AT_ONCE];
        int valid = 0;
        for (int r = 0; r < AT_ONCE; r++) {
            row[r] = row0 + r * step < n ? row0 + r * step : row0;
            valid += row0 + r * step < n;
        }
        rows_of_neuron<KIND>(m, g, &room.w, t, row, valid, sum);
    }
    add_round<0>(m, sum, room.sums, g.neuron_part + (int64_t)blockIdx.x * SUM_MOST);
}

tn_status tn_rollout::neuron_back(const tn_call *c, const net &m, const grads &g, int t)
{
    TN_ROLLOUT_LAUNCH(neuron_slopes, kind_of(m), <<<(unsigned)g.blocks, THREADS, 0, tn_cuda_stream(c)>>>(m, g, t));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
