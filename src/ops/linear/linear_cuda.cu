/* linear on the GPU: one cuBLASLt product with bias, residual and (bf16) gelu inside; other activations in one pass after
 * it (linear_passes_cuda.cu). Products are in the type of y; an operand of another type is converted into the workspace
 * first. Where x has dead rows, both operands of dw are copied with those rows as 0. */
#include "backend/cuda/gemm.h"
#include "ops/linear/linear_passes.cuh"

enum {
    X = TN_LINEAR_X,
    W = TN_LINEAR_W,
    BIAS = TN_LINEAR_BIAS,
    RESIDUAL = TN_LINEAR_RESIDUAL,
    SLOPE = TN_LINEAR_SLOPE
};

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

static char *at(const tn_arg *x, int64_t offset)
{
    return (char *)x->data + offset * (int64_t)tn_dtype_bytes(x->dtype);
}

/* --- forward -------------------------------------------------------------------------------------------------------------- */

/* The weight in the type of the product: itself, or converted at `work`. */
static tn_status weight_as(const tn_call *c, tn_dtype type, void *work, tn_arg *out)
{
    const tn_arg *w = &c->in[W];
    *out = *w;
    if (w->dtype == type) return TN_OK;
    *out = tn_contiguous_at(w, work, type);
    return tn_linear_convert(c, out, w);
}

/* x itself, or converted (and its dead rows zeroed) at `work`. */
static tn_status rows_as(const tn_call *c, const tn_arg *x, tn_dtype type, bool mask, void *work, tn_arg *out)
{
    *out = *x;
    if (x->dtype == type && !(mask && x->live)) return TN_OK;
    *out = tn_contiguous_at(x, work, type);
    return tn_linear_convert(c, out, x);
}

extern "C" size_t tn_linear_work_cuda(const tn_sig *s, bool backward)
{
    const size_t n = (size_t)s->in[W].dims.dim[0], k = (size_t)s->in[W].dims.dim[1],
                 y = (size_t)tn_dims_count(s->out[0].dims);
    const size_t item = tn_dtype_bytes(s->out[0].dtype), x = (size_t)tn_dims_count(s->in[X].dims);
    const bool act = ((const tn_linear_attr *)s->attr)->act != TN_ACT_NONE && !s->out[1].absent, live = s->in[X].live;
    size_t bytes = s->in[W].dtype == s->out[0].dtype ? 0 : tn_align256(n * k * item);
    if (s->in[X].dtype != s->out[0].dtype || (backward && live)) bytes += tn_align256(x * item);
    if (backward && (act || live)) bytes += tn_align256(y * item);
    if (backward && !s->in[BIAS].absent) bytes += tn_linear_parts_bytes((int64_t)n);
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
    const bool whole =
        act == TN_ACT_GELU && type == TN_BF16 && !residual->data && (!bias->data || bias_inside) && n % 8 == 0;
    const bool sum_inside =
        act == TN_ACT_NONE && residual->data && residual->dtype == type && (!bias->data || bias_inside);
    const tn_arg *to = act == TN_ACT_NONE || whole ? y : pre, *list[] = { &x, to, sum_inside ? residual : &none, pre };
    const rows r = rows_of(list, 4);
    const int last = r.n - 1;
    for (int64_t i = 0; i < outer_count(&r); i++) {
        tn_cuda_gemm g = {};
        g.m = r.axis[last].dim, g.n = n, g.k = k, g.type = g.c_type = type, g.alpha = 1, g.tf32 = c->tf32;
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
    return more ? tn_linear_finish(c, y, act == TN_ACT_NONE ? y : pre, bias_inside ? &none : bias,
                                   sum_inside ? &none : residual, act)
                : TN_OK;
}

/* --- backward ------------------------------------------------------------------------------------------------------------- */

/* dx = d w, times the slope of gelu where x is gelu of something. */
static tn_status grad_x(const tn_call *c, const tn_arg *d, const tn_arg *w)
{
    const tn_arg *dx = &c->din[X], *pre = &c->in[SLOPE], *list[] = { d, dx, pre };
    const rows r = rows_of(list, 3);
    const int last = r.n - 1;
    bool inside = pre->data != NULL;
    for (int64_t i = 0; i < outer_count(&r); i++) {
        tn_cuda_gemm g = {};
        g.m = r.axis[last].dim, g.n = w->dims.dim[1], g.k = w->dims.dim[0], g.type = d->dtype, g.c_type = dx->dtype,
        g.alpha = 1, g.tf32 = c->tf32;
        g.a = at(d, outer_offset(&r, i, 0)), g.a_row = r.axis[last].step[0], g.a_col = 1;
        g.b = w->data, g.b_row = w->stride[0], g.b_col = w->stride[1];
        g.c = at(dx, outer_offset(&r, i, 1)), g.c_row = r.axis[last].step[1];
        g.beta = c->accumulate >> X & 1 ? 1.f : 0.f;
        tn_cuda_gemm times = g;
        times.epilogue = TN_CUDA_GELU_BACK, times.aux = at(pre, outer_offset(&r, i, 2)),
        times.aux_row = r.axis[last].step[2];
        if (i == 0) inside = inside && tn_cuda_gemm_exists(tn_cuda_queue_of(c), &times);
        if (inside) g = times;
        TN_RETURN_IF(tn_cuda_gemm_run(tn_cuda_queue_of(c), &g));
    }
    return pre->data && !inside ? tn_linear_slope(c, dx, pre) : TN_OK;
}

static tn_status grad_w(const tn_call *c, const tn_arg *d, const tn_arg *x)
{
    const tn_arg *dw = &c->din[W], *list[] = { d, x };
    const rows r = rows_of(list, 2);
    const int last = r.n - 1;
    for (int64_t i = 0; i < outer_count(&r); i++) {
        tn_cuda_gemm g = {};
        g.m = dw->dims.dim[0], g.n = dw->dims.dim[1], g.k = r.axis[last].dim, g.type = d->dtype, g.c_type = dw->dtype,
        g.alpha = 1, g.tf32 = c->tf32;
        g.a = at(d, outer_offset(&r, i, 0)), g.a_row = 1, g.a_col = r.axis[last].step[0];
        g.b = at(x, outer_offset(&r, i, 1)), g.b_row = r.axis[last].step[1], g.b_col = 1;
        g.c = dw->data, g.c_row = dw->stride[0];
        g.beta = i > 0 || (c->accumulate >> W & 1) ? 1.f : 0.f;
        TN_RETURN_IF(tn_cuda_gemm_run(tn_cuda_queue_of(c), &g));
    }
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
    float *parts = c->din[BIAS].data ? (float *)work : NULL;
    if (parts) work += tn_linear_parts_bytes(tn_row_len(dy));
    TN_RETURN_IF(tn_linear_before_act(c, work, parts, &d));
    if (d.data == work) work += tn_align256((size_t)tn_all_count(dy) * item);
    if (c->din[X].data) {
        TN_RETURN_IF(weight_as(c, type, work, &w));
        if (w.data == work) work += tn_align256((size_t)tn_all_count(&w) * item);
        TN_RETURN_IF(grad_x(c, &d, &w));
    }
    if (c->din[W].data) {
        TN_RETURN_IF(rows_as(c, &c->in[X], type, true, work, &x));
        TN_RETURN_IF(grad_w(c, &d, &x));
    }
    return c->din[RESIDUAL].data ? tn_linear_pass_residual(c) : TN_OK;
}
