/* For the CUDA kernels of delta: documents inside a chunk, and a chunk's rows in shared memory. The
 * formulas are in delta_cpu.h. Chunks are 32 consecutive tokens, wherever documents start; who sees whom is a question to a
 * mask of starts, and is answered by choice and not by multiplication, so that no NaN crosses a start. All arithmetic is f32.
 * Kernels are made for N = 64 and 128 keys; rows that do not exist are keys of zeros with a decay of 1. */
#ifndef TN_OPS_DELTA_CUDA_CUH
#define TN_OPS_DELTA_CUDA_CUH

#include "ops/delta/delta.h"
#include "ops/delta/delta_cuda.h"
#include "ops/matrix_state.cuh"

enum {
    TN_DELTA_C = TN_DELTA_CHUNK,
    TN_DELTA_THREADS = 256,
    TN_DELTA_SLICE = 32,
    TN_DELTA_ALL = TN_DELTA_C * (TN_DELTA_C + 1)
};
static_assert((int)TN_DELTA_C == 32, "a token of a chunk is a lane of a warp, and a bit of a mask");

typedef struct tn_delta_shape {
    int64_t B, T, H;
    int N, P, chunks;
    bool stateless, by_row; /* nothing enters token 0; alpha has a number for each row of the state */
    tn_head_tensor q, k, v, alpha, beta, state;
    const int32_t *reset;
    int64_t reset_b, reset_t;
    /* Workspace, (B,H,chunks,C,C) each: (I + A diag(beta))^-1, which makes U; (I + diag(beta) A)^-1, turned, what U's gradient is
     * made of; M. */
    float *forward, *backward, *m;
} tn_delta_shape;

/* A block's chunk, and the sequence and head it is of. */
struct tn_delta_place {
    int64_t head, b, h, first;
    int chunk;
};

__device__ __forceinline__ tn_delta_place tn_delta_place_of(const tn_delta_shape &z, int64_t head, int chunk)
{
    tn_delta_place at;
    at.head = head, at.b = head / z.H, at.h = head % z.H;
    at.first = (int64_t)chunk * TN_DELTA_C, at.chunk = chunk;
    return at;
}

/* Token i of the chunk; 0 where the tensor is not there, or the token. */
__device__ __forceinline__ float tn_delta_get(const tn_delta_shape &z, const tn_head_tensor &p,
                                              const tn_delta_place &at, int i, int column)
{
    const int64_t t = at.first + i;
    return p.at && t < z.T ? tn_load(p.at, p.type, tn_head_place(p, at.b, at.h, t, column)) : 0.f;
}

__device__ __forceinline__ void tn_delta_set(const tn_delta_shape &z, const tn_head_tensor &p, const tn_delta_place &at,
                                             int i, int column, float x)
{
    const int64_t t = at.first + i;
    if (p.at && t < z.T) tn_put(p.at, p.type, tn_head_place(p, at.b, at.h, t, column), x, p.add);
}

/* --- documents ---------------------------------------------------------------------------------------------------- */

/* Bit i: a document starts at token i of the chunk, or nothing enters it. By one warp; all its lanes get it. */
__device__ __forceinline__ uint32_t tn_delta_starts(const tn_delta_shape &z, const tn_delta_place &at)
{
    const int64_t t = at.first + threadIdx.x % 32;
    const bool start =
        t < z.T && ((t == 0 && z.stateless) || (z.reset && z.reset[at.b * z.reset_b + t * z.reset_t] != 0));
    return __ballot_sync(0xffffffffu, start);
}

__device__ __forceinline__ uint32_t tn_delta_upto(int i) { return 0xffffffffu >> (31 - i); }

/* The first token of the chunk that token i sees. */
__device__ __forceinline__ int tn_delta_begin(uint32_t starts, int i)
{
    const uint32_t before = starts & tn_delta_upto(i);
    return before ? 31 - __clz((int)before) : 0;
}

/* Behind the last token that sees token j. */
__device__ __forceinline__ int tn_delta_end(uint32_t starts, int j)
{
    const uint32_t later = starts & ~tn_delta_upto(j);
    return later ? __ffs((int)later) - 1 : TN_DELTA_C;
}

/* Does token i see the state before the chunk? Is token j seen by the state behind it? */
__device__ __forceinline__ bool tn_delta_reads(uint32_t starts, int i) { return !(starts & tn_delta_upto(i)); }
__device__ __forceinline__ bool tn_delta_leaves(uint32_t starts, int j) { return !(starts & ~tn_delta_upto(j)); }

/* --- rows in shared memory ---------------------------------------------------------------------------------------- */

/* (C,N); 0 where the tensor is not there, or the token, or the row of the state. */
template <int N>
__device__ __forceinline__ void tn_delta_rows(const tn_delta_shape &z, const tn_head_tensor &p,
                                              const tn_delta_place &at, float *to)
{
    for (int k = threadIdx.x; k < TN_DELTA_C * N; k += TN_DELTA_THREADS)
        to[k] = k % N < z.N ? tn_delta_get(z, p, at, k / N, k % N) : 0.f;
}

/* e^{alpha} for every row of the state: (C,N). */
template <int N>
__device__ __forceinline__ void tn_delta_decays(const tn_delta_shape &z, const tn_delta_place &at, float *to)
{
    for (int k = threadIdx.x; k < TN_DELTA_C * N; k += TN_DELTA_THREADS) {
        const int i = k / N, n = k % N;
        to[k] = n < z.N && at.first + i < z.T ? expf(tn_delta_get(z, z.alpha, at, i, z.by_row ? n : 0)) : 1.f;
    }
}

/* A slice of columns of (T,P), from `column` on: (C,SLICE). */
__device__ __forceinline__ void tn_delta_columns(const tn_delta_shape &z, const tn_head_tensor &p,
                                                 const tn_delta_place &at, int column, float *to)
{
    for (int k = threadIdx.x; k < TN_DELTA_C * TN_DELTA_SLICE; k += TN_DELTA_THREADS) {
        const int p_at = column + k % TN_DELTA_SLICE;
        to[k] = p_at < z.P ? tn_delta_get(z, p, at, k / TN_DELTA_SLICE, p_at) : 0.f;
    }
}

/* (C,C) of the workspace to rows of C+1. */
__device__ __forceinline__ void tn_delta_square(const tn_delta_shape &z, const tn_delta_place &at, const float *from,
                                                float *to)
{
    from += (at.head * z.chunks + at.chunk) * TN_DELTA_C * TN_DELTA_C;
    for (int k = threadIdx.x; k < TN_DELTA_C * TN_DELTA_C; k += TN_DELTA_THREADS)
        to[k / TN_DELTA_C * (TN_DELTA_C + 1) + k % TN_DELTA_C] = from[k];
}

/* Row n of everything is this thread's: queries and a copy of the keys by the decay from the chunk's beginning, keys by the
 * one up to its end; all (N), the whole chunk's. */
template <int N>
__device__ __forceinline__ void tn_delta_spread(float *key, float *query, const float *decay, float *led, float *all)
{
    const int n = threadIdx.x;
    if (n >= N) return;
    float lead = 1, tail = 1;
    for (int i = 0; i < TN_DELTA_C; i++) {
        lead = __fmul_rn(lead, decay[i * N + n]);
        led[i * N + n] = __fmul_rn(key[i * N + n], lead);
        query[i * N + n] = __fmul_rn(query[i * N + n], lead);
    }
    for (int i = TN_DELTA_C; i-- > 0;) {
        key[i * N + n] = __fmul_rn(key[i * N + n], tail);
        tail = __fmul_rn(tail, decay[i * N + n]);
    }
    all[n] = lead;
}

/* A warp's tokens: warp, warp + WARPS, ... */
enum { TN_DELTA_WARPS = TN_DELTA_THREADS / 32, TN_DELTA_MINE = TN_DELTA_C / TN_DELTA_WARPS };

/* Of this warp's tokens: rows (C,N) times a column of `state` (N,SLICE), in the order of the state's rows. */
template <int N>
__device__ __forceinline__ void tn_delta_read(const float *rows, const float *state, float (&sum)[TN_DELTA_MINE])
{
    const int lane = threadIdx.x % 32;
    rows += threadIdx.x / 32 * N;
#pragma unroll
    for (int x = 0; x < TN_DELTA_MINE; x++) sum[x] = 0;
#pragma unroll 4
    for (int n = 0; n < N; n += 4) {
        float s[4];
#pragma unroll
        for (int e = 0; e < 4; e++) s[e] = state[(n + e) * TN_DELTA_SLICE + lane];
#pragma unroll
        for (int x = 0; x < TN_DELTA_MINE; x++) {
            const float4 r = *(const float4 *)(rows + x * TN_DELTA_WARPS * N + n);
            sum[x] = __fmaf_rn(r.x, s[0], sum[x]);
            sum[x] = __fmaf_rn(r.y, s[1], sum[x]);
            sum[x] = __fmaf_rn(r.z, s[2], sum[x]);
            sum[x] = __fmaf_rn(r.w, s[3], sum[x]);
        }
    }
}

/* sum (4) += by times four neighbours of a row. */
__device__ __forceinline__ void tn_delta_add4(float (&sum)[4], const float *row, float by)
{
    const float4 r = *(const float4 *)row;
    sum[0] = __fmaf_rn(r.x, by, sum[0]);
    sum[1] = __fmaf_rn(r.y, by, sum[1]);
    sum[2] = __fmaf_rn(r.z, by, sum[2]);
    sum[3] = __fmaf_rn(r.w, by, sum[3]);
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* What a walk along the chunks carries. */
typedef struct tn_delta_walk {
    tn_delta_shape z;
    tn_head_tensor o, final; /* forward */
    tn_head_tensor d_o, d_final, dv, dstate;
    float *states, *behind; /* (B,H,chunks,N,P) S before every chunk, dL/dS behind it; NULL: not wanted */
    float *u, *y;           /* (B,H,chunks,C,P) U, and its gradient; NULL: not wanted */
} tn_delta_walk;

tn_delta_shape tn_delta_shape_of(const tn_call *c);
/* Fills the workspace of z; then walks forward. delta_cuda.cu */
tn_status tn_delta_pairs(const tn_call *c, const tn_delta_shape *z);
tn_status tn_delta_forward(const tn_call *c, const tn_delta_walk *w);
size_t tn_delta_backward_bytes(tn_dims q, tn_dims v);

#endif
