/* attention on the GPU, forward, on tensor cores: a block of four warps holds its rows of q and sums up tile after
 * tile of keys, the next tile on its way meanwhile (Dao 2023, algorithm 1). Scores, weights and sums stay in
 * registers; weights are powers of two relative to a maximum that moves only when it must, which no row but its own
 * decides. Few rows and many keys (decoding, attention_few_cuda.cu): the keys are shared out among blocks, and a second
 * kernel joins their sums in order.
 *
 * NaN and infinity in values that a row does not see must not reach it, but 0 times NaN is NaN: a block whose result
 * is not finite is computed once more, with such values kept apart. f32 without permission to round, and D beyond
 * 128: attention_general_cuda.cu. */
#include "ops/attention/attention_rows.cuh"

using namespace tn_attention;

enum { FEW = 64 }; /* rows that share out keys among blocks */

/* --- a block ------------------------------------------------------------------------------------------------------ */

/* Shared memory; keys, values and documents of two tiles take turns. */
template <int WIDTH, int BM, int BN>
struct forward_room {
    static const int row = tile_of<WIDTH>::row;
    static const int bytes = (BM + 4 * BN) * row * 2 + 2 * BN * 4;
    __nv_bfloat16 *q; /* (BM) rows */
    __device__ __forceinline__ __nv_bfloat16 *k(int i) const { return q + (BM + i * BN) * row; }
    __device__ __forceinline__ __nv_bfloat16 *v(int i) const { return q + (BM + (2 + i) * BN) * row; }
    __device__ __forceinline__ int *documents(int i) const { return (int *)(q + (BM + 4 * BN) * row) + i * BN; }
};

/* The next tile of keys after s0 that some row of [r0,r1) may see, or `end` or more. */
template <int BN>
__device__ __forceinline__ int next_keys(const problem &p, const sequence &q, int r0, int r1, int s0, int end)
{
    do s0 += BN;
    while (p.document && s0 < end && meet(p, q, r0, r1, s0, s0 + BN) == APART);
    return s0;
}

/* Rows of q with the sign of the scale: the maximum of scores is then that of their products with its size. */
template <int WIDTH, int BM>
__device__ __forceinline__ void turn_signs(__nv_bfloat16 *q)
{
    tn_copies_wait<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < BM * tile_of<WIDTH>::row / 2; i += THREADS) ((uint32_t *)q)[i] ^= 0x80008000u;
    __syncthreads();
}

template <int WIDTH, int MT, int BN>
__global__ void __launch_bounds__(THREADS, 2)
    attend(const __grid_constant__ problem p, const order o, const shares share)
{
    const int BM = WARPS * 16 * MT;
    const bool KEPT = WIDTH <= 64;
    extern __shared__ uint4 shared[];
    const forward_room<WIDTH, BM, BN> room = { (__nv_bfloat16 *)shared };
    const int2 place = place_of(o, blockIdx.x / share.n);
    const int part = blockIdx.x % share.n, b = place.x / p.KV, kv = place.x % p.KV;
    const int r0 = (o.pieces - 1 - place.y) * BM, r1 = min(r0 + BM, p.rows), w0 = r0 + threadIdx.x / 32 * 16 * MT;
    if (dead(p.live, b)) return;
    const sequence q = sequence_of(p, b);
    const int end = range_of(p, q, token_of(p, r1 - 1)).y, start = range_of(p, q, token_of(p, r0)).x / BN * BN;
    const int each = (max(0, end - start) + BN * share.n - 1) / (BN * share.n) * BN;
    const int first = start + part * each, stop = min(end, first + each);
    const float scale2 = fabsf(p.scale) * LOG2E;
    rows_state<WIDTH, MT> r;
    uint32_t kept[KEPT ? MT : 1][KEPT ? WIDTH / 16 : 1][4];

    const auto fetch = [&](int s0, int i) {
        if (s0 < stop) {
            load_tile<WIDTH, BN, THREADS, false>(room.k(i), p.k, p, b, kv, s0, end);
            load_tile<WIDTH, BN, THREADS, false>(room.v(i), p.v, p, b, kv, s0, end);
            if (p.document && threadIdx.x < BN)
                room.documents(i)[threadIdx.x] = s0 + (int)threadIdx.x < p.S ? document_at(p, b, s0 + threadIdx.x) : 0;
        }
        tn_copies_commit();
    };
    const int leader = next_keys<BN>(p, q, r0, r1, first - BN, stop);
    load_tile<WIDTH, BM, THREADS, true>(room.q, p.q, p, b, kv, r0, r1);
    tn_copies_commit();
    fetch(leader, 0);
    tn_copies_wait<1>();
    __syncthreads();
    if (p.scale < 0) turn_signs<WIDTH, BM>(room.q);
    const __nv_bfloat16 *mine = room.q + (w0 - r0) * tile_of<WIDTH>::row;
#pragma unroll
    for (int m = 0; KEPT && m < MT; m++)
#pragma unroll
        for (int d = 0; d < WIDTH / 16; d++) load_a<WIDTH>(kept[KEPT ? m : 0][KEPT ? d : 0], mine, m * 16, d * 16);

    for (bool apart = false;; apart = true) {
        clear<WIDTH, MT>(r);
        for (int i = 0, s0 = leader, next; s0 < stop; s0 = next, i ^= 1) {
            tn_copies_wait<0>();
            __syncthreads();
            next = next_keys<BN>(p, q, r0, r1, s0, stop);
            fetch(next, i ^ 1);
            const meeting m = w0 < p.rows ? meet(p, q, w0, min(w0 + 16 * MT, p.rows), s0, s0 + BN) : APART;
            if (m == APART) continue;
            float s[MT][BN / 8][4];
            uint32_t w[MT][BN / 16][4];
            scores<WIDTH, MT, BN, KEPT>(s, kept, mine, room.k(i));
            if (m == PARTLY) hide<MT, BN>(s, p, q, w0, s0, room.documents(i));
            soften<WIDTH, MT, BN>(r, s, w, scale2);
            if (apart) add_values_apart<WIDTH, MT, BN>(r, w, room.v(i));
            else add_values<WIDTH, MT, BN>(r, w, room.v(i));
        }
        if (!__syncthreads_or(!apart && !finite<WIDTH, MT>(r))) break;
        fetch(leader, 0);
    }
    finish<WIDTH, MT>(r, p, q, place.x, kv, w0, share, part);
}

/* --- joining shares ----------------------------------------------------------------------------------------------- */

/* A warp per row; parts in order. */
__global__ void join(const __grid_constant__ problem p, const shares share)
{
    const float scale2 = fabsf(p.scale) * LOG2E;
    const int lane = threadIdx.x & 31;
    const int64_t n = (int64_t)p.B * p.KV * p.rows, step = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t i = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int head = (int)(i / p.rows), row = (int)(i % p.rows), b = head / p.KV, kv = head % p.KV;
        if (dead(p.live, b)) continue;
        const int64_t first = (int64_t)head * share.n * p.rows + row;
        float top = -INFINITY, sum = 0;
        for (int k = 0; k < share.n; k++) top = fmaxf(top, share.ml[first + (int64_t)k * p.rows].x);
        const float base = base_of(top, scale2);
        for (int k = 0; k < share.n; k++) {
            const float2 ml = share.ml[first + (int64_t)k * p.rows];
            sum += ml.y * tn_exp2(__fmul_rn(ml.x, scale2) - base);
        }
        const bool bad = sequence_of(p, b).bad;
        const float factor = bad ? NAN : sum == 0 ? 0.f : 1 / sum;
        const int64_t at = row_at(p.y, p, b, kv, row);
        for (int d = lane; d < p.D; d += 32) {
            float o = 0;
            for (int k = 0; k < share.n; k++) {
                const int64_t from = first + (int64_t)k * p.rows;
                o += share.o[from * p.D + d] * tn_exp2(__fmul_rn(share.ml[from].x, scale2) - base);
            }
            tn_store(p.y.data, p.y.type, at + d * p.y.d, o * factor);
        }
        if (p.lse && lane == 0) {
            const int t = token_of(p, row), h = kv * p.group + row - t * p.group;
            p.lse[b * p.lse_b + h * p.lse_h + t * p.lse_t] = bad        ? NAN
                                                             : sum == 0 ? -INFINITY
                                                                        : (base + log2f(sum)) * LN2;
        }
    }
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* Blocks that share out the keys of few rows: enough to fill a GPU, each with a few tiles of the most keys there can
 * be. */
static int shares_for(int64_t B, int64_t KV, int64_t rows, int64_t S)
{
    const int64_t blocks = B * KV, want = blocks > 0 ? 528 / blocks : 0, most = S / 128;
    if (rows > FEW) return 1;
    return (int)(want < 2 || most < 2 ? 1 : want < most ? want : most);
}

extern "C" size_t tn_attention_work_own_cuda(const tn_sig *s, bool backward)
{
    const tn_dims q = s->in[TN_ATT_Q].dims, k = s->in[TN_ATT_K].dims;
    const int64_t rows = q.dim[1] * (q.dim[2] / k.dim[2]), heads = q.dim[0] * k.dim[2];
    const size_t table = s->in[TN_ATT_DOCUMENT].absent ? 0 : spread_bytes(q.dim[0], q.dim[1]);
    if (backward) { /* a query head's rows may stand alone */
        const size_t stats = table + stat_bytes(q.dim[0] * q.dim[2], q.dim[1]), once = tn_attention_once_work_cuda(s);
        return stats > once ? stats : once;
    }
    const int n = shares_for(q.dim[0], k.dim[2], rows, k.dim[1]);
    return table + (n > 1 ? sizeof(float) * (size_t)(heads * n * rows * (q.dim[3] + 2)) : 0);
}

template <int WIDTH, int MT, int BN>
static tn_status forward(const tn_call *c, const problem *p, shares share)
{
    const int BM = WARPS * 16 * MT, bytes = forward_room<WIDTH, BM, BN>::bytes;
    const order o = order_of(*p, (p->rows + BM - 1) / BM);
    TN_RETURN_IF(tn_attention_room_cuda((const void *)attend<WIDTH, MT, BN>, bytes));
    attend<WIDTH, MT, BN>
        <<<(unsigned)(o.heads * o.pieces * share.n), THREADS, bytes, tn_cuda_stream(c)>>>(*p, o, share);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <int WIDTH, int BN>
static tn_status forward_wide(const tn_call *c, const problem *p, shares share)
{
    return p->rows <= FEW ? forward<WIDTH, 1, BN>(c, p, share) : forward<WIDTH, 2, BN>(c, p, share);
}

static tn_status forward_any(const tn_call *c, const problem *p, shares share)
{
    return p->D <= 32   ? forward_wide<32, 64>(c, p, share)
           : p->D <= 64 ? forward_wide<64, 64>(c, p, share)
           : p->D <= 80 ? forward_wide<80, 64>(c, p, share)
           : p->D <= 96 ? forward_wide<96, 32>(c, p, share)
                        : forward_wide<128, 32>(c, p, share);
}

extern "C" tn_status tn_attention_forward_own_cuda(const tn_call *c)
{
    problem p = problem_of(c, &c->in[TN_ATT_Q]);
    if (p.B == 0 || p.rows == 0 || p.D == 0) return TN_OK;
    TN_RETURN_IF(tn_attention_spread_cuda(c, &p, c->work));
    if (!on_tensor_cores(c)) return tn_attention_general_forward_cuda(c, &p);
    if (tn_attention_hopper_takes(c)) return tn_attention_hopper_forward_cuda(c, &p);
    shares share = { shares_for(p.B, p.KV, p.rows, p.S), NULL, NULL };
    const int64_t parts = (int64_t)p.B * p.KV * share.n * p.rows;
    share.ml = (float2 *)((char *)c->work + (p.document ? spread_bytes(p.B, p.T) : 0));
    share.o = (float *)(share.ml + parts);
    TN_RETURN_IF(tn_attention_few_takes(&p) ? tn_attention_few_forward_cuda(c, &p, share) : forward_any(c, &p, share));
    if (share.n == 1) return TN_OK;
    join<<<tn_blocks(c, (int64_t)p.B * p.KV * p.rows, WARPS), THREADS, 0, tn_cuda_stream(c)>>>(p, share);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
