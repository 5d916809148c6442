/* rope on the GPU: one kernel makes the cosines and sines of every position, in double, once for all heads and, where
 * they share positions, for all sequences; a second one turns the pairs. The table stays in the GPU's cache. Few tokens
 * (decoding) are turned by one kernel, with the same bits: what counts then is how many kernels there are.
 *
 * A thread turns 8 pairs of a few heads where rows allow 16-byte accesses, else one pair; both read their pairs before
 * they write, so that y may be x. The rounding of the turn is written out: both ways give the same bits.
 * Bytes a number in bf16: 4. */
#include "ops/rope/rope_frequency.h"

#include "backend/cuda/device.cuh"

enum { THREADS = 256, HEADS = 4, POSITIONS = 8 /* of one thread that makes angles, where there are many */ };
enum { FEW_TOKENS = 256, FEW_PAIRS = 128 }; /* for which a kernel less is worth more than angles made once */

struct job {
    tn_rope_attr attr;
    tn_arg x, y, position; /* x -> y, both (B,T,H,D) */
    float sign;            /* -1: the inverse rotation */
    bool add, each;        /* each: sequences have positions of their own */
    float2 *angle;         /* (T or B*T, D/2): cosine, sine */
    int per_thread;        /* positions of a thread that makes angles */
};

__device__ __forceinline__ int64_t batch_of(const job &w)
{
    const int64_t B = w.x.dims.dim[0];
    return w.x.live && *w.x.live < B ? (*w.x.live < 0 ? 0 : *w.x.live) : B;
}

__device__ __forceinline__ int64_t position_of(const tn_arg &p, int64_t b, int64_t t)
{
    const int32_t *v = (const int32_t *)p.data;
    if (!v) return t;
    return p.dims.rank == 2 ? v[b * p.stride[0] + t * p.stride[1]] : v[p.dims.dim[0] > 1 ? b * p.stride[0] : 0] + t;
}

/* Of a pair that turns by f a position. */
__device__ __forceinline__ float2 angle_of(const job &w, double f, int64_t position)
{
    const double amplitude = w.attr.amplitude;
    double s, c;
    sincos((double)position * f, &s, &c);
    return make_float2((float)(amplitude * c), w.sign * (float)(amplitude * s));
}

/* Thread: a pair, by a few positions. */
static __global__ void __launch_bounds__(THREADS) make_angles(const __grid_constant__ job w)
{
    const int64_t T = w.x.dims.dim[1], pairs = w.x.dims.dim[3] / 2, n = w.each ? batch_of(w) * T : T;
    const int64_t me = (int64_t)blockIdx.x * THREADS + threadIdx.x, j = me % pairs, first = me / pairs * w.per_thread;
    if (first >= n) return;
    const double f = tn_rope_frequency(&w.attr, j, pairs);
    for (int64_t i = first; i < n && i < first + w.per_thread; i++)
        w.angle[i * pairs + j] = angle_of(w, f, position_of(w.position, w.each ? i / T : 0, w.each ? i % T : i));
}

__device__ __forceinline__ float2 turned(float a, float b, float2 t)
{
    return make_float2(__fmaf_rn(a, t.x, -__fmul_rn(b, t.y)), __fmaf_rn(b, t.x, __fmul_rn(a, t.y)));
}

/* 8 pairs from pair j on. */
__device__ __forceinline__ void turn_8(const job &w, int64_t x, int64_t y, int j, int pairs, const float2 *t)
{
    const bool mixed = w.attr.interleaved;
    const int at = mixed ? 2 * j : j, other = mixed ? at + 8 : j + pairs;
    tn_f8 a = tn_load8(w.x.data, w.x.dtype, x + at), b = tn_load8(w.x.data, w.x.dtype, x + other);
    if (mixed) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 p = turned(a.v[2 * k], a.v[2 * k + 1], t[k]), q = turned(b.v[2 * k], b.v[2 * k + 1], t[k + 4]);
            a.v[2 * k] = p.x, a.v[2 * k + 1] = p.y;
            b.v[2 * k] = q.x, b.v[2 * k + 1] = q.y;
        }
    } else {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float2 p = turned(a.v[k], b.v[k], t[k]);
            a.v[k] = p.x, b.v[k] = p.y;
        }
    }
    tn_put8(w.y.data, w.y.dtype, y + at, a, w.add);
    tn_put8(w.y.data, w.y.dtype, y + other, b, w.add);
}

__device__ __forceinline__ void turn_1(const job &w, int64_t x, int64_t y, int j, int pairs, float2 t)
{
    const int at = w.attr.interleaved ? 2 * j : j, other = w.attr.interleaved ? at + 1 : j + pairs;
    const int64_t ex = w.x.stride[3], ey = w.y.stride[3];
    const float2 p = turned(tn_load(w.x.data, w.x.dtype, x + at * ex), tn_load(w.x.data, w.x.dtype, x + other * ex), t);
    tn_put(w.y.data, w.y.dtype, y + at * ey, p.x, w.add);
    tn_put(w.y.data, w.y.dtype, y + other * ey, p.y, w.add);
}

/* Two at a time where there are 8: they lie at a multiple of 16 bytes then. */
template <int W>
__device__ __forceinline__ void load_angles(float2 *to, const float2 *from)
{
    if constexpr (W == 8) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float4 two = ((const float4 *)from)[k];
            to[2 * k] = make_float2(two.x, two.y), to[2 * k + 1] = make_float2(two.z, two.w);
        }
    } else {
        to[0] = from[0];
    }
}

/* Thread: W pairs of one token, heads from blockIdx.y * HEADS on. */
template <int W>
static __global__ void __launch_bounds__(THREADS) turn_pairs(const __grid_constant__ job w)
{
    const int T = (int)w.x.dims.dim[1], H = (int)w.x.dims.dim[2], pairs = (int)w.x.dims.dim[3] / 2;
    const unsigned per_token = (unsigned)(pairs / W);
    const int64_t n = batch_of(w) * T * per_token, me = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (me >= n) return;
    const int64_t token = me / per_token, b = token / T, t = token % T, row = w.each ? token : t;
    const int j = (int)(me % per_token) * W;
    float2 angle[W];
    load_angles<W>(angle, w.angle + row * pairs + j);
    const int64_t x = b * w.x.stride[0] + t * w.x.stride[1], y = b * w.y.stride[0] + t * w.y.stride[1];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const int h = blockIdx.y * HEADS + k;
        if (h >= H) break;
        if constexpr (W == 8) turn_8(w, x + h * w.x.stride[2], y + h * w.y.stride[2], j, pairs, angle);
        else turn_1(w, x + h * w.x.stride[2], y + h * w.y.stride[2], j, pairs, angle[0]);
    }
}

/* Block: a token, for which it makes the angles itself. */
template <int W>
static __global__ void __launch_bounds__(THREADS) turn_tokens(const __grid_constant__ job w)
{
    __shared__ __align__(16) float2 angle[FEW_PAIRS];
    const int T = (int)w.x.dims.dim[1], H = (int)w.x.dims.dim[2], pairs = (int)w.x.dims.dim[3] / 2, per = pairs / W;
    const int64_t b = blockIdx.x / T, t = blockIdx.x % T;
    if (b >= batch_of(w)) return;
    if ((int)threadIdx.x < pairs)
        angle[threadIdx.x] =
            angle_of(w, tn_rope_frequency(&w.attr, threadIdx.x, pairs), position_of(w.position, w.each ? b : 0, t));
    __syncthreads();
    const int64_t x = b * w.x.stride[0] + t * w.x.stride[1], y = b * w.y.stride[0] + t * w.y.stride[1];
    for (int i = threadIdx.x; i < H * per; i += THREADS) {
        const int h = i / per, j = i % per * W;
        if constexpr (W == 8) turn_8(w, x + h * w.x.stride[2], y + h * w.y.stride[2], j, pairs, angle + j);
        else turn_1(w, x + h * w.x.stride[2], y + h * w.y.stride[2], j, pairs, angle[j]);
    }
}

/* --- on the host ---------------------------------------------------------------------------------------------------- */

extern "C" size_t tn_rope_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims x = s->in[0].dims;
    const int64_t positions = (!s->in[1].absent && tn_dims_count(s->in[1].dims) > 1 ? x.dim[0] : 1) * x.dim[1];
    (void)backward;
    return (size_t)(positions * (x.dim[3] / 2)) * sizeof(float2);
}

static tn_status rotate(const tn_call *c, const tn_arg *x, const tn_arg *y, float sign, bool add)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t B = x->dims.dim[0], T = x->dims.dim[1], H = x->dims.dim[2], pairs = x->dims.dim[3] / 2;
    if (!x->data || !y->data || !tn_all_count(x)) return TN_OK;
    job w = {};
    w.attr = *(const tn_rope_attr *)c->attr;
    w.x = *x, w.y = *y, w.position = c->in[1];
    w.sign = sign, w.add = add;
    w.each = w.position.data && tn_dims_count(w.position.dims) > 1;
    w.angle = (float2 *)c->work;
    const int width = pairs % 8 == 0 && tn_vector_rows(x) && tn_vector_rows(y) ? 8 : 1;
    if (B * T <= FEW_TOKENS && pairs <= FEW_PAIRS) {
        if (width == 8) turn_tokens<8><<<(unsigned)(B * T), THREADS, 0, stream>>>(w);
        else turn_tokens<1><<<(unsigned)(B * T), THREADS, 0, stream>>>(w);
        TN_CUDA_LAUNCHED();
        return TN_OK;
    }
    const int64_t positions = w.each ? B * T : T, threads = (int64_t)THREADS * tn_cuda_queue_of(c)->multiprocessors;
    w.per_thread = positions * pairs > threads ? POSITIONS : 1; /* few: what counts is how long one of them takes */
    const int64_t makers = (positions + w.per_thread - 1) / w.per_thread * pairs;
    make_angles<<<(unsigned)((makers + THREADS - 1) / THREADS), THREADS, 0, stream>>>(w);
    const dim3 grid((unsigned)((B * T * (pairs / width) + THREADS - 1) / THREADS), (unsigned)((H + HEADS - 1) / HEADS));
    if (width == 8) turn_pairs<8><<<grid, THREADS, 0, stream>>>(w);
    else turn_pairs<1><<<grid, THREADS, 0, stream>>>(w);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_rope_forward_cuda(const tn_call *c) { return rotate(c, &c->in[0], &c->out[0], 1, false); }

extern "C" tn_status tn_rope_backward_cuda(const tn_call *c)
{
    return rotate(c, &c->dout[0], &c->din[0], -1, c->accumulate & 1);
}
