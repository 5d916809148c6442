/* conv_causal on the GPU. A warp takes SPAN tokens of 32 V neighbouring channels of one row and walks along them,
 * forward for the outputs, backward for the gradients, with the last W inputs (or output gradients) of its channels
 * in registers: x is read once but for the W-1 tokens before a span. A document's start empties that window, so
 * nothing earlier is seen. Four taps and rows on 8-byte (f32: 16-byte) addresses have a kernel of their own, V = 4;
 * everything else runs as eight taps, of which the first are left out, V = 1. Both add in the same order: the same
 * bits. Gradients of w and bias: f32 over a span, over the block's spans in order, then sum_rows.cuh. Bytes per
 * token and channel, bf16: forward 4 + 5 % for the overlap of spans; backward 6 + 5 %. Predicted: 85-90 % of copy
 * bandwidth, limited by the unrolled four tokens in flight per thread. */
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
    int taps;
    rows x, state, y, final, w, bias, dy, dfinal, dx, dstate; /* w: t is its step between taps */
    const int32_t *reset, *live;
    float *partial; /* (B, parts, taps + 1, C), or NULL: sums not wanted */
    bool want_w;
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

template <int V>
__device__ __forceinline__ place place_of(const conv &v)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    place p;
    p.b = blockIdx.x / v.parts;
    p.first = (blockIdx.x % v.parts * WARPS + warp) * SPAN;
    p.last = p.first + SPAN < v.T ? p.first + SPAN : v.T;
    p.c = (blockIdx.y * (int64_t)LANES + lane) * V;
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

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* One token: `window` holds the W-1 inputs before it, oldest first, zeros where a document's start hides them. */
template <int W, int V>
__device__ __forceinline__ void forward_token(const conv &v, const place &p, int64_t t, const few<V> &x, bool start,
                                              const few<V> *w, const few<V> &bias, few<V> *window)
{
    few<V> y = bias;
    if (start) clear(window, W - 1);
#pragma unroll
    for (int i = 0; i < W - 1; i++)
        if (i >= W - v.taps) more(y, w[i], window[i]);
    more(y, w[W - 1], x);
    put<V>(v.y, p.b * v.y.b + t * v.y.t + p.c, y);
#pragma unroll
    for (int i = 0; i < W - 2; i++) window[i] = window[i + 1];
    if (W > 1) window[W - 2] = x;
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

template <int W, int V>
__global__ void __launch_bounds__(THREADS, 2) forward_kernel(conv v)
{
    const place p = place_of<V>(v);
    if (!p.on || !row_lives(v, p.b) || (p.first >= v.T && p.first > 0)) return;
    few<V> w[W], window[W], bias = v.bias.at ? get<V>(v.bias, p.c) : zero<V>();
    load_weights<W, V>(v, p.c, w);
    fill_window<W, V>(v, p, window);
    for (int64_t t = p.first; t < p.last; t += AHEAD) {
        few<V> x[AHEAD];
        bool start[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            x[i] = t + i < p.last ? get<V>(v.x, p.b * v.x.b + (t + i) * v.x.t + p.c) : zero<V>();
            start[i] = t + i < p.last && starts(v, p.b, t + i);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (t + i < p.last) forward_token<W, V>(v, p, t + i, x[i], start[i], w, bias, window);
    }
    if (p.last < v.T) return;
#pragma unroll
    for (int i = 0; i < W - 1; i++) {
        const int64_t row = i - (W - v.taps);
        if (row >= 0) put<V>(v.final, p.b * v.final.b + row * v.final.t + p.c, window[i]);
    }
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

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

template <int W, int V>
__device__ __forceinline__ few<V> dy_at(const conv &v, const place &p, int64_t t)
{
    return v.dy.at && t >= 0 && t < v.T ? get<V>(v.dy, p.b * v.dy.b + t * v.dy.t + p.c) : zero<V>();
}

template <int W, int V>
__device__ __forceinline__ void walk_back(const conv &v, const place &p, walk<W, V> &k)
{
    for (int64_t t = p.last - 1; t >= p.first; t -= AHEAD) {
        few<V> x[AHEAD], dy[AHEAD];
        bool start[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            dy[i] = dy_at<W, V>(v, p, t - i);
            start[i] = t - i >= p.first && starts(v, p.b, t - i);
            x[i] = v.want_w && t - i >= p.first ? input_at<V>(v, p, t - i) : zero<V>();
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (t - i < p.first) continue;
            push(k, dy[i]);
#pragma unroll
            for (int c = 0; c < V; c++) k.bias.v[c] += dy[i].v[c];
            backward_token<W, V>(v, p, t - i, x[i], v.dx, p.b * v.dx.b + (t - i) * v.dx.t + p.c, k);
            if (start[i]) cross(k);
        }
    }
    for (int64_t t = -1; p.first == 0 && t > -v.taps; t--) { /* the state's rows */
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
            const int64_t channel = blockIdx.y * (int64_t)(LANES * V) + c;
            float sum = 0;
            for (int i = 0; i < WARPS; i++) sum += shared[i][c];
            if (channel < v.C) v.partial[(blockIdx.x * (int64_t)(v.taps + 1) + field) * v.C + channel] = sum;
        }
        __syncthreads();
    }
}

template <int W, int V>
__global__ void __launch_bounds__(THREADS, V == 4 ? 2 : 1) backward_kernel(conv v)
{
    const place p = place_of<V>(v);
    walk<W, V> k;
    if (v.partial) tn_sum_clear(v.sums);
    if (!row_lives(v, p.b)) return;
    clear(k.window, W);
    clear(k.sum, W);
    k.bias = zero<V>();
    k.open = p.last + W - 2 >= v.T - 1;
    if (p.on && (p.first < v.T || p.first == 0)) {
        load_weights<W, V>(v, p.c, k.w);
        for (int64_t t = p.last + W - 2; t >= p.last; t--) { /* what later spans' tokens see of this one's */
            if (t >= v.T) continue;
            push(k, dy_at<W, V>(v, p, t));
            if (starts(v, p.b, t)) cross(k);
        }
        walk_back<W, V>(v, p, k);
    }
    if (v.partial) leave_sums<W, V>(v, p, k);
}

/* Totals by column: taps times channels, then bias. */
struct to_gradients {
    rows dw, dbias;
    int64_t weights; /* taps C */

    __device__ void operator()(int64_t k, const double *total) const
    {
        const rows &to = k < weights ? dw : dbias;
        if (to.at) tn_put(to.at, to.type, k < weights ? k : k - weights, (float)total[0], to.add);
    }
};

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static rows rows_of(const tn_arg *a, bool add)
{
    const int r = a->dims.rank;
    rows p = { a->data, a->dtype, 0, 0, add };
    if (r == 3) p.b = a->stride[0];
    if (r >= 2) p.t = a->stride[r - 2];
    return p;
}

/* Four channels at once may be read and written. */
static bool by_four(const rows *p)
{
    const uintptr_t unit = p->type == TN_F32 ? 16 : 8;
    return !p->at || (p->b % 4 == 0 && p->t % 4 == 0 && (uintptr_t)p->at % unit == 0 && p->type != TN_F64);
}

static int64_t parts_of(int64_t T) { return T > 0 ? (T + WARPS * SPAN - 1) / (WARPS * SPAN) : 1; }

static size_t partial_bytes(int64_t B, int64_t T, int64_t C, int64_t taps)
{
    return (sizeof(float) * (size_t)(B * parts_of(T) * (taps + 1) * C) + 63) / 64 * 64;
}

extern "C" size_t tn_conv_causal_work_cuda(const tn_sig *s, bool backward)
{
    const int64_t *x = s->in[TN_CONV_X].dims.dim, taps = s->in[TN_CONV_W].dims.dim[0];
    return backward ? partial_bytes(x[0], x[1], x[2], taps) + tn_sum_bytes(1, (taps + 1) * x[2]) : 0;
}

static conv set_up(const tn_call *c)
{
    const int64_t *d = c->in[TN_CONV_X].dims.dim;
    conv v = {};
    v.B = d[0], v.T = d[1], v.C = d[2], v.taps = (int)c->in[TN_CONV_W].dims.dim[0];
    v.parts = parts_of(v.T);
    v.live = c->in[TN_CONV_X].live;
    for (int k = 0; !v.live && c->dout && k < c->n_out; k++) v.live = c->dout[k].live;
    v.x = rows_of(&c->in[TN_CONV_X], false);
    v.w = rows_of(&c->in[TN_CONV_W], false);
    v.bias = rows_of(&c->in[TN_CONV_BIAS], false);
    v.state = rows_of(&c->in[TN_CONV_STATE], false);
    v.reset = (const int32_t *)c->in[TN_CONV_RESET].data;
    return v;
}

static bool vectors(const conv *v)
{
    return v->taps == USUAL && v->C % 4 == 0 && by_four(&v->x) && by_four(&v->w) && by_four(&v->bias) &&
           by_four(&v->state) && by_four(&v->y) && by_four(&v->final) && by_four(&v->dy) && by_four(&v->dfinal) &&
           by_four(&v->dx) && by_four(&v->dstate);
}

static dim3 grid_of(const conv *v, int channels)
{
    return dim3((unsigned)(v->B * v->parts), (unsigned)((v->C + LANES * channels - 1) / (LANES * channels)));
}

extern "C" tn_status tn_conv_causal_forward_cuda(const tn_call *c)
{
    conv v = set_up(c);
    if (!v.B || !v.C) return TN_OK;
    v.y = rows_of(&c->out[0], false);
    v.final = rows_of(&c->out[1], false);
    if (vectors(&v)) forward_kernel<USUAL, 4><<<grid_of(&v, 4), THREADS, 0, tn_cuda_stream(c)>>>(v);
    else forward_kernel<MOST, 1><<<grid_of(&v, 1), THREADS, 0, tn_cuda_stream(c)>>>(v);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_conv_causal_backward_cuda(const tn_call *c)
{
    conv v = set_up(c);
    if (!v.C) return TN_OK;
    v.dy = rows_of(&c->dout[0], false);
    v.dfinal = rows_of(&c->dout[1], false);
    v.dx = rows_of(&c->din[TN_CONV_X], c->accumulate >> TN_CONV_X & 1);
    v.dstate = rows_of(&c->din[TN_CONV_STATE], c->accumulate >> TN_CONV_STATE & 1);
    const rows dw = rows_of(&c->din[TN_CONV_W], c->accumulate >> TN_CONV_W & 1);
    const rows dbias = rows_of(&c->din[TN_CONV_BIAS], c->accumulate >> TN_CONV_BIAS & 1);
    v.want_w = dw.at && v.dy.at;
    v.sums.B = v.dy.at ? v.B : 0; /* no gradient of y: nothing to add */
    v.sums.parts = v.parts, v.sums.columns = (v.taps + 1) * v.C, v.sums.live = v.live;
    v.sums.partial = (const float *)c->work;
    tn_sum_place(&v.sums, 1, (char *)c->work + partial_bytes(v.B, v.T, v.C, v.taps));
    v.partial = (dw.at || dbias.at) && v.dy.at ? (float *)c->work : NULL;
    if (v.B && (v.dx.at || v.dstate.at || v.partial)) {
        if (vectors(&v)) backward_kernel<USUAL, 4><<<grid_of(&v, 4), THREADS, 0, tn_cuda_stream(c)>>>(v);
        else backward_kernel<MOST, 1><<<grid_of(&v, 1), THREADS, 0, tn_cuda_stream(c)>>>(v);
        TN_CUDA_LAUNCHED();
    }
    if (!dw.at && !dbias.at) return TN_OK;
    return tn_sum_rows_run<1>(c, &v.sums, to_gradients{ dw, dbias, v.taps * v.C });
}
