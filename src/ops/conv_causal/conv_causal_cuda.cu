/* conv_causal on the GPU. A warp takes a span of 64 tokens, or fewer where there are few channels, of 32 V neighbouring
 * channels of one row and walks along them, forward for the outputs, backward for the gradients, with the last W inputs
 * (or output gradients) of its channels in registers: x is read once but for the W-1 tokens before a span. A document's
 * start empties that window, so nothing earlier is seen. Four taps and rows on 8-byte (f32: 16-byte) addresses have
 * kernels of their own, V = 4 (conv_causal_four.cuh); everything else runs as eight taps, of which the first are left out,
 * V = 1. Both add in the same order: the same bits. Gradients of w and bias: f32 over a span, over the block's spans in
 * order, then sum_rows.cuh. Bytes per token and channel, bf16: forward 4, backward 6, with silu or without; the 5 % of
 * overlap of spans come from the L2. */
#include "ops/conv_causal/conv_causal_four.cuh"

namespace
{

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
    if (v.silu)
        for (int c = 0; c < V; c++) y.v[c] = tn_d_silu(y.v[c]);
    put<V>(v.y, p.b * v.y.b + t * v.y.t + p.c, y);
#pragma unroll
    for (int i = 0; i < W - 2; i++) window[i] = window[i + 1];
    if (W > 1) window[W - 2] = x;
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

template <int W, int V>
__device__ __forceinline__ void walk_back(const conv &v, const place &p, walk<W, V> &k)
{
    for (int64_t t = p.last - 1; t >= p.first; t -= AHEAD) {
        few<V> x[AHEAD], dy[AHEAD];
        bool start[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            dy[i] = dy_at<W, V>(v, p, t - i, k.w);
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
    if (p.first == 0) walk_state<W, V>(v, p, k);
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
            push(k, dy_at<W, V>(v, p, t, k.w));
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

static int64_t parts_of(int64_t T, int span) { return T > 0 ? (T + WARPS * span - 1) / (WARPS * span) : 1; }

/* Few channels make few blocks: shorter spans then, by the shape alone, so that sums have the same order on every GPU. */
static int span_of(int64_t B, int64_t T, int64_t C)
{
    int span = SPAN;
    while (span > 16 && B * parts_of(T, span) * ((C + LANES * 4 - 1) / (LANES * 4)) < 512) span /= 2;
    return span;
}

static size_t partial_bytes(int64_t B, int64_t T, int64_t C, int64_t taps)
{
    return (sizeof(float) * (size_t)(B * parts_of(T, span_of(B, T, C)) * (taps + 1) * C) + 63) / 64 * 64;
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
    v.span = span_of(v.B, v.T, v.C);
    v.parts = parts_of(v.T, v.span);
    v.live = c->in[TN_CONV_X].live;
    for (int k = 0; !v.live && c->dout && k < c->n_out; k++) v.live = c->dout[k].live;
    v.x = rows_of(&c->in[TN_CONV_X], false);
    v.w = rows_of(&c->in[TN_CONV_W], false);
    v.bias = rows_of(&c->in[TN_CONV_BIAS], false);
    v.state = rows_of(&c->in[TN_CONV_STATE], false);
    v.reset = (const int32_t *)c->in[TN_CONV_RESET].data;
    v.silu = ((const tn_conv_causal_attr *)c->attr)->silu;
    return v;
}

static bool vectors(const conv *v)
{
    return v->taps == USUAL && v->C % 4 == 0 && by_four(&v->x) && by_four(&v->w) && by_four(&v->bias) &&
           by_four(&v->state) && by_four(&v->y) && by_four(&v->final) && by_four(&v->dy) && by_four(&v->dfinal) &&
           by_four(&v->dx) && by_four(&v->dstate);
}

/* Are the tensors of all tokens of this type, where they are there? */
static bool all_are(const conv *v, tn_dtype type)
{
    const rows *p[] = { &v->x, &v->y, &v->dy, &v->dx };
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        if (p[i]->at && p[i]->type != type) return false;
    return true;
}

template <int V>
static unsigned blocks_of(const conv *v)
{
    return (unsigned)(v->B * v->parts * groups_of<V>(*v));
}

template <class T>
static void launch_forward_four(const conv &v, cudaStream_t stream)
{
    if (v.silu) forward_four<T, true><<<blocks_of<4>(&v), THREADS, 0, stream>>>(v);
    else forward_four<T, false><<<blocks_of<4>(&v), THREADS, 0, stream>>>(v);
}

template <class T, bool SILU>
static void launch_backward_four(const conv &v, cudaStream_t stream)
{
    if (v.dx.at && v.dx.add) backward_four<T, true, SILU><<<blocks_of<4>(&v), THREADS, 0, stream>>>(v);
    else backward_four<T, false, SILU><<<blocks_of<4>(&v), THREADS, 0, stream>>>(v);
}

template <class T>
static void launch_backward_four(const conv &v, cudaStream_t stream)
{
    if (v.silu) launch_backward_four<T, true>(v, stream);
    else launch_backward_four<T, false>(v, stream);
}

extern "C" tn_status tn_conv_causal_forward_cuda(const tn_call *c)
{
    conv v = set_up(c);
    if (!v.B || !v.C) return TN_OK;
    v.y = rows_of(&c->out[0], false);
    v.final = rows_of(&c->out[1], false);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (vectors(&v) && all_are(&v, TN_BF16)) launch_forward_four<__nv_bfloat16>(v, stream);
    else if (vectors(&v) && all_are(&v, TN_F32)) launch_forward_four<float>(v, stream);
    else forward_kernel<MOST, 1><<<blocks_of<1>(&v), THREADS, 0, stream>>>(v);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_conv_causal_backward_cuda(const tn_call *c)
{
    conv v = set_up(c);
    if (!v.C) return TN_OK;
    v.dy = rows_of(&c->dout[0], false);
    v.silu = v.silu && v.dy.at;
    v.dfinal = rows_of(&c->dout[1], false);
    v.dx = rows_of(&c->din[TN_CONV_X], c->accumulate >> TN_CONV_X & 1);
    v.dstate = rows_of(&c->din[TN_CONV_STATE], c->accumulate >> TN_CONV_STATE & 1);
    const rows dw = rows_of(&c->din[TN_CONV_W], c->accumulate >> TN_CONV_W & 1);
    const rows dbias = rows_of(&c->din[TN_CONV_BIAS], c->accumulate >> TN_CONV_BIAS & 1);
    v.want_w = dw.at && v.dy.at;
    v.want_bias = dbias.at && v.dy.at;
    v.sums.B = v.dy.at ? v.B : 0; /* no gradient of y: nothing to add */
    v.sums.parts = v.parts, v.sums.columns = (v.taps + 1) * v.C, v.sums.live = v.live;
    v.sums.partial = (const float *)c->work;
    tn_sum_place(&v.sums, 1, (char *)c->work + partial_bytes(v.B, v.T, v.C, v.taps));
    v.partial = (dw.at || dbias.at) && v.dy.at ? (float *)c->work : NULL;
    if (v.B && (v.dx.at || v.dstate.at || v.partial)) {
        const cudaStream_t stream = tn_cuda_stream(c);
        if (vectors(&v) && all_are(&v, TN_BF16)) launch_backward_four<__nv_bfloat16>(v, stream);
        else if (vectors(&v) && all_are(&v, TN_F32)) launch_backward_four<float>(v, stream);
        else backward_kernel<MOST, 1><<<blocks_of<1>(&v), THREADS, 0, stream>>>(v);
        TN_CUDA_LAUNCHED();
    }
    if (!dw.at && !dbias.at) return TN_OK;
    return tn_sum_rows_run<1>(c, &v.sums, to_gradients{ dw, dbias, v.taps * v.C });
}
