/* rollout on the GPU, backward through the neuron: a block's rows as in rollout_neuron.cuh. Where a weight's gradient is summed over
 * them, both factors lie in shared memory, and a thread has a few neighbours of the sums in registers for all its rows; a block's
 * sums then go to its partial sums, each by one thread. What the layers took of a row is made again beside it, as all it needs is
 * there: a kernel of its own would take as long for few rows as for many. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_neuron.cuh"

using namespace tn_rollout;

enum { THREADS = NEURON_THREADS, BLOCKS = 2 }; /* BLOCKS: of a multiprocessor */

struct slope_room {
    neuron w;
    float v1[NEURON * NEURON], v2[NEURON * NEURON], v3[FEATURES * NEURON]; /* (outputs,inputs), v1 with room for 32 */
    float b3[FEATURES];
    neuron_rows rows;
    float wide[FEATURES * ROOM], narrow[NEURON * ROOM]; /* by features, or by a norm's gain and bias; a2, or by z */
};

/* (outputs,inputs) as they lie; rows of `stride` numbers, zeros behind the inputs. */
template <int KIND>
__device__ __forceinline__ void load_rows(float *to, const weight &w, int outputs, int inputs, int stride)
{
#pragma unroll 8
    for (int i = threadIdx.x; i < outputs * stride; i += THREADS)
        to[i] = i % stride < inputs ? get<KIND>(w, (int64_t)(i / stride) * inputs + i % stride) : 0.f;
}

/* --- sums over rows ------------------------------------------------------------------------------------------------------ */

/* Of a thread. V3: (8,2) of (64,32); V2 and V1: (4,2) of (32,32). b3, layer2, layer1: one of 64 or 96 sums over single units. q, qb:
 * of its own rows. */
struct neuron_sums {
    float v3[8][2], v2[4][2], v1[4][2], b3, layer2, layer1, q[9], qb[3];
};

__device__ __forceinline__ float dot4(const float4 &a, const float4 &b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* sum (A,2) += units i0 + 0..A-1 of a times units j0, j0 + 16 of b, over the block's rows. Neighbours have neighbouring units of b. */
template <int A>
__device__ __forceinline__ void add_outer_rows(float (&sum)[A][2], const float *a, const float *b, int i0, int j0)
{
    for (int r = 0; r < NEURON_ROWS; r += 4) {
        const float4 x = *(const float4 *)(b + j0 * ROOM + r), y = *(const float4 *)(b + (j0 + 16) * ROOM + r);
#pragma unroll
        for (int i = 0; i < A; i++) {
            const float4 d = *(const float4 *)(a + (i0 + i) * ROOM + r);
            sum[i][0] = dot4(d, x, sum[i][0]), sum[i][1] = dot4(d, y, sum[i][1]);
        }
    }
}

/* sum += unit i of a, over the block's rows. */
__device__ __forceinline__ void add_rows(float *sum, const float *a, int i)
{
    for (int r = 0; r < NEURON_ROWS; r += 4) {
        const float4 x = *(const float4 *)(a + i * ROOM + r);
        *sum += (x.x + x.y) + (x.z + x.w);
    }
}

/* --- layers -------------------------------------------------------------------------------------------------------------- */

/* d: from the gradient after gelu to that before the norm. by_gain (32,ROOM), by_bias: what the norm's parameters get of each row.
 * Uses two slots. Nobody reads by_gain and by_bias any more when it is called. */
template <int KIND>
__device__ __forceinline__ void layer_slope(float (&d)[UNITS], const neuron_units &s, const float *gain, float *half,
                                            int slot, float *by_gain, float *by_bias)
{
    float mean = 0, along = 0;
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
        const float dy = d[j] * gelu_slope<KIND>(s.y[j]);
        by_gain[j * ROOM] = dy * s.n[j], by_bias[j * ROOM] = dy;
        d[j] = dy * gain[j];
        mean += d[j], along = fmaf(d[j], s.n[j], along);
    }
    mean = both_halves(mean, half, slot) * (1.f / NEURON);
    along = both_halves(along, half, slot + 1) * (1.f / NEURON);
#pragma unroll
    for (int j = 0; j < UNITS; j++) d[j] = s.scale * (d[j] - mean - s.n[j] * along);
}

/* d: from the gradient by what a layer gives to that by what it takes, (32,ROOM) in `in`; w (32,32): its weights, (outputs,inputs).
 * sum, unit_sum: of its weights, and of its gain, bias and b. Two slots; nobody reads wide and narrow any more when it is called. */
template <int KIND>
__device__ __forceinline__ void layer_back(float (&d)[UNITS], const neuron_units &s, const float *gain,
                                           slope_room &room, int slot, const float *w, const float *in,
                                           float (&sum)[4][2], float *unit_sum)
{
    const int own = own_row(), first = own_half() * UNITS;
    float *by_z = room.narrow + first * ROOM + own;
    layer_slope<KIND>(d, s, gain + first, room.rows.half, slot, room.wide + first * ROOM + own,
                      room.wide + (NEURON + first) * ROOM + own);
#pragma unroll
    for (int j = 0; j < UNITS; j++) by_z[j * ROOM] = d[j], d[j] = 0;
    __syncthreads();
    add_products(d, room.narrow + own, w + first, NEURON, NEURON);
    add_outer_rows(sum, room.narrow, in, (int)threadIdx.x / 16 * 4, (int)threadIdx.x % 16);
    if (threadIdx.x < 3 * NEURON)
        add_rows(unit_sum, threadIdx.x < FEATURES ? room.wide : room.narrow, (int)threadIdx.x % FEATURES);
}

/* Of a read of the field: by the place. d: by the inputs from `first` on, UNITS of them. */
__device__ __forceinline__ void read_back(const net &m, const grads &g, int t, int32_t row, const float (&d)[UNITS],
                                          int first, float (&dp)[3])
{
    const float *field = grid_of(m, t - 1) + (int64_t)(slots_of(m, t)[row] / m.N) * m.voxels * m.F;
    const corners c = corners_of(m, places_of(m, t) + (int64_t)row * m.P, false);
    float at[8] = {};
#pragma unroll
    for (int j = 0; j < UNITS; j++) {
        const int f = first + j - m.P;
        if (f < 0 || f >= m.F) continue;
        g.dread[(int64_t)row * m.F + f] = d[j];
#pragma unroll
        for (int k = 0; k < 8; k++)
            at[k] = fmaf(d[j], field[(int64_t)(c.first + corner_offset(m, k)) * m.F + f], at[k]);
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int i = 0; i < 3; i++) dp[i] = fmaf(corner_slope(m, c, k, i), at[k], dp[i]);
}

/* By place and energy before the step, of the half that has them: added to what the move has left there. */
template <int KIND>
__device__ __forceinline__ void put_place(const net &m, const grads &g, int t, int32_t row, const float (&dp)[3],
                                          const float (&d)[UNITS])
{
    float *to = dplace_of(m, g, t) + (int64_t)row * m.P;
    const float old[3] = { to[0], to[1], to[2] };
#pragma unroll
    for (int i = 0; i < 3; i++) to[i] = old[i] + dp[i];
    const bool start = t == 0 && g.de0 && !(bits_of(m, 0)[row] & TN_ROLLOUT_OFF);
    const int32_t slot = start ? slots_of(m, 0)[row] : 0, b = slot / m.N;
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++) {
        if (k >= m.E) break;
        const float de = d[3 + k] + get<KIND>(m, g.dx, (int64_t)row * X_ROOM + FEATURES + k);
        to[3 + k] = de;
        if (start) tn_put(g.de0, g.de0_type, ((int64_t)b * m.S + slot - b * m.N) * m.E + k, de, g.de0_add);
    }
}

/* From the gradient by the inputs to that by place and energy. here: the row exists. */
template <int KIND>
__device__ __forceinline__ void inputs_back(const net &m, const grads &g, const neuron &w, int t, int32_t row,
                                            bool here, const float (&d)[UNITS], float *half, neuron_sums &sum)
{
    const bool field = m.F && t > 0;
    float dp[3] = { 0, 0, 0 };
    if (field && here) read_back(m, g, t, row, d, own_half() * UNITS, dp);
#pragma unroll
    for (int i = 0; i < 3 && field; i++) dp[i] = both_halves(dp[i], half, i);
    if (own_half() || !here) return;
    const float *place = places_of(m, t) + (int64_t)row * m.P;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        sum.qb[i] += d[i];
#pragma unroll
        for (int k = 0; k < 3; k++) {
            sum.q[3 * i + k] = fmaf(d[i], place[k], sum.q[3 * i + k]);
            dp[k] = fmaf(d[i], w.q[3 * i + k], dp[k]);
        }
    }
    put_place<KIND>(m, g, t, row, dp, d);
}

/* What the layers took of a row, to x (C,X_ROOM); sums in the order of make_features. */
template <int KIND>
__device__ __forceinline__ void make_inputs(const net &m, const slope_room &room, int t, int32_t row, void *x)
{
    const int first = own_half() * 32;
    const float *a2 = room.narrow + own_row();
    float f[32];
#pragma unroll
    for (int j = 0; j < 32; j++) f[j] = room.b3[first + j];
#pragma unroll 1
    for (int k = 0; k < NEURON; k += 4) {
        const float a[4] = { a2[k * ROOM], a2[(k + 1) * ROOM], a2[(k + 2) * ROOM], a2[(k + 3) * ROOM] };
#pragma unroll
        for (int j = 0; j < 32; j++) {
            const float4 v = *(const float4 *)(room.v3 + (first + j) * NEURON + k);
            f[j] = fmaf(a[3], v.w, fmaf(a[2], v.z, fmaf(a[1], v.y, fmaf(a[0], v.x, f[j]))));
        }
    }
    put_inputs<KIND>(m, t, row, f, x);
}

/* A block's rows. Their gradients by features that do not exist are zeros, and so is all that follows of them. */
template <int KIND>
__device__ __forceinline__ void rows_of_neuron(const net &m, const grads &g, slope_room &room, int t, int32_t row,
                                               bool here, void *x, neuron_sums &sum)
{
    const int own = own_row(), half = own_half();
    neuron_units s1, s2;
    float d[UNITS];
    run_neuron<KIND>(m, &room.w, t, row, &room.rows, room.narrow, &s1, &s2); /* narrow: a2 */
    if (here) make_inputs<KIND>(m, room, t, row, x);
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        const tn_f8 by = tn_load8(g.dx, KIND == ANY ? m.type : (tn_dtype)KIND, (int64_t)row * X_ROOM + half * 32 + k);
#pragma unroll
        for (int i = 0; i < 8; i++) room.wide[(half * 32 + k + i) * ROOM + own] = here ? by.v[i] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < UNITS; j++) d[j] = 0;
    add_products(d, room.wide + own, room.v3 + half * UNITS, FEATURES, NEURON);
    add_outer_rows(sum.v3, room.wide, room.narrow, (int)threadIdx.x / 16 * 8, (int)threadIdx.x % 16);
    if (threadIdx.x < FEATURES) add_rows(&sum.b3, room.wide, (int)threadIdx.x);
    __syncthreads();
    layer_back<KIND>(d, s2, room.w.g2, room, 4, room.v2, room.rows.a1, sum.v2, &sum.layer2);
    __syncthreads();
    layer_back<KIND>(d, s1, room.w.g1, room, 6, room.v1, room.rows.in, sum.v1, &sum.layer1);
    inputs_back<KIND>(m, g, room.w, t, row, here, d, room.rows.half, sum);
    __syncthreads();
}

/* --- a block's sums ------------------------------------------------------------------------------------------------------ */

/* Of Q: every thread of the first half has some; they are added up in order. */
__device__ __forceinline__ void put_q(const neuron_sums &s, float *shared, float *part)
{
    if (own_half() == 0) {
#pragma unroll
        for (int i = 0; i < 12; i++) shared[i * NEURON_ROWS + own_row()] = i < 9 ? s.q[i % 9] : s.qb[(i - 9) % 3];
    }
    __syncthreads();
    if (threadIdx.x >= 12) return;
    float all = 0;
    for (int r = 0; r < NEURON_ROWS; r++) all += shared[threadIdx.x * NEURON_ROWS + r];
    add_alone(part + (threadIdx.x < 9 ? SUM_Q + threadIdx.x : SUM_QB + threadIdx.x - 9), all);
}

__device__ __forceinline__ void put_sums(const net &m, const neuron_sums &s, float *shared, float *part)
{
    const int i0 = (int)threadIdx.x / 16, j0 = (int)threadIdx.x % 16, in = m.P + m.F, unit = (int)threadIdx.x % NEURON;
    const int of2[] = { SUM_N2G, SUM_N2B, SUM_V2B }, of1[] = { SUM_N1G, SUM_N1B, SUM_V1B };
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int k = j0 + 16 * j;
#pragma unroll
        for (int i = 0; i < 8; i++) add_alone(part + (SUM_V3 + (i0 * 8 + i) * NEURON + k), s.v3[i][j]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            add_alone(part + (SUM_V2 + (i0 * 4 + i) * NEURON + k), s.v2[i][j]);
            if (k < in) add_alone(part + (SUM_V1 + (i0 * 4 + i) * in + k), s.v1[i][j]);
        }
    }
    if (threadIdx.x < FEATURES) add_alone(part + (SUM_V3B + threadIdx.x), s.b3);
    if (threadIdx.x < 3 * NEURON) {
        const int layer = (int)threadIdx.x / NEURON;
        add_alone(part + (of2[layer] + unit), s.layer2), add_alone(part + (of1[layer] + unit), s.layer1);
    }
    put_q(s, shared, part);
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS, BLOCKS) neuron_slopes(TN_GRID net m, TN_GRID grads g, int t, void *x)
{
    extern __shared__ float4 shared_room[];
    slope_room &room = *(slope_room *)shared_room;
    const int32_t n = rows_at(m, t), step = (int32_t)gridDim.x * NEURON_ROWS;
    if ((int32_t)blockIdx.x * NEURON_ROWS >= n) return;
    load_neuron<KIND>(m, &room.w);
    load_rows<KIND>(room.v1, m.p[TN_ROLLOUT_V1], NEURON, m.P + m.F, NEURON);
    load_rows<KIND>(room.v2, m.p[TN_ROLLOUT_V2], NEURON, NEURON, NEURON);
    load_rows<KIND>(room.v3, m.p[TN_ROLLOUT_V3], FEATURES, NEURON, NEURON);
    if (threadIdx.x < FEATURES) room.b3[threadIdx.x] = get<KIND>(m.p[TN_ROLLOUT_V3B], threadIdx.x);
    /* inputs that do not exist are multiplied, too, though nobody wants the result */
    for (int i = threadIdx.x; i < NEURON * ROOM; i += THREADS) room.rows.in[i] = 0.f;
    __syncthreads();
    neuron_sums sum = {};
    for (int32_t row0 = (int32_t)blockIdx.x * NEURON_ROWS; row0 < n; row0 += step) {
        const bool here = row0 + own_row() < n;
        rows_of_neuron<KIND>(m, g, room, t, here ? row0 + own_row() : n - 1, here, x, sum);
    }
    put_sums(m, sum, room.wide, g.neuron_part + (int64_t)blockIdx.x * SUM_MOST);
}

tn_status tn_rollout::neuron_back(const tn_call *c, const net &m, const grads &g, int t, void *x)
{
    const int kind = kind_of(m), bytes = (int)sizeof(slope_room);
    TN_RETURN_IF(tn_cuda_allow_shared(TN_ROLLOUT_KERNEL(neuron_slopes, kind), bytes));
    TN_ROLLOUT_LAUNCH(neuron_slopes, kind, <<<(unsigned)g.blocks, THREADS, bytes, tn_cuda_stream(c)>>>(m, g, t, x));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
