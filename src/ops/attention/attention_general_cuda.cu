/* attention on the GPU in f32, any D and any types: right rather than fast. The same three kernels as on tensor
 * cores, with tiles of 64 x 64; a block makes 64 numbers of D of its result, so for larger D scores are computed
 * several times. Hidden values never enter a sum (forward). */
#include "ops/attention/attention_tiles.cuh"

using namespace tn_attention;

/* --- forward ------------------------------------------------------------------------------------------------------ */

struct row_state {
    float max[4], sum[4];
    sums o;
};

/* Scores become weights. */
__device__ __forceinline__ void soften(row_state &r, sums &s, const problem &p, const sequence &q, int r0, int s0,
                                       bool whole)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const sight x = sight_of(p, q, r0 + (int)threadIdx.x / 16 * 4 + i);
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            s[i][j] *= p.scale;
            if (!whole && !row_sees(p, q, x, s0 + (int)threadIdx.x % 16 * 4 + j)) s[i][j] = -INFINITY;
            top = fmaxf(top, s[i][j]);
        }
        top = fmaxf(r.max[i], across_max(top));
        const float base = top == -INFINITY ? 0.f : top;
        const float keep = top == r.max[i] ? 1.f : expf(r.max[i] - base);
#pragma unroll
        for (int j = 0; j < 4; j++) sum += s[i][j] = expf(s[i][j] - base);
        r.sum[i] = r.sum[i] * keep + across_sum(sum);
        r.max[i] = top;
#pragma unroll
        for (int j = 0; j < 4; j++) r.o[i][j] *= keep;
    }
}

__device__ __forceinline__ void finish(const row_state &r, const problem &p, const sequence &q, int kv, int r0, int d0)
{
    const int x = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = r0 + (int)threadIdx.x / 16 * 4 + i, t = token_of(p, row);
        if (row >= p.rows) continue;
        const float factor = q.bad ? NAN : r.sum[i] == 0 ? 0.f : 1 / r.sum[i];
        const int64_t at = row_at(p.y, p, q.b, kv, row);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (d0 + x * 4 + j < p.D) tn_store(p.y.data, p.y.type, at + (d0 + x * 4 + j) * p.y.d, r.o[i][j] * factor);
        if (p.lse && x == 0 && d0 == 0)
            p.lse[q.b * p.lse_b + (kv * p.group + row - t * p.group) * p.lse_h + t * p.lse_t] =
                q.bad           ? NAN
                : r.sum[i] == 0 ? -INFINITY
                                : r.max[i] + logf(r.sum[i]);
    }
}

__global__ void __launch_bounds__(TILE_THREADS) attend_general(const __grid_constant__ problem p, const order o)
{
    extern __shared__ float4 shared[];
    float *const a = (float *)shared, *const b = a + TILE_FLOATS, *const w = b + TILE_FLOATS;
    const int2 place = place_of(o, blockIdx.x);
    const int kv = place.x % p.KV, r0 = (o.pieces - 1 - place.y) * SIDE, r1 = min(r0 + SIDE, p.rows),
              d0 = blockIdx.y * SIDE;
    if (dead(p.live, place.x / p.KV)) return;
    const sequence q = sequence_of(p, place.x / p.KV);
    const int end = range_of(p, q, token_of(p, r1 - 1)).y, start = range_of(p, q, token_of(p, r0)).x / SIDE * SIDE;
    row_state r;
    sums s;
    sums_clear(r.o);
#pragma unroll
    for (int i = 0; i < 4; i++) r.max[i] = -INFINITY, r.sum[i] = 0;
    for (int s0 = start; s0 < end; s0 += SIDE) {
        const meeting m = meet(p, q, r0, r1, s0, s0 + SIDE);
        if (m == APART) continue;
        tile_products(s, a, b, p.q, p.k, p, q.b, kv, r0, s0);
        soften(r, s, p, q, r0, s0, m == WHOLLY);
        tile_store<true>(w, s);
        __syncthreads();
        tile_load<false, false>(a, p.v, p, q.b, kv, s0, p.S, d0, p.D);
        __syncthreads();
        tile_multiply<true>(r.o, w, a);
    }
    finish(r, p, q, kv, r0, d0);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Weights w and the gradients g of their scores, of rows r0.. and keys s0... */
__device__ __forceinline__ void weigh(sums &w, sums &g, float *a, float *b, const problem &p, const sequence &q, int kv,
                                      int r0, int s0, const float2 *stat, bool scores)
{
    tile_products(w, a, b, p.q, p.k, p, q.b, kv, r0, s0);
    if (scores) tile_products(g, a, b, p.dy, p.v, p, q.b, kv, r0, s0);
    else sums_clear(g);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = r0 + (int)threadIdx.x / 16 * 4 + i;
        const sight x = sight_of(p, q, row);
        const float2 st = row < p.rows ? stat[row] : make_float2(0, 0);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool seen = row_sees(p, q, x, s0 + (int)threadIdx.x % 16 * 4 + j);
            w[i][j] = seen ? expf(w[i][j] * p.scale - st.x) : 0.f;
            g[i][j] = w[i][j] == 0 ? 0.f : w[i][j] * (g[i][j] - st.y);
        }
    }
}

__device__ __forceinline__ void put(const sums &s, const view &to, int64_t at, int i, int d0, int D, float factor,
                                    bool add)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int d = d0 + (int)threadIdx.x % 16 * 4 + j;
        if (d < D) tn_put(to.data, to.type, at + d * to.d, factor * s[i][j], add);
    }
}

__global__ void __launch_bounds__(TILE_THREADS)
    keys_general(const __grid_constant__ problem p, const order o, const float2 *stat)
{
    extern __shared__ float4 shared[];
    float *const a = (float *)shared, *const b = a + TILE_FLOATS, *const ws = b + TILE_FLOATS,
                 *const gs = ws + TILE_FLOATS;
    const int2 place = place_of(o, blockIdx.x);
    const int seq = place.x / p.KV, kv = place.x % p.KV, s0 = place.y * SIDE, d0 = blockIdx.y * SIDE;
    const sequence q = sequence_of(p, seq);
    sums w, g, dk, dv;
    sums_clear(dk);
    sums_clear(dv);
    for (int r0 = 0; r0 < p.rows && !dead(p.live, seq); r0 += SIDE) {
        if (meet(p, q, r0, min(r0 + SIDE, p.rows), s0, s0 + SIDE) == APART) continue;
        weigh(w, g, a, b, p, q, kv, r0, s0, stat + place.x * stat_rows(p.rows), p.dk.data);
        tile_store<false>(ws, w);
        tile_store<false>(gs, g);
        __syncthreads();
        tile_load<true, false>(a, p.dy, p, seq, kv, r0, p.rows, d0, p.D);
        tile_load<true, false>(b, p.q, p, seq, kv, r0, p.rows, d0, p.D);
        __syncthreads();
        tile_multiply<false>(dv, ws, a);
        tile_multiply<false>(dk, gs, b);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int s = s0 + (int)threadIdx.x / 16 * 4 + i;
        if (s >= p.S) continue;
        if (p.dk.data && !dead(p.live_dk, seq))
            put(dk, p.dk, key_at(p.dk, seq, kv, s), i, d0, p.D, p.scale, p.add >> TN_ATT_K & 1);
        if (p.dv.data && !dead(p.live_dv, seq))
            put(dv, p.dv, key_at(p.dv, seq, kv, s), i, d0, p.D, 1, p.add >> TN_ATT_V & 1);
    }
}

__global__ void __launch_bounds__(TILE_THREADS)
    rows_general(const __grid_constant__ problem p, const order o, const float2 *stat)
{
    extern __shared__ float4 shared[];
    float *const a = (float *)shared, *const b = a + TILE_FLOATS, *const gs = b + TILE_FLOATS;
    const int2 place = place_of(o, blockIdx.x);
    const int kv = place.x % p.KV, r0 = (o.pieces - 1 - place.y) * SIDE, r1 = min(r0 + SIDE, p.rows),
              d0 = blockIdx.y * SIDE;
    if (dead(p.live, place.x / p.KV)) return;
    const sequence q = sequence_of(p, place.x / p.KV);
    const int end = range_of(p, q, token_of(p, r1 - 1)).y, start = range_of(p, q, token_of(p, r0)).x / SIDE * SIDE;
    sums w, g, dq;
    sums_clear(dq);
    for (int s0 = start; s0 < end; s0 += SIDE) {
        if (meet(p, q, r0, r1, s0, s0 + SIDE) == APART) continue;
        weigh(w, g, a, b, p, q, kv, r0, s0, stat + place.x * stat_rows(p.rows), true);
        tile_store<true>(gs, g);
        __syncthreads();
        tile_load<false, false>(a, p.k, p, q.b, kv, s0, p.S, d0, p.D);
        __syncthreads();
        tile_multiply<false>(dq, gs, a);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = r0 + (int)threadIdx.x / 16 * 4 + i;
        if (row < p.rows) put(dq, p.dq, row_at(p.dq, p, q.b, kv, row), i, d0, p.D, p.scale, p.add >> TN_ATT_Q & 1);
    }
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static dim3 grid_of(const problem *p, const order &o)
{
    return dim3((unsigned)(o.heads * o.pieces), (unsigned)((p->D + SIDE - 1) / SIDE));
}

tn_status tn_attention_general_forward_cuda(const tn_call *c, const problem *p)
{
    const int bytes = 3 * TILE_FLOATS * (int)sizeof(float);
    const order o = order_of(*p, (p->rows + SIDE - 1) / SIDE);
    TN_RETURN_IF(tn_attention_room_cuda((const void *)attend_general, bytes));
    attend_general<<<grid_of(p, o), TILE_THREADS, bytes, tn_cuda_stream(c)>>>(*p, o);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_attention_general_backward_cuda(const tn_call *c, const problem *p, const float2 *stat)
{
    const int bytes = 4 * TILE_FLOATS * (int)sizeof(float);
    if ((p->dk.data || p->dv.data) && p->S > 0) {
        const order o = order_of(*p, (p->S + SIDE - 1) / SIDE);
        TN_RETURN_IF(tn_attention_room_cuda((const void *)keys_general, bytes));
        keys_general<<<grid_of(p, o), TILE_THREADS, bytes, tn_cuda_stream(c)>>>(*p, o, stat);
        TN_CUDA_LAUNCHED();
    }
    if (p->dq.data && p->rows > 0) {
        const order o = order_of(*p, (p->rows + SIDE - 1) / SIDE);
        TN_RETURN_IF(tn_attention_room_cuda((const void *)rows_general, bytes));
        rows_general<<<grid_of(p, o), TILE_THREADS, bytes, tn_cuda_stream(c)>>>(*p, o, stat);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}
