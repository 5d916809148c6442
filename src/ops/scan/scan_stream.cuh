/* The recurrence s_i = lambda s_{i-1} + z_i with one lambda per channel, for GPUs with 227 KB of shared memory: every
 * number is read once and written once, and no block waits for what is not long there.
 *
 * A tile is CHUNK = WARPS x PIECE steps of 32 V channels of a row; each warp has a piece of it. A block works through
 * tiles and is busy with three at a time: the words of tile n + 2 are on their way to shared memory, tile n + 1 is run from
 * zero to learn what it leaves behind, tile n is run with what enters it and written. So what enters tile n was asked for
 * a whole tile's time before it is needed.
 *
 * Who adds up what chunks leave behind? Where there are rows enough for all blocks, a block walks a row's chunks in order
 * and knows (`own`). Else blocks take tiles of a row from a counter, in order of time, publish what each leaves behind,
 * and the blocks that came first do nothing but walk along: a lane reads its channel's number of each chunk, keeps the
 * state in double, publishes what enters the next. A tile waits only for tiles that blocks already have, and those
 * that walk were first: it cannot deadlock. Both ways do the same arithmetic in the same order, one chunk after another:
 * bits depend neither on who was faster nor on which way was taken.
 *
 * A published number is one 64-bit word, the complement of (re, im): 0 is "not yet", for no result of arithmetic
 * is a NaN of ones alone. Where documents may start, the last bit of im says that one does inside the chunk, so
 * that what enters does not leave. A word is valid or not on its own, no fence is needed. */
#ifndef TN_OPS_SCAN_STREAM_CUH
#define TN_OPS_SCAN_STREAM_CUH

#include "ops/scan/scan_tiles.cuh"

enum { TN_STREAM_SLOTS = 3, TN_STREAM_TILES = 8, TN_STREAM_BATCH = 16 };

/* Rows of the table of powers, (padded K) each: lambda, then lambda^(PIECE w) for w = 0..WARPS. */
enum { TN_STREAM_LAMBDA, TN_STREAM_POWER };

typedef struct tn_stream_frame {
    tn_tile_frame f; /* chunks of this CHUNK; node and power are not used; ticket: tiles, blocks that came */
    bool own;
    unsigned walkers; /* blocks that walk along; 0 where own */
    unsigned long long *left,
        *enter; /* (B, chunks, padded K): what a chunk leaves behind, what enters it; 0 before the launch */
    const float2 *table;
    const double2 *wide; /* (padded K): lambda^CHUNK */
} tn_stream_frame;

/* What a kernel on top of this gives: V, PIECE, WARPS; PLANES of words both runs read, LATE planes of those only the
 * second does. */
template <class Op>
struct tn_stream_shared {
    enum { N = TN_TILE_LANES * Op::V };
    /* What a piece leaves behind; then what enters it if nothing enters the chunk. */
    float2 piece[TN_STREAM_SLOTS][Op::WARPS][N];
    float2 total[TN_STREAM_SLOTS][N]; /* what the chunk leaves behind, where own */
    int32_t starts[TN_STREAM_SLOTS][Op::WARPS][Op::PIECE];
    unsigned cuts[TN_STREAM_SLOTS]; /* bit w: a document starts in piece w */
    bool cut[TN_STREAM_SLOTS][Op::WARPS];
    int4 tile[TN_STREAM_TILES]; /* b, chunk, group; 0: none, 1: alive, 2: a dead row's */
    unsigned role;
    float sums[2][Op::SUMS > 0 ? (int)Op::WARPS : 1][Op::SUMS > 0 ? (int)Op::SUMS : 1][N];
};

template <class Op>
struct tn_stream_memory {
    enum { PIECE = Op::PIECE * TN_TILE_LANES, PLANE = PIECE * Op::WARPS };
    uint32_t ring[TN_STREAM_SLOTS][Op::PLANES][Op::WARPS][PIECE];
    uint32_t late[Op::LATE > 0 ? (int)Op::LATE : 1][Op::LATE > 0 ? (int)PLANE : 4];
    tn_stream_shared<Op> s;
};

/* --- numbers that travel between blocks ------------------------------------------------------------------------------- */

__device__ __forceinline__ unsigned long long tn_stream_word(float re, float im)
{
    return ~(__float_as_uint(re) | (unsigned long long)__float_as_uint(im) << 32);
}

__device__ __forceinline__ float2 tn_stream_number(unsigned long long w)
{
    return make_float2(__uint_as_float(~(uint32_t)w), __uint_as_float(~(uint32_t)(w >> 32)));
}

template <int V>
__device__ __forceinline__ void tn_stream_read(const unsigned long long *at, unsigned long long *w)
{
    if (V == 2)
        asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];" : "=l"(w[0]), "=l"(w[V - 1]) : "l"(at) : "memory");
    else w[0] = *(const volatile unsigned long long *)at;
}

template <int V>
__device__ __forceinline__ void tn_stream_publish(unsigned long long *at, const unsigned long long *w)
{
    if (V == 2) asm volatile("st.volatile.global.v2.u64 [%0], {%1,%2};" ::"l"(at), "l"(w[0]), "l"(w[V - 1]) : "memory");
    else *(volatile unsigned long long *)at = w[0];
}

__device__ __forceinline__ int64_t tn_stream_at(const tn_tile_frame &f, int b, int chunk, int k)
{
    return ((int64_t)b * f.chunks + chunk) * f.columns + k;
}

/* --- those that walk along ------------------------------------------------------------------------------------------- */

/* One chunk more. */
__device__ __forceinline__ void tn_stream_add(double2 &state, const double2 &power, unsigned long long w,
                                              bool documents)
{
    const float2 z = tn_stream_number(w);
    const double re = state.x, im = state.y;
    if (documents && (__float_as_uint(z.y) & 1)) state = make_double2(z.x, z.y);
    else
        state = make_double2(fma(-power.y, im, fma(power.x, re, (double)z.x)),
                             fma(power.y, re, fma(power.x, im, (double)z.y)));
}

/* Words of chunks j.. of a channel; behind the last one, the last one's. */
__device__ __forceinline__ void tn_stream_fetch(const unsigned long long *from, int64_t columns, int j, int last,
                                                unsigned long long *w)
{
#pragma unroll
    for (int i = 0; i < TN_STREAM_BATCH; i++)
        w[i] = *(const volatile unsigned long long *)(from + (j + i < last ? j + i : last) * columns);
}

/* How many of the first of them are there, for all lanes. */
__device__ __forceinline__ int tn_stream_ready(const unsigned long long *w, int left)
{
    int ready = 0;
    bool all = true;
#pragma unroll
    for (int i = 0; i < TN_STREAM_BATCH; i++) {
        all = __all_sync(0xffffffffu, w[i] != 0) && all && i < left;
        ready += all;
    }
    return ready;
}

/* The next n chunks: n is BATCH, for the compiler to see, or less. */
template <bool ALL>
__device__ __forceinline__ void tn_stream_pass(double2 &state, const double2 &power, const unsigned long long *w, int n,
                                               bool documents, unsigned long long *enter, int64_t columns)
{
#pragma unroll
    for (int i = 0; i < TN_STREAM_BATCH; i++) {
        if (!ALL && i >= n) break;
        tn_stream_add(state, power, w[i], documents);
        *(volatile unsigned long long *)(enter + i * columns) = tn_stream_word((float)state.x, (float)state.y);
    }
}

/* A channel's way along a row, 32 channels a warp. Where all words of a batch are there, the next ones are on their way
 * while these are added up. */
__device__ __forceinline__ void tn_stream_walk(const tn_stream_frame &q, int b, int k)
{
    const tn_tile_frame &f = q.f;
    const double2 power = q.wide[k];
    const unsigned long long *left = q.left + tn_stream_at(f, b, 0, k);
    unsigned long long *enter = q.enter + tn_stream_at(f, b, 0, k), w[TN_STREAM_BATCH], next[TN_STREAM_BATCH];
    const int last = f.chunks - 2;
    double2 state = make_double2(0, 0);
    if (f.first.at && k < f.K)
        state = make_double2(tn_load(f.first.at, f.first.type, b * f.first.b + k),
                             tn_load(f.first.at, f.first.type, b * f.first.b + f.K + k));
    *(volatile unsigned long long *)enter = tn_stream_word((float)state.x, (float)state.y);
    enter += f.columns;
    tn_stream_fetch(left, f.columns, 0, last, w);
    for (int j = 0; j <= last;) {
        const int ready = tn_stream_ready(w, last + 1 - j);
        if (ready == TN_STREAM_BATCH) {
            tn_stream_fetch(left, f.columns, j + ready, last, next);
            tn_stream_pass<true>(state, power, w, ready, f.reset, enter, f.columns);
#pragma unroll
            for (int i = 0; i < TN_STREAM_BATCH; i++) w[i] = next[i];
        } else {
            tn_stream_pass<false>(state, power, w, ready, f.reset, enter, f.columns);
            tn_stream_fetch(left, f.columns, j + ready, last, w);
        }
        j += ready;
        enter += ready * f.columns;
    }
}

/* All channels of a row at once: there are warps enough (tn_stream_walkers), so rows end in their order. */
template <int WARPS>
__device__ __forceinline__ void tn_stream_walk_rows(const tn_stream_frame &q, unsigned role)
{
    const int64_t rows = q.f.live && *q.f.live < q.f.B ? *q.f.live : q.f.B,
                  groups = (q.f.K + TN_TILE_LANES - 1) / TN_TILE_LANES;
    const int lane = threadIdx.x % TN_TILE_LANES, warp = threadIdx.x / TN_TILE_LANES;
    for (int64_t i = role * WARPS + warp; i < rows * groups; i += q.walkers * WARPS)
        tn_stream_walk(q, (int)(i / groups), (int)(i % groups) * TN_TILE_LANES + lane);
}

static inline unsigned tn_stream_walkers(int64_t K, int warps)
{
    return (unsigned)((K + 32 * warps - 1) / (32 * warps));
}

/* --- tiles ----------------------------------------------------------------------------------------------------------- */

/* By one thread: does it need a ticket for the tile behind this one? */
__device__ __forceinline__ bool tn_stream_asks(const tn_stream_frame &q, const int4 &before)
{
    return !(q.own && before.w && before.y + 1 < q.f.chunks);
}

__device__ __forceinline__ int4 tn_stream_next(const tn_stream_frame &q, const int4 &before, unsigned ticket)
{
    if (!tn_stream_asks(q, before)) return make_int4(before.x, before.y + 1, before.z, before.w);
    const unsigned groups = (unsigned)q.f.groups, chunks = q.own ? 1 : (unsigned)q.f.chunks;
    const unsigned group = ticket % groups, rest = ticket / groups, chunk = rest % chunks, b = rest / chunks;
    if (b >= q.f.B) return make_int4(0, 0, 0, 0);
    return make_int4((int)b, (int)chunk, (int)group, q.f.live && (int)b >= *q.f.live ? 2 : 1);
}

template <class Op>
__device__ __forceinline__ tn_tile tn_stream_tile(const tn_tile_frame &f, const int4 &d)
{
    tn_tile t;
    t.b = d.x, t.chunk = d.y, t.group = d.z, t.lives = d.w == 1;
    t.lane = threadIdx.x % TN_TILE_LANES, t.warp = threadIdx.x / TN_TILE_LANES;
    t.k = (t.group * TN_TILE_LANES + t.lane) * Op::V;
    t.on = t.k < f.K;
    t.step = (t.chunk * Op::WARPS + t.warp) * Op::PIECE;
    const int64_t left = f.T - t.step;
    t.n = left <= 0 ? 0 : left < Op::PIECE ? (int)left : (int)Op::PIECE;
    t.reset = 0;
    t.plain = f.direct && t.n == Op::PIECE && (t.group + 1) * TN_TILE_LANES * Op::V <= f.K;
    return t;
}

__device__ __forceinline__ void tn_copy4(void *shared, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(tn_shared_at(shared)), "l"(from) : "memory");
}

/* What the first run needs of a tile, on its way into a slot. */
template <class Op>
__device__ __forceinline__ void tn_stream_send(const Op &op, const tn_tile_frame &f, tn_stream_memory<Op> &m, int n)
{
    const tn_tile t = tn_stream_tile<Op>(f, m.s.tile[n % TN_STREAM_TILES]);
    const int slot = n % TN_STREAM_SLOTS;
    if (t.lives) {
        if (f.reset && t.lane < t.n) {
            const int64_t at = t.step + t.lane;
            tn_copy4(&m.s.starts[slot][t.warp][t.lane], f.reset + (int64_t)t.b * f.T + (f.reverse ? f.T - 1 - at : at));
        }
#pragma unroll
        for (int p = 0; p < Op::PLANES; p++) op.send(f, t, p, m.ring[slot][p][t.warp]);
    }
    tn_copies_commit();
}

template <class Op>
__device__ __forceinline__ void tn_stream_send_late(const Op &op, const tn_tile_frame &f, tn_stream_memory<Op> &m,
                                                    int n)
{
    if (Op::LATE == 0) return;
    const tn_tile t = tn_stream_tile<Op>(f, m.s.tile[n % TN_STREAM_TILES]);
#pragma unroll
    for (int p = 0; p < Op::LATE && t.lives; p++)
        op.send_late(f, t, p, m.late[p] + t.warp * tn_stream_memory<Op>::PIECE);
    tn_copies_commit();
}

/* The tile of a slot whose words are there. */
template <class Op>
__device__ __forceinline__ tn_tile tn_stream_open(const tn_tile_frame &f, const tn_stream_shared<Op> &s, int n)
{
    tn_tile t = tn_stream_tile<Op>(f, s.tile[n % TN_STREAM_TILES]);
    if (!f.reset) return t;
    t.reset = __ballot_sync(0xffffffffu,
                            t.lives && t.lane < t.n && s.starts[n % TN_STREAM_SLOTS][t.warp][t.lane % Op::PIECE]);
    t.plain = t.plain && !t.reset;
    return t;
}

/* --- the two runs -------------------------------------------------------------------------------------------------------- */

template <class Op>
__device__ __forceinline__ void tn_stream_first_run(const Op &op, const tn_tile_frame &f, tn_stream_memory<Op> &m,
                                                    int n)
{
    const tn_tile t = tn_stream_open<Op>(f, m.s, n);
    const int slot = n % TN_STREAM_SLOTS;
    float re[Op::V], im[Op::V];
    if (!t.lives) return;
    op.first(t, &m.ring[slot][0][t.warp][t.lane], re, im);
#pragma unroll
    for (int v = 0; v < Op::V; v++) m.s.piece[slot][t.warp][t.lane * Op::V + v] = make_float2(re[v], im[v]);
    if (t.lane == 0) m.s.cut[slot][t.warp] = t.reset != 0;
}

/* By one warp: from what pieces leave behind to what enters them, and what the chunk leaves behind. */
template <class Op>
__device__ __forceinline__ void tn_stream_gather(const tn_stream_frame &q, tn_stream_shared<Op> &s, int n)
{
    enum { V = Op::V };
    const tn_tile t = tn_stream_tile<Op>(q.f, s.tile[n % TN_STREAM_TILES]);
    const int slot = n % TN_STREAM_SLOTS;
    if (!t.lives) return;
    const unsigned cuts = __ballot_sync(0xffffffffu, t.lane < Op::WARPS && s.cut[slot][t.lane % Op::WARPS]);
    if (t.lane == 0) s.cuts[slot] = cuts;
    float re[V] = {}, im[V] = {};
    float2 power[V];
#pragma unroll
    for (int v = 0; v < V; v++) power[v] = q.table[(TN_STREAM_POWER + 1) * q.f.columns + t.k + v];
#pragma unroll
    for (int w = 0; w < Op::WARPS; w++) {
        const bool cut = cuts >> w & 1;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float2 z = s.piece[slot][w][t.lane * V + v];
            const float r = cut ? 0.f : re[v], i = cut ? 0.f : im[v];
            s.piece[slot][w][t.lane * V + v] = make_float2(re[v], im[v]);
            re[v] = __fmaf_rn(-power[v].y, i, __fmaf_rn(power[v].x, r, z.x));
            im[v] = __fmaf_rn(power[v].y, r, __fmaf_rn(power[v].x, i, z.y));
        }
    }
    if (q.f.reset)
#pragma unroll
        for (int v = 0; v < V; v++) im[v] = __uint_as_float((__float_as_uint(im[v]) & ~1u) | (cuts != 0));
    if (q.own) {
#pragma unroll
        for (int v = 0; v < V; v++) s.total[slot][t.lane * V + v] = make_float2(re[v], im[v]);
    } else if (t.chunk + 1 < q.f.chunks) {
        unsigned long long w[V];
#pragma unroll
        for (int v = 0; v < V; v++) w[v] = tn_stream_word(re[v], im[v]);
        tn_stream_publish<V>(q.left + tn_stream_at(q.f, t.b, t.chunk, t.k), w);
    }
}

/* What enters the chunk, in double, where own. */
template <int V>
__device__ __forceinline__ void tn_stream_begin(const tn_tile_frame &f, const tn_tile &t, double2 *state)
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        state[v] = make_double2(0, 0);
        if (f.first.at && t.on)
            state[v] = make_double2(tn_load(f.first.at, f.first.type, t.b * f.first.b + t.k + v),
                                    tn_load(f.first.at, f.first.type, t.b * f.first.b + f.K + t.k + v));
    }
}

template <int V>
__device__ __forceinline__ void tn_stream_await(const unsigned long long *at, unsigned long long *w)
{
    while (!w[0] || !w[V - 1]) tn_stream_read<V>(at, w);
}

/* What enters the warp's piece, from what enters the chunk. */
template <class Op>
__device__ __forceinline__ void tn_stream_enter(const tn_stream_frame &q, const tn_stream_shared<Op> &s,
                                                const tn_tile &t, int slot, float *re, float *im)
{
    enum { V = Op::V };
    const bool cut = s.cuts[slot] & ((1u << t.warp) - 1);
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float2 power = q.table[(TN_STREAM_POWER + t.warp) * q.f.columns + t.k + v],
                     z = s.piece[slot][t.warp][t.lane * V + v];
        const float r = cut ? 0.f : re[v], i = cut ? 0.f : im[v];
        re[v] = __fmaf_rn(-power.y, i, __fmaf_rn(power.x, r, z.x));
        im[v] = __fmaf_rn(power.y, r, __fmaf_rn(power.x, i, z.y));
    }
}

/* Tile n for good. early: its word of what enters, perhaps not there yet. state: what enters, where own. */
template <class Op>
__device__ __forceinline__ void tn_stream_second_run(Op &op, const tn_stream_frame &q, tn_stream_memory<Op> &m, int n,
                                                     unsigned long long *early, double2 *state)
{
    enum { V = Op::V };
    const tn_tile t = tn_stream_open<Op>(q.f, m.s, n);
    const int slot = n % TN_STREAM_SLOTS;
    float re[V] = {}, im[V] = {};
    if (!t.lives) return;
    if (q.own) {
        if (t.chunk == 0) tn_stream_begin<V>(q.f, t, state);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float2 z = m.s.total[slot][t.lane * V + v];
            re[v] = (float)state[v].x, im[v] = (float)state[v].y;
            if (q.f.chunks > 1) tn_stream_add(state[v], q.wide[t.k + v], tn_stream_word(z.x, z.y), q.f.reset);
        }
    } else if (t.on) {
        tn_stream_await<V>(q.enter + tn_stream_at(q.f, t.b, t.chunk, t.k), early);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float2 z = tn_stream_number(early[v]);
            re[v] = z.x, im[v] = z.y;
        }
    }
    tn_stream_enter<Op>(q, m.s, t, slot, re, im);
    op.second(t, &m.ring[slot][0][t.warp][t.lane], &m.late[0][t.warp * tn_stream_memory<Op>::PIECE + t.lane], re, im);
    if (Op::SUMS > 0) op.keep(&m.s.sums[n % 2][t.warp][0][t.lane * V]);
}

/* Sums of a tile's warps, in order, into its row of partial sums (B, chunks, SUMS, padded K). */
template <class Op>
__device__ __forceinline__ void tn_stream_flush(const tn_tile_frame &f, const tn_stream_shared<Op> &s, int n,
                                                float *partial)
{
    enum { N = TN_TILE_LANES * Op::V };
    const int4 d = s.tile[n % TN_STREAM_TILES];
    if (d.w != 1 || (int)threadIdx.x >= Op::SUMS * N) return;
    const int i = threadIdx.x / N, k = threadIdx.x % N;
    float all = 0;
#pragma unroll
    for (int w = 0; w < Op::WARPS; w++) all = __fadd_rn(all, s.sums[n % 2][w][i][k]);
    partial[(((int64_t)d.x * f.chunks + d.y) * Op::SUMS + i) * f.columns + d.z * N + k] = all;
}

/* --- a block --------------------------------------------------------------------------------------------------------------- */

/* The first tiles; false for a block that walked along instead. */
template <class Op>
__device__ __forceinline__ bool tn_stream_start(const Op &op, const tn_stream_frame &q, tn_stream_memory<Op> &m)
{
    if (threadIdx.x == 0) m.s.role = q.walkers ? atomicAdd(q.f.ticket + 1, 1u) : 0u;
    __syncthreads();
    if (m.s.role < q.walkers) {
        tn_stream_walk_rows<Op::WARPS>(q, m.s.role);
        return false;
    }
    if (threadIdx.x == 0) {
        int4 d = make_int4(0, 0, 0, 0);
        for (int n = 0; n < TN_STREAM_SLOTS; n++) {
            const unsigned ticket = tn_stream_asks(q, d) ? atomicAdd(q.f.ticket, 1u) : 0;
            m.s.tile[n] = d = tn_stream_next(q, d, ticket);
        }
    }
    __syncthreads();
    tn_stream_send(op, q.f, m, 0);
    tn_stream_send(op, q.f, m, 1);
    tn_stream_send_late(op, q.f, m, 0);
    tn_copies_wait<1 + (Op::LATE > 0)>();
    __syncwarp();
    tn_stream_first_run(op, q.f, m, 0);
    __syncthreads();
    if (threadIdx.x / TN_TILE_LANES == Op::WARPS - 1) tn_stream_gather(q, m.s, 0);
    return true;
}

/* partial: NULL where sums are not wanted. One barrier a tile: what is written before it is read behind it, and written
 * again behind the next one at the earliest. */
template <class Op>
__device__ __forceinline__ void tn_stream_run(Op &op, const tn_stream_frame &q, tn_stream_memory<Op> &m, float *partial)
{
    enum { V = Op::V };
    double2 state[V];
    int n = 0;
    if (!tn_stream_start(op, q, m)) return;
    for (; m.s.tile[n % TN_STREAM_TILES].w; n++) {
        unsigned long long early[V] = {};
        unsigned ticket = 0;
        const int4 d = m.s.tile[n % TN_STREAM_TILES], far = m.s.tile[(n + 2) % TN_STREAM_TILES];
        const int k = (d.z * TN_TILE_LANES + (int)(threadIdx.x % TN_TILE_LANES)) * V;
        if (!q.own && d.w == 1 && k < q.f.K) tn_stream_read<V>(q.enter + tn_stream_at(q.f, d.x, d.y, k), early);
        if (threadIdx.x == 0 && tn_stream_asks(q, far)) ticket = atomicAdd(q.f.ticket, 1u);
        tn_stream_send(op, q.f, m, n + 2);
        tn_copies_wait<1 + (Op::LATE > 0)>();
        __syncwarp();
        tn_stream_first_run(op, q.f, m, n + 1);
        if (threadIdx.x == 0) m.s.tile[(n + 3) % TN_STREAM_TILES] = tn_stream_next(q, far, ticket);
        __syncthreads();
        if (threadIdx.x / TN_TILE_LANES == Op::WARPS - 1) tn_stream_gather(q, m.s, n + 1);
        if (Op::SUMS > 0 && partial && n > 0) tn_stream_flush<Op>(q.f, m.s, n - 1, partial);
        if (Op::LATE > 0) {
            tn_copies_wait<1>();
            __syncwarp();
        }
        tn_stream_second_run(op, q, m, n, early, state);
        __syncwarp();
        tn_stream_send_late(op, q.f, m, n + 1);
    }
    if (Op::SUMS == 0 || !partial || n == 0) return;
    __syncthreads();
    tn_stream_flush<Op>(q.f, m.s, n - 1, partial);
}

#endif
