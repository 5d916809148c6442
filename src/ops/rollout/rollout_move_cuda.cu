/* rollout on the GPU: the heads' last products, what rows leave in the field, and the moves. A warp has 32 neighbouring rows: it
 * makes their sums together (rollout_heads.cuh), then every lane moves a row of its own. */
#include "ops/rollout/rollout_heads.cuh"
#include "ops/rollout/rollout_move.cuh"

using namespace tn_rollout;

/* Blocks are small: 50,000 rows are 12 warps a multiprocessor, which blocks of 8 could not share evenly. Fours of rows at once:
 * fewer where gelu's long code is between. SUMS is odd: 32 lanes that read a number each of their own row meet 32 banks. */
enum { THREADS = 128, WARPS = THREADS / 32, SETS = 2, FIELD_SETS = 4, SUMS = TN_ROLLOUT_ENERGY + 3 };

/* Children that a flow asks for. */
__device__ __forceinline__ int32_t children_of(const net &m, const move &v)
{
    const float n = floorf(v.length / m.a.rho) - 1.f;
    return m.a.spawn && n > 0.f ? (int32_t)fminf(n, (float)m.a.spawn) : 0;
}

/* sums (32,SUMS) in shared memory: energies before tanh, then deltas. One loop for both heads: gelu is long, and its code is
 * there for every number of a lane's. */
template <int KIND, int V>
__device__ __forceinline__ void sum_heads(const net &m, const rows32 &rows, const table &w, const void *heads,
                                          float *sums)
{
    const int lane = threadIdx.x % LANES;
#pragma unroll 1
    for (int head = 0; head < 2; head++) {
        const factor f = head ? delta_factor(m, w, heads) : energy_factor(m, w, heads);
        const float bias = lane < f.count ? get<KIND>(m.p[head ? TN_ROLLOUT_D2B : TN_ROLLOUT_E2B], lane) : 0.f;
        float *to = sums + (head ? TN_ROLLOUT_ENERGY : 0) + lane;
        make_sums<KIND, V, SETS, true>(m, f, rows, [=](int r, float x) {
            if (lane < f.count) to[r * SUMS] = x + bias;
        });
    }
}

/* What rows leave in the field: F o. */
template <int KIND, int V>
__device__ __forceinline__ void make_phi(const net &m, const rows32 &rows, const table &w, const void *top)
{
    const int lane = threadIdx.x % LANES;
    for (int f0 = 0; f0 < m.F; f0 += LANES) {
        const factor f = field_factor(m, w, top, f0);
        make_sums<KIND, V, FIELD_SETS, false>(m, f, rows, [=, &m, &rows](int r, float x) {
            if ((rows.wanted >> r & 1) && lane < f.count) m.phi[(int64_t)(rows.first + r) * m.F + f0 + lane] = x;
        });
    }
}

/* A lane's own row: p moves, e becomes tanh(e). */
__device__ __forceinline__ void move_row(const net &m, int t, int32_t row, int32_t slot, bool up, const float *delta,
                                         float (&p)[3], float (&e)[TN_ROLLOUT_ENERGY])
{
    const move v = decide(m, delta, up, slot, t);
    const int32_t kids = children_of(m, v), bits = walk(v, p) | (up ? TN_ROLLOUT_RISES : 0);
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (k < m.E) e[k] = tanhf(e[k]);
    bits_of(m, t)[row] = bits | kids << TN_ROLLOUT_CHILDREN;
    if ((bits & TN_ROLLOUT_LEFT) || kids)
        atomicAdd(m.leaving + (int64_t)t * m.B + slot / m.N,
                  (bits & TN_ROLLOUT_LEFT ? 1ull : 0ull) | (unsigned long long)kids << 32);
}

/* Rows [first, first + 32) of n, by a warp. Slots and origins, one after the other, are on their way while sums are made. */
template <int KIND>
__device__ __forceinline__ void move_warp(const net &m, int t, int32_t first, int32_t n, bool eights, const table &w,
                                          const void *heads, const void *top, float *sums)
{
    const int lane = threadIdx.x & 31;
    const int32_t row = first + lane;
    const bool here = row < n, on = here && !(bits_of(m, t)[row] & TN_ROLLOUT_OFF);
    const float *place = places_of(m, t) + (int64_t)row * m.P, *own = sums + lane * SUMS;
    const int32_t slot = on ? slots_of(m, t)[row] : 0;
    const bool up = on && rises(m, place[2], m.origin[slot]);
    const rows32 rows = { first, min(n - first, 32), __ballot_sync(0xffffffffu, on) };
    if (rows.wanted && eights) {
        sum_heads<KIND, 8>(m, rows, w, heads, sums);
        make_phi<KIND, 8>(m, rows, w, top);
    } else if (rows.wanted) {
        sum_heads<KIND, 1>(m, rows, w, heads, sums);
        make_phi<KIND, 1>(m, rows, w, top);
    }
    __syncwarp();
    float p[3] = { 0, 0, 0 }, e[TN_ROLLOUT_ENERGY] = {};
#pragma unroll
    for (int k = 0; k < 3; k++)
        if (here) p[k] = place[k];
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (here && k < m.E) e[k] = on ? own[k] : place[3 + k];
    if (on) move_row(m, t, row, slot, up, own + TN_ROLLOUT_ENERGY, p, e);
    __syncwarp(); /* sums have been read, the rows take their place */
#pragma unroll
    for (int k = 0; k < 3; k++) sums[lane * m.P + k] = p[k];
#pragma unroll
    for (int k = 0; k < TN_ROLLOUT_ENERGY; k++)
        if (k < m.E) sums[lane * m.P + 3 + k] = e[k];
    put_rows(m.after + (int64_t)first * m.P, sums, rows.count * m.P);
}

template <int KIND>
static __global__ void __launch_bounds__(THREADS, 4)
    make_moves(TN_GRID net m, int t, const void *heads, const void *top)
{
    extern __shared__ float4 weights[];
    __shared__ float sums[WARPS * 32 * SUMS];
    over_rows<KIND, WARPS>(m, t, weights, [&](int32_t first, int32_t end, bool eights, const table &w, int warp) {
        move_warp<KIND>(m, t, first, end, eights, w, heads, top, sums + warp * 32 * SUMS);
    });
}

tn_status tn_rollout::move_flows(const tn_call *c, const net &m, const cell &s)
{
    const void *top = item(s.h.after, m.type, (int64_t)(m.L - 1) * m.C * m.H);
    TN_ROLLOUT_LAUNCH(make_moves, kind_of(m),
                      <<<tn_blocks(c, m.C, WARPS * warp_rows(m)), THREADS, table_bytes(m), tn_cuda_stream(c)>>>(m, s.t,
                                                                                                                s.heads,
                                                                                                                top));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
