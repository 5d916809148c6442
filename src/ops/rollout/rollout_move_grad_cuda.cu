/* rollout on the GPU, backward: from the gradients by places, energies and landings after a step, through the move and the heads'
 * last products. A warp has 32 neighbouring rows: it makes the sums that their moves ask for together (rollout_heads.cuh), every
 * lane goes back through the move of a row of its own, and what its products get goes to the heads' columns together again. */
#include "ops/rollout/rollout_grad.cuh"
#include "ops/rollout/rollout_heads.cuh"
#include "ops/rollout/rollout_move.cuh"

using namespace tn_rollout;

/* What lanes leave for each other of a row: deltas and phi, later gradients by energies and deltas. An odd number: 32 lanes that
 * read a number each of their own row meet 32 banks. */
enum { THREADS = 128, WARPS = THREADS / 32, SETS = 2, FIELD_SETS = 4, PHI = 3, LEFT_OF_ROW = PHI + TN_ROLLOUT_FIELD };
static_assert(LEFT_OF_ROW % 2 == 1 && (int)LEFT_OF_ROW >= TN_ROLLOUT_ENERGY + 3, "room for a row");

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

__device__ __forceinline__ arriving gather(const net &m, const grads &g, int t, const successor &s, int32_t slot)
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

/* --- sums that a move asks for ------------------------------------------------------------------------------------------- */

/* Is the field after step t read? */
__device__ __forceinline__ bool field_is_read(const net &m, int t) { return t + 1 < m.T && rows_at(m, t + 1) > 0; }

/* Deltas of the rows whose move is made again, few of them as a rule; phi of all that are on. left (32,LEFT_OF_ROW) */
template <int KIND, int V>
__device__ __forceinline__ void sums_again(const net &m, int t, const rows32 &on, const rows32 &again, const table &w,
                                           const void *heads, const void *top, float *left)
{
    const int lane = threadIdx.x % LANES;
    const float bias = lane < 3 ? get<KIND>(m.p[TN_ROLLOUT_D2B], lane) : 0.f;
    if (again.wanted)
        make_sums<KIND, V, 1, true>(m, delta_factor(m, w, heads), again, [=](int r, float x) {
            if (lane < 3) left[r * LEFT_OF_ROW + lane] = x + bias;
        });
    if (!m.F || !m.a.smooth || !field_is_read(m, t)) return;
    for (int f0 = 0; f0 < m.F; f0 += LANES)
        make_sums<KIND, V, FIELD_SETS, false>(m, field_factor(m, w, top, f0), on,
                                              [=](int r, float x) { left[r * LEFT_OF_ROW + PHI + f0 + lane] = x; });
}

/* --- a row by its lane --------------------------------------------------------------------------------------------------- */

/* N channels of the field, 1 or 4: dgrid at the first of them; phi and dphi of the row. */
template <int N>
__device__ __forceinline__ void channels_back(const net &m, const corners &c, bool read, const float *dgrid,
                                              const float *phi, float *dphi, float (&place)[3])
{
    float sum[N] = {}, slope[3][N] = {};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (!read || (k && !m.a.smooth)) continue;
        const float *from = dgrid + (int64_t)(c.first + corner_offset(m, k)) * m.F;
        float x[N];
        if constexpr (N == 4) {
            const float4 q = *(const float4 *)from;
            x[0] = q.x, x[1] = q.y, x[2] = q.z, x[3] = q.w;
        } else x[0] = *from;
#pragma unroll
        for (int n = 0; n < N; n++) sum[n] = fmaf(m.a.smooth ? corner_weight(c, k) : 1.f, x[n], sum[n]);
#pragma unroll
        for (int i = 0; i < 3; i++)
#pragma unroll
            for (int n = 0; n < N; n++)
                if (m.a.smooth) slope[i][n] = fmaf(corner_slope(m, c, k, i), x[n], slope[i][n]);
    }
    if constexpr (N == 4) *(float4 *)dphi = make_float4(sum[0], sum[1], sum[2], sum[3]);
    else *dphi = sum[0];
    if (!read || !m.a.smooth) return;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 3; i++) place[i] = fmaf(slope[i][n], phi[n], place[i]);
}

/* The field's part: by phi, and by the place where it was left. v: the move, where the flow landed. */
__device__ __forceinline__ void deposit_back(const net &m, const grads &g, int t, int32_t row, int32_t slot,
                                             const successor &s, const move &v, const float *phi, float (&place)[3])
{
    const bool read = field_is_read(m, t);
    const float *dgrid = g.dgrid + (int64_t)(slot / m.N) * m.voxels * m.F;
    const float *from = s.landed ? places_of(m, t) + (int64_t)row * m.P : places_of(m, t + 1) + (int64_t)s.next * m.P;
    float p[3] = { from[0], from[1], from[2] }, *dphi = g.dphi + (int64_t)row * m.F;
    if (s.landed) walk(v, p);
    const corners c = corners_of(m, p, !m.a.smooth);
    if (m.F % 4 == 0)
        for (int f = 0; f < m.F; f += 4) channels_back<4>(m, c, read, dgrid + f, phi + f, dphi + f, place);
    else
        for (int f = 0; f < m.F; f++) channels_back<1>(m, c, read, dgrid + f, phi + f, dphi + f, place);
}

/* Gradient by the wanted move, from that by the place after it. v: the move, where moves may be shortened. */
__device__ __forceinline__ void want_back(const net &m, const move &v, const float *after, float *want)
{
    float dot = 0;
    for (int i = 0; i < 3; i++) want[i] = after[i];
    if (!m.a.spawn || !m.a.shorten || v.cut == 1.f) return;
    for (int i = 0; i < 3; i++) dot += v.cut * after[i] * v.want[i];
    for (int i = 0; i < 3; i++) want[i] = v.cut * after[i] - dot * v.want[i] / (v.length * v.length);
}

/* The move of a row has to be made again. */
__device__ __forceinline__ bool moves_again(const net &m, int32_t bits)
{
    return (m.F && (bits & (TN_ROLLOUT_LEFT | TN_ROLLOUT_LAST))) || (m.a.spawn && m.a.shorten);
}

/* Gradients of a row: by what tanh takes, by delta, by the place before the step. */
struct slopes {
    float energy[TN_ROLLOUT_ENERGY], delta[3], place[3];
};

/* sums (LEFT_OF_ROW): those above. */
__device__ __forceinline__ slopes row_back(const net &m, const grads &g, int t, int32_t row, const float *sums)
{
    const int32_t slot = slots_of(m, t)[row];
    const successor s = successor_of(m, g, t, row);
    arriving r = gather(m, g, t, s, slot);
    float sign[3] = { s.bits & TN_ROLLOUT_FOLDED ? -1.f : 1.f, s.bits & TN_ROLLOUT_FOLDED << 1 ? -1.f : 1.f,
                      s.bits & TN_ROLLOUT_LEFT ? 0.f : 1.f };
    float want[3];
    slopes d = {};
    move v = {};
    if (moves_again(m, s.bits)) v = decide(m, sums, s.bits & TN_ROLLOUT_RISES, slot, t);
    if (m.F) deposit_back(m, g, t, row, slot, s, v, sums + PHI, r.place);
#pragma unroll
    for (int i = 0; i < 3; i++) sign[i] *= r.place[i];
    want_back(m, v, sign, want);
    const float kappa = scalar(m.kappa, 1.f);
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++) {
        if (k >= m.E) continue;
        const float e = s.landed ? m.e[(int64_t)slot * m.E + k] : places_of(m, t + 1)[(int64_t)s.next * m.P + 3 + k];
        d.energy[k] = r.energy[k] * (1.f - e * e);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        d.delta[i] = s.bits & TN_ROLLOUT_CLAMPED << i ? 0.f : kappa * want[i];
        d.place[i] = r.start[i] + sign[i];
    }
    return d;
}

/* Of the warp's rows, d of each lane's own: to dplace and small. left keeps the latter, (32,P): energies, then deltas. */
__device__ __forceinline__ void put_slopes(const net &m, const grads &g, int t, const rows32 &rows, const slopes &d,
                                           float *left)
{
    float *own = left + (threadIdx.x & 31) * m.P;
    __syncwarp(); /* the sums have been read */
#pragma unroll
    for (int i = 0; i < 3; i++) own[i] = d.place[i];
    for (int k = 0; k < m.E; k++) own[3 + k] = 0.f;
    put_rows(dplace_of(m, g, t) + (int64_t)rows.first * m.P, left, rows.count * m.P);
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (k < m.E) own[k] = d.energy[k];
#pragma unroll
    for (int i = 0; i < 3; i++) own[m.E + i] = d.delta[i];
    put_rows(g.small + (int64_t)rows.first * m.P, left, rows.count * m.P);
}

/* --- what gelu takes ----------------------------------------------------------------------------------------------------- */

/* dpre = (E2^T energies or D2^T deltas) times gelu's slope, by a warp; 0 for rows that are off. small (32,P) */
template <int KIND, int V>
__device__ __forceinline__ void slopes_of_heads(const net &m, const grads &g, const rows32 &on, const table &w,
                                                const void *heads, const float *small)
{
    const int lane = threadIdx.x % LANES;
#pragma unroll 1
    for (int head = 0; head < 2; head++) {
        const factor f = head ? delta_factor(m, w, heads) : energy_factor(m, w, heads);
        const float *by = small + (head ? m.E : 0);
        for (int r0 = 0; r0 < on.count; r0 += ABREAST * SETS)
            for (int i = lane * V; i < f.k; i += LANES * V) {
                numbers<V> x[SETS], d[SETS] = {};
#pragma unroll
                for (int s = 0; s < SETS; s++)
                    x[s] = load<KIND, V>(m, heads, step_row(on, warp_row(r0, s)) * f.stride + f.begin + i);
#pragma unroll
                for (int n = 0; n < LANES; n++) {
                    if (n >= f.count) continue;
                    const numbers<V> a = weights_at<KIND, V>(f.w, f.in_table, n, f.k, i);
#pragma unroll
                    for (int s = 0; s < SETS; s++)
#pragma unroll
                        for (int j = 0; j < V; j++) d[s].v[j] = fmaf(a.v[j], by[warp_row(r0, s) * m.P + n], d[s].v[j]);
                }
#pragma unroll
                for (int s = 0; s < SETS; s++) {
                    const int r = warp_row(r0, s);
#pragma unroll
                    for (int j = 0; j < V; j++)
                        x[s].v[j] = on.wanted >> r & 1 ? d[s].v[j] * gelu_slope<KIND>(x[s].v[j]) : 0.f;
                    if (r < on.count) store<KIND, V>(m, g.dpre, (on.first + r) * f.stride + f.begin + i, x[s]);
                }
            }
    }
}

template <int KIND>
__device__ __forceinline__ void warp_back(const net &m, const grads &g, int t, int32_t first, int32_t n, bool eights,
                                          const table &w, const void *heads, const void *top, float *left)
{
    const int lane = threadIdx.x & 31;
    const int32_t row = first + lane, bits = row < n ? bits_of(m, t)[row] : TN_ROLLOUT_OFF;
    const bool is_on = !(bits & TN_ROLLOUT_OFF);
    const int count = min(n - first, 32);
    const rows32 on = { first, count, __ballot_sync(0xffffffffu, is_on) },
                 again = { first, count, __ballot_sync(0xffffffffu, is_on && moves_again(m, bits)) };
    if (eights) sums_again<KIND, 8>(m, t, on, again, w, heads, top, left);
    else sums_again<KIND, 1>(m, t, on, again, w, heads, top, left);
    __syncwarp();
    slopes d = {};
    if (is_on) d = row_back(m, g, t, row, left + lane * LEFT_OF_ROW);
    for (int f = 0; !is_on && row < n && f < m.F; f++) g.dphi[(int64_t)row * m.F + f] = 0.f;
    put_slopes(m, g, t, on, d, left);
    if (eights) slopes_of_heads<KIND, 8>(m, g, on, w, heads, left);
    else slopes_of_heads<KIND, 1>(m, g, on, w, heads, left);
    __syncwarp(); /* the next rows' sums go to the same place */
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS, 4)
    rows_back(TN_GRID net m, TN_GRID grads g, int t, const void *heads, const void *top)
{
    extern __shared__ float4 weights[];
    __shared__ float left[WARPS * 32 * LEFT_OF_ROW];
    over_rows<KIND, WARPS>(m, t, weights, [&](int32_t first, int32_t end, bool eights, const table &w, int warp) {
        warp_back<KIND>(m, g, t, first, end, eights, w, heads, top, left + warp * 32 * LEFT_OF_ROW);
    });
}

tn_status tn_rollout::moves_back(const tn_call *c, const net &m, const grads &g, const cell &s)
{
    const void *top = item(s.h.after, m.type, (int64_t)(m.L - 1) * m.C * m.H);
    TN_ROLLOUT_LAUNCH(rows_back, kind_of(m),
                      <<<tn_blocks(c, m.C, WARPS * warp_rows(m)), THREADS, table_bytes(m), tn_cuda_stream(c)>>>(
                          m, g, s.t, s.heads, top));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
