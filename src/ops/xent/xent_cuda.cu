/* xent on the GPU: a team (a warp, or a block for long rows) goes over a row of logits once, with a running maximum and
 * sum; the rows' terms are added in double by one block, in order. Weights are summed the same way, on the device.
 *
 * A label that is neither in the row nor ignored cannot be named from here: its nll and lse are NaN, so that the loss and
 * the row's gradient are, and nothing is read or written by it. Rows whose label is ignored are not read.
 * Bytes a logit in bf16: forward 2, backward 4. Exponentials are 2^x of the hardware: 2 ulp near 0, and 0 below -87. */
#include "ops/rows.cuh"
#include "ops/xent/xent.h"

enum { SHORT = 2048, SUM_THREADS = 1024 }; /* SHORT: rows that are left to one warp */

struct job {
    const void *logits; /* (n,V) */
    tn_arg logits_arg, labels_arg, dlogits_arg, nll_arg;
    const int32_t *label; /* (n) */
    const void *weight;   /* (n) or NULL */
    tn_dtype weight_dtype;
    int32_t ignore;
    float z;
    int V, threads;
    bool vector, add, sum;
    float *nll, *lse; /* (n) or NULL */
    double *term;     /* (n): w (nll + z lse^2) */
    double *scale;    /* backward: dloss times the divisor's inverse */
};

/* Rows alive: the fewer of the logits' and the labels'. */
__device__ __forceinline__ int64_t rows_of(const job &j)
{
    const int64_t a = tn_d_rows(j.logits_arg), b = tn_d_count(j.labels_arg);
    return a < b ? a : b;
}

__device__ __forceinline__ float weight_of(const job &j, int64_t i)
{
    return j.weight ? tn_load(j.weight, j.weight_dtype, i) : 1.f;
}

/* e^x for x <= 0, NaN for NaN. */
__device__ __forceinline__ float fast_exp(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

/* --- forward -------------------------------------------------------------------------------------------------------- */

/* log sum exp in pieces: the largest number and the sum of e^(x - shift). */
struct running {
    float max, sum;
};

/* Infinity has no distance from itself: a row of -inf alone is shifted by 0, and its lse is -inf. */
__device__ __forceinline__ float shift_of(float max) { return max == -INFINITY ? 0.f : max; }

__device__ __forceinline__ void grow(running *r, float max)
{
    if (!(max > r->max)) return;
    r->sum *= fast_exp(r->max - max);
    r->max = max;
}

__device__ __forceinline__ void take_8(running *r, const tn_f8 &x)
{
    float m = x.v[0];
#pragma unroll
    for (int k = 1; k < 8; k++) m = fmaxf(m, x.v[k]);
    grow(r, m);
    const float shift = shift_of(r->max);
#pragma unroll
    for (int k = 0; k < 8; k++) r->sum += fast_exp(x.v[k] - shift);
}

__device__ __forceinline__ float lse_of(tn_team &t, const job &j, int64_t row)
{
    running r = { -INFINITY, 0 };
    const tn_dtype type = j.logits_arg.dtype;
    if (j.vector) {
#pragma unroll 2
        for (int v = t.thread * 8; v < j.V; v += j.threads * 8) take_8(&r, tn_load8(j.logits, type, row * j.V + v));
    } else {
#pragma unroll 4
        for (int v = t.thread; v < j.V; v += j.threads) {
            const float x = tn_load(j.logits, type, row * j.V + v);
            grow(&r, x);
            r.sum += fast_exp(x - shift_of(r.max));
        }
    }
    const float max = tn_team_max(t, r.max), shift = shift_of(max);
    return shift + logf(tn_team_sum(t, r.sum * fast_exp(r.max - shift))); /* a thread that met only -inf adds 0 */
}

static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) forward_rows(const __grid_constant__ job j, int64_t all)
{
    __shared__ tn_team_memory memory;
    tn_team t = tn_team_of(j.threads, &memory);
    const int teams = blockDim.x / j.threads;
    const int64_t n = rows_of(j), nll_end = j.nll ? tn_d_count(j.nll_arg) : 0;
    for (int64_t i = (int64_t)blockIdx.x * teams + t.index; i < all; i += (int64_t)gridDim.x * teams) {
        float nll = 0, lse = 0;
        double term = 0;
        const int32_t label = i < n ? j.label[i] : j.ignore;
        if (label != j.ignore) {
            lse = label >= 0 && label < j.V ? lse_of(t, j, i) : NAN;
            nll = isnan(lse) ? lse : lse - tn_load(j.logits, j.logits_arg.dtype, i * j.V + label);
            term = (double)weight_of(j, i) * ((double)nll + (double)j.z * (double)lse * (double)lse);
        }
        if (t.thread) continue;
        if (j.nll && i < nll_end) j.nll[i] = nll;
        if (j.lse && i < n) j.lse[i] = lse;
        j.term[i] = term;
    }
}

/* Sum over a block of SUM_THREADS, in every thread. */
__device__ __forceinline__ double sum_of_block(double x)
{
    __shared__ double part[SUM_THREADS];
    __syncthreads();
    part[threadIdx.x] = x;
    for (int d = SUM_THREADS / 2; d; d >>= 1) {
        __syncthreads();
        if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
    }
    __syncthreads();
    return part[0];
}

/* 1, or 1 / (sum of the weights that count); 0 when none does. */
__device__ __forceinline__ double scale_of(const job &j, int64_t n)
{
    double total = 0;
    if (j.sum) return 1;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS)
        if (j.label[i] != j.ignore) total += (double)weight_of(j, i);
    total = sum_of_block(total);
    return total == 0 ? 0 : 1 / total;
}

static __global__ void __launch_bounds__(SUM_THREADS) add_terms(const __grid_constant__ job j, float *loss)
{
    const int64_t n = rows_of(j);
    const double scale = scale_of(j, n);
    double sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS) sum += j.term[i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) *loss = scale == 0 ? 0.f : (float)(sum * scale);
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(SUM_THREADS) make_scale(const __grid_constant__ job j, const float *dy)
{
    const double scale = scale_of(j, rows_of(j));
    if (threadIdx.x == 0) *j.scale = dy ? scale * (double)*dy : 0;
}

/* dlogits = scale w (softmax (1 + 2 z lse) - onehot) of the logits from v on. */
template <int W>
__device__ __forceinline__ void slope_of(const job &j, int64_t row, int v, int label, float p, float w, float lse,
                                         bool counts)
{
    const int64_t at = row * j.V + v;
    const tn_dtype type = j.logits_arg.dtype, to = j.dlogits_arg.dtype;
    if constexpr (W == 8) {
        tn_f8 d = {};
        if (counts) {
            d = tn_load8(j.logits, type, at);
#pragma unroll
            for (int k = 0; k < 8; k++) d.v[k] = p * fast_exp(d.v[k] - lse) - (v + k == label ? w : 0.f);
        }
        tn_put8(j.dlogits_arg.data, to, at, d, j.add);
    } else {
        float d = 0;
        if (counts) d = p * fast_exp(tn_load(j.logits, type, at) - lse) - (v == label ? w : 0.f);
        tn_put(j.dlogits_arg.data, to, at, d, j.add);
    }
}

/* Rows that do not count, or that only dlogits has alive, become 0, or stay where they are added to. */
static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) backward_rows(const __grid_constant__ job j)
{
    const int teams = blockDim.x / j.threads, team = threadIdx.x / j.threads, thread = threadIdx.x - team * j.threads;
    const int64_t n = rows_of(j), all = tn_d_rows(j.dlogits_arg);
    for (int64_t i = (int64_t)blockIdx.x * teams + team; i < all; i += (int64_t)gridDim.x * teams) {
        const int32_t label = i < n ? j.label[i] : j.ignore;
        const bool counts = label != j.ignore;
        if (!counts && j.add) continue;
        const float lse = counts ? j.lse[i] : 0.f, w = counts ? (float)(*j.scale * (double)weight_of(j, i)) : 0.f;
        const float p = w * (1 + 2 * j.z * lse);
        if (j.vector) {
#pragma unroll 2
            for (int v = thread * 8; v < j.V; v += j.threads * 8) slope_of<8>(j, i, v, label, p, w, lse, counts);
        } else {
#pragma unroll 4
            for (int v = thread; v < j.V; v += j.threads) slope_of<1>(j, i, v, label, p, w, lse, counts);
        }
    }
}

/* loss = scale sum w_t l_t with l = nll + z lse^2. Mean: scale = 1 / sum w, so dloss/dw_t = scale (l_t - loss). */
static __global__ void backward_weights(const __grid_constant__ job j, const __grid_constant__ tn_arg dw,
                                        const float *loss, bool add)
{
    const int64_t n = rows_of(j), all = tn_d_count(dw);
    const double mean = j.sum ? 0 : (double)*loss;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        float g = 0;
        if (i < n && j.label[i] != j.ignore) {
            const double s = (double)j.lse[i];
            g = (float)(*j.scale * ((double)j.nll[i] + (double)j.z * s * s - mean));
        }
        tn_put(dw.data, dw.dtype, i, g, add);
    }
}

/* --- on the host ---------------------------------------------------------------------------------------------------- */

static job job_of(const tn_call *c)
{
    const tn_xent_attr *a = (const tn_xent_attr *)c->attr;
    job j = {};
    j.logits = c->in[0].data, j.logits_arg = c->in[0], j.labels_arg = c->in[1];
    j.label = (const int32_t *)c->in[1].data;
    j.weight = c->in[2].data, j.weight_dtype = c->in[2].dtype;
    j.ignore = a->ignore, j.z = a->z_loss, j.sum = a->sum;
    j.V = (int)tn_row_len(&c->in[0]);
    j.threads = j.V <= SHORT ? 32 : TN_TEAM_BLOCK;
    j.nll = (float *)c->out[1].data, j.lse = (float *)c->out[2].data, j.nll_arg = c->out[1];
    return j;
}

extern "C" size_t tn_xent_work_cuda(const tn_sig *s, bool backward)
{
    return sizeof(double) * (size_t)(backward ? 1 : tn_dims_count(s->in[1].dims));
}

extern "C" tn_status tn_xent_forward_cuda(const tn_call *c)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t rows = tn_all_rows(&c->in[0]);
    job j = job_of(c);
    j.vector = tn_vector_rows(&c->in[0]);
    j.term = (double *)c->work;
    if (rows) forward_rows<<<tn_blocks(c, rows, TN_TEAM_BLOCK / j.threads), TN_TEAM_BLOCK, 0, stream>>>(j, rows);
    if (c->out[0].data) add_terms<<<1, SUM_THREADS, 0, stream>>>(j, (float *)c->out[0].data);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_xent_backward_cuda(const tn_call *c)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const tn_arg *dlogits = &c->din[0], *dw = &c->din[2];
    const int64_t rows = tn_all_rows(&c->in[0]);
    job j = job_of(c);
    j.scale = (double *)c->work;
    j.add = c->accumulate & 1;
    j.dlogits_arg = *dlogits;
    if (!rows || (!dlogits->data && !dw->data)) return TN_OK;
    make_scale<<<1, SUM_THREADS, 0, stream>>>(j, (const float *)c->dout[0].data);
    if (dlogits->data && j.V) {
        j.vector = tn_vector_rows(&c->in[0]) && tn_vector_rows(dlogits);
        backward_rows<<<tn_blocks(c, rows, TN_TEAM_BLOCK / j.threads), TN_TEAM_BLOCK, 0, stream>>>(j);
    }
    if (dw->data)
        backward_weights<<<tn_blocks(c, rows, 256), 256, 0, stream>>>(j, *dw, (const float *)c->out[0].data,
                                                                      c->accumulate >> 2 & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
