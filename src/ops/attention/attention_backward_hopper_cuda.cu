/* attention on Hopper, backward: two runs of one kernel, so that every sum has one owner and one order. A warpgroup
 * stays with 64 rows of one side and meets tile after tile of the other:
 *
 *     for keys:  w = weights(k q^T), x = w (v dy^T - row's sum);  dv += w dy, dk += x q
 *     for rows:  w = weights(q k^T), x = w (dy v^T - row's sum);  dq += x k
 *
 * Weights and their gradients, as they come out of one product, are an operand of the next and never leave registers.
 * The statistics of rows come from attention_backward_cuda.cu. NaN and infinity that a row does not see may reach the
 * gradients of others in the same tile. */
#include "ops/attention/attention_backward_hopper.cuh"

using namespace tn_attention;

/* Bytes of shared memory, and where things are in it. The own sides of all groups, then stages of the other. */
template <int WIDTH, int GROUPS, int BN, int STAGES>
struct backward_room {
    static const int row = WIDTH * 2, rows = 64 * row, own = 2 * GROUPS * rows, tile = BN * row;
    static const int stage = 2 * tile, stat = own + STAGES * stage, barriers = stat + STAGES * BN * 8;
    static const int bytes = barriers + (2 + 2 * STAGES) * 8 + 1024;
};

#if TN_HOPPER

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <int STAGES>
struct backward_barriers {
    uint64_t *own_full, *own_empty, *full, *empty;
    __device__ __forceinline__ explicit backward_barriers(uint64_t *b)
        : own_full(b), own_empty(b + 1), full(b + 2), empty(b + 2 + STAGES)
    {
    }
    __device__ __forceinline__ void open(int groups, int sources)
    {
        tn_barrier_open(own_full, 2 * groups), tn_barrier_open(own_empty, 4 * groups);
        for (int i = 0; i < STAGES; i++) tn_barrier_open(full + i, sources), tn_barrier_open(empty + i, 4 * groups);
        tn_barriers_opened();
    }
};

/* The warp that fetches. */
template <int WIDTH, bool KEYS, int GROUPS, int BN, int STAGES>
__device__ __forceinline__ void fetch_pieces(const hopper_problem &h, char *room)
{
    typedef backward_room<WIDTH, GROUPS, BN, STAGES> at;
    const backward_barriers<STAGES> bar((uint64_t *)(room + at::barriers));
    const source &own1 = KEYS ? h.k : h.q, &own2 = KEYS ? h.v : h.dy, &other1 = KEYS ? h.q : h.k,
                 &other2 = KEYS ? h.dy : h.v;
    const int own_n = KEYS ? h.p.S : h.p.T, other_n = KEYS ? h.p.T : h.p.S, D = h.p.D;
    turn<STAGES> t = { 0, 1 }; /* the first round waits for nothing */
    uint32_t own_phase = 1;
    for (int i = blockIdx.x; i < h.o.heads * h.o.pieces; i += gridDim.x) {
        const backward_piece r = piece_of<KEYS, GROUPS * 64, BN>(h, i);
        if (!r.tiles) continue;
        tn_barrier_wait(bar.own_empty, own_phase);
        own_phase ^= 1;
        for (int g = 0; g < GROUPS; g++) {
            char *to = room + g * 2 * at::rows;
            fetch<WIDTH, 64>(to, 64 * 128, own1, D, r.q.b, r.head, r.r0 + g * 64, own_n, bar.own_full);
            fetch<WIDTH, 64>(to + at::rows, 64 * 128, own2, D, r.q.b, r.head, r.r0 + g * 64, own_n, bar.own_full);
        }
        for (int j = 0; j < r.tiles * r.heads; j++, t.next()) {
            const int head = r.other + j / r.tiles, n0 = r.first + j % r.tiles * BN;
            char *to = room + at::own + t.at * at::stage;
            tn_barrier_wait(bar.empty + t.at, t.phase);
            fetch<WIDTH, BN>(to, BN * 128, other1, D, r.q.b, head, n0, other_n, bar.full + t.at);
            fetch<WIDTH, BN>(to + at::tile, BN * 128, other2, D, r.q.b, head, n0, other_n, bar.full + t.at);
            if (KEYS && (threadIdx.x & 31) == 0) {
                tn_barrier_expect(bar.full + t.at, BN * 8);
                tn_bulk_copy(room + at::stat + t.at * BN * 8,
                             h.stat + ((int64_t)r.q.b * h.p.KV + head) * stat_rows(h.p.T) + n0, BN * 8,
                             bar.full + t.at);
            }
        }
    }
}

/* A warpgroup that computes. */
template <int WIDTH, bool KEYS, int GROUPS, int BN, int STAGES>
__device__ __forceinline__ void meet_pieces(const hopper_problem &h, char *room)
{
    typedef backward_room<WIDTH, GROUPS, BN, STAGES> at;
    const backward_barriers<STAGES> bar((uint64_t *)(room + at::barriers));
    const problem &p = h.p;
    const int group = threadIdx.x / 128, lane = threadIdx.x & 31;
    const float scale2 = p.scale * LOG2E;
    turn<STAGES> t = { 0, 0 };
    uint32_t own_phase = 0;
    const char *const own = room + group * 2 * at::rows;
    float dx[WIDTH / 2], dv[KEYS ? WIDTH / 2 : 1], w[BN / 2], x[BN / 2];
    uint32_t w16[KEYS ? BN / 4 : 1], x16[BN / 4];

    for (int i = blockIdx.x; i < h.o.heads * h.o.pieces; i += gridDim.x) {
        const backward_piece r = piece_of<KEYS, GROUPS * 64, BN>(h, i);
        const int own0 = r.r0 + group * 64, own_end = min(own0 + 64, KEYS ? p.S : p.T);
        const int row0 = own0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
        const int2 upper = KEYS ? tokens_of(p, r.q, row0) : range_of(p, r.q, row0),
                   lower = KEYS ? tokens_of(p, r.q, row0 + 8) : range_of(p, r.q, row0 + 8);
        float2 mine[2];
#pragma unroll
        for (int d = 0; d < WIDTH / 2; d++) {
            dx[d] = 0;
            if (KEYS) dv[d] = 0;
        }
        if (r.tiles) {
#pragma unroll
            for (int e = 0; e < 2 && !KEYS; e++)
                mine[e] = row0 + e * 8 < p.T ? h.stat[((int64_t)r.q.b * p.KV + r.head) * stat_rows(p.T) + row0 + e * 8]
                                             : make_float2(INFINITY, 0);
            tn_barrier_wait(bar.own_full, own_phase);
            own_phase ^= 1;
        }
        int used = -1; /* the stage that products under way still read */
        for (int j = 0; j < r.tiles * r.heads; j++, t.next()) {
            const int n0 = r.first + (KEYS ? j % r.tiles : j) * BN;
            const char *other1 = room + at::own + t.at * at::stage, *other2 = other1 + at::tile;
            const float2 *stat = (const float2 *)(room + at::stat + t.at * BN * 8);
            const meeting m = own0 >= own_end ? APART
                              : KEYS          ? meet_tokens(p, r.q, n0, min(n0 + BN, p.T), own0, own0 + 64)
                                              : meet_tokens(p, r.q, own0, own_end, n0, n0 + BN);
            tn_barrier_wait(bar.full + t.at, t.phase);
            if (m == APART) { /* nothing is kept back meanwhile: the fetching warp may need it to go on */
                tn_products_wait<0>();
                if (used >= 0) tn_warp_arrive(bar.empty + used);
                used = -1;
                tn_warp_arrive(bar.empty + t.at);
                continue;
            }
            tn_hold(w);
            tn_hold(x);
            tn_products_begin();
            /* own rows are read from shared memory every time: as an operand kept in registers across the loop they were
             * overwritten (ptxas 13.0 gave the registers to weights) */
            begin_rows<WIDTH, BN>(w, own, other1);
            begin_rows<WIDTH, BN>(x, own + at::rows, other2);
            tn_products_wait<1>();
            tn_hold(w);
            if (used >= 0) tn_warp_arrive(bar.empty + used);
            used = t.at;
#pragma unroll
            for (int n = 0; n < BN / 8; n++) {
                const float4 two = KEYS ? *(const float4 *)(stat + n * 8 + lane % 4 * 2) : make_float4(0, 0, 0, 0);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w[4 * n + e] =
                        tn_exp2(fmaf(w[4 * n + e], scale2, -(KEYS ? (e % 2 ? two.z : two.x) : mine[e / 2].x)));
            }
            if (m == PARTLY) hide<BN / 2>(w, upper, lower, n0);
            if constexpr (KEYS) {
#pragma unroll
                for (int e = 0; e < BN / 4; e++) w16[e] = tn_pack_bf16(w[2 * e], w[2 * e + 1]);
                begin_sum<WIDTH, BN>(dv, w16, other2);
                tn_products_wait<1>();
            } else {
                tn_products_wait<0>();
            }
            tn_hold(x);
#pragma unroll
            for (int n = 0; n < BN / 8; n++) {
                const float4 two = KEYS ? *(const float4 *)(stat + n * 8 + lane % 4 * 2) : make_float4(0, 0, 0, 0);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    x[4 * n + e] = w[4 * n + e] * (x[4 * n + e] - (KEYS ? (e % 2 ? two.w : two.y) : mine[e / 2].y));
                x16[2 * n] = tn_pack_bf16(x[4 * n], x[4 * n + 1]);
                x16[2 * n + 1] = tn_pack_bf16(x[4 * n + 2], x[4 * n + 3]);
            }
            begin_sum<WIDTH, BN>(dx, x16, other1);
            if (KEYS && WIDTH > 64) { /* else registers run out */
                tn_products_wait<0>();
                tn_warp_arrive(bar.empty + t.at);
                used = -1;
            }
        }
        tn_products_wait<0>();
        tn_hold(dx);
        if constexpr (KEYS) tn_hold(dv);
        if (used >= 0) tn_warp_arrive(bar.empty + used);
        if (r.tiles) tn_warp_arrive(bar.own_empty);
        if constexpr (KEYS) {
            if (p.dk.data && !dead(p.live_dk, r.q.b))
                store<WIDTH, KEYS>(dx, p.dk, p, r.q.b, r.head, row0, p.scale, p.add >> TN_ATT_K & 1);
            if (p.dv.data && !dead(p.live_dv, r.q.b))
                store<WIDTH, KEYS>(dv, p.dv, p, r.q.b, r.head, row0, 1, p.add >> TN_ATT_V & 1);
        } else if (!dead(p.live, r.q.b)) {
            store<WIDTH, KEYS>(dx, p.dq, p, r.q.b, r.head, row0, p.scale, p.add >> TN_ATT_Q & 1);
        }
    }
}

#endif /* TN_HOPPER */

template <int WIDTH, bool KEYS, int GROUPS, int BN, int STAGES>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) meet_hopper(const __grid_constant__ hopper_problem h)
{
#if TN_HOPPER
    typedef backward_room<WIDTH, GROUPS, BN, STAGES> at;
    extern __shared__ uint4 shared[];
    char *const room = tn_tiles_room(shared);
    if (threadIdx.x == 0) backward_barriers<STAGES>((uint64_t *)(room + at::barriers)).open(GROUPS, KEYS ? 3 : 2);
    __syncthreads();
    if (threadIdx.x >= GROUPS * 128) {
        tn_registers_less<GROUPS == 2 ? 24 : 32>();
        if (threadIdx.x / 32 == GROUPS * 4) fetch_pieces<WIDTH, KEYS, GROUPS, BN, STAGES>(h, room);
    } else {
        tn_registers_more<GROUPS == 2 ? 240 : 160>();
        meet_pieces<WIDTH, KEYS, GROUPS, BN, STAGES>(h, room);
    }
#endif
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* GROUPS that compute, BN rows of a tile of the other side, in STAGES: what measured fastest on an H200 is chosen
 * below. */
template <int WIDTH, bool KEYS, int GROUPS, int BN, int STAGES>
static tn_status run(const tn_call *c, const problem *p, const float2 *stat)
{
    const int bytes = backward_room<WIDTH, GROUPS, BN, STAGES>::bytes;
    const int own = KEYS ? 64 : BN, other = KEYS ? BN : 64; /* rows of a box of keys, of queries */
    hopper_problem h = {};
    h.p = per_head(*p);
    h.group = p->group;
    h.stat = stat;
    h.q = source_of(&c->in[TN_ATT_Q], other);
    h.dy = source_of(&c->dout[0], other);
    h.k = source_of(&c->in[TN_ATT_K], own);
    h.v = source_of(&c->in[TN_ATT_V], own);
    h.o = order_by(h.p, p->B * (KEYS ? p->KV : h.p.KV), ((KEYS ? p->S : p->T) + GROUPS * 64 - 1) / (GROUPS * 64));
    const int pieces = h.o.heads * h.o.pieces, blocks = tn_cuda_queue_of(c)->multiprocessors;
    TN_RETURN_IF(tn_attention_room_cuda((const void *)meet_hopper<WIDTH, KEYS, GROUPS, BN, STAGES>, bytes));
    meet_hopper<WIDTH, KEYS, GROUPS, BN, STAGES>
        <<<(unsigned)(pieces < blocks ? pieces : blocks), (GROUPS + 1) * 128, bytes, tn_cuda_stream(c)>>>(h);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_attention_hopper_backward_cuda(const tn_call *c, const problem *p, const float2 *stat)
{
    const bool narrow = p->D <= 64;
    if (p->dk.data || p->dv.data)
        TN_RETURN_IF((narrow ? run<64, true, 2, 64, 4>(c, p, stat) : run<128, true, 2, 64, 3>(c, p, stat)));
    if (p->dq.data)
        TN_RETURN_IF((narrow ? run<64, false, 2, 128, 2>(c, p, stat) : run<128, false, 2, 64, 3>(c, p, stat)));
    return TN_OK;
}
