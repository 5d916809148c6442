/* attention on Hopper, backward, width up to 64, all three gradients: scores and their gradients are made once, five
 * products a tile, and still every sum has one order.
 *
 * A block takes a head of keys. A column is 128 of its keys; from the last to the first the block walks along each, over
 * tiles of 64 rows: two warpgroups have 64 keys each, as in attention_backward_hopper_cuda.cu, and leave the gradients of
 * scores, turned, in shared memory; a third makes dq of them. dq of a tile goes on from column to column through memory,
 * in f32, as it lies in registers: the sum so far is what the products of the next column are added to, and the tile's
 * first column gives the result out. The thread that wrote it reads it, and mostly finds it in the second cache: columns
 * are walked up and down in turn, so that what was used last is used next. */
#include "ops/attention/attention_backward_hopper.cuh"

using namespace tn_attention;

enum { ROWS = 64, KEYS = 128, GROUPS = 2 };

struct once_problem {
    hopper_problem h;
    const float *stat; /* (B * query heads, tiles, 2, ROWS): log-sum-exp in powers of 2, sum of gradient times output */
    float *sums;       /* dq so far: of each block (group, tiles, ROWS * 64) */
    int columns, tiles, units; /* of a head, of a head, of all */
};

/* Bytes of shared memory, and where things are in it. Keys and values of two columns; stages of rows and their
 * gradients; gradients of scores. */
template <int STAGES, int PASSES>
struct once_room {
    static const int half = 64 * 128, column = 2 * GROUPS * half, tile = ROWS * 128, stage = 2 * tile;
    static const int stages = 2 * column, pass = GROUPS * half, passes = stages + STAGES * stage;
    static const int stat = passes + PASSES * pass, stats = 2 * ROWS * 4, barriers = stat + STAGES * stats;
    static const int bytes = barriers + (4 + 2 * STAGES + 2 * PASSES) * 8 + 1024;
};

#if TN_HOPPER

/* --- columns ------------------------------------------------------------------------------------------------------ */

/* A head of keys of a sequence. */
struct once_unit {
    sequence q;
    int head;
    __device__ __forceinline__ once_unit(const once_problem &o, int i)
    {
        const int heads = o.h.p.KV / o.h.group;
        q = sequence_of(o.h.p, i / heads), head = i % heads;
    }
};

/* What all warpgroups walk along; up: tiles are taken from the first to the last. */
struct once_column {
    backward_piece r;
    bool up;
    __device__ __forceinline__ once_column(const once_problem &o, const once_unit &u, int column)
        : r(piece_at<true, KEYS, ROWS>(o.h, u.q, u.head, column * KEYS)), up(column & 1)
    {
    }
    /* The first row of the n-th tile. */
    __device__ __forceinline__ int row(int n) const { return r.first + (up ? n : r.tiles - 1 - n) * ROWS; }
};

/* The first and the last column that a tile of rows from t0 on meets; last < first: none. */
__device__ __forceinline__ int2 columns_of(const problem &p, const sequence &q, int t0)
{
    const int first = range_of(p, q, t0).x, end = range_of(p, q, min(t0 + ROWS, p.T) - 1).y;
    return first < end ? make_int2(first / KEYS, (end - 1) / KEYS) : make_int2(0, -1);
}

/* Of a column's tiles, in order of rows: those that 64 of its keys meet at all [from,to), and wholly [whole,rest). */
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
        : own_full(b), own_empty(b + 2), full(b + 4), empty(full + STAGES), passed(empty + STAGES),
          taken(passed + PASSES)
    {
    }
    __device__ __forceinline__ void open()
    {
        for (int i = 0; i < 2; i++)
            tn_barrier_open(own_full + i, 2 * GROUPS), tn_barrier_open(own_empty + i, 4 * GROUPS + 4);
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
        const once_unit u(o, i);
        for (int column = o.columns - 1; column >= 0; column--) {
            const once_column c(o, u, column);
            const backward_piece &r = c.r;
            if (!r.tiles) continue;
            tn_barrier_wait(bar.own_empty + own.at, own.phase);
            for (int g = 0; g < GROUPS; g++) {
                char *to = room + own.at * at::column + g * 2 * at::half;
                fetch<64, 64>(to, 0, h.k, D, r.q.b, r.head, r.r0 + g * 64, h.p.S, bar.own_full + own.at);
                fetch<64, 64>(to + at::half, 0, h.v, D, r.q.b, r.head, r.r0 + g * 64, h.p.S, bar.own_full + own.at);
            }
            own.next();
            for (int head = r.other; head < r.other + r.heads; head++)
                for (int n = 0; n < r.tiles; n++, t.next()) {
                    const int n0 = c.row(n);
                    char *to = room + at::stages + t.at * at::stage;
                    tn_barrier_wait(bar.empty + t.at, t.phase);
                    fetch<64, ROWS>(to, 0, h.q, D, r.q.b, head, n0, h.p.T, bar.full + t.at);
                    fetch<64, ROWS>(to + at::tile, 0, h.dy, D, r.q.b, head, n0, h.p.T, bar.full + t.at);
                    if ((threadIdx.x & 31) == 0) {
                        tn_barrier_expect(bar.full + t.at, at::stats);
                        tn_bulk_copy(room + at::stat + t.at * at::stats,
                                     o.stat + ((int64_t)(r.q.b * h.p.KV + head) * o.tiles + n0 / ROWS) * (2 * ROWS),
                                     at::stats, bar.full + t.at);
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

/* One statistic of the rows that a lane has, two of each eight; at: of its first two. */
__device__ __forceinline__ void load_stat(float (&x)[ROWS / 4], uint32_t at)
{
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
        asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x[2 * n]), "=f"(x[2 * n + 1]) : "r"(at + n * 32));
}

/* Scores become weights. */
__device__ __forceinline__ void weigh(float (&w)[ROWS / 2], const float (&lse)[ROWS / 4], float scale2)
{
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) w[i] = tn_exp2(fmaf(w[i], scale2, -lse[i / 4 * 2 + i % 2]));
}

/* The gradients of weights become those of scores, x16. */
__device__ __forceinline__ void weigh_gradients(uint32_t (&x16)[ROWS / 4], const float (&x)[ROWS / 2],
                                                const float (&w)[ROWS / 2], const float (&mean)[ROWS / 4])
{
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++)
        x16[i] =
            tn_pack_bf16(w[2 * i] * (x[2 * i] - mean[i / 2 * 2]), w[2 * i + 1] * (x[2 * i + 1] - mean[i / 2 * 2 + 1]));
}

/* A warpgroup with 64 keys. */
template <int STAGES, int PASSES>
__device__ __forceinline__ void meet_units(const once_problem &o, char *room)
{
    typedef once_room<STAGES, PASSES> at;
    const once_barriers<STAGES, PASSES> bar((uint64_t *)(room + at::barriers));
    const problem &p = o.h.p;
    const int group = (int)tn_same_in_warp(threadIdx.x / 128), lane = threadIdx.x & 31;
    const float scale2 = p.scale * LOG2E;
    turn<STAGES> t = { 0, 0 };
    turn<2> own_turn = { 0, 0 };
    turn<PASSES> pass = { 0, 1 }; /* the first round waits for nothing */
    float dk[32], dv[32], w[ROWS / 2], x[ROWS / 2];
    float stat[ROWS / 4];
    uint32_t w16[ROWS / 4], x16[ROWS / 4];

    const auto give = [&] {
        __syncwarp();
        tn_warp_arrive(bar.passed + pass.at);
        pass.next();
    };
    const auto pass_on = [&] {
        tn_barrier_wait(bar.taken + pass.at, pass.phase);
        pass_scores(room + at::passes + pass.at * at::pass + group * at::half, x16);
        give();
    };
    const auto skip = [&](int n) {
#pragma unroll 1
        for (int j = 0; j < n; j++, t.next()) {
            tn_barrier_wait(bar.full + t.at, t.phase);
            tn_warp_arrive(bar.empty + t.at);
            tn_barrier_wait(bar.taken + pass.at, pass.phase);
            pass_nothing(room + at::passes + pass.at * at::pass + group * at::half);
            give();
        }
    };
    for (int i = blockIdx.x; i < o.units; i += gridDim.x) {
        const once_unit u(o, i);
#pragma unroll 1
        for (int column = o.columns - 1; column >= 0; column--) {
            const once_column c(o, u, column);
            const backward_piece &r = c.r;
            const int own0 = r.r0 + group * 64, row0 = own0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
            const walk way = walk_of(p, r, own0);
            const uint32_t own = tn_tile_at(room + own_turn.at * at::column + group * 2 * at::half, 0);
#pragma unroll
            for (int d = 0; d < 32; d++) dk[d] = dv[d] = 0;
            if (r.tiles) tn_barrier_wait(bar.own_full + own_turn.at, own_turn.phase);
#pragma unroll 1
            for (int head = 0; r.tiles && head < r.heads; head++) {
                skip(c.up ? way.from : r.tiles - way.to);
                int before = t.at; /* the stage of the tile before */
#pragma unroll 1
                for (int n = 0; n < way.to - way.from; n++) {
                    const int j = c.up ? way.from + n : way.to - 1 - n;
                    const uint32_t q = tn_tile_at(room + at::stages + t.at * at::stage, 0), dy = q + at::tile / 16;
                    const uint32_t stats = tn_shared_at(room + at::stat + t.at * at::stats) + lane % 4 * 8;
                    tn_barrier_wait(bar.full + t.at, t.phase);
                    tn_hold(w);
                    tn_hold(x);
                    tn_products_begin();
                    begin_rows_at<64, ROWS>(w, own, q);
                    begin_rows_at<64, ROWS>(x, own + at::half / 16, dy);
                    if (n > 0) pass_on(); /* of the tile before, while products are under way */
                    load_stat(stat, stats);
                    tn_products_wait<1>();
                    tn_hold(w);
                    if (n > 0) tn_warp_arrive(bar.empty + before);
                    weigh(w, stat, scale2);
                    if (j < way.whole || j >= way.rest)
                        hide<ROWS / 2>(w, tokens_of(p, r.q, row0), tokens_of(p, r.q, row0 + 8), r.first + j * ROWS);
#pragma unroll
                    for (int e = 0; e < ROWS / 4; e++) w16[e] = tn_pack_bf16(w[2 * e], w[2 * e + 1]);
                    begin_sum_at<64, ROWS>(dv, w16, dy);
                    load_stat(stat, stats + ROWS * 4);
                    tn_products_wait<1>();
                    tn_hold(x);
                    weigh_gradients(x16, x, w, stat);
                    begin_sum_at<64, ROWS>(dk, x16, q);
                    before = t.at;
                    t.next();
                }
                if (way.from < way.to) pass_on();
                tn_products_wait<0>();
                tn_hold(dv);
                tn_hold(dk);
                if (way.from < way.to) tn_warp_arrive(bar.empty + before);
                skip(c.up ? r.tiles - way.to : way.from);
            }
            if (r.tiles) {
                tn_warp_arrive(bar.own_empty + own_turn.at);
                own_turn.next();
            }
            if (!dead(p.live_dk, r.q.b))
                store<64, true>(dk, p.dk, p, r.q.b, r.head, row0, p.scale, p.add >> TN_ATT_K & 1);
            if (!dead(p.live_dv, r.q.b)) store<64, true>(dv, p.dv, p, r.q.b, r.head, row0, 1, p.add >> TN_ATT_V & 1);
        }
    }
}

/* --- dq ----------------------------------------------------------------------------------------------------------- */

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
        __stcg((float4 *)to + i * 128 + threadIdx.x % 128,
               make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]));
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

/* Whether the walk along a column ends where that along the next begins. */
__device__ __forceinline__ bool turns_back(const once_problem &o, const once_unit &u, int column, const once_column &c)
{
    if (column == 0 || c.r.heads > 1) return false;
    const once_column next(o, u, column - 1);
    return next.r.tiles && next.row(0) == c.row(c.r.tiles - 1);
}

/* The warpgroup that makes dq. */
template <int STAGES, int PASSES>
__device__ __forceinline__ void sum_units(const once_problem &o, char *room)
{
    typedef once_room<STAGES, PASSES> at;
    const once_barriers<STAGES, PASSES> bar((uint64_t *)(room + at::barriers));
    const problem &p = o.h.p;
    const int lane_row = threadIdx.x % 128 / 32 * 16 + (threadIdx.x & 31) / 4;
    turn<2> own_turn = { 0, 0 };
    turn<PASSES> pass = { 0, 0 };
    float dq[32], next[32];

    for (int i = blockIdx.x; i < o.units; i += gridDim.x) {
        const once_unit u(o, i);
        bool kept = false; /* dq has the sum so far of the tile that comes */
#pragma unroll 1
        for (int column = o.columns - 1; column >= 0; column--) {
            const once_column c(o, u, column);
            const backward_piece &r = c.r;
            if (column == o.columns - 1) clear_unseen(o, r, lane_row);
            if (!r.tiles) continue;
            const bool keep = turns_back(o, u, column, c);
            const int step = c.up ? ROWS : -ROWS;
            tn_barrier_wait(bar.own_full + own_turn.at, own_turn.phase);
            const uint32_t own = tn_tile_at(room + own_turn.at * at::column, 0);
#pragma unroll 1
            for (int head = 0; head < r.heads; head++) {
                float *const sums = o.sums + (int64_t)((int)blockIdx.x * r.heads + head) * o.tiles * (ROWS * 64);
                const auto fetch_sums = [&](int row) { /* next, and the columns of its tile */
                                                       const int2 met = columns_of(p, r.q, row);
                                                       if (column == met.y) {
#pragma unroll
                                                           for (int d = 0; d < 32; d++) next[d] = 0;
                                                       } else if (!kept) {
                                                           load_sums(next, sums + (int64_t)row * 64);
                                                       } else {
#pragma unroll
                                                           for (int d = 0; d < 32; d++) next[d] = dq[d];
                                                       }
                                                       kept = false;
                                                       return met.x;
                };
                int row = c.row(0), first = fetch_sums(row);
#pragma unroll 1
                for (int n = r.tiles; n > 0; n--) {
                    const uint32_t scores = tn_tile_at(room + at::passes + pass.at * at::pass, 0);
                    const int row_now = row;
                    const bool done = column == first;
#pragma unroll
                    for (int d = 0; d < 32; d++) dq[d] = next[d];
                    row += step;
                    if (n > 1) first = fetch_sums(row);
                    tn_barrier_wait(bar.passed + pass.at, pass.phase);
                    tn_hold(dq);
                    tn_products_begin();
#pragma unroll
                    for (int g = 0; g < GROUPS; g++)
#pragma unroll
                        for (int k = 0; k < 4; k++)
                            tn_product<1>(dq, scores + g * at::half / 16 + k * 2,
                                          own + g * 2 * at::half / 16 + k * (16 * 128 / 16), 1);
                    tn_products_commit();
                    tn_products_wait<0>();
                    tn_hold(dq);
                    tn_warp_arrive(bar.taken + pass.at);
                    pass.next();
                    if (done)
                        store<64, false>(dq, p.dq, p, r.q.b, r.other + head, row_now + lane_row, p.scale,
                                         p.add >> TN_ATT_Q & 1);
                    else if (n > 1 || !keep) store_sums(sums + (int64_t)row_now * 64, dq);
                    else kept = true;
                }
            }
            tn_warp_arrive(bar.own_empty + own_turn.at);
            own_turn.next();
        }
    }
}

#endif /* TN_HOPPER */

template <int STAGES, int PASSES>
__global__ void __launch_bounds__((GROUPS + 2) * 128, 1) meet_once(const __grid_constant__ once_problem o)
{
#if TN_HOPPER
    typedef once_room<STAGES, PASSES> at;
    extern __shared__ uint4 shared[];
    char *const room = tn_tiles_room(shared);
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
        meet_units<STAGES, PASSES>(o, room);
    }
#endif
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static int64_t tiles_of_rows(int64_t T) { return (T + ROWS - 1) / ROWS; }

static size_t stats_bytes(int64_t heads, int64_t T)
{
    return (size_t)(heads * tiles_of_rows(T)) * (2 * ROWS * sizeof(float));
}

/* Blocks at a time for so many heads. */
static int64_t blocks_for(int64_t heads)
{
    int device = 0, most = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return 0;
    return heads < most ? heads : most;
}

/* Blocks take whole heads, so the last round must leave few multiprocessors without work. On an H200, with 27 % of them idle
 * then, this kernel takes 0.8 of the time of the other two at 1024 tokens and as much as they from 4096 on, where the sums so
 * far no longer fit the second cache and the work memory grows large. */
static bool suits(int64_t heads, int64_t T, int64_t D)
{
    const int64_t all = blocks_for(INT64_MAX), rounds = all ? (heads + all - 1) / all : 0;
    return D <= 64 && T <= 8192 && heads > 0 && all > 0 && heads * 10 >= rounds * all * (T <= 2048 ? 7 : 9);
}

static size_t bytes_for(int64_t heads, int64_t group, int64_t T)
{
    return stats_bytes(heads * group, T) +
           (size_t)(blocks_for(heads) * group * tiles_of_rows(T)) * (ROWS * 64 * sizeof(float));
}

size_t tn_attention_once_work_cuda(const tn_sig *s)
{
    const tn_dims q = s->in[TN_ATT_Q].dims, k = s->in[TN_ATT_K].dims;
    const int64_t heads = q.dim[0] * k.dim[2];
    const bool takes = s->in[TN_ATT_Q].dtype == TN_BF16 && s->in[TN_ATT_DOCUMENT].absent && tn_hopper_here() &&
                       suits(heads, q.dim[1], q.dim[3]);
    return takes ? bytes_for(heads, q.dim[2] / k.dim[2], q.dim[1]) : 0;
}

bool tn_attention_once_takes(const tn_call *c, const problem *p)
{
    const int64_t heads = (int64_t)p->B * p->KV;
    return p->dq.data && p->dk.data && p->dv.data && suits(heads, p->T, p->D) &&
           c->work_bytes >= bytes_for(heads, p->group, p->T);
}

tn_status tn_attention_once_backward_cuda(const tn_call *c, const problem *p, void *work)
{
    enum { STAGES = 4, PASSES = 2 };
    const int bytes = once_room<STAGES, PASSES>::bytes, heads = p->B * p->KV * p->group;
    once_problem o = {};
    o.h.p = per_head(*p);
    o.h.group = p->group;
    o.h.q = source_of(&c->in[TN_ATT_Q], ROWS);
    o.h.dy = source_of(&c->dout[0], ROWS);
    o.h.k = source_of(&c->in[TN_ATT_K], 64);
    o.h.v = source_of(&c->in[TN_ATT_V], 64);
    o.columns = (p->S + KEYS - 1) / KEYS, o.tiles = (int)tiles_of_rows(p->T), o.units = p->B * p->KV;
    o.stat = (float *)work;
    o.sums = (float *)((char *)work + stats_bytes(heads, p->T));
    const unsigned blocks = (unsigned)blocks_for(o.units);
    TN_RETURN_IF(tn_attention_once_stats_cuda(c, &o.h.p, (float *)work));
    TN_RETURN_IF(tn_attention_room_cuda((const void *)meet_once<STAGES, PASSES>, bytes));
    meet_once<STAGES, PASSES><<<blocks, (GROUPS + 2) * 128, bytes, tn_cuda_stream(c)>>>(o);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
