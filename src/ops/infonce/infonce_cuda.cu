/* infonce on the GPU: up to TILE rows of the similarities <a_i, b_j> at a time, through cuBLASLt. Logsumexps of rows
 * are complete within a tile, those of columns grow from tile to tile, in order. Products are f32 on clean f32 copies
 * of a and b, whose dead rows are zero, so that nothing that lies there reaches a sum. A temperature that is not
 * positive is no error here: the loss and all gradients become NaN. */
#include "backend/cuda/gemm.h"
#include "ops/infonce/infonce.h"
#include "ops/loss.cuh"

enum { TILE = 1024, COLUMNS = 32, WARPS = TN_D_THREADS / 32 };

struct job {
    tn_arg x[2], t;      /* a, b (N,d); temperature (1) or without data */
    float temperature;   /* where t has none */
    int64_t N, d;        /* rows, dead ones too */
    float *clean[2];     /* (N,d) */
    float *grad[2];      /* (N,d) */
    float *dots;         /* (TILE,N): similarities of the tile without 1/T, then their gradients */
    float *lse[2];       /* (N): of rows, of columns */
    float *diagonal;     /* (N): l_ii, rounded as the logsumexps are, so that a sure pair costs 0 */
    float *column_max;   /* (N) */
    double *column_sum;  /* (N) */
    double *moment;      /* (N): sum_j of gradient times similarity */
    int64_t i0, rows;    /* the current tile */
    tn_arg loss, dy, dt; /* one number each */
    bool add_dt;
    size_t bytes;
};

__device__ __forceinline__ int64_t alive(const job &j) { return tn_d_least(tn_d_rows(j.x[0]), tn_d_rows(j.x[1])); }

__device__ __forceinline__ float inverse_of(const job &j)
{
    const float t = j.t.data ? tn_load(j.t.data, j.t.dtype, 0) : j.temperature;
    return t <= 0.f ? NAN : 1.f / t;
}

/* --- workspace ---------------------------------------------------------------------------------------------------- */

static void carve_job(job *j, void *work, bool backward)
{
    char *base = (char *)work;
    const size_t n = (size_t)j->N, numbers = sizeof(float) * n * (size_t)j->d;
    j->bytes = 0;
    for (int i = 0; i < 2; i++) j->clean[i] = (float *)tn_d_carve(base, &j->bytes, numbers);
    for (int i = 0; i < 2; i++) j->grad[i] = (float *)tn_d_carve(base, &j->bytes, backward ? numbers : 0);
    for (int i = 0; i < 2; i++) j->lse[i] = (float *)tn_d_carve(base, &j->bytes, sizeof(float) * n);
    j->dots = (float *)tn_d_carve(base, &j->bytes, sizeof(float) * n * (n < TILE ? n : TILE));
    j->diagonal = (float *)tn_d_carve(base, &j->bytes, sizeof(float) * n);
    j->column_max = (float *)tn_d_carve(base, &j->bytes, sizeof(float) * n);
    j->column_sum = (double *)tn_d_carve(base, &j->bytes, sizeof(double) * n);
    j->moment = (double *)tn_d_carve(base, &j->bytes, sizeof(double) * n);
}

extern "C" size_t tn_infonce_work_cuda(const tn_sig *s, bool backward)
{
    job j = {};
    j.N = s->in[0].dims.dim[0], j.d = s->in[0].dims.dim[1];
    carve_job(&j, NULL, backward);
    return j.bytes;
}

static job make_job(const tn_call *c, bool backward)
{
    job j = {};
    j.x[0] = c->in[0], j.x[1] = c->in[1], j.t = c->in[2];
    j.temperature = ((const tn_infonce_attr *)c->attr)->temperature;
    j.N = c->in[0].dims.dim[0], j.d = c->in[0].dims.dim[1];
    carve_job(&j, c->work, backward);
    if (c->out[1].data) {
        j.lse[0] = (float *)c->out[1].data;
        j.lse[1] = j.lse[0] + j.N;
    }
    return j;
}

/* --- both ways ---------------------------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(TN_D_THREADS) clean_copies(const __grid_constant__ job j)
{
    const int64_t n = alive(j) * j.d, step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < j.N * j.d; i += step) {
#pragma unroll
        for (int k = 0; k < 2; k++) j.clean[k][i] = i < n ? tn_load(j.x[k].data, j.x[k].dtype, i) : 0.f;
    }
}

static tn_status make_clean(const tn_call *c, const job &j)
{
    if (j.N * j.d == 0) return TN_OK;
    clean_copies<<<tn_blocks(c, j.N * j.d, TN_D_THREADS), TN_D_THREADS, 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status make_dots(const tn_call *c, job *j, int64_t i0)
{
    tn_cuda_gemm g = {};
    j->i0 = i0, j->rows = j->N - i0 < TILE ? j->N - i0 : TILE;
    if (j->d == 0) {
        TN_CUDA_TRY(cudaMemsetAsync(j->dots, 0, sizeof(float) * (size_t)(j->rows * j->N), tn_cuda_stream(c)));
        return TN_OK;
    }
    g.m = j->rows, g.n = j->N, g.k = j->d;
    g.a = j->clean[0] + i0 * j->d, g.a_row = j->d, g.a_col = 1;
    g.b = j->clean[1], g.b_row = 1, g.b_col = j->d;
    g.c = j->dots;
    return tn_cuda_gemm_f32(c, g, false);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* A block to a row of the tile. */
__global__ void sum_rows(const __grid_constant__ job j)
{
    __shared__ float most[33];
    __shared__ double total[33];
    const int64_t n = alive(j), i = j.i0 + blockIdx.x;
    const float k = inverse_of(j), *row = j.dots + blockIdx.x * j.N;
    float m = -INFINITY;
    double sum = 0;
    if (i >= n) return;
    for (int64_t v = threadIdx.x; v < n; v += blockDim.x) m = fmaxf(m, row[v]);
    m = tn_d_block_max(m, most);
    if (m == -INFINITY) m = 0;
    for (int64_t v = threadIdx.x; v < n; v += blockDim.x) sum += (double)expf(k * (row[v] - m));
    sum = tn_d_block_sum(sum, total);
    if (threadIdx.x != 0) return;
    j.lse[0][i] = (float)((double)m * (double)k + log(sum));
    j.diagonal[i] = k * row[i];
}

/* Adds the tile's rows to the logsumexps of 32 columns: a lane to a column, a warp to every eighth row. */
__global__ void __launch_bounds__(TN_D_THREADS) sum_columns(const __grid_constant__ job j)
{
    __shared__ float most[WARPS][COLUMNS];
    __shared__ double part[WARPS][COLUMNS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t n = alive(j), v = (int64_t)blockIdx.x * COLUMNS + lane, rows = tn_d_least(j.rows, n - j.i0);
    const float k = inverse_of(j), old = v < n && j.i0 > 0 ? j.column_max[v] : -INFINITY;
    float m = old;
    double sum = 0;
    for (int64_t r = warp; r < rows && v < n; r += WARPS) m = fmaxf(m, j.dots[r * j.N + v]);
    most[warp][lane] = m;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) m = fmaxf(m, most[w][lane]);
    const float shift = m == -INFINITY ? 0.f : m;
    for (int64_t r = warp; r < rows && v < n; r += WARPS) sum += (double)expf(k * (j.dots[r * j.N + v] - shift));
    part[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || v >= n) return;
    double all = j.i0 == 0 ? 0 : m > old ? j.column_sum[v] * (double)expf(k * (old - m)) : j.column_sum[v];
    for (int w = 0; w < WARPS; w++) all += part[w][lane];
    j.column_sum[v] = all;
    j.column_max[v] = m;
}

__global__ void __launch_bounds__(TN_D_LAST_THREADS) end_loss(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    const int64_t n = alive(j);
    const float k = inverse_of(j);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float m = j.column_max[i] == -INFINITY ? 0.f : j.column_max[i];
        const float lse = (float)((double)m * (double)k + log(j.column_sum[i]));
        j.lse[1][i] = lse;
        sum += (double)(j.lse[0][i] - j.diagonal[i]) + (double)(lse - j.diagonal[i]);
    }
    sum = tn_d_block_sum(sum, shared);
    if (threadIdx.x == 0 && j.loss.data)
        tn_store(j.loss.data, j.loss.dtype, 0, n ? (float)(sum / (2 * (double)n)) : 0.f);
}

extern "C" tn_status tn_infonce_forward_cuda(const tn_call *c)
{
    job j = make_job(c, false);
    const cudaStream_t stream = tn_cuda_stream(c);
    tn_status s = make_clean(c, j);
    j.loss = c->out[0];
    for (int64_t i0 = 0; s == TN_OK && i0 < j.N; i0 += TILE) {
        if ((s = make_dots(c, &j, i0)) != TN_OK) break;
        sum_rows<<<(unsigned)j.rows, tn_d_row_threads(j.N), 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
        sum_columns<<<(unsigned)((j.N + COLUMNS - 1) / COLUMNS), TN_D_THREADS, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
    }
    if (s != TN_OK) return s;
    end_loss<<<1, TN_D_LAST_THREADS, 0, stream>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Dots become their gradients scale (softmax over the row + softmax over the column - 2 on the diagonal), in place;
 * zeros where a row or a column is dead. A block to a row. */
__global__ void differentiate_rows(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    const int64_t n = alive(j), i = j.i0 + blockIdx.x;
    float *row = j.dots + blockIdx.x * j.N;
    const float k = inverse_of(j), scale = n ? (float)tn_d_incoming(j.dy) * k / (2 * (float)n) : 0.f;
    const float lse = i < n ? j.lse[0][i] : 0.f;
    double moment = 0;
    for (int64_t v = threadIdx.x; v < j.N; v += blockDim.x) {
        const float x = row[v];
        float g = 0;
        if (i < n && v < n) {
            g = scale * (expf(k * x - lse) + expf(k * x - j.lse[1][v]));
            moment += (double)(g * x) - (v == i ? (double)(2 * scale * x) : 0);
            if (v == i) g -= 2 * scale;
        }
        row[v] = g;
    }
    moment = tn_d_block_sum(moment, shared);
    if (threadIdx.x == 0) j.moment[i] = moment;
}

/* The gradients by a and b, with what is alive of their tensors. */
__global__ void __launch_bounds__(TN_D_THREADS)
    put_gradient(const float *from, const __grid_constant__ tn_arg to, int64_t n, bool add)
{
    const int64_t end = tn_d_count(to), step = (int64_t)gridDim.x * TN_D_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * TN_D_THREADS + threadIdx.x; i < n && i < end; i += step)
        tn_put(to.data, to.dtype, i, from[i], add);
}

/* l = dot/T, so dloss/dT = -1/T sum of (dloss/ddot) dot. */
__global__ void __launch_bounds__(TN_D_LAST_THREADS) put_temperature(const __grid_constant__ job j)
{
    __shared__ double shared[33];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < j.N; i += blockDim.x) sum += j.moment[i];
    sum = tn_d_block_sum(sum, shared);
    if (threadIdx.x == 0) tn_put(j.dt.data, j.dt.dtype, 0, -(float)((double)inverse_of(j) * sum), j.add_dt);
}

static tn_status multiply_gradients(const tn_call *c, const job &j)
{
    tn_cuda_gemm g = {};
    if (j.d == 0) return TN_OK;
    if (c->din[0].data) { /* the tile's rows of gradients b */
        g.m = j.rows, g.n = j.d, g.k = j.N;
        g.a = j.dots, g.a_row = j.N, g.a_col = 1;
        g.b = j.clean[1], g.b_row = j.d, g.b_col = 1;
        g.c = j.grad[0] + j.i0 * j.d;
        const tn_status s = tn_cuda_gemm_f32(c, g, false);
        if (s != TN_OK) return s;
    }
    if (!c->din[1].data) return TN_OK;
    g.m = j.N, g.n = j.d, g.k = j.rows; /* gradients^T a of the tile, added up */
    g.a = j.dots, g.a_row = 1, g.a_col = j.N;
    g.b = j.clean[0] + j.i0 * j.d, g.b_row = j.d, g.b_col = 1;
    g.c = j.grad[1];
    return tn_cuda_gemm_f32(c, g, j.i0 > 0);
}

extern "C" tn_status tn_infonce_backward_cuda(const tn_call *c)
{
    job j = make_job(c, true);
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t n = j.N * j.d;
    tn_status s = make_clean(c, j);
    j.dy = c->dout[0], j.dt = c->din[2], j.add_dt = c->accumulate >> 2 & 1;
    for (int64_t i0 = 0; s == TN_OK && i0 < j.N; i0 += TILE) {
        if ((s = make_dots(c, &j, i0)) != TN_OK) break;
        differentiate_rows<<<(unsigned)j.rows, tn_d_row_threads(j.N), 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
        s = multiply_gradients(c, j);
    }
    if (s != TN_OK) return s;
    for (int i = 0; i < 2; i++) {
        if (!c->din[i].data || !n) continue;
        put_gradient<<<tn_blocks(c, n, TN_D_THREADS), TN_D_THREADS, 0, stream>>>(j.grad[i], c->din[i], n,
                                                                                 c->accumulate >> i & 1);
        TN_CUDA_LAUNCHED();
    }
    if (!j.dt.data) return TN_OK;
    put_temperature<<<1, TN_D_LAST_THREADS, 0, stream>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
