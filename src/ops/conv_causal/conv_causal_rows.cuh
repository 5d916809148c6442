/* For the CUDA kernels of conv_causal: tensors as they see them, a thread's channels, the tokens of a warp, and the walk
 * towards earlier tokens with its sums. Included by conv_causal_cuda.cu alone. */
#ifndef TN_OPS_CONV_CAUSAL_ROWS_CUH
#define TN_OPS_CONV_CAUSAL_ROWS_CUH

#include "ops/act.cuh"
#include "ops/conv_causal/conv_causal.h"
#include "ops/sum_rows.cuh"

namespace
{

enum { LANES = 32, WARPS = 8, THREADS = LANES * WARPS, SPAN = 64, AHEAD = 4, USUAL = 4, MOST = TN_CONV_MAX_WIDTH };

/* A tensor (B, tokens, C) with contiguous channels. */
typedef struct rows {
    void *at; /* NULL: absent, not wanted or zero */
    tn_dtype type;
    int64_t b, t; /* from row to row, from token to token */
    bool add;
} rows;

typedef struct conv {
    int64_t B, T, C, parts; /* parts: blocks along T */
    int span;               /* tokens of a warp, at most SPAN */
    int taps;
    rows x, state, y, final, w, bias, dy, dfinal, dx, dstate; /* w: t is its step between taps */
    const int32_t *reset, *live;
    float *partial; /* (B, parts, taps + 1, C), or NULL: sums not wanted */
    bool want_w, want_bias;
    bool silu; /* y is silu of the sum */
    tn_sum_rows sums;
} conv;

/* V neighbouring channels. */
template <int V>
struct few {
    float v[V];
};

template <int V>
__device__ __forceinline__ few<V> get(const rows &p, int64_t i)
{
    few<V> r;
    if constexpr (V == 4) {
        if (p.type == TN_F32) {
            const float4 q = *(const float4 *)((const float *)p.at + i);
            r.v[0] = q.x, r.v[1] = q.y, r.v[2] = q.z, r.v[3] = q.w;
        } else if (p.type == TN_BF16) {
            const uint2 q = *(const uint2 *)((const uint16_t *)p.at + i);
            r.v[0] = __uint_as_float(q.x << 16), r.v[1] = __uint_as_float(q.x & 0xffff0000u);
            r.v[2] = __uint_as_float(q.y << 16), r.v[3] = __uint_as_float(q.y & 0xffff0000u);
        } else {
            for (int c = 0; c < V; c++) r.v[c] = tn_load(p.at, p.type, i + c);
        }
    } else {
        for (int c = 0; c < V; c++) r.v[c] = tn_load(p.at, p.type, i + c);
    }
    return r;
}

template <int V>
__device__ __forceinline__ void put(const rows &p, int64_t i, few<V> r)
{
    if (p.add) {
        const few<V> old = get<V>(p, i);
        for (int c = 0; c < V; c++) r.v[c] += old.v[c];
    }
    if constexpr (V == 4) {
        if (p.type == TN_F32) {
            *(float4 *)((float *)p.at + i) = make_float4(r.v[0], r.v[1], r.v[2], r.v[3]);
            return;
        }
        if (p.type == TN_BF16) {
            const __nv_bfloat162 a = __floats2bfloat162_rn(r.v[0], r.v[1]), b = __floats2bfloat162_rn(r.v[2], r.v[3]);
            *(uint2 *)((uint16_t *)p.at + i) = make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
            return;
        }
    }
    for (int c = 0; c < V; c++) tn_store(p.at, p.type, i + c, r.v[c]);
}

template <int V>
__device__ __forceinline__ few<V> zero()
{
    few<V> r;
    for (int c = 0; c < V; c++) r.v[c] = 0;
    return r;
}

template <int V>
__device__ __forceinline__ void more(few<V> &sum, const few<V> &a, const few<V> &b)
{
#pragma unroll
    for (int c = 0; c < V; c++) sum.v[c] = __fmaf_rn(a.v[c], b.v[c], sum.v[c]);
}

template <int V>
__device__ __forceinline__ void clear(few<V> *window, int n)
{
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < n) window[i] = zero<V>();
}

/* Which piece of the work a thread has: row b, tokens first..last-1, channels c..c+V-1. */
struct place {
    int64_t b, first, last, c;
    bool on; /* there are such channels */
};

/* A block's channels, and its tokens among those of all rows: blocks of the same tokens are neighbours. */
template <int V>
__host__ __device__ __forceinline__ int64_t groups_of(const conv &v)
{
    return (v.C + LANES * V - 1) / (LANES * V);
}
template <int V>
__device__ __forceinline__ int64_t group_of(const conv &v)
{
    return blockIdx.x % groups_of<V>(v);
}
template <int V>
__device__ __forceinline__ int64_t part_of(const conv &v)
{
    return blockIdx.x / groups_of<V>(v);
}

template <int V>
__device__ __forceinline__ place place_of(const conv &v)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    place p;
    const int64_t part = part_of<V>(v);
    p.b = part / v.parts;
    p.first = (part % v.parts * WARPS + warp) * v.span;
    p.last = p.first + v.span < v.T ? p.first + v.span : v.T;
    p.c = (group_of<V>(v) * (int64_t)LANES + lane) * V;
    p.on = p.c < v.C;
    return p;
}

__device__ __forceinline__ bool row_lives(const conv &v, int64_t b) { return !v.live || b < *v.live; }

__device__ __forceinline__ bool starts(const conv &v, int64_t b, int64_t t) { return v.reset && v.reset[b * v.T + t]; }

/* The input at token t >= 1 - taps: of x, of the state before it, or zero. */
template <int V>
__device__ __forceinline__ few<V> input_at(const conv &v, const place &p, int64_t t)
{
    if (t >= 0) return get<V>(v.x, p.b * v.x.b + t * v.x.t + p.c);
    const int64_t i = v.taps - 1 + t;
    return v.state.at && i >= 0 ? get<V>(v.state, p.b * v.state.b + i * v.state.t + p.c) : zero<V>();
}

/* Weights, the last of W for the token itself; none for the taps that are left out. */
template <int W, int V>
__device__ __forceinline__ void load_weights(const conv &v, int64_t c, few<V> *w)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        w[i] = i >= W - v.taps && v.w.at ? get<V>(v.w, (i - (W - v.taps)) * v.w.t + c) : zero<V>();
}

/* The inputs before token `first`. */
template <int W, int V>
__device__ __forceinline__ void fill_window(const conv &v, const place &p, few<V> *window)
{
#pragma unroll
    for (int i = 0; i < W - 1; i++) {
        const int64_t t = p.first - (W - 1) + i;
        if (t >= 0 && starts(v, p.b, t)) clear(window, i);
        window[i] = input_at<V>(v, p, t);
    }
}

/* --- the walk back ------------------------------------------------------------------------------------------------ */

/* A walk towards earlier tokens. */
template <int W, int V>
struct walk {
    few<V> w[W], sum[W], bias; /* weights; sums of the gradients of weights and bias */
    few<V> window[W];          /* gradients of y at the token itself and the W-1 after it, as far as they see it */
    bool open;                 /* no document starts between here and the row's end */
};

template <int W, int V>
__device__ __forceinline__ void push(walk<W, V> &k, const few<V> &dy)
{
#pragma unroll
    for (int i = W - 1; i > 0; i--) k.window[i] = k.window[i - 1];
    k.window[0] = dy;
}

/* Past a document's start: what comes before is not seen from there on. */
template <int W, int V>
__device__ __forceinline__ void cross(walk<W, V> &k)
{
    clear(k.window, W);
    k.open = false;
}

/* The input at token t >= 1 - taps, whose gradient goes to `to` at i; the window is filled. */
template <int W, int V>
__device__ __forceinline__ void backward_token(const conv &v, const place &p, int64_t t, const few<V> &x,
                                               const rows &to, int64_t i, walk<W, V> &k)
{
    const int64_t kept = t - (v.T - v.taps + 1);
    few<V> d =
        kept >= 0 && k.open && v.dfinal.at ? get<V>(v.dfinal, p.b * v.dfinal.b + kept * v.dfinal.t + p.c) : zero<V>();
#pragma unroll
    for (int lag = 0; lag < W; lag++) {
        if (lag >= v.taps) continue;
        more(d, k.w[W - 1 - lag], k.window[lag]);
        if (v.want_w) more(k.sum[W - 1 - lag], x, k.window[lag]);
    }
    if (to.at) put<V>(to, i, d);
}

/* The sum at token t, in the forward pass' order. `w` as load_weights leaves it. */
template <int W, int V>
__device__ __forceinline__ few<V> sum_at(const conv &v, const place &p, int64_t t, const few<V> *w)
{
    few<V> x[W], y = v.bias.at ? get<V>(v.bias, p.c) : zero<V>();
    bool hidden = false; /* behind a document's start */
#pragma unroll
    for (int lag = 0; lag < W; lag++) {
        x[lag] = lag < v.taps && !hidden ? input_at<V>(v, p, t - lag) : zero<V>();
        hidden = hidden || (t - lag >= 0 && starts(v, p.b, t - lag));
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        if (i >= W - v.taps) more(y, w[i], x[W - 1 - i]);
    return y;
}

/* The gradient of the sum at token t, 0 where there is no such token. */
template <int W, int V>
__device__ __forceinline__ few<V> dy_at(const conv &v, const place &p, int64_t t, const few<V> *w)
{
    if (!v.dy.at || t < p.first || t >= v.T) return zero<V>();
    few<V> d = get<V>(v.dy, p.b * v.dy.b + t * v.dy.t + p.c);
    if (v.silu) {
        const few<V> y = sum_at<W, V>(v, p, t, w);
#pragma unroll
        for (int c = 0; c < V; c++) d.v[c] = __fmul_rn(d.v[c], tn_d_silu_grad(y.v[c]));
    }
    return d;
}

/* The state's rows, before token 0. */
template <int W, int V>
__device__ __forceinline__ void walk_state(const conv &v, const place &p, walk<W, V> &k)
{
    for (int64_t t = -1; t > -v.taps; t--) {
        push(k, zero<V>());
        const few<V> x = v.want_w ? input_at<V>(v, p, t) : zero<V>();
        backward_token<W, V>(v, p, t, x, v.dstate, p.b * v.dstate.b + (t + v.taps - 1) * v.dstate.t + p.c, k);
    }
}

/* The block's spans, in order, into its row of partial sums: taps, then bias. */
template <int W, int V>
__device__ __forceinline__ void leave_sums(const conv &v, const place &p, const walk<W, V> &k)
{
    __shared__ float shared[WARPS][LANES * V];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
#pragma unroll
    for (int f = 0; f <= W; f++) {
        const int field = f - (W - v.taps); /* the same for all threads */
        if (field < 0) continue;
        for (int c = 0; c < V; c++) shared[warp][lane * V + c] = f < W ? k.sum[f < W ? f : 0].v[c] : k.bias.v[c];
        __syncthreads();
        for (int c = threadIdx.x; c < LANES * V; c += THREADS) {
            const int64_t channel = group_of<V>(v) * (int64_t)(LANES * V) + c;
            float sum = 0;
            for (int i = 0; i < WARPS; i++) sum += shared[i][c];
            if (channel < v.C) v.partial[(part_of<V>(v) * (int64_t)(v.taps + 1) + field) * v.C + channel] = sum;
        }
        __syncthreads();
    }
}

} // namespace

#endif
