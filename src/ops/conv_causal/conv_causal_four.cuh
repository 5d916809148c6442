/* conv_causal on the GPU, the usual case: four taps, tensors of one type whose rows are vectors of four channels. What is
 * not known in conv_causal_cuda.cu until the launch is fixed here, so that a token costs little more than its loads, its
 * products and its store, and 64 bytes of each tensor are under way in every thread. Adds in the order of the other
 * kernels: the same bits, but for silu of bf16, which is rounded to that anyway. Backward, silu's slope needs the sum of each
 * token again: the walk takes along the inputs that its token sees, and asks for those three tokens ahead. */
#ifndef TN_OPS_CONV_CAUSAL_FOUR_CUH
#define TN_OPS_CONV_CAUSAL_FOUR_CUH

#include "ops/conv_causal/conv_causal_rows.cuh"

#include <type_traits>

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

/* silu and its slope, as exact as the type that the numbers come from and go to. */
template <class T>
__device__ __forceinline__ float silu_of(float x);
template <class T>
__device__ __forceinline__ float silu_slope_of(float x);
template <>
__device__ __forceinline__ float silu_of<float>(float x)
{
    return tn_d_silu(x);
}
template <>
__device__ __forceinline__ float silu_slope_of<float>(float x)
{
    return tn_d_silu_grad(x);
}

/* In bounds beyond which bf16 sees no change; NaN stays NaN. */
__device__ __forceinline__ float at_least(float x, float lo)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(lo));
    return r;
}
__device__ __forceinline__ float at_most(float x, float hi)
{
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(hi));
    return r;
}
/* sigmoid for x >= -80: what is under way is no denormal, which the exact instructions would take care of. */
__device__ __forceinline__ float short_sigmoid(float x)
{
    float e, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.f + e));
    return s;
}
template <>
__device__ __forceinline__ float silu_of<__nv_bfloat16>(float x)
{
    const float c = at_least(x, -80.f);
    return __fmul_rn(c, short_sigmoid(c));
}
template <>
__device__ __forceinline__ float silu_slope_of<__nv_bfloat16>(float x)
{
    const float c = at_most(at_least(x, -80.f), 80.f), s = short_sigmoid(c);
    return fmaf(__fmul_rn(c, s), 1.f - s, s);
}

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

template <class T, bool SILU>
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
#pragma unroll
            for (int c = 0; SILU && c < 4; c++) y.v[c] = silu_of<T>(y.v[c]);
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

/* What a token on the walk back sees: x[0] is its own input, x[1] the one before it, and so on. */
struct view {
    few<4> x[USUAL], bias;
};

/* On to the token before: `x` is the earliest input that it sees. */
__device__ __forceinline__ void see(view &s, const few<4> &x)
{
#pragma unroll
    for (int i = 0; i < USUAL - 1; i++) s.x[i] = s.x[i + 1];
    s.x[USUAL - 1] = x;
}

/* The gradient g of silu(sum) becomes that of the sum. near: bit 2, a document starts at the token; 1 and 0, at the two before. */
template <class T>
__device__ __forceinline__ void through_silu(few<4> &g, const view &s, const few<4> *w, unsigned near)
{
    few<4> y = s.bias;
    if (near & 7) {
        const int most = near & 4 ? 1 : near & 2 ? 2 : 3; /* inputs it sees */
#pragma unroll
        for (int i = 0; i < USUAL; i++) more(y, w[i], USUAL - 1 - i < most ? s.x[USUAL - 1 - i] : zero<4>());
    } else {
#pragma unroll
        for (int i = 0; i < USUAL; i++) more(y, w[i], s.x[USUAL - 1 - i]);
    }
#pragma unroll
    for (int c = 0; c < 4; c++) g.v[c] = __fmul_rn(g.v[c], silu_slope_of<T>(y.v[c]));
}

__device__ __forceinline__ few<4> input_or_none(const conv &v, const place &p, int64_t t)
{
    return t < v.T ? input_at<4>(v, p, t) : zero<4>();
}

/* Before the walk: what later spans' tokens see of this one's. */
template <class T>
__device__ __forceinline__ void enter_silu(const conv &v, const place &p, view &s, walk<USUAL, 4> &k)
{
    s.bias = v.bias.at ? get<4>(v.bias, p.c) : zero<4>();
#pragma unroll
    for (int i = 1; i < USUAL; i++) s.x[i] = input_or_none(v, p, p.last + USUAL - 1 - i);
#pragma unroll
    for (int i = 0; i < USUAL - 1; i++) {
        const int64_t t = p.last + USUAL - 2 - i;
        see(s, input_or_none(v, p, t - (USUAL - 1)));
        if (t >= v.T || !v.dy.at) continue;
        unsigned near = 0;
        for (int lag = 0; v.reset && lag < 3; lag++)
            near |= (unsigned)(t >= lag && starts(v, p.b, t - lag)) << (2 - lag);
        few<4> g = get<4>(v.dy, p.b * v.dy.b + t * v.dy.t + p.c);
        through_silu<T>(g, s, k.w, near);
        push(k, g);
        if (near & 4) cross(k);
    }
}

/* Starts at the span's token i and the two before it, as through_silu takes them; before: those of the tokens -2 and -1. */
__device__ __forceinline__ unsigned near_of(unsigned long long bits, unsigned before, int i)
{
    return (unsigned)(i >= 2 ? bits >> (i - 2) : (bits << 2 | before) >> i) & 7;
}

/* A span's token i: its gradient g of y, `old` what is at dx already. PLAIN: the final state has no gradient. */
template <class T, bool ADD, bool PLAIN = false>
__device__ __forceinline__ void step_back(const conv &v, const place &p, int i, const few<4> &x, const few<4> &g,
                                          const four<T> &old, T *dx, walk<USUAL, 4> &k)
{
    enum { W = USUAL };
    few<4> d = zero<4>();
    if (!PLAIN && v.dfinal.at) {
        const int64_t kept = p.first + i - (v.T - W + 1);
        if (kept >= 0 && k.open) d = get<4>(v.dfinal, p.b * v.dfinal.b + kept * v.dfinal.t + p.c);
    }
    push(k, g);
    if (v.want_bias)
#pragma unroll
        for (int c = 0; c < 4; c++) k.bias.v[c] += g.v[c];
#pragma unroll
    for (int lag = 0; lag < W; lag++) {
        more(d, k.w[W - 1 - lag], k.window[lag]);
        more(k.sum[W - 1 - lag], x, k.window[lag]);
    }
    if (!v.dx.at) return;
    four<T> out;
    if (ADD) {
        const few<4> o = old.open();
#pragma unroll
        for (int c = 0; c < 4; c++) d.v[c] += o.v[c];
    }
    out.close(d);
    *(four<T> *)dx = out;
}

/* A span's tokens, last first. */
template <class T, bool ADD>
__device__ __forceinline__ void walk_four(const conv &v, const place &p, unsigned long long bits, walk<USUAL, 4> &k)
{
    enum { N = ahead<T>::N };
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
            step_back<T, ADD>(v, p, t - i, xs[i].open(), dys[i].open(), old[ADD ? i : 0], dx, k);
            if (bits >> (t - i) & 1) cross(k);
        }
    }
}

/* The same through silu. Inputs are asked for three tokens before the gradients that need them. Whole batches of N tokens
 * come without any question about a token; PLAIN, without one about documents or the final state either. What is left, and
 * what a row's first tokens need of the state, comes token by token. */
template <class T, bool ADD>
__device__ __forceinline__ void walk_silu(const conv &v, const place &p, unsigned long long bits, view &s,
                                          walk<USUAL, 4> &k)
{
    enum { N = ahead<T>::N / 2, LEAD = USUAL - 1 };
    const int64_t end = p.last - 1;
    unsigned before = 0;
    for (int i = 1; v.reset && i <= 2; i++)
        before |= (unsigned)(p.first >= i && starts(v, p.b, p.first - i)) << (2 - i);
    const T *dy = (const T *)v.dy.at + p.b * v.dy.b + end * v.dy.t + p.c;
    const T *x = (const T *)v.x.at + p.b * v.x.b + (end - LEAD) * v.x.t + p.c;
    T *dx = (T *)v.dx.at + p.b * v.dx.b + end * v.dx.t + p.c;
    const auto token = [&](int i, const few<4> &earliest, few<4> g, const four<T> &old, auto plain) {
        constexpr bool PLAIN = decltype(plain)::value;
        const unsigned near = PLAIN ? 0 : near_of(bits, before, i);
        see(s, earliest);
        through_silu<T>(g, s, k.w, near);
        step_back<T, ADD, PLAIN>(v, p, i, s.x[0], g, old, dx, k);
        if (near & 4) cross(k);
        dx -= v.dx.t;
    };
    int t = (int)(p.last - p.first) - 1;
    const int least = p.first ? N - 1 : LEAD + N - 1;
    const auto batches = [&](auto plain) {
        for (; t >= least; t -= N) {
            four<T> xs[N], dys[N], old[N];
#pragma unroll
            for (int i = 0; i < N; i++, dy -= v.dy.t, x -= v.x.t) {
                dys[i] = *(const four<T> *)dy;
                xs[i] = *(const four<T> *)x;
                if (ADD) old[i] = *(const four<T> *)(dx - i * v.dx.t);
            }
#pragma unroll
            for (int i = 0; i < N; i++) token(t - i, xs[i].open(), dys[i].open(), old[i], plain);
        }
    };
    if (bits || before || v.dfinal.at) batches(std::false_type());
    else batches(std::true_type());
    for (; t >= 0; t--) {
        four<T> old;
        if (ADD) old = *(const four<T> *)dx;
        token(t, input_at<4>(v, p, p.first + t - LEAD), get<4>(v.dy, p.b * v.dy.b + (p.first + t) * v.dy.t + p.c), old,
              std::false_type());
    }
}

template <class T, bool ADD, bool SILU>
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
        view s;
        load_weights<W, 4>(v, p.c, k.w);
        if constexpr (SILU) enter_silu<T>(v, p, s, k);
        for (int64_t t = p.last + W - 2; !SILU && t >= p.last; t--) { /* what later spans' tokens see of this one's */
            if (t >= v.T) continue;
            push(k, dy_at<W, 4>(v, p, t, k.w));
            if (starts(v, p.b, t)) cross(k);
        }
        if constexpr (SILU) walk_silu<T, ADD>(v, p, bits, s, k);
        else walk_four<T, ADD>(v, p, bits, k);
        if (p.first == 0) walk_state<W, 4>(v, p, k);
    }
    if (v.partial) leave_sums<W, 4>(v, p, k);
}

} // namespace

#endif
