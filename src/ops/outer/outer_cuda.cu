/* outer on the GPU, in chunks of 64 tokens (.chunk is the CPU's), states of up to 64x64; more, and .steps, go token
 * by token (outer_step_cuda.cu). bf16 tensors, or operands to be rounded to bf16, multiply on tensor cores; f32
 * exactly. Where all rows are bf16 vectors of 16 bytes, outer_mma_cuda.cu takes over.
 *
 *   walk_kernel   S before every chunk: S1 = all S0 + (tail K)^T V, one block per head and 32 columns along the chunks;
 *                 the same, backwards, for G = dL/dS behind every chunk: G0 = all G1 + (lead Q)^T dO
 *   out_kernel    a block per chunk: O = M V + lead Q S0, M = Q K^T by the decays between tokens
 *   back_kernel   a block per chunk: all gradients from S0 and G, as in outer_cpu.c
 *
 * A document's start inside a chunk cuts decays to 0, by choice and not by multiplication, so that no NaN crosses
 * it; and M V leaves NaN and Inf of v out of the product and adds them to the tokens that may see them. The walks
 * are limited by latency, 0.7 us a chunk, where B H is below 100. */
#include "ops/outer/outer_cuda.h"
#include "ops/outer/outer_tiles.cuh"

namespace
{

enum { C = TN_OUTER_C, SLICE = 32, WALKERS = 128, THREADS = 256, FORWARD_TILES = 4, BACKWARD_TILES = 5 };

/* --- states along the chunks -------------------------------------------------------------------------------------- */

/* a (N columns) by its decay, times b (P columns), added up. */
typedef struct walk {
    tn_outer_shape z;
    tn_head_tensor a, b;
    tn_head_tensor first, end; /* what enters the walk, NULL: zero; where its result goes, or NULL */
    void *states; /* (B,H,chunks,N,P) of T: before every chunk, in the walk's direction; NULL: not wanted */
    bool reverse;
} walk;

/* The chunk's rows on their way to shared memory. */
struct rows_ahead {
    tn_f8 a[C * 8 / WALKERS], b[C * SLICE / 8 / WALKERS];
    tn_outer_alphas alphas;
};

__device__ __forceinline__ void load_ahead(const walk &w, int64_t b, int64_t h, int column, int chunk, rows_ahead &r)
{
    const int64_t first = (int64_t)chunk * C;
    const tn_f8 none = {};
#pragma unroll
    for (int i = 0; i < C * 8 / WALKERS; i++) {
        const int at = threadIdx.x + i * WALKERS, c = at % 8 * 8;
        const int64_t t = first + at / 8;
        r.a[i] = w.a.at && t < w.z.T && c < w.z.N ? tn_outer_eight(w.a, b, h, t, c, w.z.N) : none;
    }
#pragma unroll
    for (int i = 0; i < C * SLICE / 8 / WALKERS; i++) {
        const int at = threadIdx.x + i * WALKERS, c = column + at % (SLICE / 8) * 8;
        const int64_t t = first + at / (SLICE / 8);
        r.b[i] = w.b.at && t < w.z.T && c < w.z.P ? tn_outer_eight(w.b, b, h, t, c, w.z.P) : none;
    }
    r.alphas = tn_outer_alphas_load(w.z, b, h, first);
}

/* Into the tiles; rows that do not reach the state are zeros, whatever they hold. */
template <class T>
__device__ __forceinline__ void place_rows(const walk &w, const rows_ahead &r, const tn_outer_decays &d, T *a, T *b)
{
    enum { STEP = tn_tile_step<T>::V };
    const int doc = w.reverse ? 0 : d.last_doc;
#pragma unroll
    for (int i = 0; i < C * 8 / WALKERS; i++) {
        const int at = threadIdx.x + i * WALKERS, row = at / 8;
        const float by = w.reverse ? d.lead[row] : d.tail[row];
        tn_f8 x = r.a[i];
#pragma unroll
        for (int j = 0; j < 8; j++) x.v[j] = tn_outer_by(x.v[j], by, d.doc[row] != doc);
        tn_outer_set8(a + row * STEP + at % 8 * 8, x);
    }
#pragma unroll
    for (int i = 0; i < C * SLICE / 8 / WALKERS; i++) {
        const int at = threadIdx.x + i * WALKERS, row = at / (SLICE / 8);
        tn_f8 x = r.b[i];
#pragma unroll
        for (int j = 0; j < 8; j++) x.v[j] = d.doc[row] != doc ? 0.f : x.v[j];
        tn_outer_set8(b + row * STEP + at % (SLICE / 8) * 8, x);
    }
}

template <class T>
__device__ __forceinline__ void keep_state(const walk &w, int64_t head, int column, int chunk, const tn_outer_part &s)
{
    T *to = (T *)w.states + (head * w.z.chunks + chunk) * w.z.N * w.z.P;
    if (!w.states) return;
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const int n = s.row_of(e), p = column + s.column_of(i, e);
            if (n >= w.z.N || p >= w.z.P) continue;
            if (w.z.P % 2 == 0) {
                tn_outer_set2(to + n * w.z.P + p, s.v[i][e], s.v[i][e + 1]);
                continue;
            }
            tn_outer_set(to + n * w.z.P + p, s.v[i][e]);
            if (p + 1 < w.z.P) tn_outer_set(to + n * w.z.P + p + 1, s.v[i][e + 1]);
        }
}

/* The state (N, SLICE columns) is in the four warps' registers all along. */
template <class T>
__global__ void __launch_bounds__(WALKERS) walk_kernel(walk w)
{
    __shared__ __align__(16) T a[tn_outer_tile_size<T>()];
    __shared__ __align__(16) T v[tn_outer_tile_size<T>()];
    __shared__ tn_outer_decays d;
    const int64_t head = blockIdx.x, b = head / w.z.H, h = head % w.z.H;
    const int column = blockIdx.y * SLICE;
    tn_outer_part s = tn_outer_part_at(threadIdx.x / 32 * 16, 0);
    rows_ahead r;
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int n = s.row_of(e), p = column + s.column_of(i, e);
            if (w.first.at && n < w.z.N && p < w.z.P)
                s.v[i][e] = tn_load(w.first.at, w.first.type, tn_head_place(w.first, b, h, n, p));
        }
    if (w.z.chunks) load_ahead(w, b, h, column, w.reverse ? w.z.chunks - 1 : 0, r);
    for (int i = 0; i < w.z.chunks; i++) {
        const int chunk = w.reverse ? w.z.chunks - 1 - i : i;
        if (threadIdx.x < 32) tn_outer_decays_fill(r.alphas, &d);
        __syncthreads();
        place_rows<T>(w, r, d, a, v);
        keep_state<T>(w, head, column, chunk, s);
#pragma unroll
        for (int k = 0; k < TN_OUTER_PARTS; k++)
#pragma unroll
            for (int e = 0; e < 4; e++) s.v[k][e] = tn_outer_by(s.v[k][e], d.all, d.last_doc);
        __syncthreads();
        if (i + 1 < w.z.chunks) load_ahead(w, b, h, column, w.reverse ? chunk - 1 : chunk + 1, r);
        tn_outer_multiply<true, false>(s, a, v, C);
        __syncthreads();
    }
    if (!w.end.at) return;
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int n = s.row_of(e), p = column + s.column_of(i, e);
            if (n < w.z.N && p < w.z.P)
                tn_put(w.end.at, w.end.type, tn_head_place(w.end, b, h, n, p), s.v[i][e], w.end.add);
        }
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ tn_outer_chunk chunk_of(const tn_outer_shape &z)
{
    tn_outer_chunk k;
    k.head = blockIdx.x / z.chunks, k.chunk = (int)(blockIdx.x % z.chunks);
    k.b = k.head / z.H, k.h = k.head % z.H, k.first = (int64_t)k.chunk * C;
    return k;
}

template <class T>
__device__ __forceinline__ const T *kept_state(const tn_outer_shape &z, const tn_outer_chunk &k, const void *states)
{
    return states ? (const T *)states + (k.head * z.chunks + k.chunk) * z.N * z.P : NULL;
}

/* Rows by the decay from the chunk's beginning (or to its end); rows of another document get nothing. */
__device__ __forceinline__ void scale_rows(tn_outer_part &a, const float *by, const int *docs, int doc)
{
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) a.v[i][e] = tn_outer_by(a.v[i][e], by[a.row_of(e)], docs[a.row_of(e)] != doc);
}

/* By the decay from token j to token i; nothing where i may not see j. */
__device__ __forceinline__ void mask(tn_outer_part &a, const tn_outer_decays &d)
{
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = a.row_of(e), column = a.column_of(i, e);
            a.v[i][e] =
                tn_outer_by(a.v[i][e], tn_outer_between(d, row, column), column > row || d.doc[row] != d.doc[column]);
        }
}

/* What was left out of M V: numbers of v that are NaN or Inf, for the tokens that see them. */
template <class T>
__device__ __forceinline__ void add_odd(const tn_outer_shape &z, const tn_outer_chunk &k, const tn_outer_decays &d,
                                        const T *m, tn_outer_part &o)
{
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = o.row_of(e), p = o.column_of(i, e);
#pragma unroll 1
            for (int j = 0; j <= row && p < z.P && k.first + j < z.T; j++) {
                const float x = tn_load(z.v.at, z.v.type, tn_head_place(z.v, k.b, k.h, k.first + j, p));
                if (!(fabsf(x) <= 3.402823466e38f) && d.doc[row] == d.doc[j])
                    o.v[i][e] += tn_outer_get(m + row * tn_tile_step<T>::V + j) * x;
            }
        }
}

typedef struct outputs {
    tn_outer_shape z;
    tn_head_tensor o;
    const void *states;
} outputs;

template <class T>
__global__ void __launch_bounds__(THREADS, 2) out_kernel(outputs a)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ tn_outer_decays d;
    enum { SIZE = tn_outer_tile_size<T>() };
    T *q = (T *)memory, *k = q + SIZE, *v = k + SIZE, *s0 = v + SIZE;
    const tn_outer_chunk at = chunk_of(a.z);
    const int warp = threadIdx.x / 32, row = warp % 4 * 16, column = warp / 4 * 32;
    if (warp == 0) tn_outer_decays_fill(tn_outer_alphas_load(a.z, at.b, at.h, at.first), &d);
    tn_outer_tile_load<T, THREADS>(a.z.q, at.b, at.h, at.first, a.z.T, a.z.N, q, false);
    tn_outer_tile_load<T, THREADS>(a.z.k, at.b, at.h, at.first, a.z.T, a.z.N, k, false);
    const bool odd = tn_outer_tile_load<T, THREADS>(a.z.v, at.b, at.h, at.first, a.z.T, a.z.P, v, true);
    tn_outer_state_load<T, THREADS>(kept_state<T>(a.z, at, a.states), a.z.N, a.z.P, s0);
    const bool some_odd = __syncthreads_or(odd);
    tn_outer_part m = tn_outer_part_at(row, column), o = m;
    tn_outer_multiply<false, true>(m, q, k, a.z.N);
    mask(m, d);
    tn_outer_multiply<false, false>(o, q, s0, a.z.N);
    scale_rows(o, d.lead, d.doc, 0);
    __syncthreads();
    tn_outer_part_keep(m, k); /* k is not needed any more */
    __syncthreads();
    tn_outer_multiply<false, false>(o, k, v, C);
    if (some_odd) add_odd<T>(a.z, at, d, k, o);
    tn_outer_part_write(o, a.o, at.b, at.h, at.first, a.z.T, a.z.P);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

typedef struct gradients {
    tn_outer_shape z;
    tn_head_tensor d_o, dq, dk, dv, dalpha;
    const void *states, *g; /* S before and dL/dS behind every chunk; states may be NULL: not needed */
} gradients;

/* What alpha's gradient is added up from, over parts of rows and columns that different warps hold. */
struct alpha_sums {
    float pair_rows[2][C];    /* sum over j < i of dM_ij M_ij, by half of the columns */
    float pair_columns[4][C]; /* the same over i > j, by quarter of the rows */
    float reads[2][C];        /* what token i reads of S0 */
    float writes[2][C];       /* what token j leaves in S1 */
    float through[THREADS / 32];
};

/* x summed over columns for every row of a part, into rows[half]; every warp writes its own 16 rows. */
template <class F>
__device__ __forceinline__ void sum_over_columns(const tn_outer_part &a, float (*rows)[C], F x)
{
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < TN_OUTER_PARTS; i++) sum += x(i, e) + x(i, e + 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (threadIdx.x % 4 == 0) rows[threadIdx.x / 128][a.row_of(e)] = sum;
    }
}

template <class F>
__device__ __forceinline__ void sum_over_rows(const tn_outer_part &a, float (*columns)[C], F x)
{
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float sum = x(i, e) + x(i, e + 2);
            for (int s = 4; s < 32; s *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, s);
            if (threadIdx.x % 32 < 4) columns[threadIdx.x / 32 % 4][a.column_of(i, e)] = sum;
        }
}

/* Row i of a part times row i of a tile. */
template <class T>
__device__ __forceinline__ void sum_with_tile(const tn_outer_part &a, const T *tile, float (*rows)[C])
{
    sum_over_columns(a, rows, [&](int i, int e) {
        return a.v[i][e] * tn_outer_get(tile + a.row_of(e) * tn_tile_step<T>::V + a.column_of(i, e));
    });
}

/* m = M and dp = dL/d(Q K^T), from Q K^T and dO V^T. Rows and columns are summed from the same rounded numbers, so
 * that what cancels in alpha's gradient cancels. */
__device__ __forceinline__ void mask_pairs(tn_outer_part &m, tn_outer_part &dp, const tn_outer_decays &d,
                                           alpha_sums &sums)
{
    tn_outer_part pairs = m;
    mask(dp, d);
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = m.row_of(e), column = m.column_of(i, e);
            pairs.v[i][e] = column < row && d.doc[row] == d.doc[column] ? __fmul_rn(dp.v[i][e], m.v[i][e]) : 0.f;
        }
    sum_over_columns(pairs, sums.pair_rows, [&](int i, int e) { return pairs.v[i][e]; });
    sum_over_rows(pairs, sums.pair_columns, [&](int i, int e) { return pairs.v[i][e]; });
    mask(m, d);
}

/* Sum of S0 times G, what passes through the chunk. */
template <class T>
__device__ __forceinline__ void sum_through(const T *s0, const T *g, alpha_sums &sums)
{
    float sum = 0;
    for (int i = threadIdx.x; i < C * C; i += THREADS) {
        const int at = i / C * tn_tile_step<T>::V + i % C;
        sum = __fmaf_rn(tn_outer_get(s0 + at), tn_outer_get(g + at), sum);
    }
    sum = tn_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums.through[threadIdx.x / 32] = sum;
}

/* By one warp. */
__device__ __forceinline__ void write_alpha(const gradients &a, const tn_outer_chunk &k, const tn_outer_decays &d,
                                            const alpha_sums &sums)
{
    const int lane = threadIdx.x % 32;
    double later[2], earlier[2], through = 0;
    bool later_cut[2], earlier_cut[2];
    for (int w = 0; w < THREADS / 32; w++) through += (double)sums.through[w];
    through = d.last_doc ? 0 : through * (double)d.all;
    for (int i = 0; i < 2; i++) {
        const int t = lane * 2 + i, u = C - 1 - t; /* from the end */
        double x = (double)sums.pair_rows[0][u] + (double)sums.pair_rows[1][u];
        for (int w = 0; w < 4; w++) x -= (double)sums.pair_columns[w][u];
        later[i] = x + (d.doc[u] ? 0 : (double)sums.reads[0][u] + (double)sums.reads[1][u]);
        later_cut[i] = u + 1 < C && d.doc[u + 1] != d.doc[u];
        earlier_cut[i] = d.doc[t] != (t ? d.doc[t - 1] : 0);
        earlier[i] = t ? (double)sums.writes[0][t - 1] + (double)sums.writes[1][t - 1] : through;
        if (earlier_cut[i]) earlier[i] = 0;
    }
    tn_outer_alpha_write(a.dalpha, a.z.T, k, later, later_cut, earlier, earlier_cut);
}

/* Five tiles in turn: q, k, v and dO stay but for q, whose place G takes while it is needed; x holds M, S0, then
 * dL/d(Q K^T). */
template <class T>
__global__ void __launch_bounds__(THREADS, 2) back_kernel(gradients a)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ tn_outer_decays d;
    __shared__ alpha_sums sums;
    enum { SIZE = tn_outer_tile_size<T>() };
    T *q = (T *)memory, *k = q + SIZE, *v = k + SIZE, *d_o = v + SIZE, *x = d_o + SIZE, *g = q;
    const tn_outer_shape &z = a.z;
    const tn_outer_chunk at = chunk_of(z);
    const int warp = threadIdx.x / 32, row = warp % 4 * 16, column = warp / 4 * 32;
    const tn_outer_part zero = tn_outer_part_at(row, column);
    if (warp == 0) tn_outer_decays_fill(tn_outer_alphas_load(z, at.b, at.h, at.first), &d);
    tn_outer_tile_load<T, THREADS>(z.q, at.b, at.h, at.first, z.T, z.N, q, false);
    tn_outer_tile_load<T, THREADS>(z.k, at.b, at.h, at.first, z.T, z.N, k, false);
    tn_outer_tile_load<T, THREADS>(z.v, at.b, at.h, at.first, z.T, z.P, v, false);
    tn_outer_tile_load<T, THREADS>(a.d_o, at.b, at.h, at.first, z.T, z.P, d_o, false);
    __syncthreads();

    tn_outer_part m = zero, dp = zero;
    tn_outer_multiply<false, true>(m, q, k, z.N);
    tn_outer_multiply<false, true>(dp, d_o, v, z.P);
    mask_pairs(m, dp, d, sums);
    tn_outer_part_keep(m, x);
    __syncthreads();
    tn_outer_state_load<T, THREADS>(kept_state<T>(z, at, a.g), z.N, z.P, g);
    __syncthreads();

    tn_outer_part dv = zero; /* tail K G + M^T dO */
    tn_outer_multiply<false, false>(dv, k, g, z.N);
    scale_rows(dv, d.tail, d.doc, d.last_doc);
    tn_outer_multiply<true, false>(dv, x, d_o, C);
    tn_outer_part_write(dv, a.dv, at.b, at.h, at.first, z.T, z.P);
    tn_outer_part dk = zero; /* tail V G^T, later + dp^T Q */
    tn_outer_multiply<false, true>(dk, v, g, z.P);
    scale_rows(dk, d.tail, d.doc, d.last_doc);
    sum_with_tile(dk, k, sums.writes);
    __syncthreads();
    tn_outer_state_load<T, THREADS>(kept_state<T>(z, at, a.states), z.N, z.P, x);
    __syncthreads();
    sum_through(x, g, sums);
    __syncthreads();
    tn_outer_tile_load<T, THREADS>(z.q, at.b, at.h, at.first, z.T, z.N, q, false);
    __syncthreads();

    tn_outer_part dq = zero; /* lead dO S0^T + dp K */
    tn_outer_multiply<false, true>(dq, d_o, x, z.P);
    scale_rows(dq, d.lead, d.doc, 0);
    sum_with_tile(dq, q, sums.reads);
    __syncthreads();
    tn_outer_part_keep(dp, x);
    __syncthreads();
    tn_outer_multiply<false, false>(dq, x, k, C);
    tn_outer_part_write(dq, a.dq, at.b, at.h, at.first, z.T, z.N);
    tn_outer_multiply<true, false>(dk, x, q, C);
    tn_outer_part_write(dk, a.dk, at.b, at.h, at.first, z.T, z.N);
    if (warp == 0 && a.dalpha.at) write_alpha(a, at, d, sums);
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static bool in_chunks(const void *attr, tn_dims q, tn_dims v)
{
    const int64_t N = q.dim[3], P = v.dim[3];
    return !((const tn_outer_attr *)attr)->steps && q.dim[1] > TN_OUTER_FEW && N > 0 && P > 0 && N <= C && P <= C;
}

static size_t states_bytes(tn_dims q, tn_dims v, bool half)
{
    const int64_t chunks = (q.dim[1] + C - 1) / C, n = q.dim[0] * q.dim[2] * chunks * q.dim[3] * v.dim[3];
    return ((size_t)n * (half ? 2 : 4) + 63) / 64 * 64;
}

extern "C" size_t tn_outer_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims q = s->in[TN_OUTER_Q].dims, v = s->in[TN_OUTER_V].dims;
    if (!in_chunks(s->attr, q, v)) return tn_outer_step_work_cuda(q, v, backward);
    const bool half = s->round == TN_BF16 || s->in[TN_OUTER_Q].dtype == TN_BF16;
    const size_t states = states_bytes(q, v, half) * (backward ? 2 : 1),
                 mma = half ? tn_outer_mma_work_cuda(q, v, backward) : 0;
    return states > mma ? states : mma;
}

/* One choice for forward, backward and the workspace; q is there in all of them. */
static bool on_tensor_cores(const tn_call *c) { return c->round == TN_BF16 || c->in[TN_OUTER_Q].dtype == TN_BF16; }

static tn_status launch_walk(const tn_call *c, const walk *w)
{
    const dim3 grid((unsigned)(w->z.B * w->z.H), (unsigned)((w->z.P + SLICE - 1) / SLICE));
    if (on_tensor_cores(c)) walk_kernel<__nv_bfloat16><<<grid, WALKERS, 0, tn_cuda_stream(c)>>>(*w);
    else walk_kernel<float><<<grid, WALKERS, 0, tn_cuda_stream(c)>>>(*w);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status walk_states(const tn_call *c, const tn_outer_shape *z, void *states, const tn_arg *final)
{
    walk w = {};
    w.z = *z, w.a = z->k, w.b = z->v, w.first = z->state, w.states = states;
    if (final) w.end = tn_head_state_of(final, false);
    return launch_walk(c, &w);
}

template <class T>
static tn_status launch_out(const tn_call *c, const outputs *a)
{
    const int bytes = FORWARD_TILES * tn_outer_tile_size<T>() * (int)sizeof(T);
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)out_kernel<T>, bytes));
    out_kernel<T><<<(unsigned)(a->z.B * a->z.H * a->z.chunks), THREADS, bytes, tn_cuda_stream(c)>>>(*a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_outer_forward_cuda(const tn_call *c)
{
    if (!in_chunks(c->attr, c->in[TN_OUTER_Q].dims, c->in[TN_OUTER_V].dims)) return tn_outer_step_forward_cuda(c);
    outputs a = {};
    a.z = tn_outer_shape_of(c);
    a.o = tn_head_of(&c->out[0], false);
    a.states = c->work;
    if (!a.z.B || !a.z.H) return TN_OK;
    if (tn_outer_mma_fits(c)) return tn_outer_mma_forward_cuda(c);
    if (c->in[TN_OUTER_WRITE].data)
        return tn_error(TN_INTERNAL, "outer: write strengths without a kernel that takes them");
    TN_RETURN_IF(walk_states(c, &a.z, c->work, &c->out[1]));
    return on_tensor_cores(c) ? launch_out<__nv_bfloat16>(c, &a) : launch_out<float>(c, &a);
}

template <class T>
static tn_status launch_back(const tn_call *c, const gradients *a)
{
    const int bytes = BACKWARD_TILES * tn_outer_tile_size<T>() * (int)sizeof(T);
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)back_kernel<T>, bytes));
    back_kernel<T><<<(unsigned)(a->z.B * a->z.H * a->z.chunks), THREADS, bytes, tn_cuda_stream(c)>>>(*a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* dL/dS behind every chunk, and of the state before all. */
static tn_status walk_gradients(const tn_call *c, const gradients *a)
{
    walk w = {};
    w.z = a->z, w.a = a->z.q, w.b = a->d_o, w.reverse = true;
    w.states = (void *)(uintptr_t)a->g;
    w.first = tn_head_state_of(&c->dout[1], false);
    w.end = tn_head_state_of(&c->din[TN_OUTER_STATE], c->accumulate >> TN_OUTER_STATE & 1);
    return launch_walk(c, &w);
}

extern "C" tn_status tn_outer_backward_cuda(const tn_call *c)
{
    const tn_dims q = c->in[TN_OUTER_Q].dims, v = c->in[TN_OUTER_V].dims;
    if (!in_chunks(c->attr, q, v)) return tn_outer_step_backward_cuda(c);
    gradients a = {};
    a.z = tn_outer_shape_of(c);
    if (!a.z.B || !a.z.H) return TN_OK;
    if (tn_outer_mma_fits(c)) return tn_outer_mma_backward_cuda(c);
    if (c->in[TN_OUTER_WRITE].data)
        return tn_error(TN_INTERNAL, "outer: write strengths without a kernel that takes them");
    a.d_o = tn_head_of(&c->dout[0], false);
    a.dq = tn_head_of(&c->din[TN_OUTER_Q], c->accumulate >> TN_OUTER_Q & 1);
    a.dk = tn_head_of(&c->din[TN_OUTER_K], c->accumulate >> TN_OUTER_K & 1);
    a.dv = tn_head_of(&c->din[TN_OUTER_V], c->accumulate >> TN_OUTER_V & 1);
    a.dalpha = tn_head_of(&c->din[TN_OUTER_ALPHA], c->accumulate >> TN_OUTER_ALPHA & 1);
    const bool states = a.dq.at || a.dalpha.at, tokens = states || a.dk.at || a.dv.at;
    if (states) a.states = c->work;
    if (tokens) a.g = (char *)c->work + states_bytes(q, v, on_tensor_cores(c));
    if (states) TN_RETURN_IF(walk_states(c, &a.z, c->work, NULL));
    TN_RETURN_IF(walk_gradients(c, &a));
    if (!tokens) return TN_OK;
    return on_tensor_cores(c) ? launch_back<__nv_bfloat16>(c, &a) : launch_back<float>(c, &a);
}
