/* For the tensor-core kernels of outer: chunks of 64 tokens as tiles of bf16 in shared memory, and what a warp makes of
 * them in registers. Four warps; warp w owns rows 16 w .. 16 w + 15 of every product, all 64 columns, so that a product
 * whose rows are another's feeds it without leaving the registers. Each warp also brings in its own 16 rows of every
 * tile: what it wrote and read there needs no barrier of the block. */
#ifndef TN_OPS_OUTER_MMA_CUH
#define TN_OPS_OUTER_MMA_CUH

#include "ops/outer/outer_tiles.cuh"

enum {
    TN_MMA_C = TN_OUTER_C,
    TN_MMA_THREADS = 128,
    TN_MMA_STEP = 72, /* numbers from row to row of a tile: 144 bytes, eight rows meet no bank twice */
    TN_MMA_TILE = TN_MMA_C * TN_MMA_STEP,
    TN_MMA_BYTES = TN_MMA_TILE * 2
};

typedef __nv_bfloat16 tn_b16;

/* Of a chunk, as tn_outer_decays; sums of alpha in units of log 2, as the sum of two floats. */
struct __align__(16) tn_mma_decays
{ /* read by pairs */
    float hi[TN_MMA_C], lo[TN_MMA_C];
    float lead[TN_MMA_C], tail[TN_MMA_C];        /* 0 where a document starts between */
    float write[TN_MMA_C], tail_write[TN_MMA_C]; /* v's factor; tail by it */
    float slope[TN_MMA_C];
    int doc[TN_MMA_C];
    float all;
    int first_doc, last_doc;
};

/* By one warp. */
__device__ __forceinline__ void tn_mma_decays_fill(tn_outer_alphas a, tn_mma_decays *d)
{
    const int lane = threadIdx.x % 32;
    int doc[2];
    const int last_doc = tn_outer_documents(a, doc);
    tn_outer_running(a.v, a.starts);
    const double end = __shfl_sync(0xffffffffu, a.v[1], 31);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = lane * 2 + i;
        const double x = a.v[i] * 1.4426950408889634;
        d->hi[t] = (float)x;
        d->lo[t] = (float)(x - (double)(float)x);
        d->doc[t] = doc[i];
        d->lead[t] = doc[i] ? 0.f : tn_outer_exp(a.v[i]);
        d->tail[t] = doc[i] == last_doc ? tn_outer_exp(end - a.v[i]) : 0.f;
        d->write[t] = a.write[i];
        d->slope[t] = a.slope[i];
        d->tail_write[t] = doc[i] == last_doc ? __fmul_rn(d->tail[t], a.write[i]) : 0.f;
    }
    if (lane == 0) d->all = last_doc ? 0.f : tn_outer_exp(end), d->first_doc = doc[0], d->last_doc = last_doc;
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* This warp's rows of a tile: 16 rows of 8 vectors, four a lane. f(row, column) with the tile's row. */
template <class F>
__device__ __forceinline__ void tn_mma_own_rows(F f)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
#pragma unroll
    for (int i = 0; i < 4; i++) f(first + (lane + i * 32) / 8, lane % 8 * 8);
}

/* Sends rows first.. of a tensor on their way to a tile; what does not exist becomes zero. */
__device__ __forceinline__ void tn_mma_fetch(const tn_head_tensor &p, int64_t b, int64_t h, int64_t first, int64_t rows,
                                             int columns, tn_b16 *tile)
{
    const tn_b16 *from = (const tn_b16 *)p.at + b * p.b + h * p.h;
    tn_mma_own_rows([&](int row, int column) {
        const bool there = p.at && first + row < rows && column < columns;
        tn_copy16(tile + row * TN_MMA_STEP + column, there ? from + (first + row) * p.t + column : from, there);
    });
}

/* The same of a dense state (N,P); NULL: zero. */
__device__ __forceinline__ void tn_mma_fetch_state(const tn_b16 *state, int N, int P, tn_b16 *tile)
{
    tn_mma_own_rows([&](int row, int column) {
        const bool there = state && row < N && column < P;
        tn_copy16(tile + row * TN_MMA_STEP + column, there ? state + row * P + column : state, there);
    });
}

/* Out of a tile's own rows, filled by this warp, into rows first.. of a tensor. */
__device__ __forceinline__ void tn_mma_send(const tn_head_tensor &p, int64_t b, int64_t h, int64_t first, int64_t rows,
                                            int columns, const tn_b16 *tile)
{
    tn_b16 *to = (tn_b16 *)p.at + b * p.b + h * p.h;
    tn_mma_own_rows([&](int row, int column) {
        if (first + row >= rows || column >= columns) return;
        tn_b16 *at = to + (first + row) * p.t + column;
        const tn_b16 *from = tile + row * TN_MMA_STEP + column;
        if (p.add) tn_put8(at, TN_BF16, 0, tn_load8(from, TN_BF16, 0), true);
        else *(uint4 *)at = *(const uint4 *)from;
    });
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* A warp's 16 x 64 numbers, f32, in the order of mma.sync: rows row() and row() + 8, columns column(t), the next. */
struct tn_mma_part {
    float v[8][4];

    static __device__ __forceinline__ int row() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ int column(int tile) { return tile * 8 + threadIdx.x % 4 * 2; }
};

/* A warp's 16 x 64 numbers as left operands: four steps of 16 columns. */
struct tn_mma_left {
    uint32_t v[4][4];
};

__device__ __forceinline__ tn_mma_part tn_mma_none()
{
    tn_mma_part a;
#pragma unroll
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) a.v[t][e] = 0;
    return a;
}

__device__ __forceinline__ tn_mma_left tn_mma_rows_of(const tn_b16 *tile)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    tn_mma_left a;
#pragma unroll
    for (int k = 0; k < 4; k++) tn_ldmatrix(a.v[k], tile + (row + lane % 16) * TN_MMA_STEP + k * 16 + lane / 16 * 8);
    return a;
}

/* Columns 16 w .. of the tile, turned, as rows; step k of its four. */
__device__ __forceinline__ void tn_mma_columns_of(const tn_b16 *tile, int k, uint32_t *a)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    tn_ldmatrix_turned(a, tile + (k * 16 + lane / 16 * 8 + lane % 8) * TN_MMA_STEP + row + lane / 8 % 2 * 8);
}

__device__ __forceinline__ tn_mma_left tn_mma_rounded(const tn_mma_part &a)
{
    tn_mma_left r;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *x = a.v[2 * k + i / 2] + i % 2 * 2;
            r.v[k][i] = tn_pack_bf16(x[0], x[1]);
        }
    return r;
}

/* Right operand of step k, columns 16 i .. 16 i + 15. FLIPPED: the tile holds the operand's columns as rows. */
template <bool FLIPPED>
__device__ __forceinline__ void tn_mma_right(const tn_b16 *tile, int k, int i, uint32_t *b)
{
    const int lane = threadIdx.x % 32, r = lane % 8, odd = lane / 8 % 2, high = lane / 16;
    if (FLIPPED) tn_ldmatrix(b, tile + (i * 16 + high * 8 + r) * TN_MMA_STEP + k * 16 + odd * 8);
    else tn_ldmatrix_turned(b, tile + (k * 16 + odd * 8 + r) * TN_MMA_STEP + i * 16 + high * 8);
}

/* What part of a product there is to compute, by warp w: with rows later tokens and columns earlier ones, or the other way
 * round, the rest is zero. ALL: everything. */
enum { TN_MMA_ALL, TN_MMA_BELOW, TN_MMA_ABOVE };

template <int PART>
__device__ __forceinline__ bool tn_mma_wanted(int i)
{
    const int w = threadIdx.x / 32;
    return PART == TN_MMA_ALL || (PART == TN_MMA_BELOW ? i <= w : i >= w);
}

/* acc += A B; OUT: the columns of the product that are wanted, DEPTH: the columns of A that are not zero. */
template <bool FLIPPED, int OUT = TN_MMA_ALL, int DEPTH = TN_MMA_ALL>
__device__ __forceinline__ void tn_mma_multiply(tn_mma_part &acc, const tn_mma_left &a, const tn_b16 *b)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (!tn_mma_wanted<DEPTH>(k)) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t fb[4];
            if (!tn_mma_wanted<OUT>(i)) continue;
            tn_mma_right<FLIPPED>(b, k, i, fb);
            tn_mma(acc.v[2 * i], a.v[k], fb);
            tn_mma(acc.v[2 * i + 1], a.v[k], fb + 2);
        }
    }
}

/* Two numbers by two decays. */
__device__ __forceinline__ uint32_t tn_mma_scaled(uint32_t x, float2 by)
{
    return tn_pack_bf16(__fmul_rn(__uint_as_float(x << 16), by.x), __fmul_rn(__uint_as_float(x & 0xffff0000u), by.y));
}

/* s += (by A)^T B */
__device__ __forceinline__ void tn_mma_add_turned(tn_mma_part &s, const float *by, const tn_b16 *a, const tn_b16 *b)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float *at = by + k * 16 + threadIdx.x % 4 * 2;
        const float2 low = *(const float2 *)at, high = *(const float2 *)(at + 8);
        uint32_t fa[4];
        tn_mma_columns_of(a, k, fa);
        fa[0] = tn_mma_scaled(fa[0], low), fa[1] = tn_mma_scaled(fa[1], low), fa[2] = tn_mma_scaled(fa[2], high),
        fa[3] = tn_mma_scaled(fa[3], high);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t fb[4];
            tn_mma_right<false>(b, k, i, fb);
            tn_mma(s.v[2 * i], fa, fb);
            tn_mma(s.v[2 * i + 1], fa, fb + 2);
        }
    }
}

/* --- on the parts ------------------------------------------------------------------------------------------------- */

/* Rows by the decay from the chunk's beginning (or to its end); rows of another document get nothing. */
__device__ __forceinline__ void tn_mma_scale_rows(tn_mma_part &a, const float *by, const int *docs, int doc)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = a.row() + half * 8;
        const float x = by[row];
        const bool cut = docs[row] != doc;
#pragma unroll
        for (int t = 0; t < 8; t++)
#pragma unroll
            for (int e = 0; e < 2; e++) a.v[t][half * 2 + e] = tn_outer_by(a.v[t][half * 2 + e], x, cut);
    }
}

/* f(tile, element, decay, keep) for every number: the decay between its row's and its column's token. */
template <int PART, class F>
__device__ __forceinline__ void tn_mma_by_pairs(const tn_mma_decays &d, F f)
{
    const int row = tn_mma_part::row();
    const float hi[2] = { d.hi[row], d.hi[row + 8] }, lo[2] = { d.lo[row], d.lo[row + 8] };
    const bool mixed = d.first_doc != d.last_doc;
#pragma unroll
    for (int t = 0; t < 8; t++) {
        if (!tn_mma_wanted<PART>(t / 2)) continue;
        const int column = tn_mma_part::column(t);
        const float2 h = *(const float2 *)&d.hi[column], l = *(const float2 *)&d.lo[column];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = row + e / 2 * 8, c = column + e % 2;
            const float x = __fadd_rn(__fsub_rn(hi[e / 2], e % 2 ? h.y : h.x), __fsub_rn(lo[e / 2], e % 2 ? l.y : l.x));
            const float y = PART == TN_MMA_BELOW ? x : -x, decay = y < -122.9f ? 0.f : tn_exp2(y); /* 1e-37 */
            bool keep = PART == TN_MMA_BELOW ? c <= r : c >= r;
            if (mixed) keep = keep && d.doc[r] == d.doc[c];
            f(t, e, decay, keep);
        }
    }
}

/* Rows are the later tokens, columns the earlier ones, by what those write. */
__device__ __forceinline__ void tn_mma_mask(tn_mma_part &a, const tn_mma_decays &d)
{
    tn_mma_by_pairs<TN_MMA_BELOW>(d, [&](int t, int e, float decay, bool keep) {
        const float2 by = *(const float2 *)&d.write[tn_mma_part::column(t)];
        a.v[t][e] = keep ? __fmul_rn(__fmul_rn(a.v[t][e], decay), e % 2 ? by.y : by.x) : 0.f;
    });
}

/* Into this warp's rows of a tile, rounded. */
__device__ __forceinline__ void tn_mma_keep(const tn_mma_part &a, tn_b16 *tile)
{
#pragma unroll
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *(uint32_t *)(tile + (a.row() + half * 8) * TN_MMA_STEP + a.column(t)) =
                tn_pack_bf16(a.v[t][half * 2], a.v[t][half * 2 + 1]);
}

__device__ __forceinline__ void tn_mma_keep(const tn_mma_left &a, tn_b16 *tile)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(uint32_t *)(tile + (tn_mma_part::row() + i % 2 * 8) * TN_MMA_STEP + tn_mma_part::column(2 * k + i / 2)) =
                a.v[k][i];
}

/* This warp's rows of a tile are added. */
__device__ __forceinline__ void tn_mma_add(tn_mma_part &a, const tn_b16 *tile)
{
#pragma unroll
    for (int t = 0; t < 8; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t x = *(const uint32_t *)(tile + (a.row() + half * 8) * TN_MMA_STEP + a.column(t));
            a.v[t][half * 2] = __fadd_rn(a.v[t][half * 2], __uint_as_float(x << 16));
            a.v[t][half * 2 + 1] = __fadd_rn(a.v[t][half * 2 + 1], __uint_as_float(x & 0xffff0000u));
        }
}

/* Each row times the same row of a tile, summed, into sums (64). */
__device__ __forceinline__ void tn_mma_dot_rows(const tn_mma_part &a, const tn_b16 *tile, float *sums)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = a.row() + half * 8;
        float sum = 0;
#pragma unroll
        for (int t = 0; t < 8; t++) {
            const uint32_t x = *(const uint32_t *)(tile + row * TN_MMA_STEP + a.column(t));
            sum = __fmaf_rn(a.v[t][half * 2], __uint_as_float(x << 16), sum);
            sum = __fmaf_rn(a.v[t][half * 2 + 1], __uint_as_float(x & 0xffff0000u), sum);
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (threadIdx.x % 4 == 0) sums[row] = sum;
    }
}

#endif
