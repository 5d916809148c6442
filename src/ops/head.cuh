/* Shared by losses over the logits of a head on the GPU (linear_xent, linear_kl): the products of a chunk of rows with the head,
 * and the sums over all tokens.
 *
 * Sizes that the matrix units dislike are padded: a row of logits to a multiple of TN_HEAD_PIECE numbers, the head to as
 * many rows of 0. Rows that do not count are copied as 0, so that nothing they hold reaches a gradient. Sums over tokens: one
 * block, in double, in a fixed order. */
#ifndef TN_OPS_HEAD_CUH
#define TN_OPS_HEAD_CUH

#include "backend/cuda/gemm.h"
#include "ops/head_tokens.cuh"
#include "ops/rows_block.cuh"

enum { TN_HEAD_THREADS = 256, TN_HEAD_SUM_THREADS = 1024, TN_HEAD_LEAST_CHUNK = 256, TN_HEAD_PIECE = 64 };

/* --- over tokens ------------------------------------------------------------------------------------------------------------- */

/* 1 / sum of the weights that count, 0 where none does; with `sum` 1. */
static __global__ void tn_head_find_scale(double *scale, tn_head_tokens t, bool sum)
{
    __shared__ double shared[33];
    double total = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < t.n; i += TN_HEAD_SUM_THREADS)
        if (tn_head_counts(t, i)) total += (double)tn_head_weight(t, i);
    total = tn_d_block_sum(total, shared);
    if (threadIdx.x == 0) *scale = sum ? 1 : total == 0 ? 0 : 1 / total;
}

/* loss = factor scale sum of term (n) */
static __global__ void tn_head_sum_loss(float *loss, const double *term, const double *scale, double factor, int64_t n)
{
    __shared__ double shared[33];
    double total = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += TN_HEAD_SUM_THREADS) total += term[i];
    total = tn_d_block_sum(total, shared);
    if (threadIdx.x == 0) *loss = *scale == 0 ? 0.f : (float)(total * *scale * factor);
}

static inline tn_status tn_head_scale(const tn_call *c, double *scale, const tn_head_tokens *t, bool sum)
{
    tn_head_find_scale<<<1, TN_HEAD_SUM_THREADS, 0, tn_cuda_stream(c)>>>(scale, *t, sum);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static inline tn_status tn_head_loss(const tn_call *c, const double *term, const double *scale, double factor,
                                     int64_t n)
{
    if (!c->out[0].data) return TN_OK;
    tn_head_sum_loss<<<1, TN_HEAD_SUM_THREADS, 0, tn_cuda_stream(c)>>>((float *)c->out[0].data, term, scale, factor, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* A divergence: dloss/dw_r = (T^2 KL_r - loss) / sum w */
static __global__ void tn_head_kl_grad_weights(tn_arg d, tn_head_tokens t, const double *scale, const float *dy,
                                               const float *kl, const float *loss, double square, bool add)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= t.n) return;
    const double g =
        tn_head_counts(t, i) ? *scale * (double)(dy ? *dy : 0.f) * (square * (double)kl[i] - (double)*loss) : 0;
    tn_put(d.data, d.dtype, i, (float)g, add);
}

/* Into or onto din[slot], from out[0] (the loss) and out[1] (KL). */
static inline tn_status tn_head_kl_weights(const tn_call *c, int slot, const tn_head_tokens *t, const double *scale,
                                           float temperature)
{
    if (t->n == 0) return TN_OK;
    tn_head_kl_grad_weights<<<(unsigned)((t->n + TN_HEAD_THREADS - 1) / TN_HEAD_THREADS), TN_HEAD_THREADS, 0,
                              tn_cuda_stream(c)>>>(c->din[slot], *t, scale, (const float *)c->dout[0].data,
                                                   (const float *)c->out[1].data, (const float *)c->out[0].data,
                                                   (double)temperature * (double)temperature,
                                                   c->accumulate >> slot & 1);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- the head ----------------------------------------------------------------------------------------------------------- */

struct tn_head {
    tn_dtype type; /* of the products' operands */
    int64_t V, d;  /* classes, width */
    int64_t row;   /* numbers of a row of logits: V rounded up */
    const void *w; /* (row,d) */
    char *x;       /* (chunk,d): rows of the current chunk */
    char *
        copy; /* (row,d): w in `type` and padded, or NULL: w suits the products. Of a large model it is half a gigabyte */
    float *tail; /* (TN_HEAD_PIECE,d) or NULL: of dw, its rows from a multiple of that many on */
};

static inline int64_t tn_head_row(int64_t V) { return (V + TN_HEAD_PIECE - 1) / TN_HEAD_PIECE * TN_HEAD_PIECE; }

/* Tokens at a time, where each takes row numbers of item bytes and `most` bytes are to hold them; tile: asked for, or 0. */
static inline int64_t tn_head_chunk(int64_t n, int64_t row, int64_t item, int64_t most, int64_t tile)
{
    const int64_t least = TN_HEAD_LEAST_CHUNK;
    int64_t chunk = row ? most / (row * item) / least * least : n;
    if (chunk < least) chunk = least;
    const int64_t chunks = (n + chunk - 1) / chunk; /* of equal size: the last one costs no less */
    if (chunks > 1) chunk = ((n + chunks - 1) / chunks + least - 1) / least * least;
    if (tile) chunk = tile;
    return chunk < n ? chunk : n;
}

/* Workspace of a head with weights of type w. shared: another head has them ready. trains: there may be a dw. */
static inline tn_head tn_head_carve(int64_t V, int64_t d, tn_dtype w, tn_dtype type, int64_t chunk, bool shared,
                                    bool trains, void *base, size_t *used)
{
    const int64_t item = (int64_t)tn_dtype_bytes(type);
    tn_head h = {};
    h.type = type, h.V = V, h.d = d, h.row = tn_head_row(V);
    h.x = (char *)tn_d_carve(base, used, (size_t)(chunk * d * item));
    if (!shared && (w != type || h.row != V)) h.copy = (char *)tn_d_carve(base, used, (size_t)(h.row * d * item));
    if (trains) h.tail = (float *)tn_d_carve(base, used, (size_t)(TN_HEAD_PIECE * d) * sizeof(float));
    return h;
}

/* Rows first .. first+count-1 of x, 0 where they do not count. */
static __global__ void tn_head_take_rows(void *to, tn_dtype to_type, const void *x, tn_dtype type, tn_head_tokens t,
                                         int64_t first, int64_t count, int64_t d)
{
    for (int64_t r = blockIdx.x; r < count; r += gridDim.x) {
        const bool in = tn_head_counts(t, first + r);
        for (int64_t j = threadIdx.x; j < d; j += blockDim.x)
            tn_store(to, to_type, r * d + j, in ? tn_load(x, type, (first + r) * d + j) : 0.f);
    }
}

static __global__ void tn_head_take_vectors(void *to, tn_dtype to_type, const void *x, tn_dtype type, tn_head_tokens t,
                                            int64_t first, int64_t count, int64_t d)
{
    const int64_t per_row = d / 8, total = count * per_row;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        tn_f8 v = { { 0 } };
        if (tn_head_counts(t, first + i / per_row)) v = tn_load8(x, type, first * d + i * 8);
        tn_store8(to, to_type, i * 8, v);
    }
}

/* The first n numbers of `to` are those of `from`, the rest 0. */
static __global__ void tn_head_convert(void *to, tn_dtype to_type, const void *from, tn_dtype from_type, int64_t n,
                                       int64_t total)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
        tn_store(to, to_type, i, i < n ? tn_load(from, from_type, i) : 0.f);
}

static __global__ void tn_head_convert_vectors(void *to, tn_dtype to_type, const void *from, tn_dtype from_type,
                                               int64_t n, int64_t total)
{
    for (int64_t i = 8 * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < total;
         i += 8 * (int64_t)gridDim.x * blockDim.x) {
        tn_f8 x = { { 0 } };
        if (i < n) x = tn_load8(from, from_type, i);
        tn_store8(to, to_type, i, x);
    }
}

/* Makes w ready for the products. */
static inline tn_status tn_head_open(const tn_call *c, tn_head *h, const tn_arg *w)
{
    const int64_t n = h->V * h->d, total = h->row * h->d;
    h->w = h->copy ? h->copy : w->data;
    if (!w->data || n == 0 || !h->copy) return TN_OK;
    if (h->d % 8 == 0 && (uintptr_t)w->data % 16 == 0)
        tn_head_convert_vectors<<<tn_blocks(c, total / 8, TN_HEAD_THREADS), TN_HEAD_THREADS, 0, tn_cuda_stream(c)>>>(
            h->copy, h->type, w->data, w->dtype, n, total);
    else
        tn_head_convert<<<tn_blocks(c, total, TN_HEAD_THREADS), TN_HEAD_THREADS, 0, tn_cuda_stream(c)>>>(
            h->copy, h->type, w->data, w->dtype, n, total);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* logits (count,row) of tokens first .. first+count-1, whose rows of x stay in h->x; padded columns are 0. */
static inline tn_status tn_head_logits(const tn_call *c, const tn_head *h, const tn_arg *x, const tn_head_tokens *t,
                                       int64_t first, int64_t count, void *logits, tn_dtype type)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    if (h->d == 0) { /* a product without terms */
        TN_CUDA_TRY(cudaMemsetAsync(logits, 0, (size_t)(count * h->row) * tn_dtype_bytes(type), stream));
        return TN_OK;
    }
    if (h->d % 8 == 0 && (uintptr_t)x->data % 16 == 0)
        tn_head_take_vectors<<<tn_blocks(c, count * h->d / 8, TN_HEAD_THREADS), TN_HEAD_THREADS, 0, stream>>>(
            h->x, h->type, x->data, x->dtype, *t, first, count, h->d);
    else
        tn_head_take_rows<<<tn_blocks(c, count, 1), TN_HEAD_THREADS, 0, stream>>>(h->x, h->type, x->data, x->dtype, *t,
                                                                                  first, count, h->d);
    TN_CUDA_LAUNCHED();
    tn_cuda_gemm g = {};
    g.tf32 = c->tf32;
    g.m = count, g.n = h->row, g.k = h->d, g.type = h->type, g.c_type = type, g.alpha = 1;
    g.a = h->x, g.a_row = h->d, g.a_col = 1;
    g.b = h->w, g.b_row = 1, g.b_col = h->d;
    g.c = logits, g.c_row = h->row;
    return tn_cuda_gemm_run(tn_cuda_queue_of(c), &g);
}

/* Rows of dx from dlogits (count,row) of h's type, whose rows are `apart` numbers apart. */
static inline tn_status tn_head_dx(const tn_call *c, const tn_head *h, const void *dlogits, int64_t apart,
                                   const tn_arg *dx, int64_t first, int64_t count, bool add)
{
    tn_cuda_gemm g = {};
    g.tf32 = c->tf32;
    g.m = count, g.n = h->d, g.k = h->row, g.type = h->type, g.c_type = dx->dtype, g.alpha = 1;
    g.a = dlogits, g.a_row = apart, g.a_col = 1;
    g.b = h->w, g.b_row = h->d, g.b_col = 1;
    g.c = (char *)dx->data + first * h->d * (int64_t)tn_dtype_bytes(dx->dtype), g.c_row = h->d;
    g.beta = add ? 1.f : 0.f;
    return tn_cuda_gemm_run(tn_cuda_queue_of(c), &g);
}

/* Classes `from` to `from + m` of dw, from a chunk. */
static inline tn_status tn_head_dw_piece(const tn_call *c, const tn_head *h, const void *dlogits, int64_t apart,
                                         int64_t from, int64_t m, int64_t count, void *to, tn_dtype type, bool add)
{
    tn_cuda_gemm g = {};
    g.tf32 = c->tf32;
    g.m = m, g.n = h->d, g.k = count, g.type = h->type, g.c_type = type, g.alpha = 1;
    g.a = (const char *)dlogits + from * (int64_t)tn_dtype_bytes(h->type), g.a_row = 1, g.a_col = apart;
    g.b = h->x, g.b_row = h->d, g.b_col = 1;
    g.c = to, g.c_row = h->d;
    g.beta = add ? 1.f : 0.f;
    return tn_cuda_gemm_run(tn_cuda_queue_of(c), &g);
}

static __global__ void tn_head_put_tail(tn_arg dw, const float *tail, int64_t from, int64_t n, bool add)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        tn_put(dw.data, dw.dtype, from + i, tail[i], add);
}

/* A number of classes that is no multiple of 8 would be multiplied by slow kernels. Whole pieces go to dw; the rest is
 * multiplied as a whole piece too, into the workspace, and its classes are added to dw after the last of n tokens. */
static inline tn_status tn_head_dw(const tn_call *c, const tn_head *h, const void *dlogits, int64_t apart,
                                   const tn_arg *dw, int64_t first, int64_t count, int64_t n, bool add)
{
    const int64_t whole = h->V / TN_HEAD_PIECE * TN_HEAD_PIECE, left = h->V - whole;
    TN_RETURN_IF(tn_head_dw_piece(c, h, dlogits, apart, 0, whole, count, dw->data, dw->dtype, add || first > 0));
    if (!left) return TN_OK;
    TN_RETURN_IF(tn_head_dw_piece(c, h, dlogits, apart, whole, TN_HEAD_PIECE, count, h->tail, TN_F32, first > 0));
    if (first + count < n) return TN_OK;
    tn_head_put_tail<<<tn_blocks(c, left * h->d, TN_HEAD_THREADS), TN_HEAD_THREADS, 0, tn_cuda_stream(c)>>>(
        *dw, h->tail, whole * h->d, left * h->d, add);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

#endif
