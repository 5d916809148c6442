/* linear_xent on the GPU. Tokens go in chunks: logits of a chunk in the type of x, then one pass that turns each row into
 * its loss and, backward, in place into its gradient, then the products for dx and dw. The backward pass makes the
 * logits' statistics anew, whether or not a forward call has been there (makes_out): both give the same numbers.
 *
 * Rows that do not count are copied as 0, so that nothing they hold reaches dw. A label out of range cannot end the step
 * here: its row counts as NaN. Sums over tokens: one block, in double, in a fixed order. */
#include "backend/cuda/gemm.h"
#include "ops/linear_xent/linear_xent.h"
#include "ops/linear_xent/linear_xent_rows.cuh"

enum {
    X = TN_LINEAR_XENT_X,
    W = TN_LINEAR_XENT_W,
    LABELS = TN_LINEAR_XENT_LABELS,
    WEIGHTS = TN_LINEAR_XENT_WEIGHTS,
    BIAS = TN_LINEAR_XENT_BIAS
};
enum { THREADS = 256, ROW_THREADS = 1024, LEAST_CHUNK = 256, TAIL = 64 };

/* Logits of a chunk. Large: dw is read and written once per chunk, and the tiles of dx then fill the last wave. Where w is frozen
 * there is no dw, and half as much does. */
static const int64_t CHUNK_BYTES = (int64_t)2 << 30, CHUNK_BYTES_DX = (int64_t)1 << 30;

static tn_xent_tokens tokens_of(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *labels = &c->in[LABELS];
    tn_xent_tokens t = {};
    t.label = (const int32_t *)labels->data;
    t.weight = c->in[WEIGHTS].data;
    t.weight_type = c->in[WEIGHTS].dtype;
    t.n = tn_all_count(labels);
    t.live = x->live ? x->live : labels->live;
    t.per_live = labels->dims.rank > 0 && labels->dims.dim[0] > 0 ? t.n / labels->dims.dim[0] : 1;
    t.classes = c->in[W].dims.dim[0];
    t.ignore = ((const tn_linear_xent_attr *)c->attr)->ignore;
    return t;
}

/* --- workspace ---------------------------------------------------------------------------------------------------------- */

struct space {
    int64_t chunk, row; /* tokens at a time; numbers of a row of logits, a multiple of 64 */
    char *logits;       /* (chunk,row) */
    char *x;            /* (chunk,d) */
    char *w; /* (row,d): w, padded with rows of 0 so that all sizes suit the matrix units, in the type of x; or NULL */
    float *tail;   /* (TAIL,d): of dw, its rows from a multiple of TAIL on; more of them than there are classes */
    double *term;  /* (n): weight (nll + z lse^2) */
    double *scale; /* 1 / sum of weights, or 1; 0 where nothing counts */
    size_t bytes;
};

/* w and x: their types. A w that suits the products has no copy: of a large model that is half a gigabyte. */
static space space_of(const tn_linear_xent_attr *a, int64_t n, int64_t V, int64_t d, tn_dtype w, tn_dtype x,
                      bool dx_alone, void *base)
{
    space s = {};
    const size_t item = tn_dtype_bytes(x);
    const int64_t most = dx_alone ? CHUNK_BYTES_DX : CHUNK_BYTES;
    s.row = (V + TAIL - 1) / TAIL * TAIL;
    s.chunk = s.row ? most / (s.row * (int64_t)item) / LEAST_CHUNK * LEAST_CHUNK : n;
    if (s.chunk < LEAST_CHUNK) s.chunk = LEAST_CHUNK;
    const int64_t chunks = s.chunk ? (n + s.chunk - 1) / s.chunk : 0; /* of equal size: the last one costs no less */
    if (chunks > 1) s.chunk = ((n + chunks - 1) / chunks + LEAST_CHUNK - 1) / LEAST_CHUNK * LEAST_CHUNK;
    if (a->tile) s.chunk = a->tile;
    if (s.chunk > n) s.chunk = n;
    s.logits = (char *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * s.row) * item);
    s.x = (char *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * d) * item);
    if (w != x || s.row != V) s.w = (char *)tn_d_carve(base, &s.bytes, (size_t)(s.row * d) * item);
    s.tail = (float *)tn_d_carve(base, &s.bytes, (size_t)(TAIL * d) * sizeof(float));
    s.term = (double *)tn_d_carve(base, &s.bytes, (size_t)n * sizeof(double));
    s.scale = (double *)tn_d_carve(base, &s.bytes, sizeof(double));
    return s;
}

extern "C" size_t tn_linear_xent_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims w = s->in[W].dims;
    return space_of((const tn_linear_xent_attr *)s->attr, tn_dims_count(s->in[LABELS].dims), w.dim[0], w.dim[1],
                    s->in[W].dtype, s->in[X].dtype, backward && !s->in[W].trainable, NULL)
        .bytes;
}

/* --- kernels ------------------------------------------------------------------------------------------------------------ */

/* Over a block of ROW_THREADS threads, in the order of warps; every thread gets the sum. */
__device__ double block_sum(double x, double *shared)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < ROW_THREADS / 32; i++) sum += shared[i];
    __syncthreads();
    return sum;
}

static __global__ void find_scale(double *scale, tn_xent_tokens t, bool sum)
{
    __shared__ double shared[ROW_THREADS / 32];
    double total = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < t.n; i += ROW_THREADS)
        if (tn_xent_counts(t, i)) total += (double)tn_xent_weight(t, i);
    total = block_sum(total, shared);
    if (threadIdx.x == 0) *scale = sum ? 1 : total == 0 ? 0 : 1 / total;
}

static __global__ void finish_loss(float *loss, const double *term, const double *scale, int64_t n)
{
    __shared__ double shared[ROW_THREADS / 32];
    double total = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += ROW_THREADS) total += term[i];
    total = block_sum(total, shared);
    if (threadIdx.x == 0) *loss = *scale == 0 ? 0.f : (float)(total * *scale);
}

/* Rows first .. first+count-1 of x, 0 where they do not count. */
static __global__ void take_rows(void *to, const void *x, tn_dtype type, tn_xent_tokens t, int64_t first, int64_t count,
                                 int64_t d)
{
    for (int64_t r = blockIdx.x; r < count; r += gridDim.x) {
        const bool in = tn_xent_counts(t, first + r);
        for (int64_t j = threadIdx.x; j < d; j += blockDim.x)
            tn_store(to, type, r * d + j, in ? tn_load(x, type, (first + r) * d + j) : 0.f);
    }
}

static __global__ void take_vectors(void *to, const void *x, tn_dtype type, tn_xent_tokens t, int64_t first,
                                    int64_t count, int64_t d)
{
    const int64_t per_row = d / 8, total = count * per_row;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        tn_f8 v = { { 0 } };
        if (tn_xent_counts(t, first + i / per_row)) v = tn_load8(x, type, first * d + i * 8);
        tn_store8(to, type, i * 8, v);
    }
}

/* The first n numbers of `to` are those of `from`, the rest 0. */
static __global__ void convert(void *to, tn_dtype to_type, const void *from, tn_dtype from_type, int64_t n,
                               int64_t total)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
        tn_store(to, to_type, i, i < n ? tn_load(from, from_type, i) : 0.f);
}

static __global__ void convert_vectors(void *to, tn_dtype to_type, const void *from, tn_dtype from_type, int64_t n,
                                       int64_t total)
{
    for (int64_t i = 8 * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < total;
         i += 8 * (int64_t)gridDim.x * blockDim.x) {
        tn_f8 x = { { 0 } };
        if (i < n) x = tn_load8(from, from_type, i);
        tn_store8(to, to_type, i, x);
    }
}

static __global__ void put_tail(tn_arg dw, const float *tail, int64_t from, int64_t n, bool add)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        tn_put(dw.data, dw.dtype, from + i, tail[i], add);
}

/* db (V) (+)= sum over the rows of a chunk; a thread has one column. */
static __global__ void sum_columns(tn_arg db, const void *logits, tn_dtype type, int64_t rows, int64_t row, int64_t V,
                                   bool add)
{
    const int64_t v = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (v >= V) return;
    float sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += tn_load(logits, type, r * row + v);
    tn_put(db.data, db.dtype, v * db.stride[0], sum, add);
}

static __global__ void grad_weights(tn_arg d, tn_xent_tokens t, const double *scale, const float *dy, const float *nll,
                                    const float *lse, const float *loss, bool sum, float z, bool add)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= t.n) return;
    const double s = lse[i], mean = sum ? 0 : (double)*loss;
    const double g =
        tn_xent_counts(t, i) ? *scale * (double)(dy ? *dy : 0.f) * ((double)nll[i] + (double)z * s * s - mean) : 0;
    tn_put(d.data, d.dtype, i, (float)g, add);
}

/* --- chunks ----------------------------------------------------------------------------------------------------------------- */

struct pass {
    const tn_call *c;
    space s;
    tn_xent_tokens t;
    const void *w;
    tn_dtype type;
    int64_t V, d;
};

static tn_status open_pass(const tn_call *c, bool backward, pass *p)
{
    const tn_linear_xent_attr *a = (const tn_linear_xent_attr *)c->attr;
    const tn_arg *w = &c->in[W];
    *p = (pass){};
    p->c = c;
    p->t = tokens_of(c);
    p->type = c->in[X].dtype;
    p->V = w->dims.dim[0], p->d = w->dims.dim[1];
    p->s = space_of(a, p->t.n, p->V, p->d, w->dtype, p->type, backward && !c->din[W].data, c->work);
    p->w = w->data;
    find_scale<<<1, ROW_THREADS, 0, tn_cuda_stream(c)>>>(p->s.scale, p->t, a->sum);
    TN_CUDA_LAUNCHED();
    const int64_t n = p->V * p->d, total = p->s.row * p->d;
    if (!w->data || n == 0 || (w->dtype == p->type && p->s.row == p->V)) return TN_OK;
    p->w = p->s.w;
    if (p->d % 8 == 0 && (uintptr_t)w->data % 16 == 0)
        convert_vectors<<<tn_blocks(c, total / 8, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(p->s.w, p->type, w->data,
                                                                                             w->dtype, n, total);
    else
        convert<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(p->s.w, p->type, w->data, w->dtype, n,
                                                                                 total);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status make_logits(const pass *p, int64_t first, int64_t count)
{
    const tn_arg *x = &p->c->in[X];
    const cudaStream_t stream = tn_cuda_stream(p->c);
    if (p->d % 8 == 0 && (uintptr_t)x->data % 16 == 0)
        take_vectors<<<tn_blocks(p->c, count * p->d / 8, THREADS), THREADS, 0, stream>>>(p->s.x, x->data, p->type, p->t,
                                                                                         first, count, p->d);
    else
        take_rows<<<tn_blocks(p->c, count, 1), THREADS, 0, stream>>>(p->s.x, x->data, p->type, p->t, first, count,
                                                                     p->d);
    TN_CUDA_LAUNCHED();
    tn_cuda_gemm g = {};
    g.tf32 = p->c->tf32;
    g.m = count, g.n = p->s.row, g.k = p->d, g.type = g.c_type = p->type, g.alpha = 1; /* padded columns are 0 */
    g.a = p->s.x, g.a_row = p->d, g.a_col = 1;
    g.b = p->w, g.b_row = 1, g.b_col = p->d;
    g.c = p->s.logits, g.c_row = p->s.row;
    return tn_cuda_gemm_run(tn_cuda_queue_of(p->c), &g);
}

static tn_status pass_rows(const pass *p, int64_t first, int64_t count, bool gradient, bool outputs)
{
    const tn_call *c = p->c;
    tn_xent_rows j = {};
    j.logits = p->s.logits, j.type = p->type, j.rows = count, j.row = p->s.row, j.first = first, j.t = p->t;
    j.bias = c->in[BIAS];
    j.z = ((const tn_linear_xent_attr *)c->attr)->z_loss;
    j.scale = p->s.scale, j.dy = gradient ? (const float *)c->dout[0].data : NULL, j.gradient = gradient;
    if (outputs) j.term = p->s.term, j.nll = (float *)c->out[1].data, j.lse = (float *)c->out[2].data;
    return tn_xent_rows_run(c, &j);
}

static tn_status finish_outputs(const pass *p)
{
    if (!p->c->out[0].data) return TN_OK;
    finish_loss<<<1, ROW_THREADS, 0, tn_cuda_stream(p->c)>>>((float *)p->c->out[0].data, p->s.term, p->s.scale, p->t.n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_linear_xent_forward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, false, &p));
    for (int64_t at = 0; at < p.t.n; at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(make_logits(&p, at, count));
        TN_RETURN_IF(pass_rows(&p, at, count, false, true));
    }
    return finish_outputs(&p);
}

/* --- backward ----------------------------------------------------------------------------------------------------------------- */

static tn_status add_dx(const pass *p, int64_t first, int64_t count)
{
    const tn_arg *dx = &p->c->din[X];
    tn_cuda_gemm g = {};
    g.tf32 = p->c->tf32;
    g.m = count, g.n = p->d, g.k = p->s.row, g.type = p->type, g.c_type = dx->dtype, g.alpha = 1;
    g.a = p->s.logits, g.a_row = p->s.row, g.a_col = 1;
    g.b = p->w, g.b_row = p->d, g.b_col = 1;
    g.c = (char *)dx->data + first * p->d * (int64_t)tn_dtype_bytes(dx->dtype), g.c_row = p->d;
    g.beta = p->c->accumulate >> X & 1 ? 1.f : 0.f;
    return tn_cuda_gemm_run(tn_cuda_queue_of(p->c), &g);
}

/* Classes `from` to `from + m` of dw, from a chunk. */
static tn_status multiply_dw(const pass *p, int64_t from, int64_t m, int64_t count, void *to, tn_dtype type, bool add)
{
    tn_cuda_gemm g = {};
    g.tf32 = p->c->tf32;
    g.m = m, g.n = p->d, g.k = count, g.type = p->type, g.c_type = type, g.alpha = 1;
    g.a = p->s.logits + from * (int64_t)tn_dtype_bytes(p->type), g.a_row = 1, g.a_col = p->s.row;
    g.b = p->s.x, g.b_row = p->d, g.b_col = 1;
    g.c = to, g.c_row = p->d;
    g.beta = add ? 1.f : 0.f;
    return tn_cuda_gemm_run(tn_cuda_queue_of(p->c), &g);
}

/* A number of classes that is no multiple of 8 would be multiplied by slow kernels. Whole pieces of TAIL go to dw; the
 * rest is multiplied as a whole piece too, into the workspace, and its classes are added to dw after the last chunk. */
static tn_status add_dw(const pass *p, int64_t first, int64_t count)
{
    const tn_arg *dw = &p->c->din[W];
    const bool add = p->c->accumulate >> W & 1;
    const int64_t whole = p->V / TAIL * TAIL, left = p->V - whole;
    TN_RETURN_IF(multiply_dw(p, 0, whole, count, dw->data, dw->dtype, add || first > 0));
    if (!left) return TN_OK;
    TN_RETURN_IF(multiply_dw(p, whole, TAIL, count, p->s.tail, TN_F32, first > 0));
    if (first + count < p->t.n) return TN_OK;
    put_tail<<<tn_blocks(p->c, left * p->d, THREADS), THREADS, 0, tn_cuda_stream(p->c)>>>(*dw, p->s.tail, whole * p->d,
                                                                                          left * p->d, add);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status add_bias(const pass *p, int64_t count, bool add)
{
    sum_columns<<<(unsigned)((p->V + 127) / 128), 128, 0, tn_cuda_stream(p->c)>>>(p->c->din[BIAS], p->s.logits, p->type,
                                                                                  count, p->s.row, p->V, add);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status add_weights(const pass *p)
{
    const tn_call *c = p->c;
    const tn_linear_xent_attr *a = (const tn_linear_xent_attr *)c->attr;
    if (p->t.n == 0) return TN_OK;
    grad_weights<<<(unsigned)((p->t.n + THREADS - 1) / THREADS), THREADS, 0, tn_cuda_stream(c)>>>(
        c->din[WEIGHTS], p->t, p->s.scale, (const float *)c->dout[0].data, (const float *)c->out[1].data,
        (const float *)c->out[2].data, (const float *)c->out[0].data, a->sum, a->z_loss, c->accumulate >> WEIGHTS & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_linear_xent_backward_cuda(const tn_call *c)
{
    pass p;
    TN_RETURN_IF(open_pass(c, true, &p));
    const bool gradient = c->dout[0].data && (c->din[X].data || c->din[W].data || c->din[BIAS].data);
    if (c->din[WEIGHTS].data) TN_RETURN_IF(add_weights(&p));
    if (!gradient || p.t.n == 0) {
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[X], c->accumulate >> X & 1));
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[W], c->accumulate >> W & 1));
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[BIAS], c->accumulate >> BIAS & 1));
    }
    for (int64_t at = 0; at < p.t.n && (gradient || c->makes_out); at += p.s.chunk) {
        const int64_t count = p.t.n - at < p.s.chunk ? p.t.n - at : p.s.chunk;
        TN_RETURN_IF(make_logits(&p, at, count));
        TN_RETURN_IF(pass_rows(&p, at, count, gradient, c->makes_out));
        if (!gradient) continue;
        if (c->din[X].data) TN_RETURN_IF(add_dx(&p, at, count));
        if (c->din[W].data) TN_RETURN_IF(add_dw(&p, at, count));
        if (c->din[BIAS].data) TN_RETURN_IF(add_bias(&p, count, at > 0 || (c->accumulate >> BIAS & 1)));
    }
    return c->makes_out ? finish_outputs(&p) : TN_OK;
}
