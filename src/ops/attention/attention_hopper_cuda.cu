/* attention on Hopper, forward: each warpgroup holds 64 rows and sums up tile after tile of keys; the product with the
 * values of one tile runs while the weights of the next are made, and the other warpgroups fill what gaps are left
 * (after Shah et al. 2024). Weights are powers of two relative to a maximum that moves only when it must.
 *
 * NaN and infinity in values that a row does not see must not reach it, but 0 times NaN is NaN. This can happen in tiles
 * that some rows see in part; a warp of its own looks through the values of these, and where it finds such numbers the
 * product is made with zeros in their place and they are added by hand to the rows that see them. */
#include "ops/attention/attention_hopper.cuh"

using namespace tn_attention;

static const float LOOSE = 8; /* weights may grow to 2^LOOSE before sums are scaled down */

/* --- a piece of work ---------------------------------------------------------------------------------------------- */

/* Bytes of shared memory, and where things are in it. */
template <int WIDTH, int GROUPS, int BN, int STAGES, int QSTAGES>
struct forward_room {
    static const int row = WIDTH * 2, rows = 64 * row, q_bytes = GROUPS * rows, kv_bytes = BN * row;
    static const int k = QSTAGES * q_bytes, v = k + STAGES * kv_bytes, spare = v + STAGES * kv_bytes;
    static const int barriers = spare + GROUPS * kv_bytes, n_barriers = 5 * STAGES + 2 * QSTAGES;
    static const int odd = barriers + n_barriers * 8, bytes = odd + STAGES * 4 + 1024;
};

#if TN_HOPPER

/* Rows [r0,r1) of a query head and the tiles of keys they see. */
struct rows_piece {
    sequence q;
    int head, r0, r1, first, tiles;
    bool gone;
};

template <int BM, int BN>
__device__ __forceinline__ rows_piece rows_piece_of(const hopper_problem &h, int i)
{
    const problem &p = h.p;
    const int2 place = place_of(h.o, i);
    rows_piece r = {};
    r.head = place.x % p.KV;
    r.r0 = (h.o.pieces - 1 - place.y) * BM, r.r1 = min(r.r0 + BM, p.T);
    r.q = sequence_of(p, place.x / p.KV);
    r.gone = dead(p.live, r.q.b);
    r.first = range_of(p, r.q, r.r0).x / BN * BN;
    r.tiles = r.gone ? 0 : max(0, (range_of(p, r.q, r.r1 - 1).y - r.first + BN - 1) / BN);
    return r;
}

/* --- one warpgroup and one tile ----------------------------------------------------------------------------------- */

template <int N>
__device__ __forceinline__ void hide(float (&s)[N], int2 upper, int2 lower, int s0)
{
    const int first = s0 + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int2 seen = i % 4 < 2 ? upper : lower;
        const int key = first + i / 4 * 8 + i % 2;
        if (key < seen.x || key >= seen.y) s[i] = -INFINITY;
    }
}

__device__ __forceinline__ float base_of(float max, float scale2)
{
    return max == -INFINITY ? 0.f : __fmul_rn(max, scale2); /* nothing seen so far: all are 2^-inf = 0 */
}

/* Scores become weights; keep: what sums so far must be multiplied by. */
template <int N>
__device__ __forceinline__ void soften(float (&s)[N], float (&max)[2], float (&sum)[2], float (&keep)[2], float scale2)
{
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top[2] = { -INFINITY, -INFINITY };
#pragma unroll
        for (int n = 0; n < N / 4; n++) top[n % 2] = fmaxf(top[n % 2], fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
        float most = fmaxf(top[0], top[1]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float old = max[h];
        const bool moves = (most - old) * scale2 > LOOSE; /* -inf to -inf is NaN: no */
        max[h] = moves ? most : old;
        base[h] = base_of(max[h], scale2);
        keep[h] = moves ? tn_exp2(__fmul_rn(old, scale2) - base[h]) : 1.f;
        sum[h] *= keep[h];
    }
#pragma unroll
    for (int n = 0; n < N / 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[4 * n + e] = tn_exp2(fmaf(s[4 * n + e], scale2, -base[e / 2]));
        sum[0] += s[4 * n] + s[4 * n + 1];
        sum[1] += s[4 * n + 2] + s[4 * n + 3];
    }
}

template <int N>
__device__ __forceinline__ void pack(uint32_t (&w)[N / 2], const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) w[i] = tn_pack_bf16(s[2 * i], s[2 * i + 1]);
}

template <int N>
__device__ __forceinline__ void rescale(float (&o)[N], const float (&keep)[2])
{
    if (!__any_sync(0xffffffffu, keep[0] != 1.f || keep[1] != 1.f)) return;
#pragma unroll
    for (int i = 0; i < N; i++) o[i] *= keep[i % 4 / 2];
}

/* s = q k^T, begun */
template <int WIDTH, int BN>
__device__ __forceinline__ void begin_scores(float (&s)[BN / 2], const char *q, const char *k)
{
    tn_hold(s);
    tn_products_begin();
    begin_rows<WIDTH, BN>(s, q, k);
}

/* o += w v, begun */
template <int WIDTH, int BN>
__device__ __forceinline__ void begin_values(float (&o)[WIDTH / 2], uint32_t (&w)[BN / 4], const char *v)
{
    tn_hold(o);
    begin_sum<WIDTH, BN>(o, w, v);
}

/* --- values that are not finite ----------------------------------------------------------------------------------- */

__device__ __forceinline__ bool odd_word(uint32_t two)
{
    return (two & 0x7f80u) == 0x7f80u || (two & 0x7f800000u) == 0x7f800000u;
}

/* By one warp: whether a tile of values has any. */
template <int BYTES>
__device__ __forceinline__ bool any_odd(const char *v)
{
    bool odd = false;
    for (int i = threadIdx.x & 31; i < BYTES / 16; i += 32) {
        const uint4 x = ((const uint4 *)v)[i];
        odd |= odd_word(x.x) || odd_word(x.y) || odd_word(x.z) || odd_word(x.w);
    }
    return __any_sync(0xffffffffu, odd);
}

__device__ __forceinline__ uint32_t finite_only(uint32_t two)
{
    return ((two & 0x7f80u) == 0x7f80u ? 0u : two & 0xffffu) |
           ((two & 0x7f800000u) == 0x7f800000u ? 0u : two & 0xffff0000u);
}

/* By one warpgroup: a tile with zeros for them. */
template <int BYTES>
__device__ __forceinline__ void copy_finite(char *to, const char *v, int barrier)
{
    tn_named_barrier(barrier, 128); /* products with what is there are over */
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < BYTES / 16; i += 128) {
        const uint4 x = ((const uint4 *)v)[i];
        ((uint4 *)to)[i] = make_uint4(finite_only(x.x), finite_only(x.y), finite_only(x.z), finite_only(x.w));
    }
    tn_fence_async();
    tn_named_barrier(barrier, 128);
}

/* What a lane's rows see of them in keys [s0,s1), read from memory. */
template <int WIDTH>
__device__ __forceinline__ void add_odd(float (&o)[WIDTH / 2], const view &v, int64_t at, int D, int2 upper, int2 lower,
                                        int s0, int s1)
{
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) {
        const int2 seen = i % 4 < 2 ? upper : lower;
        const int d = i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
        float sum = 0;
#pragma unroll 1
        for (int s = max(seen.x, s0); d < D && s < min(seen.y, s1); s++) {
            const float x = tn_load(v.data, v.type, at + s * v.n + d * v.d);
            if (!(fabsf(x) < INFINITY)) sum += x;
        }
        if (sum != 0) o[i] += sum; /* NaN is not 0 */
    }
}

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <int STAGES, int QSTAGES>
struct forward_barriers {
    uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty, *looked;
    __device__ __forceinline__ explicit forward_barriers(uint64_t *b)
        : q_full(b), q_empty(b + QSTAGES), k_full(b + 2 * QSTAGES), k_empty(k_full + STAGES), v_full(k_empty + STAGES),
          v_empty(v_full + STAGES), looked(v_empty + STAGES)
    {
    }
    __device__ __forceinline__ void open(int groups)
    {
        for (int i = 0; i < QSTAGES; i++) tn_barrier_open(q_full + i, groups), tn_barrier_open(q_empty + i, 4 * groups);
        for (int i = 0; i < STAGES; i++) {
            tn_barrier_open(k_full + i, 1), tn_barrier_open(k_empty + i, 4 * groups);
            tn_barrier_open(v_full + i, 1), tn_barrier_open(v_empty + i, 4 * groups + 1);
            tn_barrier_open(looked + i, 1);
        }
        tn_barriers_opened();
    }
};

/* The warp that fetches. */
template <int WIDTH, int GROUPS, int BN, int STAGES, int QSTAGES>
__device__ __forceinline__ void fetch_pieces(const hopper_problem &h, char *room)
{
    typedef forward_room<WIDTH, GROUPS, BN, STAGES, QSTAGES> at;
    const forward_barriers<STAGES, QSTAGES> bar((uint64_t *)(room + at::barriers));
    turn<STAGES> kt = { 0, 1 }, vt = { 0, 1 }; /* the first round waits for nothing */
    turn<QSTAGES> qs = { 0, 1 };
    for (int i = blockIdx.x; i < h.o.heads * h.o.pieces; i += gridDim.x) {
        const rows_piece r = rows_piece_of<GROUPS * 64, BN>(h, i);
        if (r.gone) continue;
        const int kv_head = r.head / h.group;
        tn_barrier_wait(bar.q_empty + qs.at, qs.phase);
        for (int g = 0; g < GROUPS; g++)
            fetch<WIDTH, 64>(room + qs.at * at::q_bytes + g * at::rows, 64 * 128, h.q, h.p.D, r.q.b, r.head,
                             r.r0 + g * 64, h.p.T, bar.q_full + qs.at);
        qs.next();
        for (int j = 0; j <= r.tiles; j++) { /* as they are used: values after the keys of the next tile */
            if (j < r.tiles) {
                tn_barrier_wait(bar.k_empty + kt.at, kt.phase);
                fetch<WIDTH, BN>(room + at::k + kt.at * at::kv_bytes, BN * 128, h.k, h.p.D, r.q.b, kv_head,
                                 r.first + j * BN, h.p.S, bar.k_full + kt.at);
                kt.next();
            }
            if (j > 0) {
                tn_barrier_wait(bar.v_empty + vt.at, vt.phase);
                fetch<WIDTH, BN>(room + at::v + vt.at * at::kv_bytes, BN * 128, h.v, h.p.D, r.q.b, kv_head,
                                 r.first + (j - 1) * BN, h.p.S, bar.v_full + vt.at);
                vt.next();
            }
        }
    }
}

/* The warp that looks for values that are not finite. */
template <int WIDTH, int GROUPS, int BN, int STAGES, int QSTAGES>
__device__ __forceinline__ void look_through_values(const hopper_problem &h, char *room)
{
    typedef forward_room<WIDTH, GROUPS, BN, STAGES, QSTAGES> at;
    const forward_barriers<STAGES, QSTAGES> bar((uint64_t *)(room + at::barriers));
    const int lane = threadIdx.x & 31;
    turn<STAGES> kv = { 0, 0 };
    for (int i = blockIdx.x; i < h.o.heads * h.o.pieces; i += gridDim.x) {
        const rows_piece r = rows_piece_of<GROUPS * 64, BN>(h, i);
        for (int j = 0; j < r.tiles; j++, kv.next()) {
            const int s0 = r.first + j * BN;
            tn_barrier_wait(bar.v_full + kv.at, kv.phase);
            if (meet_tokens(h.p, r.q, r.r0, r.r1, s0, s0 + BN) == PARTLY) {
                const bool odd = any_odd<at::kv_bytes>(room + at::v + kv.at * at::kv_bytes);
                if (lane == 0) ((int *)(room + at::odd))[kv.at] = odd;
            }
            if (lane == 0) tn_barrier_arrive(bar.looked + kv.at), tn_barrier_arrive(bar.v_empty + kv.at);
        }
    }
}

template <int WIDTH>
__device__ __forceinline__ void finish(const float (&o)[WIDTH / 2], const float (&max)[2], const float (&sum)[2],
                                       const problem &p, const sequence &q, int head, int row0)
{
    const int lane = threadIdx.x & 31;
    const float scale2 = p.scale * LOG2E;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int t = row0 + h * 8;
        float all = sum[h];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        const float factor = q.bad ? NAN : all == 0 ? 0.f : 1 / all;
        put_row<WIDTH>(o, h, p.y, key_at(p.y, q.b, head, t), p.D, factor, false, t < p.T);
        if (p.lse && lane % 4 == 0 && t < p.T)
            p.lse[q.b * p.lse_b + head * p.lse_h + t * p.lse_t] = q.bad ? NAN
                                                                  : all == 0
                                                                      ? -INFINITY
                                                                      : (base_of(max[h], scale2) + log2f(all)) * LN2;
    }
}

/* A warpgroup that computes. */
template <int WIDTH, int GROUPS, int BN, int STAGES, int QSTAGES>
__device__ __forceinline__ void attend_pieces(const hopper_problem &h, char *room)
{
    typedef forward_room<WIDTH, GROUPS, BN, STAGES, QSTAGES> at;
    const forward_barriers<STAGES, QSTAGES> bar((uint64_t *)(room + at::barriers));
    const problem &p = h.p;
    const bool ORDERED = GROUPS == 2; /* they take turns: one begins its products while the other makes weights */
    const int group = threadIdx.x / 128;
    const float scale2 = p.scale * LOG2E;
    char *const spare = room + at::spare + group * at::kv_bytes;
    turn<STAGES> kt = { 0, 0 }, vt = { 0, 0 };
    turn<QSTAGES> qt = { 0, 0 };
    float o[WIDTH / 2], s[BN / 2];
    uint32_t w[BN / 4];

    if (ORDERED && group == 1) tn_named_arrive(1 + GROUPS, 256); /* group 0 has the first turn */
    for (int i = blockIdx.x; i < h.o.heads * h.o.pieces; i += gridDim.x) {
        const rows_piece r = rows_piece_of<GROUPS * 64, BN>(h, i);
        if (r.gone) continue;
        const int w0 = r.r0 + group * 64, w1 = min(w0 + 64, p.T),
                  row0 = w0 + threadIdx.x % 128 / 32 * 16 + (threadIdx.x & 31) / 4;
        const int2 early = range_of(p, r.q, w0), late = range_of(p, r.q, w1 - 1);
        int from = max(0, early.x - r.first) / BN, to = (late.y - r.first + BN - 1) / BN;
        if (w0 >= w1 || late.y <= early.x || to <= from) from = to = 0;
        if (ORDERED) from = 0, to = r.tiles; /* as many turns for both */
        const char *q = room + qt.at * at::q_bytes + group * at::rows;
        float peak[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 }, keep[2];
#pragma unroll
        for (int d = 0; d < WIDTH / 2; d++) o[d] = 0;

        /* Tiles that all rows see whole. */
        const int whole = (max(0, late.x - r.first) + BN - 1) / BN, rest = max(0, early.y - r.first) / BN;
        const auto partly = [&](int j) { return j < whole || j >= rest; };
        const auto hide_tile = [&](int j) {
            if (partly(j)) hide<BN / 2>(s, range_of(p, r.q, row0), range_of(p, r.q, row0 + 8), r.first + j * BN);
        };
        const auto my_turn = [&] {
            if (ORDERED) tn_named_barrier(1 + GROUPS + group, 256);
        };
        const auto your_turn = [&] {
            if (ORDERED) tn_named_arrive(1 + GROUPS + (group ^ 1), 256);
        };
        const auto skip = [&](int n) {
            for (int j = 0; j < n; j++) {
                tn_barrier_wait(bar.k_full + kt.at, kt.phase);
                tn_warp_arrive(bar.k_empty + kt.at);
                kt.next();
                tn_barrier_wait(bar.v_full + vt.at, vt.phase);
                tn_warp_arrive(bar.v_empty + vt.at);
                vt.next();
            }
        };
        /* Where the values of tile j are; true where numbers must be added by hand. */
        const auto values_of = [&](int j, const char *&v) {
            v = room + at::v + vt.at * at::kv_bytes;
            tn_barrier_wait(bar.v_full + vt.at, vt.phase);
            if (!partly(j)) return false;
            tn_barrier_wait(bar.looked + vt.at, vt.phase);
            if (!((volatile int *)(room + at::odd))[vt.at]) return false;
            copy_finite<at::kv_bytes>(spare, v, 1 + group);
            v = spare;
            return true;
        };
        const auto add_rest = [&](int j) {
            add_odd<WIDTH>(o, h.v.x, key_at(h.v.x, r.q.b, r.head / h.group, 0), p.D, range_of(p, r.q, row0),
                           range_of(p, r.q, row0 + 8), r.first + j * BN, min(r.first + j * BN + BN, p.S));
        };

        tn_barrier_wait(bar.q_full + qt.at, qt.phase);
        skip(from);
        if (from < to) {
            tn_barrier_wait(bar.k_full + kt.at, kt.phase);
            my_turn();
            begin_scores<WIDTH, BN>(s, q, room + at::k + kt.at * at::kv_bytes);
            your_turn();
            tn_products_wait<0>();
            tn_hold(s);
            tn_warp_arrive(bar.k_empty + kt.at);
            kt.next();
            hide_tile(from);
            soften<BN / 2>(s, peak, sum, keep, scale2);
            pack<BN / 2>(w, s);
        }
        for (int j = from + 1; j < to; j++) {
            const char *v;
            tn_barrier_wait(bar.k_full + kt.at, kt.phase);
            my_turn();
            begin_scores<WIDTH, BN>(s, q, room + at::k + kt.at * at::kv_bytes);
            const bool odd = values_of(j - 1, v);
            begin_values<WIDTH, BN>(o, w, v);
            your_turn();
            tn_products_wait<1>();
            tn_hold(s);
            tn_warp_arrive(bar.k_empty + kt.at);
            kt.next();
            hide_tile(j);
            soften<BN / 2>(s, peak, sum, keep, scale2);
            tn_products_wait<0>();
            tn_hold(o);
            tn_hold(w);
            tn_warp_arrive(bar.v_empty + vt.at);
            vt.next();
            if (odd) add_rest(j - 1);
            rescale<WIDTH / 2>(o, keep);
            pack<BN / 2>(w, s);
        }
        tn_warp_arrive(bar.q_empty + qt.at);
        qt.next();
        if (from < to) {
            const char *v;
            const bool odd = values_of(to - 1, v);
            begin_values<WIDTH, BN>(o, w, v);
            tn_products_wait<0>();
            tn_hold(o);
            tn_hold(w);
            tn_warp_arrive(bar.v_empty + vt.at);
            vt.next();
            if (odd) add_rest(to - 1);
        }
        skip(r.tiles - to);
        finish<WIDTH>(o, peak, sum, p, r.q, r.head, row0);
    }
}

#endif /* TN_HOPPER */

/* Registers: what 65536 leave for each thread that computes. */
template <int WIDTH, int GROUPS, int BN, int STAGES, int QSTAGES>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) attend_hopper(const __grid_constant__ hopper_problem h)
{
#if TN_HOPPER
    typedef forward_room<WIDTH, GROUPS, BN, STAGES, QSTAGES> at;
    extern __shared__ uint4 shared[];
    char *const room = tn_tiles_room(shared);
    if (threadIdx.x == 0) forward_barriers<STAGES, QSTAGES>((uint64_t *)(room + at::barriers)).open(GROUPS);
    __syncthreads();
    if (threadIdx.x >= GROUPS * 128) {
        tn_registers_less<GROUPS == 2 ? 40 : 32>();
        const int warp = threadIdx.x / 32 - GROUPS * 4;
        if (warp == 0) fetch_pieces<WIDTH, GROUPS, BN, STAGES, QSTAGES>(h, room);
        if (warp == 1) look_through_values<WIDTH, GROUPS, BN, STAGES, QSTAGES>(h, room);
    } else {
        tn_registers_more<GROUPS == 2 ? 232 : 160>();
        attend_pieces<WIDTH, GROUPS, BN, STAGES, QSTAGES>(h, room);
    }
#endif
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* GROUPS that compute, BN keys of a tile, STAGES of keys and values, QSTAGES of queries: what measured fastest on an
 * H200 is chosen below. */
template <int WIDTH, int GROUPS, int BN, int STAGES, int QSTAGES>
static tn_status forward(const tn_call *c, const problem *p)
{
    const int bytes = forward_room<WIDTH, GROUPS, BN, STAGES, QSTAGES>::bytes;
    hopper_problem h = {};
    h.p = per_head(*p);
    h.group = p->group;
    h.q = source_of(&c->in[TN_ATT_Q], 64);
    h.k = source_of(&c->in[TN_ATT_K], BN);
    h.v = source_of(&c->in[TN_ATT_V], BN);
    h.o = order_by(h.p, h.p.B * h.p.KV, (h.p.T + GROUPS * 64 - 1) / (GROUPS * 64));
    const int pieces = h.o.heads * h.o.pieces, blocks = tn_cuda_queue_of(c)->multiprocessors;
    TN_RETURN_IF(tn_attention_room_cuda((const void *)attend_hopper<WIDTH, GROUPS, BN, STAGES, QSTAGES>, bytes));
    attend_hopper<WIDTH, GROUPS, BN, STAGES, QSTAGES>
        <<<(unsigned)(pieces < blocks ? pieces : blocks), (GROUPS + 1) * 128, bytes, tn_cuda_stream(c)>>>(h);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

bool tn_attention_hopper_takes(const tn_call *c) { return hopper_takes(c); }

tn_status tn_attention_hopper_forward_cuda(const tn_call *c, const problem *p)
{
    return p->D <= 64 ? forward<64, 2, 128, 4, 2>(c, p) : forward<128, 2, 128, 2, 1>(c, p);
}
