/* kl on the GPU: a block to a row, three passes over both rows (largest, sums, divergence); one block adds up rows and
 * weights. Backward: one block makes the factor, then a block to a row writes both gradients.
 *
 * The log ratio is formed as (t - s)/T - (lse_t - lse_s), so that equal rows give exactly 0 and near-equal ones do not
 * cancel after the sum. */
#include "ops/kl/kl.h"
#include "ops/loss.cuh"

enum { LSE_T, LSE_S, KL, STATS };

struct job {
    tn_arg x[2];     /* teacher, student (n,V) */
    tn_arg w;        /* (n) or without data */
    int64_t rows, V; /* rows: dead ones too */
    float temperature, inverse;
    tn_arg loss, dy; /* one number */
    float *stats;    /* (n,3) or NULL */
    tn_arg d[3];     /* gradients */
    unsigned add;
    bool eights;
    double *work; /* forward: (rows) divergences; backward: dy over the sum of the weights */
};

__device__ __forceinline__ int64_t alive(const job &j) { return tn_d_least(tn_d_rows(j.x[0]), tn_d_rows(j.x[1])); }

/* As on the CPU what is below e^-87.3 is 0, so that such a class adds nothing. */
__device__ __forceinline__ float weight_of(float x) { return x < -87.3f ? 0.f : expf(x); }

/* p_v (log p_v - log q_v), 0 where p_v is. */
__device__ __forceinline__ float term(float t, float s, float inverse, float lse_t, float shift)
{
    const float p = weight_of(t * inverse - lse_t);
    return p == 0.f ? 0.f : p * ((t - s) * inverse - shift);
}

/* log sum exp(x / T) of row r of teacher or student. A row of -inf alone is shifted by 0, and gives -inf. */
__device__ __forceinline__ float row_lse(const job &j, int which, int64_t r, float *most, double *total)
{
    float x[8], m = -INFINITY;
    double sum = 0;
    TN_D_GROUPS(g, j.V)
    {
        tn_d_group_get(j.x[which].data, j.x[which].dtype, r * j.V, g, j.V, j.eights, -INFINITY, x);
#pragma unroll
        for (int e = 0; e < 8; e++) m = fmaxf(m, x[e]);
    }
    m = tn_d_block_max(m, most);
    if (m == -INFINITY) m = 0;
    TN_D_GROUPS(g, j.V)
    {
        float part = 0;
        tn_d_group_get(j.x[which].data, j.x[which].dtype, r * j.V, g, j.V, j.eights, -INFINITY, x);
#pragma unroll
        for (int e = 0; e < 8; e++) part += weight_of(j.inverse * (x[e] - m));
        sum += (double)part;
    }
    sum = tn_d_block_sum(sum, total);
    return (float)((double)m * (double)j.inverse + log(sum));
}

__global__ void kl_rows(const __grid_constant__ job j)
{
    __shared__ float most[2][33];
    __shared__ double total[3][33];
    const int64_t n = alive(j);
    for (int64_t r = blockIdx.x; r < n; r += gridDim.x) {
        const float lse_t = row_lse(j, 0, r, most[0], total[0]), lse_s = row_lse(j, 1, r, most[1], total[1]);
        double kl = 0;
        TN_D_GROUPS(g, j.V)
        {
            float t[8], s[8], part = 0;
            tn_d_group_get(j.x[0].data, j.x[0].dtype, r * j.V, g, j.V, j.eights, -INFINITY, t);
            tn_d_group_get(j.x[1].data, j.x[1].dtype, r * j.V, g, j.V, j.eights, -INFINITY, s);
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (g + e < j.V) part += term(t[e], s[e], j.inverse, lse_t, lse_t - lse_s);
            kl += (double)part;
        }
        kl = tn_d_block_sum(kl, total[2]);
        if (threadIdx.x != 0) continue;
        j.work[r] = kl;
        if (!j.stats) continue;
        j.stats[r * STATS + LSE_T] = lse_t;
        j.stats[r * STATS + LSE_S] = lse_s;
        j.stats[r * STATS + KL] = (float)kl;
    }
}

__device__ __forceinline__ double inverse_total(const job &j, int64_t n, double *shared)
{
    const double total = tn_d_weights_sum(j.w, n, shared);
    return total == 0 ? 0 : 1 / total;
}

__global__ void __launch_bounds__(TN_D_LAST_THREADS) kl_loss(const __grid_constant__ job j)
{
    __shared__ double shared[2][33];
    const int64_t n = alive(j);
    double sum = 0;
    for (int64_t r = threadIdx.x; r < n; r += blockDim.x)
        sum += (j.w.data ? (double)tn_load(j.w.data, j.w.dtype, r) : 1.0) * j.work[r];
    sum = tn_d_block_sum(sum, shared[0]);
    const double scale = inverse_total(j, n, shared[1]) * (double)j.temperature * (double)j.temperature;
    if (threadIdx.x == 0) tn_store(j.loss.data, j.loss.dtype, 0, scale == 0 ? 0.f : (float)(sum * scale));
}

__global__ void __launch_bounds__(TN_D_LAST_THREADS) kl_factor(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    const double scale = inverse_total(j, alive(j), shared);
    if (threadIdx.x == 0) j.work[0] = tn_d_incoming(j.dy) * scale;
}

/* Row r of both gradients: w/T p (log p - log q - KL) and w/T (q - p). */
__device__ __forceinline__ void gradient_row(const job &j, int64_t r)
{
    const double scale = j.work[0] * (double)j.temperature * (double)j.temperature;
    const float w = (float)(scale * (j.w.data ? (double)tn_load(j.w.data, j.w.dtype, r) : 1.0)),
                *stats = j.stats + r * STATS;
    const float lse_t = stats[LSE_T], lse_s = stats[LSE_S], k = j.inverse, shift = lse_t - lse_s + stats[KL];
    TN_D_GROUPS(g, j.V)
    {
        float t[8], s[8], y[8];
        tn_d_group_get(j.x[0].data, j.x[0].dtype, r * j.V, g, j.V, j.eights, 0.f, t);
        tn_d_group_get(j.x[1].data, j.x[1].dtype, r * j.V, g, j.V, j.eights, 0.f, s);
        if (j.d[0].data) {
#pragma unroll
            for (int e = 0; e < 8; e++) y[e] = __fmul_rn(w * k, term(t[e], s[e], k, lse_t, shift));
            tn_d_group_put(j.d[0].data, j.d[0].dtype, r * j.V, g, j.V, j.eights, y, j.add & 1);
        }
        if (j.d[1].data) {
#pragma unroll
            for (int e = 0; e < 8; e++)
                y[e] = __fmul_rn(w * k, weight_of(s[e] * k - lse_s) - weight_of(t[e] * k - lse_t));
            tn_d_group_put(j.d[1].data, j.d[1].dtype, r * j.V, g, j.V, j.eights, y, j.add & 2);
        }
    }
}

/* Rows that count, and zeros in those where only the gradient's own tensor is alive. */
__global__ void kl_backward(const __grid_constant__ job j)
{
    const int64_t n = alive(j);
    const float zeros[8] = {};
    for (int64_t r = blockIdx.x; r < j.rows; r += gridDim.x) {
        if (r < n) {
            gradient_row(j, r);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (!j.d[i].data || (j.add >> i & 1) || r >= tn_d_rows(j.d[i])) continue;
            TN_D_GROUPS(g, j.V) tn_d_group_put(j.d[i].data, j.d[i].dtype, r * j.V, g, j.V, j.eights, zeros, false);
        }
    }
}

/* dloss/dw_r = (T^2 KL_r - loss) / sum w */
__global__ void kl_weights(const __grid_constant__ job j)
{
    const int64_t n = alive(j), end = tn_d_count(j.d[2]), step = (int64_t)gridDim.x * blockDim.x;
    const double square = (double)j.temperature * (double)j.temperature, loss = tn_load(j.loss.data, j.loss.dtype, 0);
    const bool add = j.add >> 2 & 1;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; r < j.rows; r += step) {
        if (r < n)
            tn_put(j.d[2].data, j.d[2].dtype, r, (float)(j.work[0] * (square * (double)j.stats[r * STATS + KL] - loss)),
                   add);
        else if (!add && r < end) tn_store(j.d[2].data, j.d[2].dtype, r, 0.f);
    }
}

static job make_job(const tn_call *c)
{
    job j = {};
    j.x[0] = c->in[0], j.x[1] = c->in[1], j.w = c->in[2], j.loss = c->out[0];
    j.rows = tn_all_rows(&c->in[0]), j.V = tn_row_len(&c->in[0]);
    j.temperature = ((const tn_kl_attr *)c->attr)->temperature, j.inverse = 1 / j.temperature;
    j.stats = (float *)c->out[1].data;
    j.work = (double *)c->work;
    j.eights = true;
    for (int i = 0; i < 2; i++) j.eights = j.eights && tn_d_row_eights(j.x[i].data, j.x[i].dtype, j.V);
    return j;
}

extern "C" size_t tn_kl_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims d = s->in[0].dims;
    int64_t rows = 1;
    for (int i = 0; i < d.rank - 1; i++) rows *= d.dim[i];
    return sizeof(double) * (size_t)(backward ? 1 : rows + 1);
}

extern "C" tn_status tn_kl_forward_cuda(const tn_call *c)
{
    const job j = make_job(c);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (j.rows) {
        kl_rows<<<tn_d_row_blocks(j.rows), tn_d_row_threads(j.V), 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    if (j.loss.data) {
        kl_loss<<<1, TN_D_LAST_THREADS, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}

extern "C" tn_status tn_kl_backward_cuda(const tn_call *c)
{
    job j = make_job(c);
    const cudaStream_t stream = tn_cuda_stream(c);
    j.dy = c->dout[0], j.add = c->accumulate & 7;
    for (int i = 0; i < 3; i++) j.d[i] = c->din[i];
    for (int i = 0; i < 2; i++) j.eights = j.eights && tn_d_row_eights(j.d[i].data, j.d[i].dtype, j.V);
    if (j.rows == 0) return TN_OK;
    kl_factor<<<1, TN_D_LAST_THREADS, 0, stream>>>(j);
    TN_CUDA_LAUNCHED();
    if (j.d[0].data || j.d[1].data) {
        kl_backward<<<tn_d_row_blocks(j.rows), tn_d_row_threads(j.V), 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    if (j.d[2].data) {
        kl_weights<<<tn_blocks(c, j.rows, TN_D_THREADS), TN_D_THREADS, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}
