/* outer on the GPU, token by token: the recurrence as it is written. The plain twin (opt.outer=off), single tokens,
 * and states of more than 64 rows or columns. A block per sequence and head; warp w owns rows w, w+8, ... of the
 * state, lanes its columns, so a thread only ever touches its own elements and only sums over rows or columns cross
 * threads. States live in the workspace, behind the L1 cache. Backward walks forward once to keep the state before
 * every chunk, then back through the chunks, making a chunk's states again. */
#include "ops/outer/outer_cuda.h"
#include "ops/outer/outer_tiles.cuh"
#include "ops/unary/unary_value.cuh"

namespace
{

enum { WARPS = 8, THREADS = 32 * WARPS, CHUNK = TN_OUTER_C };

typedef struct steps {
    tn_outer_shape z;
    tn_head_tensor o, final;
    tn_head_tensor d_o, dfinal, dq, dk, dv, dalpha, dstate;
    float *work;
    int64_t each; /* floats of a block */
} steps;

/* A block's workspace. */
struct room {
    float *part;    /* (WARPS,P) sums on their way across warps */
    float *s, *g;   /* (N,P) state; gradient of the state */
    float *history; /* (CHUNK,N,P) states after the tokens of a chunk */
    float *before;  /* (chunks,N,P) states before the chunks */
};

__device__ __forceinline__ room room_of(const steps &a)
{
    const int64_t size = (int64_t)a.z.N * a.z.P;
    room r;
    r.part = a.work + blockIdx.x * a.each;
    r.s = r.part + WARPS * a.z.P;
    r.g = r.s + size;
    r.history = r.g + size;
    r.before = r.history + CHUNK * size;
    return r;
}

__device__ __forceinline__ float number(const tn_head_tensor &p, int64_t b, int64_t h, int64_t row, int64_t column)
{
    return p.at ? tn_load(p.at, p.type, tn_head_place(p, b, h, row, column)) : 0.f;
}

__device__ __forceinline__ float decay_at(const steps &a, int64_t b, int64_t h, int64_t t)
{
    const float x = tn_load(a.z.alpha.at, a.z.alpha.type, b * a.z.alpha.b + t * a.z.alpha.t + h * a.z.alpha.h);
    return expf(a.z.raw ? -tn_d_softplus(x) : x);
}

/* What v_t is multiplied with; forwards only. */
__device__ __forceinline__ float strength_at(const steps &a, int64_t b, int64_t h, int64_t t)
{
    const float x = a.z.write.at ? number(a.z.write, b, h, t, 0) : 1.f;
    return a.z.write.at && a.z.raw ? tn_d_sigmoid(x) : x;
}

/* Runs f(n, p, index) over this thread's elements. */
template <class F>
__device__ __forceinline__ void own(const steps &a, F f)
{
    for (int n = threadIdx.x / 32; n < a.z.N; n += WARPS)
        for (int p = threadIdx.x % 32; p < a.z.P; p += 32) f(n, p, (int64_t)n * a.z.P + p);
}

/* to = decay from + k_t v_t^T; from is not read where a document starts. */
__device__ __forceinline__ void advance(const steps &a, int64_t b, int64_t h, int64_t t, const float *from, float *to)
{
    const bool fresh = tn_outer_starts(a.z, b, t);
    const float decay = fresh ? 0.f : decay_at(a, b, h, t), strength = strength_at(a, b, h, t);
    own(a, [&](int n, int p, int64_t i) {
        const float kv = __fmul_rn(number(a.z.k, b, h, t, n), __fmul_rn(number(a.z.v, b, h, t, p), strength));
        to[i] = fresh ? kv : __fmaf_rn(decay, from[i], kv);
    });
}

/* Sums over rows n of x(n, p, index) for every column, in `part`'s first row; all threads call it. */
template <class F>
__device__ __forceinline__ void sum_rows(const steps &a, const room &r, F x)
{
    float *mine = r.part + threadIdx.x / 32 * a.z.P;
    for (int p = threadIdx.x % 32; p < a.z.P; p += 32) mine[p] = 0;
    own(a, [&](int n, int p, int64_t i) { mine[p] += x(n, p, i); });
    __syncthreads();
    for (int p = threadIdx.x; p < a.z.P; p += THREADS)
        for (int w = 1; w < WARPS; w++) r.part[p] += r.part[w * a.z.P + p];
    __syncthreads();
}

__device__ __forceinline__ void write_sums(const steps &a, const room &r, const tn_head_tensor &to, int64_t b,
                                           int64_t h, int64_t t)
{
    for (int p = threadIdx.x; p < a.z.P; p += THREADS)
        tn_put(to.at, to.type, tn_head_place(to, b, h, t, p), r.part[p], to.add);
    __syncthreads(); /* before the sums are made anew */
}

__global__ void __launch_bounds__(THREADS) forward_steps(steps a)
{
    const int64_t b = blockIdx.x / a.z.H, h = blockIdx.x % a.z.H;
    const room r = room_of(a);
    own(a, [&](int n, int p, int64_t i) { r.s[i] = number(a.z.state, b, h, n, p); });
    for (int64_t t = 0; t < a.z.T; t++) {
        advance(a, b, h, t, r.s, r.s);
        sum_rows(a, r, [&](int n, int p, int64_t i) { return __fmul_rn(number(a.z.q, b, h, t, n), r.s[i]); });
        if (a.o.at) write_sums(a, r, a.o, b, h, t);
    }
    if (!a.final.at) return;
    own(a, [&](int n, int p, int64_t i) {
        tn_store(a.final.at, a.final.type, tn_head_place(a.final, b, h, n, p), r.s[i]);
    });
}

/* Row sums of x(p, index) for every row of this warp, into a tensor's token t. */
template <class F>
__device__ __forceinline__ void sum_columns(const steps &a, const tn_head_tensor &to, int64_t b, int64_t h, int64_t t,
                                            F x)
{
    for (int n = threadIdx.x / 32; n < a.z.N && to.at; n += WARPS) {
        float sum = 0;
        for (int p = threadIdx.x % 32; p < a.z.P; p += 32) sum += x(p, (int64_t)n * a.z.P + p);
        sum = tn_warp_sum(sum);
        if (threadIdx.x % 32 == 0) tn_put(to.at, to.type, tn_head_place(to, b, h, t, n), sum, to.add);
    }
}

/* g is dL/dS_t without what flows through o_t, which is added here; on return it is dL/dS_{t-1}. now: S_t. */
__device__ __forceinline__ void token_backward(const steps &a, const room &r, int64_t b, int64_t h, int64_t t,
                                               const float *before, const float *now)
{
    __shared__ float shared[33];
    const bool fresh = tn_outer_starts(a.z, b, t);
    const float decay = fresh ? 0.f : decay_at(a, b, h, t);
    float through = 0;
    own(a, [&](int n, int p, int64_t i) {
        r.g[i] = __fmaf_rn(number(a.z.q, b, h, t, n), number(a.d_o, b, h, t, p), r.g[i]);
        if (!fresh && before) through = __fmaf_rn(before[i], r.g[i], through);
    });
    sum_columns(a, a.dq, b, h, t, [&](int p, int64_t i) { return now[i] * number(a.d_o, b, h, t, p); });
    sum_columns(a, a.dk, b, h, t, [&](int p, int64_t i) { return r.g[i] * number(a.z.v, b, h, t, p); });
    if (a.dv.at) {
        sum_rows(a, r, [&](int n, int p, int64_t i) { return number(a.z.k, b, h, t, n) * r.g[i]; });
        write_sums(a, r, a.dv, b, h, t);
    }
    if (a.dalpha.at) {
        const float d = tn_block_sum(through, shared);
        if (threadIdx.x == 0)
            tn_put(a.dalpha.at, a.dalpha.type, b * a.dalpha.b + t * a.dalpha.t + h * a.dalpha.h,
                   fresh ? 0.f : decay * d, a.dalpha.add);
        __syncthreads();
    }
    own(a, [&](int n, int p, int64_t i) { r.g[i] = fresh ? 0.f : decay * r.g[i]; });
}

__global__ void __launch_bounds__(THREADS) backward_steps(steps a)
{
    const int64_t b = blockIdx.x / a.z.H, h = blockIdx.x % a.z.H, size = (int64_t)a.z.N * a.z.P;
    const bool states = a.dq.at || a.dalpha.at;
    const room r = room_of(a);
    own(a, [&](int n, int p, int64_t i) {
        r.s[i] = number(a.z.state, b, h, n, p);
        r.g[i] = number(a.dfinal, b, h, n, p);
    });
    for (int64_t t = 0; states && t < a.z.T; t++) {
        if (t % CHUNK == 0) own(a, [&](int n, int p, int64_t i) { r.before[t / CHUNK * size + i] = r.s[i]; });
        advance(a, b, h, t, r.s, r.s);
    }
    for (int64_t first = (a.z.T - 1) / CHUNK * CHUNK; first >= 0 && a.z.T > 0; first -= CHUNK) {
        const int64_t last = first + CHUNK < a.z.T ? first + CHUNK : a.z.T;
        const float *entering = r.before + first / CHUNK * size;
        for (int64_t t = first; states && t < last; t++)
            advance(a, b, h, t, t > first ? r.history + (t - first - 1) * size : entering,
                    r.history + (t - first) * size);
        for (int64_t t = last; t-- > first;) {
            const float *before = t > first ? r.history + (t - first - 1) * size : entering;
            token_backward(a, r, b, h, t, states ? before : NULL, r.history + (t - first) * size);
        }
    }
    if (!a.dstate.at) return;
    own(a, [&](int n, int p, int64_t i) {
        tn_put(a.dstate.at, a.dstate.type, tn_head_place(a.dstate, b, h, n, p), r.g[i], a.dstate.add);
    });
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static int64_t floats_each(int64_t T, int64_t N, int64_t P, bool backward)
{
    const int64_t size = N * P, chunks = (T + CHUNK - 1) / CHUNK;
    return (WARPS * P + size + (backward ? (1 + CHUNK + chunks) * size : 0) + 15) / 16 * 16;
}

size_t tn_outer_step_work_cuda(tn_dims q, tn_dims v, bool backward)
{
    return sizeof(float) * (size_t)(q.dim[0] * q.dim[2] * floats_each(q.dim[1], q.dim[3], v.dim[3], backward));
}

static steps set_up(const tn_call *c, bool backward)
{
    steps a = {};
    a.z = tn_outer_shape_of(c);
    a.work = (float *)c->work;
    a.each = floats_each(a.z.T, a.z.N, a.z.P, backward);
    return a;
}

tn_status tn_outer_step_forward_cuda(const tn_call *c)
{
    steps a = set_up(c, false);
    a.o = tn_head_of(&c->out[0], false);
    a.final = tn_head_state_of(&c->out[1], false);
    if (!a.z.B || !a.z.H) return TN_OK;
    forward_steps<<<(unsigned)(a.z.B * a.z.H), THREADS, 0, tn_cuda_stream(c)>>>(a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_outer_step_backward_cuda(const tn_call *c)
{
    if (c->in[TN_OUTER_WRITE].data)
        return tn_error(TN_INTERNAL, "outer: write strengths without a kernel that takes them");
    steps a = set_up(c, true);
    a.d_o = tn_head_of(&c->dout[0], false);
    a.dfinal = tn_head_state_of(&c->dout[1], false);
    a.dq = tn_head_of(&c->din[TN_OUTER_Q], c->accumulate >> TN_OUTER_Q & 1);
    a.dk = tn_head_of(&c->din[TN_OUTER_K], c->accumulate >> TN_OUTER_K & 1);
    a.dv = tn_head_of(&c->din[TN_OUTER_V], c->accumulate >> TN_OUTER_V & 1);
    a.dalpha = tn_head_of(&c->din[TN_OUTER_ALPHA], c->accumulate >> TN_OUTER_ALPHA & 1);
    a.dstate = tn_head_state_of(&c->din[TN_OUTER_STATE], c->accumulate >> TN_OUTER_STATE & 1);
    if (!a.z.B || !a.z.H) return TN_OK;
    backward_steps<<<(unsigned)(a.z.B * a.z.H), THREADS, 0, tn_cuda_stream(c)>>>(a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
