/* For the CUDA kernels of outer: a chunk of 64 tokens as 64x64 tiles in shared memory.
 *
 * A tile's numbers are T: bf16, multiplied on tensor cores, or f32, multiplied exactly. Sums are f32. Rows and
 * columns that do not exist are zeros. A warp's part of a product is 16 rows by 32 columns, in the order of mma.sync
 * whichever T is, so that kernels are written once. */
#ifndef TN_OPS_OUTER_TILES_CUH
#define TN_OPS_OUTER_TILES_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/mma.cuh"
#include "ops/act.cuh"
#include "ops/matrix_state.cuh"
#include "ops/outer/outer.h"

/* Tokens of a chunk, and most rows and columns of a state; tiles of 8 columns. */
enum { TN_OUTER_C = TN_OUTER_CHUNK, TN_OUTER_PARTS = 4 };

typedef struct tn_outer_shape {
    int64_t B, T, H;
    int N, P, chunks;
    bool stateless; /* nothing enters token 0 */
    bool raw;       /* as in tn_outer_attr */
    tn_head_tensor q, k, v, alpha, state, write;
    const int32_t *reset;
    int64_t reset_b, reset_t;
} tn_outer_shape;

static inline tn_outer_shape tn_outer_shape_of(const tn_call *c)
{
    const tn_arg *r = &c->in[TN_OUTER_RESET];
    const int64_t *q = c->in[TN_OUTER_Q].dims.dim;
    tn_outer_shape z = {};
    z.B = q[0], z.T = q[1], z.H = q[2], z.N = (int)q[3], z.P = (int)c->in[TN_OUTER_V].dims.dim[3];
    z.chunks = (int)((z.T + TN_OUTER_C - 1) / TN_OUTER_C);
    z.stateless = c->in[TN_OUTER_STATE].dims.rank == 0;
    z.q = tn_head_of(&c->in[TN_OUTER_Q], false);
    z.k = tn_head_of(&c->in[TN_OUTER_K], false);
    z.v = tn_head_of(&c->in[TN_OUTER_V], false);
    z.alpha = tn_head_of(&c->in[TN_OUTER_ALPHA], false);
    z.state = tn_head_state_of(&c->in[TN_OUTER_STATE], false);
    z.write = tn_head_of(&c->in[TN_OUTER_WRITE], false);
    z.raw = ((const tn_outer_attr *)c->attr)->raw;
    z.reset = (const int32_t *)r->data;
    if (z.reset) z.reset_b = r->stride[0], z.reset_t = r->stride[1];
    return z;
}

__device__ __forceinline__ bool tn_outer_starts(const tn_outer_shape &z, int64_t b, int64_t t)
{
    return (t == 0 && z.stateless) || (z.reset && z.reset[b * z.reset_b + t * z.reset_t]);
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Numbers from row to row: 16-byte rows whose eight neighbours lie in different banks. */
template <class T>
struct tn_tile_step;
template <>
struct tn_tile_step<float> {
    enum { V = 68 };
};
template <>
struct tn_tile_step<__nv_bfloat16> {
    enum { V = 72 };
};

template <class T>
__host__ __device__ constexpr int tn_outer_tile_size()
{
    return TN_OUTER_C * tn_tile_step<T>::V;
}

__device__ __forceinline__ void tn_outer_set(float *p, float x) { *p = x; }
__device__ __forceinline__ void tn_outer_set(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }
/* Two neighbours, the first at an even place. */
__device__ __forceinline__ void tn_outer_set2(float *p, float x, float y) { *(float2 *)p = make_float2(x, y); }
__device__ __forceinline__ void tn_outer_set2(__nv_bfloat16 *p, float x, float y)
{
    *(__nv_bfloat162 *)p = __floats2bfloat162_rn(x, y);
}
__device__ __forceinline__ float tn_outer_get(const float *p) { return *p; }
__device__ __forceinline__ float tn_outer_get(const __nv_bfloat16 *p) { return __bfloat162float(*p); }

/* 8 neighbours of a row, zeros beyond `columns`; row is known to exist. */
__device__ __forceinline__ tn_f8 tn_outer_eight(const tn_head_tensor &p, int64_t b, int64_t h, int64_t row, int column,
                                                int columns)
{
    tn_f8 r;
    if (p.vectors && column + 8 <= columns) return tn_load8(p.at, p.type, tn_head_place(p, b, h, row, column));
#pragma unroll
    for (int i = 0; i < 8; i++)
        r.v[i] = column + i < columns ? tn_load(p.at, p.type, tn_head_place(p, b, h, row, column + i)) : 0.f;
    return r;
}

__device__ __forceinline__ void tn_outer_set8(float *to, const tn_f8 &r) { tn_store8(to, TN_F32, 0, r); }
__device__ __forceinline__ void tn_outer_set8(__nv_bfloat16 *to, const tn_f8 &r) { tn_store8(to, TN_BF16, 0, r); }

/* Rows first..first+63 of `rows`, all columns. True where some number is NaN or Inf, which is left out then if
 * `clean`. */
template <class T, int THREADS>
__device__ __forceinline__ bool tn_outer_tile_load(const tn_head_tensor &p, int64_t b, int64_t h, int64_t first,
                                                   int64_t rows, int columns, T *tile, bool clean)
{
    bool bad = false;
#pragma unroll
    for (int i = 0; i < TN_OUTER_C * 8 / THREADS; i++) {
        const int at = threadIdx.x + i * THREADS, row = at / 8, column = at % 8 * 8;
        tn_f8 r = {};
        if (p.at && first + row < rows && column < columns) r = tn_outer_eight(p, b, h, first + row, column, columns);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const bool odd = !(fabsf(r.v[j]) <= 3.402823466e38f);
            bad = bad || odd;
            if (odd && clean) r.v[j] = 0;
        }
        tn_outer_set8(tile + row * tn_tile_step<T>::V + column, r);
    }
    return bad;
}

/* A kept state (N,P), dense; NULL: zero. */
template <class T, int THREADS>
__device__ __forceinline__ void tn_outer_state_load(const T *state, int N, int P, T *tile)
{
    enum { STEP = tn_tile_step<T>::V, MANY = 16 / sizeof(T) };
    if (P % MANY == 0) {
        for (int i = threadIdx.x; i < TN_OUTER_C * TN_OUTER_C / MANY; i += THREADS) {
            const int n = i / (TN_OUTER_C / MANY), p = i % (TN_OUTER_C / MANY) * MANY;
            const uint4 none = make_uint4(0, 0, 0, 0);
            *(uint4 *)(tile + n * STEP + p) = state && n < N && p < P ? *(const uint4 *)(state + n * P + p) : none;
        }
        return;
    }
    for (int i = threadIdx.x; i < TN_OUTER_C * TN_OUTER_C; i += THREADS) {
        const int n = i / TN_OUTER_C, p = i % TN_OUTER_C;
        T *to = tile + n * STEP + p;
        if (state && n < N && p < P) *to = state[n * P + p];
        else tn_outer_set(to, 0.f);
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* A warp's 16 rows by 32 columns. */
struct tn_outer_part {
    float v[TN_OUTER_PARTS][4];
    int row, column; /* of the first element of this thread */

    __device__ __forceinline__ int row_of(int e) const { return row + (e >> 1) * 8; }
    __device__ __forceinline__ int column_of(int part, int e) const { return column + part * 8 + (e & 1); }
};

__device__ __forceinline__ tn_outer_part tn_outer_part_at(int row, int column)
{
    tn_outer_part a;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) a.v[i][e] = 0;
    a.row = row + lane / 4;
    a.column = column + lane % 4 * 2;
    return a;
}

/* acc += A B over `depth` terms. A_FLIPPED: the tile holds A's columns as rows; B_FLIPPED likewise. */
template <bool A_FLIPPED, bool B_FLIPPED>
__device__ __forceinline__ void tn_outer_multiply(tn_outer_part &acc, const __nv_bfloat16 *a, const __nv_bfloat16 *b,
                                                  int depth)
{
    enum { STEP = tn_tile_step<__nv_bfloat16>::V };
    const int lane = threadIdx.x % 32, r = lane % 8, odd = lane / 8 % 2, high = lane / 16;
    const int row = acc.row - lane / 4, column = acc.column - lane % 4 * 2;
    for (int k = 0; k < depth; k += 16) {
        uint32_t fa[4], fb[4];
        if (A_FLIPPED) tn_ldmatrix_turned(fa, a + (k + high * 8 + r) * STEP + row + odd * 8);
        else tn_ldmatrix(fa, a + (row + odd * 8 + r) * STEP + k + high * 8);
#pragma unroll
        for (int i = 0; i < TN_OUTER_PARTS; i += 2) {
            const int c = column + i * 8;
            if (B_FLIPPED) tn_ldmatrix(fb, b + (c + high * 8 + r) * STEP + k + odd * 8);
            else tn_ldmatrix_turned(fb, b + (k + odd * 8 + r) * STEP + c + high * 8);
            tn_mma(acc.v[i], fa, fb);
            tn_mma(acc.v[i + 1], fa, fb + 2);
        }
    }
}

template <bool A_FLIPPED, bool B_FLIPPED>
__device__ __forceinline__ void tn_outer_multiply(tn_outer_part &acc, const float *a, const float *b, int depth)
{
    enum { STEP = tn_tile_step<float>::V };
#pragma unroll 4
    for (int k = 0; k < depth; k++) {
        const float a0 = A_FLIPPED ? a[k * STEP + acc.row] : a[acc.row * STEP + k];
        const float a1 = A_FLIPPED ? a[k * STEP + acc.row + 8] : a[(acc.row + 8) * STEP + k];
#pragma unroll
        for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int c = acc.column + i * 8 + e;
                const float x = B_FLIPPED ? b[c * STEP + k] : b[k * STEP + c];
                acc.v[i][e] = __fmaf_rn(a0, x, acc.v[i][e]);
                acc.v[i][e + 2] = __fmaf_rn(a1, x, acc.v[i][e + 2]);
            }
    }
}

template <class T>
__device__ __forceinline__ void tn_outer_part_keep(const tn_outer_part &a, T *tile)
{
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2)
            tn_outer_set2(tile + a.row_of(e) * tn_tile_step<T>::V + a.column_of(i, e), a.v[i][e], a.v[i][e + 1]);
}

/* Rows first.. of a tensor. */
__device__ __forceinline__ void tn_outer_part_write(const tn_outer_part &a, const tn_head_tensor &p, int64_t b,
                                                    int64_t h, int64_t first, int64_t rows, int columns)
{
    if (!p.at) return;
#pragma unroll
    for (int i = 0; i < TN_OUTER_PARTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const int64_t row = first + a.row_of(e), at = tn_head_place(p, b, h, row, a.column_of(i, e));
            if (row >= rows) continue;
            if (p.vectors && p.type == TN_BF16 && !p.add && a.column_of(i, 1) < columns) {
                const __nv_bfloat162 x = __floats2bfloat162_rn(a.v[i][e], a.v[i][e + 1]);
                *(__nv_bfloat162 *)((__nv_bfloat16 *)p.at + at) = x;
                continue;
            }
            if (a.column_of(i, 0) < columns) tn_put(p.at, p.type, at, a.v[i][e], p.add);
            if (a.column_of(i, 1) < columns) tn_put(p.at, p.type, at + p.n, a.v[i][e + 1], p.add);
        }
}

/* --- decays ------------------------------------------------------------------------------------------------------- */

/* Of a chunk. sum: of alpha since the document's start or the chunk's, whichever is later; a starting token's alpha is
 * without effect. doc: documents started in the chunk up to and with the token. */
struct tn_outer_decays {
    double sum[TN_OUTER_C];
    float lead[TN_OUTER_C]; /* from the chunk's beginning to the token; 0 where a document starts between */
    float tail[TN_OUTER_C]; /* from the token to the chunk's end, likewise */
    int doc[TN_OUTER_C];
    float all;
    int last_doc; /* not 0: what enters the chunk does not leave it */
};

/* e^x; below 1e-37 it counts as 0. NaN stays. */
__device__ __forceinline__ float tn_outer_exp(double x)
{
    const float e = expf((float)x);
    return e < 1e-37f ? 0.f : e;
}

/* Running sums over 64 values, two a lane, that begin anew at every flag; in the warp's own order. */
__device__ __forceinline__ void tn_outer_running(double *v, const bool *flag)
{
    const int lane = threadIdx.x % 32;
    double sum = flag[1] ? v[1] : v[0] + v[1];
    int cut = flag[0] || flag[1];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const double before = __shfl_up_sync(0xffffffffu, sum, d);
        const int cut_before = __shfl_up_sync(0xffffffffu, cut, d);
        if (lane < d) continue;
        if (!cut) sum = before + sum;
        cut = cut || cut_before;
    }
    const double before = __shfl_up_sync(0xffffffffu, sum, 1);
    if (!flag[0] && lane) v[0] = before + v[0];
    if (!flag[1]) v[1] = v[0] + v[1];
}

/* alpha of tokens 2 lane and the next, as read; -inf and all that is as good as it becomes a number that adds up. */
struct tn_outer_alphas {
    double v[2];
    bool starts[2];
    float write[2]; /* by what v is multiplied: 1 where nothing is said */
    float slope[2]; /* of alpha by what is given for it */
};

/* The same as it lies in memory: to be asked for all at once, and opened when it is needed. */
struct tn_outer_asked {
    uint32_t alpha[2], write[2];
    bool starts[2], there[2];
};

__device__ __forceinline__ uint32_t tn_outer_ask(const tn_head_tensor &p, int64_t b, int64_t h, int64_t t, bool there)
{
    const int64_t i = b * p.b + t * p.t + h * p.h;
    if (!there || !p.at) return 0;
    if (p.type == TN_F32) return ((const uint32_t *)p.at)[i];
    if (p.type == TN_F64) return __float_as_uint((float)((const double *)p.at)[i]);
    return ((const uint16_t *)p.at)[i];
}

__device__ __forceinline__ float tn_outer_opened(const tn_head_tensor &p, uint32_t x)
{
    if (p.type == TN_BF16) return __uint_as_float(x << 16);
    return p.type == TN_F16 ? __half2float(__ushort_as_half((unsigned short)x)) : __uint_as_float(x);
}

__device__ __forceinline__ tn_outer_asked tn_outer_alphas_ask(const tn_outer_shape &z, int64_t b, int64_t h,
                                                              int64_t first)
{
    tn_outer_asked r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t t = first + threadIdx.x % 32 * 2 + i;
        r.there[i] = t < z.T;
        r.alpha[i] = tn_outer_ask(z.alpha, b, h, t, r.there[i]);
        r.write[i] = tn_outer_ask(z.write, b, h, t, r.there[i]);
        r.starts[i] = r.there[i] && tn_outer_starts(z, b, t);
    }
    return r;
}

__device__ __forceinline__ tn_outer_alphas tn_outer_alphas_open(const tn_outer_shape &z, const tn_outer_asked &r)
{
    tn_outer_alphas a;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float x = tn_outer_opened(z.alpha, r.alpha[i]), w = z.write.at ? tn_outer_opened(z.write, r.write[i]) : 1.f;
        a.slope[i] = 1.f;
        if (z.raw) {
            a.slope[i] = -tn_d_sigmoid(x);
            x = r.there[i] ? -(tn_d_at_least(x, 0.f) + log1pf(expf(-fabsf(x)))) : 0.f;
            w = tn_d_sigmoid(w);
        }
        a.starts[i] = r.starts[i];
        a.v[i] = a.starts[i] ? 0 : x < -200.f ? -200. : (double)x;
        a.write[i] = w;
    }
    return a;
}

__device__ __forceinline__ tn_outer_alphas tn_outer_alphas_load(const tn_outer_shape &z, int64_t b, int64_t h,
                                                                int64_t first)
{
    return tn_outer_alphas_open(z, tn_outer_alphas_ask(z, b, h, first));
}

/* A block's chunk. */
struct tn_outer_chunk {
    int64_t head, b, h, first;
    int chunk;
};

/* The documents of this lane's two tokens, counted from the chunk's beginning; returns that of its last token. By one warp. */
__device__ __forceinline__ int tn_outer_documents(const tn_outer_alphas &a, int (&doc)[2])
{
    const int lane = threadIdx.x % 32;
    int count = a.starts[0] + a.starts[1];
#pragma unroll
    for (int s = 1; s < 32; s *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, count, s);
        if (lane >= s) count += before;
    }
    doc[0] = count - a.starts[1], doc[1] = count;
    return __shfl_sync(0xffffffffu, count, 31);
}

/* alpha_t decays everything that passes from before t to t or after it. later (tokens from the end): what belongs to pairs and reads of
 * S0, by the later token; earlier: writes to S1, by the earlier token, and what passes through. Both are added up along the
 * chunk, cut where a document starts. slope (64), or NULL: of alpha by what is given for it. By one warp, two tokens a lane. */
__device__ __forceinline__ void tn_outer_alpha_write(const tn_head_tensor &dalpha, int64_t T, const tn_outer_chunk &k,
                                                     double (&later)[2], bool (&later_cut)[2], double (&earlier)[2],
                                                     bool (&earlier_cut)[2], const float *slope = NULL)
{
    const int lane = threadIdx.x % 32;
    tn_outer_running(later, later_cut);
    tn_outer_running(earlier, earlier_cut);
    for (int i = 0; i < 2; i++) {
        const int t = lane * 2 + i;
        const double from_end = __shfl_sync(0xffffffffu, later[1 - i], 31 - lane);
        if (k.first + t >= T) continue;
        tn_put(dalpha.at, dalpha.type, k.b * dalpha.b + (k.first + t) * dalpha.t + k.h * dalpha.h,
               earlier_cut[i] ? 0.f : __fmul_rn((float)(from_end + earlier[i]), slope ? slope[t] : 1.f), dalpha.add);
    }
}

/* By one warp. */
__device__ __forceinline__ void tn_outer_decays_fill(tn_outer_alphas a, tn_outer_decays *d)
{
    const int lane = threadIdx.x % 32;
    int doc[2];
    const int last_doc = tn_outer_documents(a, doc);
    tn_outer_running(a.v, a.starts);
    const double end = __shfl_sync(0xffffffffu, a.v[1], 31);
    for (int i = 0; i < 2; i++) {
        const int t = lane * 2 + i;
        d->sum[t] = a.v[i];
        d->doc[t] = doc[i];
        d->lead[t] = doc[i] ? 0.f : tn_outer_exp(a.v[i]);
        d->tail[t] = doc[i] == last_doc ? tn_outer_exp(end - a.v[i]) : 0.f;
    }
    if (lane == 0) d->all = last_doc ? 0.f : tn_outer_exp(end), d->last_doc = last_doc;
}

/* From token j to token i of a chunk. */
__device__ __forceinline__ float tn_outer_between(const tn_outer_decays &d, int i, int j)
{
    return j > i || d.doc[i] != d.doc[j] ? 0.f : i == j ? 1.f : tn_outer_exp(d.sum[i] - d.sum[j]);
}

/* x by the decay to or from token i, which may be cut off. */
__device__ __forceinline__ float tn_outer_by(float x, float decay, bool cut) { return cut ? 0.f : __fmul_rn(x, decay); }

#endif
