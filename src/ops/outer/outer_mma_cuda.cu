/* outer on tensor cores: q, k, v and o in bf16, states of up to 64x64 with rows of 16-byte vectors (outer_mma.cuh).
 * Otherwise the same formulas as outer_cuda.cu, which has what does not fit here.
 *
 *   walk_kernel   S before every chunk, in f32 registers along the chunks: S1 = all S0 + (tail K)^T V; backwards, G =
 *                 dL/dS behind every chunk: G0 = all G1 + (lead Q)^T dO. A block per head and segment of the chunks;
 *                 where there are few heads, a first walk from zero gives every segment's own sum and link_kernel what
 *                 enters each, in the order of time: long sequences are as fast as many.
 *   out_kernel    a block per chunk: O = M V + lead Q S0, M = Q K^T by the decays between tokens
 *   back_kernel   a block per chunk: dV = M^T dO + tail K G, dK = dP^T Q + tail V G^T, dQ = dP K + lead dO S0^T, with dP =
 *                 dO V^T by the decays. Rows of M^T and dP^T, then of dP, are a warp's own, so no product passes
 *                 through shared memory; what this costs is dP twice.
 *
 * alpha's gradient: alpha_t decays what passes from before t to t or later. Of pairs inside the chunk that is the sum over
 * i >= t of q_i dq_i - k_i dk_i: a pair both of whose tokens lie at t or later cancels, to f32, since both dots come of
 * the same rounded dP.
 *
 * v by its strength (`write`) is never stored: the strengths stand where the decays do, and the gradient of one is the
 * dot of v's row with what dv would be without it. raw: decays and strengths come through their own activations.
 *
 * B T = 65536, H = 8, N = P = 64 on an H200 (states kept): 0.21 and 0.37 ms; at copy bandwidth 0.13 and 0.24 ms. */
#include "ops/outer/outer_cuda.h"
#include "ops/outer/outer_mma.cuh"

namespace
{

enum { C = TN_MMA_C, THREADS = TN_MMA_THREADS, STAGES = 3, OUT_TILES = 4, BACK_TILES = 7 };
enum { WARPS = THREADS / 32, ENOUGH_BLOCKS = 384, LEAST_CHUNKS = 4, LINKERS = 256 }; /* 384: one wave of a large GPU */

/* --- states along the chunks -------------------------------------------------------------------------------------- */

/* a (N columns) by its decay, times b (P columns), added up. */
typedef struct walk {
    tn_outer_shape z;
    tn_head_tensor a, b;
    tn_head_tensor first, end; /* what enters the walk, NULL: zero; where its result goes, or NULL */
    tn_b16 *states;            /* (B,H,chunks,N,P): before every chunk, in the walk's direction */
    float *enters;             /* (B,H,segments,N,P): a segment's own sum; after link_kernel, what enters it */
    float *decays;      /* (B,H,segments): what is left of that behind the segment; -1: a document starts in it */
    int segments, each; /* chunks of a segment */
    bool reverse;
    bool sums; /* from zero: only the sum and the decay are wanted */
} walk;

__device__ __forceinline__ int chunk_at(const walk &w, int step) { return w.reverse ? w.z.chunks - 1 - step : step; }

__device__ __forceinline__ void fetch_pair(const walk &w, int64_t b, int64_t h, int step, tn_b16 *tiles)
{
    const int64_t first = (int64_t)chunk_at(w, step) * C;
    tn_mma_fetch(w.a, b, h, first, w.z.T, w.z.N, tiles);
    tn_mma_fetch(w.b, b, h, first, w.z.T, w.z.P, tiles + TN_MMA_TILE);
}

/* Own rows of other documents than the one that reaches the state become zeros, whatever they held. */
__device__ __forceinline__ void cut_rows(const tn_mma_decays &d, int doc, tn_b16 *tiles)
{
    tn_mma_own_rows([&](int row, int column) {
        if (d.doc[row] == doc) return;
        *(uint4 *)(tiles + row * TN_MMA_STEP + column) = make_uint4(0, 0, 0, 0);
        *(uint4 *)(tiles + TN_MMA_TILE + row * TN_MMA_STEP + column) = make_uint4(0, 0, 0, 0);
    });
}

/* f(n, p, number) for this thread's numbers of a state that exist. */
template <class F>
__device__ __forceinline__ void each_number(const tn_outer_shape &z, tn_mma_part &s, F f)
{
#pragma unroll
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int n = s.row() + e / 2 * 8, p = s.column(t) + e % 2;
            if (n < z.N && p < z.P) f(n, p, s.v[t][e]);
        }
}

/* A segment's numbers in `enters`. */
__device__ __forceinline__ float *segment_of(const walk &w, int64_t head, int segment)
{
    return w.enters + (head * w.segments + segment) * w.z.N * w.z.P;
}

__device__ __forceinline__ void begin(const walk &w, int64_t head, int segment, tn_mma_part &s)
{
    const int64_t b = head / w.z.H, h = head % w.z.H;
    const float *from = segment_of(w, head, segment);
    s = tn_mma_none();
    if (w.sums) return;
    if (w.segments > 1) each_number(w.z, s, [&](int n, int p, float &x) { x = from[n * w.z.P + p]; });
    else if (w.first.at)
        each_number(w.z, s, [&](int n, int p, float &x) {
            x = tn_load(w.first.at, w.first.type, tn_head_place(w.first, b, h, n, p));
        });
}

__device__ __forceinline__ void finish(const walk &w, int64_t head, int segment, float decay, tn_mma_part &s)
{
    const int64_t b = head / w.z.H, h = head % w.z.H;
    float *to = segment_of(w, head, segment);
    if (w.sums) {
        each_number(w.z, s, [&](int n, int p, float &x) { to[n * w.z.P + p] = x; });
        if (threadIdx.x == 0) w.decays[head * w.segments + segment] = decay;
        return;
    }
    if (segment < w.segments - 1 || !w.end.at) return;
    each_number(w.z, s, [&](int n, int p, float &x) {
        tn_put(w.end.at, w.end.type, tn_head_place(w.end, b, h, n, p), x, w.end.add);
    });
}

/* This warp's rows of the state before a chunk, through its own rows of a tile. */
__device__ __forceinline__ void keep_state(const walk &w, int64_t head, int chunk, const tn_mma_part &s, tn_b16 *tile)
{
    tn_b16 *to = w.states + (head * w.z.chunks + chunk) * w.z.N * w.z.P;
    tn_mma_keep(s, tile);
    __syncwarp();
    tn_mma_own_rows([&](int n, int p) {
        if (n < w.z.N && p < w.z.P) *(uint4 *)(to + n * w.z.P + p) = *(const uint4 *)(tile + n * TN_MMA_STEP + p);
    });
    __syncwarp();
}

/* One step's tiles are multiplied while the next two are on their way; meanwhile each warp makes the decays of one of the
 * next four steps. */
__global__ void __launch_bounds__(THREADS, 3) walk_kernel(walk w)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ tn_mma_decays decays[2 * WARPS];
    tn_b16 *tiles = (tn_b16 *)memory;
    const int64_t head = blockIdx.x, b = head / w.z.H, h = head % w.z.H;
    const int segment = blockIdx.y, warp = threadIdx.x / 32, start = segment * w.each;
    const int n = w.z.chunks - start < w.each ? w.z.chunks - start : w.each;
    float left = 1; /* of what entered; -1: nothing, a document started */
    tn_mma_part s;
    tn_outer_asked alphas = {};
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < n) fetch_pair(w, b, h, start + i, tiles + i * 2 * TN_MMA_TILE);
        tn_copies_commit();
    }
    begin(w, head, segment, s);
    if (warp < n)
        tn_mma_decays_fill(tn_outer_alphas_load(w.z, b, h, (int64_t)chunk_at(w, start + warp) * C), &decays[warp]);
    for (int i = 0; i < n; i++) {
        tn_b16 *mine = tiles + i % STAGES * 2 * TN_MMA_TILE,
               *next = tiles + (i + STAGES - 1) % STAGES * 2 * TN_MMA_TILE;
        const tn_mma_decays &d = decays[i % (2 * WARPS)];
        const int ahead = i / WARPS * WARPS + WARPS + warp; /* the step whose decays this warp makes */
        tn_copies_wait<STAGES - 2>();
        __syncthreads();
        if (i % WARPS == 0 && ahead < n)
            alphas = tn_outer_alphas_ask(w.z, b, h, (int64_t)chunk_at(w, start + ahead) * C);
        if (!w.sums && w.states) keep_state(w, head, chunk_at(w, start + i), s, next);
        if (i + STAGES - 1 < n) fetch_pair(w, b, h, start + i + STAGES - 1, next);
        tn_copies_commit();
        if (w.reverse ? d.last_doc != 0 : d.first_doc != d.last_doc) {
            cut_rows(d, w.reverse ? 0 : d.last_doc, mine);
            __syncthreads();
        }
#pragma unroll
        for (int t = 0; t < 8; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) s.v[t][e] = tn_outer_by(s.v[t][e], d.all, d.last_doc);
        left = d.last_doc || left < 0 ? -1.f : __fmul_rn(left, d.all);
        tn_mma_add_turned(s, w.reverse ? d.lead : d.tail_write, mine, mine + TN_MMA_TILE);
        if (i % WARPS == 2 && ahead < n)
            tn_mma_decays_fill(tn_outer_alphas_open(w.z, alphas), &decays[ahead % (2 * WARPS)]);
    }
    finish(w, head, segment, left, s);
}

/* From the segments' sums to what enters each. A thread per number of the state. */
__global__ void __launch_bounds__(LINKERS) link_kernel(walk w)
{
    enum { AHEAD = 8 };
    const int64_t head = blockIdx.x, size = w.z.N * w.z.P, b = head / w.z.H, h = head % w.z.H;
    const int e = blockIdx.y * LINKERS + threadIdx.x;
    float *at = segment_of(w, head, 0) + e;
    const float *decays = w.decays + head * w.segments;
    if (e >= size) return;
    float s = w.first.at ? tn_load(w.first.at, w.first.type, tn_head_place(w.first, b, h, e / w.z.P, e % w.z.P)) : 0.f;
    for (int i = 0; i < w.segments; i += AHEAD) {
        float own[AHEAD], decay[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const bool there = i + j < w.segments - 1;
            own[j] = there ? at[(i + j) * size] : 0.f;
            decay[j] = there ? decays[i + j] : 0.f;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (i + j >= w.segments) break;
            at[(i + j) * size] = s;
            s = decay[j] < 0 ? own[j] : __fmaf_rn(decay[j], s, own[j]);
        }
    }
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

/* Neighbours in memory are worked on at the same time. */
__device__ __forceinline__ tn_outer_chunk place_of(const tn_outer_shape &z)
{
    tn_outer_chunk k;
    const int64_t i = blockIdx.x / z.H;
    k.h = blockIdx.x % z.H, k.b = i / z.chunks, k.chunk = (int)(i % z.chunks);
    k.head = k.b * z.H + k.h, k.first = (int64_t)k.chunk * C;
    return k;
}

__device__ __forceinline__ const tn_b16 *kept_state(const tn_outer_shape &z, const tn_outer_chunk &k,
                                                    const tn_b16 *states)
{
    return states ? states + (k.head * z.chunks + k.chunk) * z.N * z.P : NULL;
}

/* Sets NaN and Inf of this warp's rows to zero; were there any? */
__device__ __forceinline__ bool clear_odd(tn_b16 *tile)
{
    bool odd = false;
    tn_mma_own_rows([&](int row, int column) {
        uint4 *at = (uint4 *)(tile + row * TN_MMA_STEP + column), q = *at;
        uint32_t x[4] = { q.x, q.y, q.z, q.w };
        bool some = false;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool low = (x[i] & 0x7f80u) == 0x7f80u, high = (x[i] & 0x7f800000u) == 0x7f800000u;
            x[i] &= (low ? 0xffff0000u : 0xffffffffu) & (high ? 0xffffu : 0xffffffffu);
            some = some || low || high;
        }
        if (some) *at = make_uint4(x[0], x[1], x[2], x[3]);
        odd = odd || some;
    });
    return odd;
}

typedef struct outputs {
    tn_outer_shape z;
    tn_head_tensor o;
    const tn_b16 *states;
} outputs;

/* What was left out of M V: numbers of v that are NaN or Inf, for the tokens that see them. m: this warp's rows of M. */
__device__ __forceinline__ void add_odd(const tn_outer_shape &z, const tn_outer_chunk &k, const tn_mma_decays &d,
                                        const tn_b16 *m, tn_mma_part &o)
{
#pragma unroll 1
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = o.row() + e / 2 * 8, p = o.column(t) + e % 2;
            float sum = 0;
#pragma unroll 1
            for (int j = 0; j <= row && p < z.P && k.first + j < z.T; j++) {
                const float x = tn_load(z.v.at, z.v.type, tn_head_place(z.v, k.b, k.h, k.first + j, p));
                if (!(fabsf(x) <= 3.402823466e38f) && d.doc[row] == d.doc[j])
                    sum += __bfloat162float(m[row * TN_MMA_STEP + j]) * x;
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i == t) o.v[i][e] += sum;
        }
}

__global__ void __launch_bounds__(THREADS, 4) out_kernel(outputs a)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ tn_mma_decays d;
    tn_b16 *q = (tn_b16 *)memory, *k = q + TN_MMA_TILE, *v = k + TN_MMA_TILE, *s0 = v + TN_MMA_TILE;
    const tn_outer_shape &z = a.z;
    const tn_outer_chunk at = place_of(z);
    tn_mma_fetch(z.q, at.b, at.h, at.first, z.T, z.N, q);
    tn_mma_fetch(z.k, at.b, at.h, at.first, z.T, z.N, k);
    tn_mma_fetch(z.v, at.b, at.h, at.first, z.T, z.P, v);
    tn_mma_fetch_state(kept_state(z, at, a.states), z.N, z.P, s0);
    tn_copies_commit();
    if (threadIdx.x < 32) tn_mma_decays_fill(tn_outer_alphas_load(z, at.b, at.h, at.first), &d);
    tn_copies_wait<0>();
    const bool odd = __syncthreads_or(clear_odd(v));

    const tn_mma_left rows = tn_mma_rows_of(q);
    tn_mma_part m = tn_mma_none(), o = tn_mma_none();
    tn_mma_multiply<true, TN_MMA_BELOW>(m, rows, k);
    tn_mma_mask(m, d);
    const tn_mma_left pairs = tn_mma_rounded(m);
    tn_mma_multiply<false>(o, rows, s0);
    tn_mma_scale_rows(o, d.lead, d.doc, 0);
    tn_mma_multiply<false, TN_MMA_ALL, TN_MMA_BELOW>(o, pairs, v);
    if (odd) { /* own rows of q are free: a warp reads no others */
        tn_mma_keep(pairs, q);
        __syncwarp();
        add_odd(z, at, d, q, o);
        __syncwarp();
    }
    tn_mma_keep(o, q);
    __syncwarp();
    tn_mma_send(a.o, at.b, at.h, at.first, z.T, z.P, q);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

typedef struct gradients {
    tn_outer_shape z;
    tn_head_tensor d_o, dq, dk, dv, dalpha, dwrite;
    bool add_dv;              /* what is there comes with the tiles: v's readers besides outer have left it there */
    const tn_b16 *states, *g; /* S before and dL/dS behind every chunk; states may be NULL: not needed */
} gradients;

/* What alpha's gradient is added up from, by token. */
struct alpha_sums {
    float reads[C];  /* q dq */
    float pairs[C];  /* k dk of pairs inside the chunk */
    float writes[C]; /* k dk of what the token leaves in S1 */
    float through[THREADS / 32];
    float strengths[C]; /* v times the gradient of v by its strength: that of the strength */
};

/* Sum of S0 times G, what passes through the chunk. */
__device__ __forceinline__ void sum_through(const tn_b16 *s0, const tn_b16 *g, alpha_sums &sums)
{
    float sum = 0;
    tn_mma_own_rows([&](int row, int column) {
        const tn_f8 x = tn_load8(s0 + row * TN_MMA_STEP + column, TN_BF16, 0),
                    y = tn_load8(g + row * TN_MMA_STEP + column, TN_BF16, 0);
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(x.v[i], y.v[i], sum);
    });
    sum = tn_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums.through[threadIdx.x / 32] = sum;
}

/* By one warp. */
__device__ __forceinline__ void write_alpha(const gradients &a, const tn_outer_chunk &k, const tn_mma_decays &d,
                                            const alpha_sums &sums)
{
    const int lane = threadIdx.x % 32;
    double later[2], earlier[2], through = 0;
    bool later_cut[2], earlier_cut[2];
    for (int w = 0; w < THREADS / 32; w++) through += (double)sums.through[w];
    through = d.last_doc ? 0 : through * (double)d.all;
    for (int i = 0; i < 2; i++) {
        const int t = lane * 2 + i, u = C - 1 - t; /* from the end */
        later[i] = (double)sums.reads[u] - (double)sums.pairs[u];
        later_cut[i] = u + 1 < C && d.doc[u + 1] != d.doc[u];
        earlier_cut[i] = d.doc[t] != (t ? d.doc[t - 1] : 0);
        earlier[i] = earlier_cut[i] ? 0 : t ? (double)sums.writes[t - 1] : through;
    }
    tn_outer_alpha_write(a.dalpha, a.z.T, k, later, later_cut, earlier, earlier_cut, d.slope);
}

struct tiles {
    tn_b16 *q, *k, *v, *d_o, *s0, *g, *stage;
};

__device__ __forceinline__ void send(const gradients &a, const tn_outer_chunk &at, const tn_head_tensor &p, int columns,
                                     const tn_mma_part &x, tn_b16 *stage)
{
    if (!p.at) return;
    __syncwarp();
    tn_mma_keep(x, stage);
    __syncwarp();
    tn_mma_send(p, at.b, at.h, at.first, a.z.T, columns, stage);
}

/* dv, so far the gradient of v by its strength, and that of the strength; own rows of both. */
__device__ __forceinline__ void through_write(const gradients &a, const tn_outer_chunk &at, const tiles &x,
                                              const tn_mma_decays &d, alpha_sums &sums, tn_mma_part &dv)
{
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32;
    if (a.dwrite.at) {
        tn_mma_dot_rows(dv, x.v, sums.strengths);
        __syncwarp();
        if (threadIdx.x % 32 < 16 && at.first + row < a.z.T) {
            const float w = d.write[row], slope = a.z.raw ? w * (1.f - w) : 1.f;
            tn_put(a.dwrite.at, a.dwrite.type, tn_head_place(a.dwrite, at.b, at.h, at.first + row, 0),
                   __fmul_rn(sums.strengths[row], slope), a.dwrite.add);
        }
    }
#pragma unroll
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) dv.v[t][e] = __fmul_rn(dv.v[t][e], d.write[dv.row() + e / 2 * 8]);
}

/* dk and dv: rows are the earlier tokens of pairs. */
__device__ __forceinline__ void back_earlier(const gradients &a, const tn_outer_chunk &at, const tiles &x,
                                             const tn_mma_decays &d, alpha_sums &sums)
{
    const tn_mma_left k = tn_mma_rows_of(x.k), v = tn_mma_rows_of(x.v);
    tn_mma_part m = tn_mma_none(), dp = tn_mma_none();
    tn_mma_multiply<true, TN_MMA_ABOVE>(m, k, x.q);
    tn_mma_multiply<true, TN_MMA_ABOVE>(dp, v, x.d_o);
    const float write[2] = { d.write[m.row()], d.write[m.row() + 8] };
    tn_mma_by_pairs<TN_MMA_ABOVE>(d, [&](int t, int e, float decay, bool keep) {
        m.v[t][e] = keep ? __fmul_rn(m.v[t][e], decay) : 0.f;
        dp.v[t][e] = keep ? __fmul_rn(__fmul_rn(dp.v[t][e], decay), write[e / 2]) : 0.f;
    });
    const tn_mma_left mr = tn_mma_rounded(m), dpr = tn_mma_rounded(dp);

    tn_mma_part dv = tn_mma_none();
    tn_mma_multiply<false>(dv, k, x.g);
    tn_mma_scale_rows(dv, d.tail, d.doc, d.last_doc);
    tn_mma_multiply<false, TN_MMA_ALL, TN_MMA_ABOVE>(dv, mr, x.d_o);
    if (a.z.write.at) through_write(a, at, x, d, sums, dv);
    if (a.add_dv) tn_mma_add(dv, x.stage);
    send(a, at, a.dv, a.z.P, dv, x.stage);

    tn_mma_part dk = tn_mma_none(), left = tn_mma_none();
    tn_mma_multiply<false, TN_MMA_ALL, TN_MMA_ABOVE>(dk, dpr, x.q);
    tn_mma_dot_rows(dk, x.k, sums.pairs);
    tn_mma_multiply<true>(left, v, x.g);
    tn_mma_scale_rows(left, d.tail_write, d.doc, d.last_doc);
    tn_mma_dot_rows(left, x.k, sums.writes);
#pragma unroll
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) dk.v[t][e] = __fadd_rn(dk.v[t][e], left.v[t][e]);
    send(a, at, a.dk, a.z.N, dk, x.stage);
}

/* dq: rows are the later tokens. */
__device__ __forceinline__ void back_later(const gradients &a, const tn_outer_chunk &at, const tiles &x,
                                           const tn_mma_decays &d, alpha_sums &sums)
{
    const tn_mma_left d_o = tn_mma_rows_of(x.d_o);
    tn_mma_part dp = tn_mma_none(), dq = tn_mma_none();
    tn_mma_multiply<true, TN_MMA_BELOW>(dp, d_o, x.v);
    tn_mma_mask(dp, d);
    tn_mma_multiply<true>(dq, d_o, x.s0);
    tn_mma_scale_rows(dq, d.lead, d.doc, 0);
    tn_mma_multiply<false, TN_MMA_ALL, TN_MMA_BELOW>(dq, tn_mma_rounded(dp), x.k);
    tn_mma_dot_rows(dq, x.q, sums.reads);
    send(a, at, a.dq, a.z.N, dq, x.stage);
}

__global__ void __launch_bounds__(THREADS, 3) back_kernel(gradients a)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ tn_mma_decays d;
    __shared__ alpha_sums sums;
    const tn_outer_shape &z = a.z;
    const tn_outer_chunk at = place_of(z);
    tiles x;
    tn_b16 *first = (tn_b16 *)memory;
    x.q = first, x.k = x.q + TN_MMA_TILE, x.v = x.k + TN_MMA_TILE, x.d_o = x.v + TN_MMA_TILE;
    x.s0 = x.d_o + TN_MMA_TILE, x.g = x.s0 + TN_MMA_TILE, x.stage = x.g + TN_MMA_TILE;
    tn_mma_fetch(z.q, at.b, at.h, at.first, z.T, z.N, x.q);
    tn_mma_fetch(z.k, at.b, at.h, at.first, z.T, z.N, x.k);
    tn_mma_fetch(z.v, at.b, at.h, at.first, z.T, z.P, x.v);
    tn_mma_fetch(a.d_o, at.b, at.h, at.first, z.T, z.P, x.d_o);
    if (a.add_dv) tn_mma_fetch(a.dv, at.b, at.h, at.first, z.T, z.P, x.stage);
    tn_mma_fetch_state(kept_state(z, at, a.g), z.N, z.P, x.g);
    tn_mma_fetch_state(kept_state(z, at, a.states), z.N, z.P, x.s0);
    tn_copies_commit();
    if (threadIdx.x < 32) tn_mma_decays_fill(tn_outer_alphas_load(z, at.b, at.h, at.first), &d);
    tn_copies_wait<0>();
    __syncthreads();
    back_earlier(a, at, x, d, sums);
    back_later(a, at, x, d, sums);
    if (!a.dalpha.at) return;
    sum_through(x.s0, x.g, sums);
    __syncthreads();
    if (threadIdx.x < 32) write_alpha(a, at, d, sums);
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* By the shape alone, so that sums have the same order on every GPU. */
static int chunks_of_segment(int64_t heads, int64_t chunks)
{
    const int64_t want = heads > 0 ? (ENOUGH_BLOCKS + heads - 1) / heads : 1, most = chunks / LEAST_CHUNKS;
    const int64_t segments = want < most ? want : most;
    return (int)(segments > 1 ? (chunks + segments - 1) / segments : chunks);
}

typedef struct layout {
    size_t g, enters, decays, bytes; /* where each begins; the states are first */
} layout;

static layout layout_of(tn_dims q, tn_dims v, bool backward)
{
    const int64_t heads = q.dim[0] * q.dim[2], chunks = (q.dim[1] + C - 1) / C, size = q.dim[3] * v.dim[3];
    const int each = chunks_of_segment(heads, chunks);
    const int64_t segments = each > 0 && each < chunks ? (chunks + each - 1) / each : 0;
    layout l;
    l.g = tn_align256((size_t)(heads * chunks * size) * sizeof(tn_b16));
    l.enters = l.g * (backward ? 2 : 1);
    l.decays = l.enters + tn_align256((size_t)(heads * segments * size) * sizeof(float));
    l.bytes = l.decays + tn_align256((size_t)(heads * segments) * sizeof(float));
    return l;
}

extern "C" size_t tn_outer_mma_work_cuda(tn_dims q, tn_dims v, bool backward)
{
    return layout_of(q, v, backward).bytes;
}

/* Absent, or bf16 in rows of 16-byte vectors. */
static bool fits(const tn_arg *a)
{
    return !a->data || (a->dtype == TN_BF16 && a->dims.rank == 4 && tn_vector_rows(a));
}

extern "C" bool tn_outer_mma_fits(const tn_call *c)
{
    const int64_t N = c->in[TN_OUTER_Q].dims.dim[3], P = c->in[TN_OUTER_V].dims.dim[3];
    bool fit = N % 8 == 0 && P % 8 == 0 && N > 0 && P > 0 && N <= C && P <= C;
    for (int i = TN_OUTER_Q; i <= TN_OUTER_V; i++) fit = fit && fits(&c->in[i]) && (!c->din || fits(&c->din[i]));
    return fit && fits(c->dout ? &c->dout[0] : &c->out[0]);
}

static tn_status launch_walk(const tn_call *c, walk *w, char *enters, char *decays)
{
    const int bytes = STAGES * 2 * TN_MMA_BYTES, size = w->z.N * w->z.P;
    const unsigned heads = (unsigned)(w->z.B * w->z.H);
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)walk_kernel, bytes));
    w->each = chunks_of_segment(heads, w->z.chunks);
    w->segments = w->each ? (w->z.chunks + w->each - 1) / w->each : 1;
    w->enters = (float *)enters, w->decays = (float *)decays;
    if (w->segments > 1) {
        w->sums = true;
        walk_kernel<<<dim3(heads, (unsigned)w->segments - 1), THREADS, bytes, tn_cuda_stream(c)>>>(*w);
        TN_CUDA_LAUNCHED();
        link_kernel<<<dim3(heads, (unsigned)((size + LINKERS - 1) / LINKERS)), LINKERS, 0, tn_cuda_stream(c)>>>(*w);
        TN_CUDA_LAUNCHED();
        w->sums = false;
    }
    walk_kernel<<<dim3(heads, (unsigned)w->segments), THREADS, bytes, tn_cuda_stream(c)>>>(*w);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* Where S before every chunk is, or is to be: kept for the backward pass, or in the workspace. */
static tn_b16 *states_of(const tn_call *c)
{
    return (tn_b16 *)(c->n_out > TN_OUTER_KEPT && c->out[TN_OUTER_KEPT].data ? c->out[TN_OUTER_KEPT].data : c->work);
}

static tn_status walk_states(const tn_call *c, const tn_outer_shape *z, const layout *l, const tn_arg *final)
{
    char *work = (char *)c->work;
    walk w = {};
    w.z = *z, w.a = z->k, w.b = z->v, w.first = z->state, w.states = states_of(c);
    if (final) w.end = tn_head_state_of(final, false);
    return launch_walk(c, &w, work + l->enters, work + l->decays);
}

extern "C" tn_status tn_outer_mma_forward_cuda(const tn_call *c)
{
    const int bytes = OUT_TILES * TN_MMA_BYTES;
    const layout l = layout_of(c->in[TN_OUTER_Q].dims, c->in[TN_OUTER_V].dims, false);
    outputs a = {};
    a.z = tn_outer_shape_of(c);
    a.o = tn_head_of(&c->out[0], false);
    a.states = states_of(c);
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)out_kernel, bytes));
    TN_RETURN_IF(walk_states(c, &a.z, &l, &c->out[1]));
    out_kernel<<<(unsigned)(a.z.B * a.z.H * a.z.chunks), THREADS, bytes, tn_cuda_stream(c)>>>(a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* dL/dS behind every chunk, and of the state before all. */
static tn_status walk_gradients(const tn_call *c, const gradients *a, const layout *l)
{
    char *work = (char *)c->work;
    walk w = {};
    w.z = a->z, w.a = a->z.q, w.b = a->d_o, w.reverse = true;
    w.states = (tn_b16 *)(uintptr_t)a->g;
    w.first = tn_head_state_of(&c->dout[1], false);
    w.end = tn_head_state_of(&c->din[TN_OUTER_STATE], c->accumulate >> TN_OUTER_STATE & 1);
    return launch_walk(c, &w, work + l->enters, work + l->decays);
}

extern "C" tn_status tn_outer_mma_backward_cuda(const tn_call *c)
{
    const int bytes = BACK_TILES * TN_MMA_BYTES;
    const layout l = layout_of(c->in[TN_OUTER_Q].dims, c->in[TN_OUTER_V].dims, true);
    gradients a = {};
    a.z = tn_outer_shape_of(c);
    a.d_o = tn_head_of(&c->dout[0], false);
    a.dq = tn_head_of(&c->din[TN_OUTER_Q], c->accumulate >> TN_OUTER_Q & 1);
    a.dk = tn_head_of(&c->din[TN_OUTER_K], c->accumulate >> TN_OUTER_K & 1);
    a.dv = tn_head_of(&c->din[TN_OUTER_V], false);
    a.add_dv = a.dv.at && (c->accumulate >> TN_OUTER_V & 1);
    a.dalpha = tn_head_of(&c->din[TN_OUTER_ALPHA], c->accumulate >> TN_OUTER_ALPHA & 1);
    a.dwrite = tn_head_of(&c->din[TN_OUTER_WRITE], c->accumulate >> TN_OUTER_WRITE & 1);
    const bool states = a.dq.at || a.dalpha.at, tokens = states || a.dk.at || a.dv.at || a.dwrite.at;
    if (states) a.states = states_of(c);
    if (tokens) a.g = (const tn_b16 *)((char *)c->work + l.g);
    if (states && (const void *)a.states == c->work) TN_RETURN_IF(walk_states(c, &a.z, &l, NULL));
    TN_RETURN_IF(walk_gradients(c, &a, &l));
    if (!tokens) return TN_OK;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)back_kernel, bytes));
    back_kernel<<<(unsigned)(a.z.B * a.z.H * a.z.chunks), THREADS, bytes, tn_cuda_stream(c)>>>(a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
