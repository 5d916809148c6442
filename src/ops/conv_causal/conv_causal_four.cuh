/* conv_causal on the GPU, the usual case: four taps, tensors of one type whose rows are vectors of four channels. What is
 * not known in conv_causal_cuda.cu until the launch is fixed here, so that a token costs little more than its loads, its
 * products and its store, and 64 bytes of each tensor are under way in every thread. Adds in the order of the other
 * kernels: the same bits. */
#ifndef TN_OPS_CONV_CAUSAL_FOUR_CUH
#define TN_OPS_CONV_CAUSAL_FOUR_CUH

#include "ops/conv_causal/conv_causal_rows.cuh"

namespace
{

/* Four neighbours as they lie in memory. */
template <class T>
struct four;
template <>
struct four<float> {
    float4 q;
    __device__ __forceinline__ few<4> open() const
    {
        few<4> r;
        r.v[0] = q.x, r.v[1] = q.y, r.v[2] = q.z, r.v[3] = q.w;
        return r;
    }
    __device__ __forceinline__ void close(const few<4> &r) { q = make_float4(r.v[0], r.v[1], r.v[2], r.v[3]); }
    __device__ __forceinline__ void clear() { q = make_float4(0, 0, 0, 0); }
};
template <>
struct four<__nv_bfloat16> {
    uint2 q;
    __device__ __forceinline__ few<4> open() const
    {
        few<4> r;
        r.v[0] = __uint_as_float(q.x << 16), r.v[1] = __uint_as_float(q.x & 0xffff0000u);
        r.v[2] = __uint_as_float(q.y << 16), r.v[3] = __uint_as_float(q.y & 0xffff0000u);
        return r;
    }
    __device__ __forceinline__ void close(const few<4> &r)
    {
        const __nv_bfloat162 a = __floats2bfloat162_rn(r.v[0], r.v[1]), b = __floats2bfloat162_rn(r.v[2], r.v[3]);
        q = make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
    }
    __device__ __forceinline__ void clear() { q = make_uint2(0, 0); }
};

/* Tokens in flight: 64 bytes a thread and tensor. */
template <class T>
struct ahead {
    enum { N = sizeof(T) == 2 ? 8 : 4 };
};

/* Bit i: a document starts at token first + i. All lanes call it. */
__device__ __forceinline__ unsigned long long starts_of(const conv &v, const place &p)
{
    unsigned long long bits = 0;
    if (!v.reset) return 0;
#pragma unroll
    for (int i = 0; i < SPAN; i += LANES) {
        const int64_t t = p.first + i + threadIdx.x % LANES;
        bits |= (unsigned long long)__ballot_sync(0xffffffffu, t < p.last && v.reset[p.b * v.T + t]) << i;
    }
    return bits;
}

template <class T>
__global__ void __launch_bounds__(THREADS, 3) forward_four(conv v)
{
    enum { W = USUAL, N = ahead<T>::N };
    const place p = place_of<4>(v);
    if (!row_lives(v, p.b) || (p.first >= v.T && p.first > 0)) return;
    const unsigned long long bits = starts_of(v, p);
    if (!p.on) return;
    few<4> w[W], window[W], bias = v.bias.at ? get<4>(v.bias, p.c) : zero<4>();
    load_weights<W, 4>(v, p.c, w);
    fill_window<W, 4>(v, p, window);
    const T *from = (const T *)v.x.at + p.b * v.x.b + p.first * v.x.t + p.c;
    T *to = (T *)v.y.at + p.b * v.y.b + p.first * v.y.t + p.c;
    const int n = (int)(p.last - p.first);
    for (int t = 0; t < n; t += N) {
        four<T> x[N];
#pragma unroll
        for (int i = 0; i < N; i++, from += v.x.t)
            if (t + i < n) x[i] = *(const four<T> *)from;
#pragma unroll
        for (int i = 0; i < N; i++, to += v.y.t) {
            if (t + i >= n) break;
            const few<4> now = x[i].open();
            few<4> y = bias;
            four<T> out;
            if (bits >> (t + i) & 1) clear(window, W - 1);
#pragma unroll
            for (int j = 0; j < W - 1; j++) more(y, w[j], window[j]);
            more(y, w[W - 1], now);
            out.close(y);
            *(four<T> *)to = out;
#pragma unroll
            for (int j = 0; j < W - 2; j++) window[j] = window[j + 1];
            window[W - 2] = now;
        }
    }
    if (p.last < v.T || !v.final.at) return;
#pragma unroll
    for (int i = 0; i < W - 1; i++) put<4>(v.final, p.b * v.final.b + i * v.final.t + p.c, window[i]);
}

/* A span's tokens, last first. */
template <class T, bool ADD>
__device__ __forceinline__ void walk_four(const conv &v, const place &p, unsigned long long bits, walk<USUAL, 4> &k)
{
    enum { W = USUAL, N = ahead<T>::N };
    const int64_t end = p.last - 1;
    const T *dy = (const T *)v.dy.at + p.b * v.dy.b + end * v.dy.t + p.c;
    const T *x = (const T *)v.x.at + p.b * v.x.b + end * v.x.t + p.c;
    T *dx = (T *)v.dx.at + p.b * v.dx.b + end * v.dx.t + p.c;
    const int n = (int)(p.last - p.first);
    for (int t = n - 1; t >= 0; t -= N) {
        four<T> xs[N], dys[N], old[ADD ? (int)N : 1];
#pragma unroll
        for (int i = 0; i < N; i++, dy -= v.dy.t, x -= v.x.t) {
            if (v.dy.at && t - i >= 0) dys[i] = *(const four<T> *)dy;
            else dys[i].clear();
            if (v.want_w && t - i >= 0) xs[i] = *(const four<T> *)x;
            else xs[i].clear();
            if (ADD && t - i >= 0) old[ADD ? i : 0] = *(const four<T> *)(dx - i * v.dx.t);
        }
#pragma unroll
        for (int i = 0; i < N; i++, dx -= v.dx.t) {
            if (t - i < 0) break;
            const few<4> now = xs[i].open(), g = dys[i].open();
            const int64_t kept = p.first + t - i - (v.T - W + 1);
            few<4> d = zero<4>();
            if (kept >= 0 && k.open && v.dfinal.at) d = get<4>(v.dfinal, p.b * v.dfinal.b + kept * v.dfinal.t + p.c);
            push(k, g);
#pragma unroll
            for (int c = 0; c < 4; c++) k.bias.v[c] += g.v[c];
#pragma unroll
            for (int lag = 0; lag < W; lag++) {
                more(d, k.w[W - 1 - lag], k.window[lag]);
                more(k.sum[W - 1 - lag], now, k.window[lag]);
            }
            if (v.dx.at) {
                four<T> out;
                if (ADD) {
                    const few<4> o = old[ADD ? i : 0].open();
#pragma unroll
                    for (int c = 0; c < 4; c++) d.v[c] += o.v[c];
                }
                out.close(d);
                *(four<T> *)dx = out;
            }
            if (bits >> (t - i) & 1) cross(k);
        }
    }
}

template <class T, bool ADD>
__global__ void __launch_bounds__(THREADS, 2) backward_four(conv v)
{
    enum { W = USUAL };
    const place p = place_of<4>(v);
    walk<W, 4> k;
    if (v.partial) tn_sum_clear(v.sums);
    if (!row_lives(v, p.b)) return;
    clear(k.window, W);
    clear(k.sum, W);
    k.bias = zero<4>();
    k.open = p.last + W - 2 >= v.T - 1;
    const unsigned long long bits = starts_of(v, p);
    if (p.on && (p.first < v.T || p.first == 0)) {
        load_weights<W, 4>(v, p.c, k.w);
        for (int64_t t = p.last + W - 2; t >= p.last; t--) { /* what later spans' tokens see of this one's */
            if (t >= v.T) continue;
            push(k, dy_at<W, 4>(v, p, t));
            if (starts(v, p.b, t)) cross(k);
        }
        walk_four<T, ADD>(v, p, bits, k);
        if (p.first == 0) walk_state<W, 4>(v, p, k);
    }
    if (v.partial) leave_sums<W, 4>(v, p, k);
}


} // namespace

#endif
