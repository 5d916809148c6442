/* linear on the GPU: one cuBLASLt product with bias, residual and (bf16) gelu inside; other activations in one pass after
 * it. Products are in the type of y; an operand of another type is converted into the workspace first. Where x has dead
 * rows, both operands of dw are copied with those rows as 0. The bias' gradient adds rows in two stages of fixed order. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/gemm.h"
#include "ops/act.cuh"
#include "ops/linear/linear.h"
#include "ops/rows.cuh"

enum { X = TN_LINEAR_X, W = TN_LINEAR_W, BIAS = TN_LINEAR_BIAS, RESIDUAL = TN_LINEAR_RESIDUAL };
enum { THREADS = 256, VECTOR_THREADS = 96, PARTS = 128 }; /* parts of the rows whose sums are added in the second stage */

/* --- rows: the leading axes of several tensors, merged where all of them allow it ------------------------------------ */

enum { MOST = 4 };

typedef struct rows {
    int n;
    struct {
        int64_t dim, step[MOST];
    } axis[TN_MAX_RANK];
} rows;

static rows rows_of(const tn_arg *const *x, int count)
{
    rows r = { 0 };
    for (int i = 0; i < x[0]->dims.rank - 1; i++) {
        if (x[0]->dims.dim[i] == 1) continue;
        bool merges = r.n > 0;
        for (int k = 0; k < count && merges; k++)
            merges = r.axis[r.n - 1].step[k] == x[0]->dims.dim[i] * (x[k]->data ? x[k]->stride[i] : 0) || !x[k]->data;
        if (!merges) r.n++;
        r.axis[r.n - 1].dim = (merges ? r.axis[r.n - 1].dim : 1) * x[0]->dims.dim[i];
        for (int k = 0; k < count; k++) r.axis[r.n - 1].step[k] = x[k]->data ? x[k]->stride[i] : 0;
    }
    if (r.n == 0) r.axis[r.n++].dim = 1;
    return r;
}

/* Products that cover all axes but the last merged one. */
static int64_t outer_count(const rows *r)
{
    int64_t n = 1;
    for (int i = 0; i < r->n - 1; i++) n *= r->axis[i].dim;
    return n;
}

static int64_t outer_offset(const rows *r, int64_t i, int k)
{
    int64_t off = 0;
    for (int a = r->n - 2; a >= 0; a--) {
        off += i % r->axis[a].dim * r->axis[a].step[k];
        i /= r->axis[a].dim;
    }
    return off;
}

static char *at(const tn_arg *x, int64_t offset) { return (char *)x->data + offset * (int64_t)tn_dtype_bytes(x->dtype); }

/* --- element by element ---------------------------------------------------------------------------------------------- */

/* to (rows,n) = from, as another type; rows of `live` that are dead become 0. */
static __global__ void convert_rows(TN_GRID tn_arg to, TN_GRID tn_arg from, int64_t total, int64_t n)
{
    const int64_t alive = tn_d_rows(from) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
        tn_store(to.data, to.dtype, i,
                 i < alive ? tn_load(from.data, from.dtype, tn_d_row_offset(from, i / n) + i % n) : 0.f);
}

/* y = act(pre + bias) + residual; bias only where the product did not add it. */
static __global__ void finish_numbers(TN_GRID tn_arg y, TN_GRID tn_arg pre, TN_GRID tn_arg bias, TN_GRID tn_arg residual, int act, int64_t n)
{
    const int64_t total = tn_d_rows(y) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / n, j = i % n, p = tn_d_row_offset(pre, r) + j;
        float x = tn_load(pre.data, pre.dtype, p);
        if (bias.data) {
            x += tn_load(bias.data, bias.dtype, j * bias.stride[0]);
            if (pre.data != y.data) tn_store(pre.data, pre.dtype, p, x);
        }
        x = tn_d_act((tn_act)act, x);
        if (residual.data) x += tn_load(residual.data, residual.dtype, tn_d_row_offset(residual, r) + j);
        tn_store(y.data, y.dtype, tn_d_row_offset(y, r) + j, x);
    }
}

/* Vectors of rows at even distances: a block of VECTOR_THREADS threads has a row at a time. */
static __global__ void finish_vectors(const __grid_constant__ tn_rowset y, const __grid_constant__ tn_rowset pre,
                                      const __grid_constant__ tn_rowset residual, int act, int n)
{
    const int64_t rows = tn_d_rows(y.a);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (int j = threadIdx.x * 8; j < n; j += VECTOR_THREADS * 8) {
            tn_f8 x = tn_load8(pre.a.data, pre.a.dtype, r * pre.distance + j);
            for (int k = 0; k < 8; k++) x.v[k] = tn_d_act((tn_act)act, x.v[k]);
            if (residual.a.data) {
                const tn_f8 q = tn_load8(residual.a.data, residual.a.dtype, r * residual.distance + j);
                for (int k = 0; k < 8; k++) x.v[k] += q.v[k];
            }
            tn_store8(y.a.data, y.a.dtype, r * y.distance + j, x);
        }
}

/* d (rows,n) = dy act'(pre); dead rows 0. pre.data NULL: dy itself. */
static __global__ void before_act_numbers(TN_GRID tn_arg d, TN_GRID tn_arg dy, TN_GRID tn_arg pre, int act, int64_t total, int64_t n)
{
    const int64_t alive = tn_d_rows(dy) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        float x = i < alive ? tn_load(dy.data, dy.dtype, tn_d_row_offset(dy, i / n) + i % n) : 0.f;
        if (i < alive && pre.data) x *= tn_d_act_grad((tn_act)act, tn_load(pre.data, pre.dtype, tn_d_row_offset(pre, i / n) + i % n));
        tn_store(d.data, d.dtype, i, x);
    }
}

static __global__ void before_act_vectors(const __grid_constant__ tn_rowset d, const __grid_constant__ tn_rowset dy,
                                          const __grid_constant__ tn_rowset pre, int act, int64_t rows, int n)
{
    const int64_t alive = tn_d_rows(dy.a);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (int j = threadIdx.x * 8; j < n; j += VECTOR_THREADS * 8) {
            tn_f8 x = { { 0 } };
            if (r < alive) {
                x = tn_load8(dy.a.data, dy.a.dtype, r * dy.distance + j);
                const tn_f8 p = tn_load8(pre.a.data, pre.a.dtype, r * pre.distance + j);
                for (int k = 0; k < 8; k++) x.v[k] *= tn_d_act_grad((tn_act)act, p.v[k]);
            }
            tn_store8(d.a.data, d.a.dtype, r * d.distance + j, x);
        }
}

/* to (+)= from; rows that are dead in from become 0, or stay where they are added to. */
static __global__ void pass_rows(TN_GRID tn_arg to, TN_GRID tn_arg from, bool add, int64_t n)
{
    const int64_t total = tn_d_rows(to) * n, alive = tn_d_rows(from) * n;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        if (i >= alive && add) continue;
        const float x = i < alive ? tn_load(from.data, from.dtype, tn_d_row_offset(from, i / n) + i % n) : 0.f;
        tn_put(to.data, to.dtype, tn_d_row_offset(to, i / n) + i % n, x, add);
    }
}

static __global__ void pass_vectors(const __grid_constant__ tn_rowset to, const __grid_constant__ tn_rowset from, bool add, int n)
{
    const int64_t rows = tn_d_rows(to.a);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (int j = threadIdx.x * 8; j < n; j += VECTOR_THREADS * 8)
            tn_put8(to.a.data, to.a.dtype, r * to.distance + j, tn_load8(from.a.data, from.a.dtype, r * from.distance + j), add);
}

/* --- forward -------------------------------------------------------------------------------------------------------------- */

/* The weight in the type of the product: itself, or converted at `work`. */
static tn_status weight_as(const tn_call *c, tn_dtype type, void *work, tn_arg *out)
{
    const tn_arg *w = &c->in[W];
    *out = *w;
    if (w->dtype == type) return TN_OK;
    *out = tn_contiguous_at(w, work, type);
    const int64_t total = tn_all_count(w);
    convert_rows<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*out, *w, total, w->dims.dim[1]);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* x itself, or converted (and its dead rows zeroed) at `work`. */
static tn_status rows_as(const tn_call *c, const tn_arg *x, tn_dtype type, bool mask, void *work, tn_arg *out)
{
    *out = *x;
    if (x->dtype == type && !(mask && x->live)) return TN_OK;
    const int64_t total = tn_all_count(x), n = tn_row_len(x);
    *out = tn_contiguous_at(x, work, type);
    convert_rows<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*out, *x, total, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* Rows at even distances, of whole vectors; a tensor that is not there counts. */
static bool vectors(const tn_arg *a) { return tn_rows_of(a).fast; }

static unsigned row_blocks(const tn_call *c, int64_t rows) { return tn_blocks(c, rows, 2); }

static tn_status finish(const tn_call *c, const tn_arg *y, const tn_arg *pre, const tn_arg *bias, const tn_arg *residual, tn_act act)
{
    const int64_t n = tn_row_len(y), total = tn_all_count(y);
    if (!bias->data && y->dims.rank > 1 && vectors(y) && vectors(pre) && vectors(residual))
        finish_vectors<<<row_blocks(c, tn_all_rows(y)), VECTOR_THREADS, 0, tn_cuda_stream(c)>>>(tn_rows_of(y), tn_rows_of(pre),
                                                                                                tn_rows_of(residual), act, (int)n);
    else finish_numbers<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*y, *pre, *bias, *residual, act, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" size_t tn_linear_work_cuda(const tn_sig *s, bool backward)
{
    const size_t n = (size_t)s->in[W].dims.dim[0], k = (size_t)s->in[W].dims.dim[1], y = (size_t)tn_dims_count(s->out[0].dims);
    const size_t item = tn_dtype_bytes(s->out[0].dtype), x = (size_t)tn_dims_count(s->in[X].dims);
    const bool act = ((const tn_linear_attr *)s->attr)->act != TN_ACT_NONE, live = s->in[X].live;
    size_t bytes = s->in[W].dtype == s->out[0].dtype ? 0 : tn_align256(n * k * item);
    if (s->in[X].dtype != s->out[0].dtype || (backward && live)) bytes += tn_align256(x * item);
    if (backward && (act || live)) bytes += tn_align256(y * item);
    if (backward && !s->in[BIAS].absent) bytes += tn_align256(PARTS * n * sizeof(float));
    return bytes;
}

extern "C" tn_status tn_linear_forward_cuda(const tn_call *c)
{
    const tn_act act = ((const tn_linear_attr *)c->attr)->act;
    const tn_arg *y = &c->out[0], none = {}, *bias = &c->in[BIAS], *residual = &c->in[RESIDUAL];
    const tn_dtype type = y->dtype;
    const int64_t n = c->in[W].dims.dim[0], k = c->in[W].dims.dim[1];
    char *work = (char *)c->work;
    tn_arg w, x;
    if (tn_all_count(y) == 0) return TN_OK;
    TN_RETURN_IF(weight_as(c, type, work, &w));
    if (w.data == work) work += tn_align256((size_t)(n * k) * tn_dtype_bytes(type));
    TN_RETURN_IF(rows_as(c, &c->in[X], type, false, work, &x));
    const tn_arg *pre = c->n_out > 1 && c->out[1].data ? &c->out[1] : y;
    const bool bias_inside = bias->data && bias->dtype == type && (bias->dims.dim[0] == 1 || bias->stride[0] == 1);
    const bool whole = act == TN_ACT_GELU && type == TN_BF16 && !residual->data && (!bias->data || bias_inside) && n % 8 == 0;
    const bool sum_inside = act == TN_ACT_NONE && residual->data && residual->dtype == type && (!bias->data || bias_inside);
    const tn_arg *to = act == TN_ACT_NONE || whole ? y : pre, *list[] = { &x, to, sum_inside ? residual : &none, pre };
    const rows r = rows_of(list, 4);
    const int last = r.n - 1;
    for (int64_t i = 0; i < outer_count(&r); i++) {
        tn_cuda_gemm g = {};
        g.tf32 = c->tf32;
        g.m = r.axis[last].dim, g.n = n, g.k = k, g.type = g.c_type = type, g.alpha = 1;
        g.a = at(&x, outer_offset(&r, i, 0)), g.a_row = r.axis[last].step[0], g.a_col = 1;
        g.b = w.data, g.b_row = w.stride[1], g.b_col = w.stride[0];
        g.c = at(to, outer_offset(&r, i, 1)), g.c_row = r.axis[last].step[1];
        if (sum_inside) g.add = at(residual, outer_offset(&r, i, 2)), g.add_row = r.axis[last].step[2], g.beta = 1;
        if (bias_inside) g.bias = bias->data, g.epilogue = TN_CUDA_BIAS;
        if (whole) {
            g.epilogue = TN_CUDA_GELU;
            if (pre != y) g.aux = at(pre, outer_offset(&r, i, 3)), g.aux_row = r.axis[last].step[3];
        }
        TN_RETURN_IF(tn_cuda_gemm_run(tn_cuda_queue_of(c), &g));
    }
    const bool more = (act != TN_ACT_NONE && !whole) || (residual->data && !sum_inside) || (bias->data && !bias_inside);
    return more ? finish(c, y, act == TN_ACT_NONE ? y : pre, bias_inside ? &none : bias, sum_inside ? &none : residual, act) : TN_OK;
}

/* --- backward ------------------------------------------------------------------------------------------------------------- */

/* dy itself, or what reaches the product through the activation, contiguous at `work`. */
static tn_status before_act(const tn_call *c, void *work, tn_arg *d)
{
    const tn_act act = ((const tn_linear_attr *)c->attr)->act;
    const tn_arg *dy = &c->dout[0], none = {};
    const tn_arg *pre = act == TN_ACT_NONE || !c->out[1].data ? &none : &c->out[1];
    const bool live = dy->live || c->in[X].live;
    *d = *dy;
    if (!pre->data && !live) return TN_OK;
    tn_arg from = *dy;
    if (!from.live) from.live = c->in[X].live;
    const int64_t total = tn_all_count(dy), n = tn_row_len(dy);
    *d = tn_contiguous_at(dy, work, dy->dtype);
    if (pre->data && dy->dims.rank > 1 && vectors(dy) && vectors(pre) && vectors(d))
        before_act_vectors<<<row_blocks(c, tn_all_rows(dy)), VECTOR_THREADS, 0, tn_cuda_stream(c)>>>(
            tn_rows_of(d), tn_rows_of(&from), tn_rows_of(pre), act, tn_all_rows(dy), (int)n);
    else before_act_numbers<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*d, from, *pre, act, total, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status grad_x(const tn_call *c, const tn_arg *d, const tn_arg *w)
{
    const tn_arg *dx = &c->din[X], *list[] = { d, dx };
    const rows r = rows_of(list, 2);
    const int last = r.n - 1;
    for (int64_t i = 0; i < outer_count(&r); i++) {
        tn_cuda_gemm g = {};
        g.tf32 = c->tf32;
        g.m = r.axis[last].dim, g.n = w->dims.dim[1], g.k = w->dims.dim[0], g.type = d->dtype, g.c_type = dx->dtype, g.alpha = 1;
        g.a = at(d, outer_offset(&r, i, 0)), g.a_row = r.axis[last].step[0], g.a_col = 1;
        g.b = w->data, g.b_row = w->stride[0], g.b_col = w->stride[1];
        g.c = at(dx, outer_offset(&r, i, 1)), g.c_row = r.axis[last].step[1];
        g.beta = c->accumulate >> X & 1 ? 1.f : 0.f;
        TN_RETURN_IF(tn_cuda_gemm_run(tn_cuda_queue_of(c), &g));
    }
    return TN_OK;
}

static tn_status grad_w(const tn_call *c, const tn_arg *d, const tn_arg *x)
{
    const tn_arg *dw = &c->din[W], *list[] = { d, x };
    const rows r = rows_of(list, 2);
    const int last = r.n - 1;
    for (int64_t i = 0; i < outer_count(&r); i++) {
        tn_cuda_gemm g = {};
        g.tf32 = c->tf32;
        g.m = dw->dims.dim[0], g.n = dw->dims.dim[1], g.k = r.axis[last].dim, g.type = d->dtype, g.c_type = dw->dtype, g.alpha = 1;
        g.a = at(d, outer_offset(&r, i, 0)), g.a_row = 1, g.a_col = r.axis[last].step[0];
        g.b = at(x, outer_offset(&r, i, 1)), g.b_row = r.axis[last].step[1], g.b_col = 1;
        g.c = dw->data, g.c_row = dw->stride[0];
        g.beta = i > 0 || (c->accumulate >> W & 1) ? 1.f : 0.f;
        TN_RETURN_IF(tn_cuda_gemm_run(tn_cuda_queue_of(c), &g));
    }
    return TN_OK;
}

/* part[p] (n) = sum of every PARTS-th row from p on. A thread has one column. */
static __global__ void sum_parts(float *part, TN_GRID tn_arg d, int64_t n)
{
    const int64_t j = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, count = tn_d_rows(d);
    if (j >= n) return;
    float sum = 0;
    for (int64_t r = blockIdx.y; r < count; r += gridDim.y) sum += tn_load(d.data, d.dtype, tn_d_row_offset(d, r) + j);
    part[blockIdx.y * n + j] = sum;
}

/* The same for rows of whole vectors: a block is 32 vectors (256 columns) by 8 rows. */
static __global__ void sum_parts_vectors(float *part, const __grid_constant__ tn_rowset d, int64_t n)
{
    __shared__ float shared[8][32][9]; /* 9: no two lanes in one bank */
    const int lane = threadIdx.x, group = threadIdx.y;
    const int64_t j = (blockIdx.x * 32 + lane) * 8, count = tn_d_rows(d.a);
    tn_f8 sum = { { 0 } };
#pragma unroll 4
    for (int64_t r = blockIdx.y * 8 + group; j < n && r < count; r += gridDim.y * 8) {
        const tn_f8 x = tn_load8(d.a.data, d.a.dtype, r * d.distance + j);
        for (int k = 0; k < 8; k++) sum.v[k] += x.v[k];
    }
    for (int k = 0; k < 8; k++) shared[group][lane][k] = sum.v[k];
    __syncthreads();
    const int64_t column = blockIdx.x * 256 + group * 32 + lane;
    if (column >= n) return;
    float x = 0;
    for (int g = 0; g < 8; g++) x += shared[g][(group * 32 + lane) / 8][(group * 32 + lane) % 8];
    part[blockIdx.y * n + column] = x;
}

static __global__ void add_parts(TN_GRID tn_arg db, const float *part, int parts, int64_t n, bool add)
{
    const int64_t j = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (j >= n) return;
    float sum = 0;
    for (int p = 0; p < parts; p++) sum += part[p * n + j];
    tn_put(db.data, db.dtype, j * db.stride[0], sum, add);
}

static tn_status grad_bias(const tn_call *c, const tn_arg *d, float *part)
{
    const int64_t n = tn_row_len(d), count = tn_all_rows(d);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (d->dims.rank > 1 && vectors(d)) {
        const int parts = (int)(count < PARTS * 8 ? (count + 7) / 8 : PARTS);
        sum_parts_vectors<<<dim3((unsigned)((n + 255) / 256), parts), dim3(32, 8), 0, stream>>>(part, tn_rows_of(d), n);
        TN_CUDA_LAUNCHED();
        add_parts<<<(unsigned)((n + 127) / 128), 128, 0, stream>>>(c->din[BIAS], part, parts, n, c->accumulate >> BIAS & 1);
    } else {
        const int parts = (int)(count < PARTS ? count : PARTS);
        sum_parts<<<dim3((unsigned)((n + 127) / 128), parts), 128, 0, stream>>>(part, *d, n);
        TN_CUDA_LAUNCHED();
        add_parts<<<(unsigned)((n + 127) / 128), 128, 0, stream>>>(c->din[BIAS], part, parts, n, c->accumulate >> BIAS & 1);
    }
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

static tn_status grad_residual(const tn_call *c)
{
    const tn_arg *dy = &c->dout[0], *dr = &c->din[RESIDUAL];
    const int64_t n = tn_row_len(dr), total = tn_all_count(dr);
    const bool add = c->accumulate >> RESIDUAL & 1;
    if (!dy->live && !dr->live && dr->dims.rank > 1 && vectors(dr) && vectors(dy))
        pass_vectors<<<row_blocks(c, tn_all_rows(dr)), VECTOR_THREADS, 0, tn_cuda_stream(c)>>>(tn_rows_of(dr), tn_rows_of(dy), add, (int)n);
    else pass_rows<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*dr, *dy, add, n);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_linear_backward_cuda(const tn_call *c)
{
    const tn_arg *dy = &c->dout[0];
    const tn_dtype type = dy->dtype;
    const size_t item = tn_dtype_bytes(type);
    char *work = (char *)c->work;
    tn_arg d, w, x;
    if (tn_all_count(dy) == 0) {
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[W], c->accumulate >> W & 1));
        return tn_clear_gradient(c, &c->din[BIAS], c->accumulate >> BIAS & 1);
    }
    TN_RETURN_IF(before_act(c, work, &d));
    if (d.data == work) work += tn_align256((size_t)tn_all_count(dy) * item);
    if (c->din[X].data) {
        TN_RETURN_IF(weight_as(c, type, work, &w));
        if (w.data == work) work += tn_align256((size_t)tn_all_count(&w) * item);
        TN_RETURN_IF(grad_x(c, &d, &w));
    }
    if (c->din[W].data) {
        TN_RETURN_IF(rows_as(c, &c->in[X], type, true, work, &x));
        if (x.data == work) work += tn_align256((size_t)tn_all_count(&x) * item);
        TN_RETURN_IF(grad_w(c, &d, &x));
    }
    if (c->din[BIAS].data) TN_RETURN_IF(grad_bias(c, &d, (float *)work));
    return c->din[RESIDUAL].data ? grad_residual(c) : TN_OK;
}
