/* attention on Hopper, backward, width up to 64, all three gradients: scores and their gradients are made once, five
 * products a tile, and still every sum has one order.
 *
 * A column is 128 keys; a block takes columns from the last to the first and walks along each, over tiles of 64 rows:
 * two warpgroups have 64 keys each, as in attention_backward_hopper_cuda.cu, and leave the gradients of scores, turned,
 * in shared memory; a third makes dq of them. dq of a tile goes on from column to column through memory, in f32, as it
 * lies in registers: the sum so far is what the products of the next column are added to, and the tile's first column
 * gives the result out. Whoever comes next finds it in the second cache.
 *
 * A block takes all columns of a head, where there are heads enough: then sums are read by the thread that wrote them.
 * Else (split) columns of a head are blocks of their own and take turns at a tile, by a number in memory: a column waits
 * for the one after it, which is of a block that began earlier, so somebody can always go on. Columns begin at their
 * diagonal, where causal; then a column is at a tile two steps after the one after it and seldom waits. Both give the same bits. */
#include "ops/attention/attention_backward_hopper.cuh"

#include <stdlib.h>

using namespace tn_attention;

enum { ROWS = 64, KEYS = 128, GROUPS = 2, MOST_BLOCKS = 144 };

struct once_problem {
    hopper_problem h;
    float *sums;   /* dq so far: of each block (split: of each head of keys) (group, tiles, ROWS * 64) */
    int *turns;    /* split: of each head of keys (group, tiles) columns that have been added; zeros at first */
    int columns, tiles, units; /* of a head, of a head, of all */
    bool split;
};

/* Bytes of shared memory, and where things are in it. Keys and values of two columns; stages of rows and their
 * gradients; gradients of scores. */
template <int STAGES, int PASSES>
struct once_room {
    static const int half = 64 * 128, column = 2 * GROUPS * half, tile = ROWS * 128, stage = 2 * tile;
    static const int stages = 2 * column, pass = GROUPS * half, passes = stages + STAGES * stage;
    static const int stat = passes + PASSES * pass, barriers = stat + STAGES * ROWS * 8;
    static const int bytes = barriers + (4 + 2 * STAGES + 2 * PASSES) * 8 + 1024;
};

#if TN_HOPPER

/* --- units of work ------------------------------------------------------------------------------------------------ */

/* The columns [x,y) of a unit, last first, and its head. */
struct once_unit {
    int head, first, end;
};

__device__ __forceinline__ once_unit unit_of(const once_problem &o, int i)
{
    if (!o.split) return { i, 0, o.columns };
    const int column = o.columns - 1 - i % o.columns;
    return { i / o.columns, column, column + 1 };
}

/* The first and the last column that a tile of rows from t0 on meets; last < first: none. */
__device__ __forceinline__ int2 columns_of(const problem &p, const sequence &q, int t0)
{
    const int first = range_of(p, q, t0).x, end = range_of(p, q, min(t0 + ROWS, p.T) - 1).y;
    return first < end ? make_int2(first / KEYS, (end - 1) / KEYS) : make_int2(0, -1);
}

/* How a tile of rows meets the 64 keys from s0 on. */
__device__ __forceinline__ meeting meet_half(const problem &p, const sequence &q, int t0, int s0)
{
    return s0 >= p.S ? APART : meet_tokens(p, q, t0, min(t0 + ROWS, p.T), s0, s0 + 64);
}

/* Tiles of a column's walk, by number: what 64 of its keys meet at all [from,to), and, of these, wholly [whole,rest). */
struct walk {
    int from, to, whole, rest;
};

__device__ __forceinline__ walk walk_of(const problem &p, const backward_piece &r, int s0)
{
    const int last = min(s0 + 63, r.q.keys - 1);
    if (!r.tiles || last < s0) return { 0, 0, 0, 0 };
    const int2 early = tokens_of(p, r.q, s0), late = tokens_of(p, r.q, last);
    walk w;
    w.from = max(0, early.x - r.first) / ROWS;
    w.to = min(r.tiles, (late.y - r.first + ROWS - 1) / ROWS);
    w.whole = (max(0, late.x - r.first) + ROWS - 1) / ROWS;
    w.rest = last < s0 + 63 ? 0 : early.y >= p.T ? r.tiles : (early.y - r.first) / ROWS;
    if (early.x >= late.y || w.to < w.from) w.from = w.to = 0;
    return w;
}

/* --- barriers ----------------------------------------------------------------------------------------------------- */

template <int STAGES, int PASSES>
struct once_barriers {
    uint64_t *own_full, *own_empty, *full, *empty, *passed, *taken;
    __device__ __forceinline__ explicit once_barriers(uint64_t *b)
        : own_full(b), own_empty(b + 2), full(b + 4), empty(full + STAGES), passed(empty + STAGES), taken(passed + PASSES)
    {
    }
    __device__ __forceinline__ void open()
    {
        for (int i = 0; i < 2; i++) tn_barrier_open(own_full + i, 2 * GROUPS), tn_barrier_open(own_empty + i, 4 * GROUPS + 4);
        for (int i = 0; i < STAGES; i++) tn_barrier_open(full + i, 3), tn_barrier_open(empty + i, 4 * GROUPS);
        for (int i = 0; i < PASSES; i++) tn_barrier_open(passed + i, 4 * GROUPS), tn_barrier_open(taken + i, 4);
        tn_barriers_opened();
    }
};

/* --- the warp that fetches ---------------------------------------------------------------------------------------- */

template <int STAGES, int PASSES>
__device__ __forceinline__ void fetch_units(const once_problem &o, char *room)
{
    typedef once_room<STAGES, PASSES> at;
    const once_barriers<STAGES, PASSES> bar((uint64_t *)(room + at::barriers));
    const hopper_problem &h = o.h;
    const int D = h.p.D;
    turn<STAGES> t = { 0, 1 }; /* the first round waits for nothing */
    turn<2> own = { 0, 1 };
    for (int i = blockIdx.x; i < o.units; i += gridDim.x) {
        const once_unit u = unit_of(o, i);
        for (int column = u.end - 1; column >= u.first; column--) {
            const backward_piece r = piece_at<true, KEYS, ROWS>(h, make_int2(u.head, column));
            if (!r.tiles) continue;
            tn_barrier_wait(bar.own_empty + own.at, own.phase);
            for (int g = 0; g < GROUPS; g++) {
                char *to = room + own.at * at::column + g * 2 * at::half;
                fetch<64, 64>(to, 0, h.k, D, r.q.b, r.head, r.r0 + g * 64, h.p.S, bar.own_full + own.at);
                fetch<64, 64>(to + at::half, 0, h.v, D, r.q.b, r.head, r.r0 + g * 64, h.p.S, bar.own_full + own.at);
            }
            own.next();
            for (int j = 0; j < r.tiles * r.heads; j++, t.next()) {
                const int head = r.other + j / r.tiles, n0 = r.first + j % r.tiles * ROWS;
                char *to = room + at::stages + t.at * at::stage;
                tn_barrier_wait(bar.empty + t.at, t.phase);
                fetch<64, ROWS>(to, 0, h.q, D, r.q.b, head, n0, h.p.T, bar.full + t.at);
                fetch<64, ROWS>(to + at::tile, 0, h.dy, D, r.q.b, head, n0, h.p.T, bar.full + t.at);
                if ((threadIdx.x & 31) == 0) {
                    tn_barrier_expect(bar.full + t.at, ROWS * 8);
                    tn_bulk_copy(room + at::stat + t.at * ROWS * 8,
                                 h.stat + ((int64_t)r.q.b * h.p.KV + head) * stat_rows(h.p.T) + n0, ROWS * 8,
                                 bar.full + t.at);
                }
            }
        }
    }
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Four 8 x 8 matrices of r (4), turned; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_turned(uint32_t to, const uint32_t *r)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* A warp's 16 keys by 64 rows to a tile (64 rows, 64 keys), for the warpgroup that makes dq. */
__device__ __forceinline__ void pass_scores(char *to, const uint32_t (&x)[ROWS / 4])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x % 128 / 32, matrix = lane / 8, row = lane % 8;
    const uint32_t mine = tn_shared_at(to) + (matrix / 2 * 8 + row) * 128 + ((2 * warp + matrix % 2) ^ row) * 16;
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) store_turned(mine + n * 16 * 128, x + 4 * n);
    tn_fence_async();
}

/* Nothing: zeros. */
__device__ __forceinline__ void pass_nothing(char *to)
{
    for (int i = threadIdx.x % 128; i < 64 * 128 / 16; i += 128) ((uint4 *)to)[i] = make_uint4(0, 0, 0, 0);
    tn_fence_async();
}

/* A warpgroup with 64 keys. */
template <int STAGES, int PASSES>
__device__ __forceinline__ void meet_units(const once_problem &o, char *room)
{
    typedef once_room<STAGES, PASSES> at;
    const once_barriers<STAGES, PASSES> bar((uint64_t *)(room + at::barriers));
    const hopper_problem &h = o.h;
    const problem &p = h.p;
    const int group = threadIdx.x / 128, lane = threadIdx.x & 31;
    const float scale2 = p.scale * LOG2E;
    turn<STAGES> t = { 0, 0 };
    turn<2> own_turn = { 0, 0 };
    turn<PASSES> pass = { 0, 1 }; /* the first round waits for nothing */
    float dk[32], dv[32], w[ROWS / 2], x[ROWS / 2];
    uint32_t w16[ROWS / 4], x16[ROWS / 4];

    for (int i = blockIdx.x; i < o.units; i += gridDim.x) {
        const once_unit u = unit_of(o, i);
        for (int column = u.end - 1; column >= u.first; column--) {
            const backward_piece r = piece_at<true, KEYS, ROWS>(h, make_int2(u.head, column));
            const int own0 = r.r0 + group * 64, row0 = own0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
            const int2 upper = tokens_of(p, r.q, row0), lower = tokens_of(p, r.q, row0 + 8);
            const char *const own = room + own_turn.at * at::column + group * 2 * at::half;
#pragma unroll
            for (int d = 0; d < 32; d++) dk[d] = dv[d] = 0;
            if (r.tiles) tn_barrier_wait(bar.own_full + own_turn.at, own_turn.phase);
            int used = -1; /* the stage that products under way still read */
            for (int j = 0; j < r.tiles * r.heads; j++, t.next(), pass.next()) {
                const int n0 = r.first + j % r.tiles * ROWS;
                const char *q = room + at::stages + t.at * at::stage, *dy = q + at::tile;
                const float2 *stat = (const float2 *)(room + at::stat + t.at * ROWS * 8);
                const meeting m = meet_half(p, r.q, n0, own0);
                tn_barrier_wait(bar.full + t.at, t.phase);
                if (m == APART) { /* nothing is kept back meanwhile: the fetching warp may need it to go on */
                    tn_products_wait<0>();
                    if (used >= 0) release(bar.empty + used);
                    used = -1;
                    release(bar.empty + t.at);
                    tn_barrier_wait(bar.taken + pass.at, pass.phase);
                    pass_nothing(room + at::passes + pass.at * at::pass + group * at::half);
                    __syncwarp();
                    release(bar.passed + pass.at);
                    continue;
                }
                tn_hold(w);
                tn_hold(x);
                tn_products_begin();
                begin_rows<64, ROWS>(w, own, q);
                begin_rows<64, ROWS>(x, own + at::half, dy);
                tn_products_wait<1>();
                tn_hold(w);
                if (used >= 0) release(bar.empty + used);
                used = t.at;
#pragma unroll
                for (int n = 0; n < ROWS / 8; n++) {
                    const float4 two = *(const float4 *)(stat + n * 8 + lane % 4 * 2);
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        w[4 * n + e] = tn_exp2(fmaf(w[4 * n + e], scale2, -(e % 2 ? two.z : two.x)));
                }
                if (m == PARTLY) hide<ROWS / 2>(w, upper, lower, n0);
#pragma unroll
                for (int e = 0; e < ROWS / 4; e++) w16[e] = tn_pack_bf16(w[2 * e], w[2 * e + 1]);
                begin_sum<64, ROWS>(dv, w16, dy);
                tn_products_wait<1>();
                tn_hold(x);
#pragma unroll
                for (int n = 0; n < ROWS / 8; n++) {
                    const float4 two = *(const float4 *)(stat + n * 8 + lane % 4 * 2);
#pragma unroll
                    for (int e = 0; e < 4; e++) x[4 * n + e] = w[4 * n + e] * (x[4 * n + e] - (e % 2 ? two.w : two.y));
                    x16[2 * n] = tn_pack_bf16(x[4 * n], x[4 * n + 1]);
                    x16[2 * n + 1] = tn_pack_bf16(x[4 * n + 2], x[4 * n + 3]);
                }
                begin_sum<64, ROWS>(dk, x16, q);
                tn_barrier_wait(bar.taken + pass.at, pass.phase);
                pass_scores(room + at::passes + pass.at * at::pass + group * at::half, x16);
                __syncwarp();
                release(bar.passed + pass.at);
            }
            tn_products_wait<0>();
            tn_hold(dk);
            tn_hold(dv);
            if (used >= 0) release(bar.empty + used);
            if (r.tiles) {
                release(bar.own_empty + own_turn.at);
                own_turn.next();
            }
            if (!dead(p.live_dk, r.q.b)) store<64, true>(dk, p.dk, p, r.q.b, r.head, row0, p.scale, p.add >> TN_ATT_K & 1);
            if (!dead(p.live_dv, r.q.b)) store<64, true>(dv, p.dv, p, r.q.b, r.head, row0, 1, p.add >> TN_ATT_V & 1);
        }
    }
}

struct yes {
    static const bool is = true;
};
struct no {
    static const bool is = false;
};

/* A warpgroup with 64 keys. The scores of the next tile are begun before the sums of this one. */
template <int STAGES, int PASSES>
__device__ __forceinline__ void meet_units_ahead(const once_problem &o, char *room)
{
    typedef once_room<STAGES, PASSES> at;
    const once_barriers<STAGES, PASSES> bar((uint64_t *)(room + at::barriers));
    const hopper_problem &h = o.h;
    const problem &p = h.p;
    const int group = threadIdx.x / 128, lane = threadIdx.x & 31;
    const float scale2 = p.scale * LOG2E;
    turn<STAGES> t = { 0, 0 };
    turn<2> own_turn = { 0, 0 };
    turn<PASSES> pass = { 0, 1 }; /* the first round waits for nothing */
    float dk[32], dv[32], w[ROWS / 2], x[ROWS / 2];
    uint32_t w16[ROWS / 4], x16[ROWS / 4];

    const auto skip = [&](int n) {
        for (int j = 0; j < n; j++, t.next(), pass.next()) {
            tn_barrier_wait(bar.full + t.at, t.phase);
            release(bar.empty + t.at);
            tn_barrier_wait(bar.taken + pass.at, pass.phase);
            pass_nothing(room + at::passes + pass.at * at::pass + group * at::half);
            __syncwarp();
            release(bar.passed + pass.at);
        }
    };
    for (int i = blockIdx.x; i < o.units; i += gridDim.x) {
        const once_unit u = unit_of(o, i);
        for (int column = u.end - 1; column >= u.first; column--) {
            const backward_piece r = piece_at<true, KEYS, ROWS>(h, make_int2(u.head, column));
            const int own0 = r.r0 + group * 64, row0 = own0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
            const walk way = walk_of(p, r, own0);
            const char *const own = room + own_turn.at * at::column + group * 2 * at::half;
#pragma unroll
            for (int d = 0; d < 32; d++) dk[d] = dv[d] = 0;
            if (r.tiles) tn_barrier_wait(bar.own_full + own_turn.at, own_turn.phase);
#pragma unroll 1
            for (int head = 0; r.tiles && head < r.heads; head++) {
                skip(way.from);
                const char *before = room + at::stages + t.at * at::stage; /* the rows of the tile before */
#pragma unroll
                for (int e = 0; e < ROWS / 4; e++) x16[e] = 0;
#pragma unroll 1
                for (int j = way.from; j < way.to; j++) {
                    const char *const q = room + at::stages + t.at * at::stage, *const dy = q + at::tile;
                    const float2 *const stat = (const float2 *)(room + at::stat + t.at * ROWS * 8);
                    tn_barrier_wait(bar.full + t.at, t.phase);
                    tn_hold(w);
                    tn_products_begin();
                    begin_rows<64, ROWS>(w, own, q);
                    begin_sum<64, ROWS>(dk, x16, before);
                    tn_hold(x);
                    tn_products_begin();
                    begin_rows<64, ROWS>(x, own + at::half, dy);
                    tn_products_wait<2>();
                    tn_hold(w);
#pragma unroll
                    for (int n = 0; n < ROWS / 8; n++) {
                        const float4 two = *(const float4 *)(stat + n * 8 + lane % 4 * 2);
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            w[4 * n + e] = tn_exp2(fmaf(w[4 * n + e], scale2, -(e % 2 ? two.z : two.x)));
                    }
                    if (j < way.whole || j >= way.rest)
                        hide<ROWS / 2>(w, tokens_of(p, r.q, row0), tokens_of(p, r.q, row0 + 8), r.first + j * ROWS);
#pragma unroll
                    for (int e = 0; e < ROWS / 4; e++) w16[e] = tn_pack_bf16(w[2 * e], w[2 * e + 1]);
                    begin_sum<64, ROWS>(dv, w16, dy);
                    tn_products_wait<1>();
                    tn_hold(x);
                    if (j > way.from) release(bar.empty + (t.at + STAGES - 1) % STAGES);
#pragma unroll
                    for (int n = 0; n < ROWS / 8; n++) {
                        const float4 two = *(const float4 *)(stat + n * 8 + lane % 4 * 2);
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            x[4 * n + e] = w[4 * n + e] * (x[4 * n + e] - (e % 2 ? two.w : two.y));
                        x16[2 * n] = tn_pack_bf16(x[4 * n], x[4 * n + 1]);
                        x16[2 * n + 1] = tn_pack_bf16(x[4 * n + 2], x[4 * n + 3]);
                    }
                    tn_barrier_wait(bar.taken + pass.at, pass.phase);
                    pass_scores(room + at::passes + pass.at * at::pass + group * at::half, x16);
                    __syncwarp();
                    release(bar.passed + pass.at);
                    before = q;
                    t.next();
                    pass.next();
                }
                tn_products_wait<0>();
                tn_hold(dv);
                tn_hold(dk);
                if (way.from < way.to) {
                    begin_sum<64, ROWS>(dk, x16, before);
                    tn_products_wait<0>();
                    tn_hold(dk);
                    release(bar.empty + (t.at + STAGES - 1) % STAGES);
                }
                skip(r.tiles - way.to);
            }
            if (r.tiles) {
                release(bar.own_empty + own_turn.at);
                own_turn.next();
            }
            if (!dead(p.live_dk, r.q.b)) store<64, true>(dk, p.dk, p, r.q.b, r.head, row0, p.scale, p.add >> TN_ATT_K & 1);
            if (!dead(p.live_dv, r.q.b)) store<64, true>(dv, p.dv, p, r.q.b, r.head, row0, 1, p.add >> TN_ATT_V & 1);
        }
    }
}

/* --- dq ----------------------------------------------------------------------------------------------------------- */

/* Until the number is n, for the 128 threads of the warpgroup. */
__device__ __forceinline__ void await_turn(const int *turn, int n)
{
    if (threadIdx.x % 128 == 0) {
        int is;
        do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(is) : "l"(turn) : "memory");
        while (is != n);
    }
    tn_named_barrier(1, 128);
}

/* What the warpgroup wrote before is seen by whoever finds n there. */
__device__ __forceinline__ void give_turn(int *turn, int n)
{
    tn_named_barrier(1, 128);
    if (threadIdx.x % 128 == 0) asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(turn), "r"(n) : "memory");
}

/* dq (64,64) so far, as it lies in registers. */
__device__ __forceinline__ void load_sums(float (&x)[32], const float *from)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 v = __ldcg((const float4 *)from + i * 128 + threadIdx.x % 128);
        x[4 * i] = v.x, x[4 * i + 1] = v.y, x[4 * i + 2] = v.z, x[4 * i + 3] = v.w;
    }
}

__device__ __forceinline__ void store_sums(float *to, const float (&x)[32])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        __stcg((float4 *)to + i * 128 + threadIdx.x % 128, make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]));
}

/* The rows of a head that see nothing have no gradient. */
__device__ __forceinline__ void clear_unseen(const once_problem &o, const backward_piece &r, int lane_row)
{
    const problem &p = o.h.p;
    float zero[32];
#pragma unroll
    for (int i = 0; i < 32; i++) zero[i] = 0;
    if (dead(p.live, r.q.b) || p.add >> TN_ATT_Q & 1) return;
#pragma unroll 1
    for (int i = 0; i < r.heads * o.tiles; i++) {
        const int t0 = i % o.tiles * ROWS;
        const int2 met = columns_of(p, r.q, t0);
        if (met.y < met.x) store<64, false>(zero, p.dq, p, r.q.b, r.other + i / o.tiles, t0 + lane_row, 1, false);
    }
}

/* The warpgroup that makes dq. */
template <int STAGES, int PASSES>
__device__ __forceinline__ void sum_units(const once_problem &o, char *room)
{
    typedef once_room<STAGES, PASSES> at;
    const once_barriers<STAGES, PASSES> bar((uint64_t *)(room + at::barriers));
    const hopper_problem &h = o.h;
    const problem &p = h.p;
    const int lane_row = threadIdx.x % 128 / 32 * 16 + (threadIdx.x & 31) / 4;
    turn<2> own_turn = { 0, 0 };
    turn<PASSES> pass = { 0, 0 };
    float dq[32], next[32];

    for (int i = blockIdx.x; i < o.units; i += gridDim.x) {
        const once_unit u = unit_of(o, i);
        for (int column = u.end - 1; column >= u.first; column--) {
            const backward_piece r = piece_at<true, KEYS, ROWS>(h, make_int2(u.head, column));
            if (column == o.columns - 1) clear_unseen(o, r, lane_row);
            if (!r.tiles) continue;
            tn_barrier_wait(bar.own_full + own_turn.at, own_turn.phase);
            const char *const own = room + own_turn.at * at::column;
#pragma unroll 1
            for (int head = 0; head < r.heads; head++) {
                const int first = ((o.split ? u.head : (int)blockIdx.x) * h.group + head) * o.tiles + r.first / ROWS;
                float *sums = o.sums + (int64_t)first * (ROWS * 64);
                const auto fetch_sums = [&](int j) {
                    const int last = columns_of(p, r.q, r.first + j * ROWS).y;
                    if (column == last) {
#pragma unroll
                        for (int d = 0; d < 32; d++) next[d] = 0;
                        return;
                    }
                    if (o.split) await_turn(o.turns + first + j, last - column);
                    load_sums(next, o.sums + (int64_t)(first + j) * (ROWS * 64));
                };
                fetch_sums(0);
#pragma unroll 1
                for (int j = 0; j < r.tiles; j++, sums += ROWS * 64) {
                    const char *const scores = room + at::passes + pass.at * at::pass;
#pragma unroll
                    for (int d = 0; d < 32; d++) dq[d] = next[d];
                    if (j + 1 < r.tiles) fetch_sums(j + 1);
                    tn_barrier_wait(bar.passed + pass.at, pass.phase);
                    tn_hold(dq);
                    tn_products_begin();
#pragma unroll
                    for (int g = 0; g < GROUPS; g++) {
                        const uint64_t a = tn_tile_at(scores + g * at::half, 0), b = tn_tile_at(own + g * 2 * at::half, 0);
#pragma unroll
                        for (int k = 0; k < 4; k++) tn_product<1>(dq, a + k * 2, b + k * (16 * 128 / 16), 1);
                    }
                    tn_products_commit();
                    tn_products_wait<0>();
                    tn_hold(dq);
                    release(bar.taken + pass.at);
                    pass.next();
                    const int2 met = columns_of(p, r.q, r.first + j * ROWS);
                    if (column > met.x) {
                        store_sums(sums, dq);
                        if (o.split) give_turn(o.turns + first + j, met.y - column + 1);
                    } else {
                        store<64, false>(dq, p.dq, p, r.q.b, r.other + head, r.first + j * ROWS + lane_row, p.scale,
                                         p.add >> TN_ATT_Q & 1);
                    }
                }
            }
            release(bar.own_empty + own_turn.at);
            own_turn.next();
        }
    }
}

#endif /* TN_HOPPER */

template <int STAGES, int PASSES, bool AHEAD>
__global__ void __launch_bounds__((GROUPS + 2) * 128, 1) meet_once(const __grid_constant__ once_problem o)
{
#if TN_HOPPER
    typedef once_room<STAGES, PASSES> at;
    extern __shared__ uint4 shared[];
    char *const room = (char *)(((uintptr_t)shared + 1023) / 1024 * 1024);
    if (threadIdx.x == 0) once_barriers<STAGES, PASSES>((uint64_t *)(room + at::barriers)).open();
    __syncthreads();
    if (threadIdx.x >= (GROUPS + 1) * 128) {
        tn_registers_less<24>();
        if (threadIdx.x / 32 == (GROUPS + 1) * 4) fetch_units<STAGES, PASSES>(o, room);
    } else if (threadIdx.x >= GROUPS * 128) {
        tn_registers_less<104>();
        sum_units<STAGES, PASSES>(o, room);
    } else {
        tn_registers_more<192>();
        if (AHEAD) meet_units_ahead<STAGES, PASSES>(o, room);
        else meet_units<STAGES, PASSES>(o, room);
    }
#endif
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static int columns_of_keys(int64_t S) { return (int)((S + KEYS - 1) / KEYS); }

/* Heads of keys enough that a block can take whole ones: else the last round leaves many without work. */
static bool splits(int64_t heads, int64_t blocks)
{
    const int64_t rounds = (heads + blocks - 1) / blocks;
    return heads * 10 < rounds * blocks * 7;
}

static size_t sums_bytes(const tn_sig *s, bool split)
{
    const tn_dims q = s->in[TN_ATT_Q].dims, k = s->in[TN_ATT_K].dims;
    const int64_t tiles = (q.dim[1] + ROWS - 1) / ROWS * (q.dim[2] / k.dim[2]), heads = q.dim[0] * k.dim[2];
    const int64_t of = split || heads < MOST_BLOCKS ? heads : MOST_BLOCKS;
    return (size_t)(of * tiles) * (ROWS * 64 * sizeof(float)) + whole_lines(split ? (size_t)(heads * tiles) * 4 : 0);
}

/* What the backward pass needs beside the statistics of rows. */
size_t tn_attention_once_work_cuda(const tn_sig *s)
{
    const tn_dims q = s->in[TN_ATT_Q].dims;
    if (s->in[TN_ATT_Q].dtype != TN_BF16 || q.dim[3] > 64 || q.dim[1] < 128 || !s->in[TN_ATT_DOCUMENT].absent || !tn_hopper_here())
        return 0;
    return sums_bytes(s, true);
}

bool tn_attention_once_takes(const tn_call *c, const problem *p)
{
    const char *e = getenv("TENON_ATT");
    (void)c;
    return p->D <= 64 && p->dq.data && p->dk.data && p->dv.data && !(e && *e == 'o');
}

template <int STAGES, int PASSES, bool AHEAD>
static tn_status run(const tn_call *c, const problem *p, const float2 *stat, void *work)
{
    const int bytes = once_room<STAGES, PASSES>::bytes;
    const char *e = getenv("TENON_ATT");
    const int heads = p->B * p->KV, most = tn_cuda_queue_of(c)->multiprocessors;
    int blocks = most < MOST_BLOCKS ? most : MOST_BLOCKS;
    once_problem o = {};
    o.h.p = per_head(*p);
    o.h.group = p->group;
    o.h.stat = stat;
    o.h.q = source_of(&c->in[TN_ATT_Q], ROWS);
    o.h.dy = source_of(&c->dout[0], ROWS);
    o.h.k = source_of(&c->in[TN_ATT_K], 64);
    o.h.v = source_of(&c->in[TN_ATT_V], 64);
    o.columns = columns_of_keys(p->S), o.tiles = (p->T + ROWS - 1) / ROWS;
    o.split = e && *e == 's' ? true : e && *e == 'w' ? false : splits(heads, blocks);
    o.units = o.split ? heads * o.columns : heads;
    if (o.units < blocks) blocks = o.units;
    o.sums = (float *)work;
    if (o.split) {
        const size_t turns = (size_t)heads * p->group * o.tiles;
        o.turns = (int *)(o.sums + turns * (ROWS * 64));
        TN_CUDA_TRY(cudaMemsetAsync(o.turns, 0, turns * sizeof(int), tn_cuda_stream(c)));
    }
    TN_RETURN_IF(tn_attention_room_cuda((const void *)meet_once<STAGES, PASSES, AHEAD>, bytes));
    meet_once<STAGES, PASSES, AHEAD><<<(unsigned)blocks, (GROUPS + 2) * 128, bytes, tn_cuda_stream(c)>>>(o);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_attention_once_backward_cuda(const tn_call *c, const problem *p, const float2 *stat, void *work)
{
    const char *e = getenv("TENON_ATT");
    switch (e && *e && e[1] ? e[1] - '0' : 1) {
    case 0: return run<4, 2, false>(c, p, stat, work);
    case 1: return run<4, 2, true>(c, p, stat, work);
    default: return run<4, 4, true>(c, p, stat, work);
    }
}
