/* grouped_matmul on the CPU: one product per group, one group after the other. Each product uses all threads. */
#include "base/status.h"
#include "ops/grouped_matmul/grouped_matmul.h"
#include "ops/product.h"
#include "ops/rows.h"

tn_kernel tn_grouped_matmul_forward_cpu, tn_grouped_matmul_backward_cpu;

enum { X, W, OFFSETS };

static tn_status check_offsets(const tn_arg *o, int64_t rows)
{
    const int32_t *v = o->data;
    const int64_t n = o->dims.dim[0];
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < 0 || v[i] > rows)
            return tn_error(TN_USAGE, "offsets[%lld] is %d, x has %lld rows", (long long)i, (int)v[i], (long long)rows);
        if (i && v[i] < v[i - 1])
            return tn_error(TN_USAGE, "offsets[%lld] is %d, less than the %d before it: sort the rows by group",
                            (long long)i, (int)v[i], (int)v[i - 1]);
    }
    return TN_OK;
}

/* Rows of group i, cut to what is alive. */
static int64_t group_rows(const tn_arg *o, int64_t i, int64_t alive, int64_t *first)
{
    const int32_t *v = o->data;
    const int64_t end = v[i + 1] < alive ? v[i + 1] : alive;
    *first = v[i];
    return end > v[i] ? end - v[i] : 0;
}

static const void *moved(const tn_arg *x, int64_t elements)
{
    return (const char *)x->data + elements * (int64_t)tn_dtype_bytes(x->dtype);
}

static void clear_rows(const tn_arg *y, int64_t first, int64_t end)
{
    const int64_t n = y->dims.dim[1], step = y->stride[1];
    for (int64_t r = first; r < end; r++)
        for (int64_t j = 0; j < n; j++) ((float *)y->data)[r * y->stride[0] + j * step] = 0;
}

/* y rows (+)= x rows times w[i]^T (or w[i] itself for the gradient). */
static void multiply_rows(const tn_call *c, const tn_arg *x, const tn_arg *y, bool transposed, bool add)
{
    const tn_arg *w = &c->in[W], *o = &c->in[OFFSETS];
    const int64_t G = w->dims.dim[0], alive = tn_live_rows(x), *s = w->stride;
    int64_t done = 0, first;
    for (int64_t i = 0; i < G; i++) {
        const int64_t rows = group_rows(o, i, alive, &first);
        if (!add && rows) clear_rows(y, done, first);
        if (rows) done = first + rows;
        tn_product p = { .c_col = y->stride[1] };
        p.g = (tn_gemm){ .m = rows,
                         .n = y->dims.dim[1],
                         .k = x->dims.dim[1],
                         .a = moved(x, first * x->stride[0]),
                         .a_row = x->stride[0],
                         .a_col = x->stride[1],
                         .a_type = x->dtype,
                         .b = moved(w, i * s[0]),
                         .b_row = s[transposed ? 2 : 1],
                         .b_col = s[transposed ? 1 : 2],
                         .b_type = w->dtype,
                         .c = (float *)y->data + first * y->stride[0],
                         .c_row = y->stride[0],
                         .round = c->round,
                         .bf16x3 = c->bf16x3,
                         .portable_only = c->portable,
                         .accumulate = add,
                         .alpha = 1 };
        tn_product_run(c->pool, &p, c->work);
    }
    if (!add) clear_rows(y, done, tn_live_rows(y));
}

tn_status tn_grouped_matmul_forward_cpu(const tn_call *c)
{
    TN_RETURN_IF(check_offsets(&c->in[OFFSETS], c->in[X].dims.dim[0]));
    multiply_rows(c, &c->in[X], &c->out[0], true, false);
    return TN_OK;
}

static void grad_w(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *dy = &c->dout[0], *dw = &c->din[W];
    const int64_t alive = tn_live_rows(dy);
    for (int64_t i = 0; i < dw->dims.dim[0]; i++) {
        int64_t first;
        const int64_t rows = group_rows(&c->in[OFFSETS], i, alive, &first);
        tn_product p = { .c_col = dw->stride[2] };
        p.g = (tn_gemm){ .m = dw->dims.dim[1],
                         .n = dw->dims.dim[2],
                         .k = rows,
                         .a = moved(dy, first * dy->stride[0]),
                         .a_row = dy->stride[1],
                         .a_col = dy->stride[0],
                         .a_type = TN_F32,
                         .b = moved(x, first * x->stride[0]),
                         .b_row = x->stride[0],
                         .b_col = x->stride[1],
                         .b_type = x->dtype,
                         .c = (float *)dw->data + i * dw->stride[0],
                         .c_row = dw->stride[1],
                         .round = c->round,
                         .bf16x3 = c->bf16x3,
                         .portable_only = c->portable,
                         .accumulate = c->accumulate >> W & 1,
                         .alpha = 1 };
        tn_product_run(c->pool, &p, c->work);
    }
}

tn_status tn_grouped_matmul_backward_cpu(const tn_call *c)
{
    if (c->din[X].data) multiply_rows(c, &c->dout[0], &c->din[X], false, c->accumulate >> X & 1);
    if (c->din[W].data) grad_w(c);
    return TN_OK;
}
