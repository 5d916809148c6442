/* rollout on the GPU, backward: from the gradients by places, energies and landings after a step, through the move and the heads'
 * last products, a warp a row; then the sums over rows for the parameters of these, a block a chunk of rows. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_move.cuh"

using namespace tn_rollout;

enum { THREADS = 256, COLUMNS = 64, AHEAD = 5 };

__device__ __forceinline__ float given(const float *x, int64_t i) { return x ? x[i] : 0.f; }

/* Gradient by the third coordinate of a flow that was projected: d is the distance to the nearer plane. */
__device__ __forceinline__ float by_distance(const net &m, const grads &g, int32_t slot)
{
    return (m.plane[slot] ? -1.f : 1.f) * given(g.dd, slot);
}

/* Gradients by what a flow is after a step: its place (3), its energy; by the place before it, from its children. */
struct arriving {
    float place[3], energy[TN_ROLLOUT_ENERGY], start[3];
};

__device__ arriving gather(const net &m, const grads &g, int t, const successor &s, int32_t slot)
{
    const float *later = dplace_of(m, g, t + 1);
    arriving r = {};
    if (s.landed) {
        r.place[0] = given(g.du, slot), r.place[1] = given(g.dv, slot);
        if (s.bits & TN_ROLLOUT_LAST) r.place[2] = (s.bits & TN_ROLLOUT_UPPER ? -1.f : 1.f) * given(g.dd, slot);
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
            if (k < m.E) r.energy[k] = given(g.de, (int64_t)slot * m.E + k);
    } else {
#pragma unroll
        for (int k = 0; k < 3; k++) r.place[k] = later[(int64_t)s.next * m.P + k];
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
            if (k < m.E) r.energy[k] = later[(int64_t)s.next * m.P + 3 + k];
    }
    for (int n = 0; n < s.kids; n++) {
        const int32_t kid = s.kid_slot + n;
        const float *d = later + (int64_t)(s.kid + n) * m.P;
        r.start[0] += s.kids_landed ? given(g.du, kid) : d[0];
        r.start[1] += s.kids_landed ? given(g.dv, kid) : d[1];
        r.start[2] += s.kids_landed ? by_distance(m, g, kid) : d[2];
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
            if (k < m.E) r.energy[k] += s.kids_landed ? given(g.de, (int64_t)kid * m.E + k) : d[3 + k];
    }
    return r;
}

/* The move of a row, made again. */
template <int KIND>
__device__ move move_again(const net &m, int t, int32_t row, int32_t slot, int32_t bits, const void *heads)
{
    float delta[3];
    skinny<KIND>(m, delta, 3, m.p[TN_ROLLOUT_D2], m.p[TN_ROLLOUT_D2B], heads, (int64_t)row * m.W1 + m.H / 2, HIDDEN);
    return decide(m, delta, bits & TN_ROLLOUT_RISES, slot, t);
}

/* The field's part: by phi, and by the place where it was left. */
template <int KIND>
__device__ void deposit_back(const net &m, const grads &g, int t, int32_t row, int32_t slot, const successor &s,
                             const void *heads, const void *top, arriving *r)
{
    const int lane = threadIdx.x & 31;
    const bool read = t + 1 < m.T && rows_at(m, t + 1) > 0;
    const float *dgrid = g.dgrid + (int64_t)(slot / m.N) * m.voxels * m.F;
    const float *from = s.landed ? places_of(m, t) + (int64_t)row * m.P : places_of(m, t + 1) + (int64_t)s.next * m.P;
    float p[3] = { from[0], from[1], from[2] };
    if (s.landed) walk(move_again<KIND>(m, t, row, slot, s.bits, heads), p);
    const corners c = corners_of(m, p, !m.a.smooth);
    for (int f = 0; f < m.F; f++) {
        float sum = 0, slope[3] = { 0, 0, 0 }, phi = 0;
        if (m.a.smooth) {
            for (int i = lane; i < m.H; i += 32)
                phi = fmaf(get<KIND>(m.p[TN_ROLLOUT_F], (int64_t)f * m.H + i),
                           get<KIND>(m, top, (int64_t)row * m.H + i), phi);
            phi = tn_warp_sum(phi);
        }
        for (int k = 0; read && k < (m.a.smooth ? 8 : 1); k++) {
            const float x = dgrid[(int64_t)(c.first + corner_offset(m, k)) * m.F + f];
            sum = fmaf(m.a.smooth ? corner_weight(c, k) : 1.f, x, sum);
            for (int i = 0; m.a.smooth && i < 3; i++) slope[i] = fmaf(corner_slope(m, c, k, i), x, slope[i]);
        }
        if (lane == 0) g.dphi[(int64_t)row * m.F + f] = sum;
        for (int i = 0; i < 3; i++) r->place[i] = fmaf(slope[i], phi, r->place[i]);
    }
}

/* Gradient by the wanted move, from that by the place after it. */
template <int KIND>
__device__ void want_back(const net &m, int t, int32_t row, int32_t slot, int32_t bits, const void *heads,
                          const float *after, float *want)
{
    float dot = 0;
    for (int i = 0; i < 3; i++) want[i] = after[i];
    if (!m.a.spawn || !m.a.shorten) return;
    const move v = move_again<KIND>(m, t, row, slot, bits, heads);
    if (v.cut == 1.f) return;
    for (int i = 0; i < 3; i++) dot += v.cut * after[i] * v.want[i];
    for (int i = 0; i < 3; i++) want[i] = v.cut * after[i] - dot * v.want[i] / (v.length * v.length);
}

__device__ void clear_row(const net &m, const grads &g, int t, int32_t row)
{
    const int lane = threadIdx.x & 31;
    for (int i = lane; i < m.W1; i += 32) tn_store(g.dpre, m.type, (int64_t)row * m.W1 + i, 0.f);
    for (int i = lane; i < m.P; i += 32) {
        g.small[(int64_t)row * m.P + i] = 0.f;
        dplace_of(m, g, t)[(int64_t)row * m.P + i] = 0.f;
    }
    for (int i = lane; i < m.F; i += 32) g.dphi[(int64_t)row * m.F + i] = 0.f;
}

template <int KIND>
__device__ void row_back(const net &m, const grads &g, int t, int32_t row, const void *heads, const void *top)
{
    const int lane = threadIdx.x & 31, half = m.H / 2;
    const int64_t pre = (int64_t)row * m.W1;
    const int32_t slot = slots_of(m, t)[row];
    const successor s = successor_of(m, g, t, row);
    if (s.bits & TN_ROLLOUT_OFF) return clear_row(m, g, t, row);
    arriving r = gather(m, g, t, s, slot);
    float sign[3] = { s.bits & TN_ROLLOUT_FOLDED ? -1.f : 1.f, s.bits & TN_ROLLOUT_FOLDED << 1 ? -1.f : 1.f,
                      s.bits & TN_ROLLOUT_LEFT ? 0.f : 1.f };
    float want[3], delta[3], energy[TN_ROLLOUT_ENERGY];
    if (m.F) deposit_back<KIND>(m, g, t, row, slot, s, heads, top, &r);
    for (int i = 0; i < 3; i++) sign[i] *= r.place[i];
    want_back<KIND>(m, t, row, slot, s.bits, heads, sign, want);
    const float kappa = scalar(m.kappa, 1.f);
    for (int i = 0; i < 3; i++) delta[i] = s.bits & TN_ROLLOUT_CLAMPED << i ? 0.f : kappa * want[i];
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++) {
        if (k >= m.E) break;
        const float e = s.landed ? m.e[(int64_t)slot * m.E + k] : places_of(m, t + 1)[(int64_t)s.next * m.P + 3 + k];
        energy[k] = r.energy[k] * (1.f - e * e);
    }
    for (int first = lane; first < m.W1; first += 32 * AHEAD) {
        float x[AHEAD]; /* all are on their way before the first result is stored */
#pragma unroll
        for (int n = 0; n < AHEAD; n++) x[n] = first + 32 * n < m.W1 ? get<KIND>(m, heads, pre + first + 32 * n) : 0.f;
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const int i = first + 32 * n;
            float d = 0;
#pragma unroll
            for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
                if (i < half && k < m.E) d = fmaf(get<KIND>(m.p[TN_ROLLOUT_E2], (int64_t)k * half + i), energy[k], d);
#pragma unroll
            for (int k = 0; k < 3; k++)
                if (i >= half && i < m.W1)
                    d = fmaf(get<KIND>(m.p[TN_ROLLOUT_D2], (int64_t)k * HIDDEN + i - half), delta[k], d);
            x[n] = d * tn_d_gelu_erf_grad(x[n]);
        }
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            if (first + 32 * n < m.W1) put<KIND>(m, g.dpre, pre + first + 32 * n, x[n]);
    }
    if (lane) return;
    float *small = g.small + (int64_t)row * m.P, *place = dplace_of(m, g, t) + (int64_t)row * m.P;
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (k < m.E) small[k] = energy[k], place[3 + k] = 0.f;
    for (int k = 0; k < 3; k++) small[m.E + k] = delta[k], place[k] = r.start[k] + sign[k];
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS)
    rows_back(TN_GRID net m, TN_GRID grads g, int t, const void *heads, const void *top)
{
    const int32_t n = rows_at(m, t), step = (int32_t)gridDim.x * (THREADS / 32);
    for (int32_t row = (int32_t)blockIdx.x * (THREADS / 32) + (int32_t)(threadIdx.x >> 5); row < n; row += step)
        row_back<KIND>(m, g, t, row, heads, top);
}

/* --- sums over rows ------------------------------------------------------------------------------------------------------ */

/* A chunk's rows are cut into PARTS, each with threads of its own; their sums are added up in order. */
enum { PARTS = THREADS / COLUMNS, PART = CHUNK / PARTS, MOST_SUMS = 1 + TN_ROLLOUT_FIELD };

/* What a thread's part of the rows gives, summed over the parts: the first part's threads have the result. */
template <int N>
__device__ __forceinline__ void add_parts(float (&sum)[N], int count, float *shared /* (MOST_SUMS,THREADS) */)
{
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++)
        if (k < count) shared[k * THREADS + threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.x >= COLUMNS) return;
#pragma unroll
    for (int k = 0; k < N; k++)
        for (int p = 1; k < count && p < PARTS; p++) sum[k] += shared[k * THREADS + p * COLUMNS + threadIdx.x];
}

/* Column j of what gelu takes: its bias, and the weights that its gelu is multiplied with. */
template <int KIND>
__device__ __forceinline__ void add_column(const net &m, const grads &g, const head_sums &at_, float *part,
                                           const float *small, int32_t row0, int n, int j, const void *heads,
                                           float *shared)
{
    const int half = m.H / 2, first = j < half ? 0 : m.E, count = j < half ? m.E : 3;
    const int from = (int)threadIdx.x / COLUMNS * PART, to = j < m.W1 ? min(from + PART, n) : from;
    float sum[1 + TN_ROLLOUT_ENERGY] = {};
#pragma unroll 8
    for (int i = from; i < to; i++) {
        const int64_t at = (int64_t)(row0 + i) * m.W1 + j;
        const float a = tn_d_gelu_erf(get<KIND>(m, heads, at));
        sum[0] += get<KIND>(m, g.dpre, at);
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
            if (k < count) sum[1 + k] = fmaf(small[i * m.P + first + k], a, sum[1 + k]);
    }
    add_parts(sum, 1 + max(m.E, 3), shared);
    if (threadIdx.x >= COLUMNS || j >= m.W1) return;
    part[at_.b1 + j] += sum[0];
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (k < count) part[j < half ? at_.e2 + k * half + j : at_.d2 + k * HIDDEN + j - half] += sum[1 + k];
}

/* Column j of F. */
template <int KIND>
__device__ __forceinline__ void add_field_column(const net &m, const head_sums &at_, float *part, const float *dphi,
                                                 int32_t row0, int n, int j, const void *top, float *shared)
{
    const int from = (int)threadIdx.x / COLUMNS * PART, to = j < m.H ? min(from + PART, n) : from;
    float sum[TN_ROLLOUT_FIELD] = {};
#pragma unroll 8
    for (int i = from; i < to; i++) {
        const float o = get<KIND>(m, top, (int64_t)(row0 + i) * m.H + j);
#pragma unroll
        for (int k = 0; k < TN_ROLLOUT_FIELD; k++)
            if (k < m.F) sum[k] = fmaf(dphi[i * m.F + k], o, sum[k]);
    }
    add_parts(sum, m.F, shared);
    if (threadIdx.x >= COLUMNS || j >= m.H) return;
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_FIELD; k++)
        if (k < m.F) part[at_.f + k * m.H + j] += sum[k];
}

/* Columns are shared by the blocks along y. */
template <int KIND>
static __global__ void __launch_bounds__(THREADS)
    add_heads(TN_GRID net m, TN_GRID grads g, int t, TN_GRID head_sums at_, const void *heads, const void *top)
{
    __shared__ float small[CHUNK * (3 + TN_ROLLOUT_ENERGY)], dphi[CHUNK * TN_ROLLOUT_FIELD], sums[MOST_SUMS * THREADS];
    const int32_t rows = rows_at(m, t), row0 = (int32_t)blockIdx.x * CHUNK;
    const int n = rows - row0 < CHUNK ? rows - row0 : CHUNK;
    const int column = (int)threadIdx.x % COLUMNS, step = (int)gridDim.y * COLUMNS;
    if (n <= 0) return;
    float *part = g.head_part + (int64_t)blockIdx.x * at_.all;
    for (int i = threadIdx.x; i < n * m.P; i += THREADS) small[i] = g.small[(int64_t)row0 * m.P + i];
    for (int i = threadIdx.x; i < n * m.F; i += THREADS) dphi[i] = g.dphi[(int64_t)row0 * m.F + i];
    __syncthreads();
    for (int j0 = (int)blockIdx.y * COLUMNS; j0 < m.W1; j0 += step)
        add_column<KIND>(m, g, at_, part, small, row0, n, j0 + column, heads, sums);
    for (int j = (int)threadIdx.x; blockIdx.y == 0 && j < m.P; j += THREADS) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += small[i * m.P + j];
        part[at_.e2b + j] += sum;
    }
    for (int j0 = (int)blockIdx.y * COLUMNS; m.F && j0 < m.H; j0 += step)
        add_field_column<KIND>(m, at_, part, dphi, row0, n, j0 + column, top, sums);
}

tn_status tn_rollout::heads_back(const tn_call *c, const net &m, const grads &g, const cell &s)
{
    const void *top = item(s.h.after, m.type, (int64_t)(m.L - 1) * m.C * m.H);
    const dim3 chunks((unsigned)g.chunks, (unsigned)((m.W1 + COLUMNS - 1) / COLUMNS));
    const int kind = kind_of(m);
    TN_ROLLOUT_LAUNCH(rows_back, kind,
                      <<<tn_blocks(c, m.C, THREADS / 32), THREADS, 0, tn_cuda_stream(c)>>>(m, g, s.t, s.heads, top));
    TN_ROLLOUT_LAUNCH(add_heads, kind,
                      <<<chunks, THREADS, 0, tn_cuda_stream(c)>>>(m, g, s.t, head_sums_of(m), s.heads, top));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
