/* matmul on the CPU: forward and both gradients are one tn_product each; axes that are broadcast on the side being
 * differentiated are its sums. */
#include "ops/matmul/matmul.h"
#include "ops/product.h"
#include "ops/rows.h"

tn_kernel tn_matmul_forward_cpu, tn_matmul_backward_cpu;

enum { A, B };

/* One of the three matrices as (row, column) in the orientation of the product, whatever its memory. */
typedef struct matrix {
    const tn_arg *arg;
    int64_t row, col; /* strides */
} matrix;

static matrix as_matrix(const tn_arg *x, bool transposed)
{
    const int64_t *s = x->stride + x->dims.rank - 2;
    return transposed ? (matrix){ x, s[1], s[0] } : (matrix){ x, s[0], s[1] };
}

static int64_t axis_stride(const tn_arg *x, int i, int rank)
{
    i -= rank - x->dims.rank;
    return i < 0 || x->dims.dim[i] == 1 ? 0 : x->stride[i];
}

/* Sizes after the live extent of a. */
typedef struct extent {
    tn_dims y; /* leading axes, m, n */
    int64_t m, n, k;
    bool cut;
} extent;

static extent measure(const tn_call *c, const tn_arg *y)
{
    const tn_matmul_attr *t = c->attr;
    const tn_arg *a = &c->in[A];
    const int ra = a->dims.rank, ry = y->dims.rank;
    extent e = { .y = y->dims,
                 .m = y->dims.dim[ry - 2],
                 .n = y->dims.dim[ry - 1],
                 .k = a->dims.dim[ra - (t->transpose_a ? 2 : 1)] };
    if (!a->live || *a->live >= a->dims.dim[0]) return e;
    const int64_t live = *a->live < 0 ? 0 : *a->live;
    e.cut = true;
    if (ra == 2) *(t->transpose_a ? &e.k : &e.m) = live;
    else if (a->dims.dim[0] != 1 || live == 0) e.y.dim[ry - ra] = live;
    return e;
}

/* z (m,n) (+)= scale * x (m,k) y (k,n) over the leading axes of e. */
static void product(const tn_call *c, const extent *e, int64_t m, int64_t n, int64_t k, matrix x, matrix y, matrix z,
                    bool accumulate)
{
    tn_product p = { .c_col = z.col, .axes = e->y.rank - 2 };
    p.g = (tn_gemm){ .m = m,
                     .n = n,
                     .k = k,
                     .a = x.arg->data,
                     .a_row = x.row,
                     .a_col = x.col,
                     .a_type = x.arg->dtype,
                     .b = y.arg->data,
                     .b_row = y.row,
                     .b_col = y.col,
                     .b_type = y.arg->dtype,
                     .c = z.arg->data,
                     .c_row = z.row,
                     .round = c->round,
                     .bf16x3 = c->bf16x3,
                     .portable_only = c->portable,
                     .accumulate = accumulate,
                     .alpha = ((const tn_matmul_attr *)c->attr)->scale };
    for (int i = 0; i < p.axes; i++)
        p.axis[i] = (tn_product_axis){ .dim = e->y.dim[i],
                                       .a = axis_stride(x.arg, i, e->y.rank),
                                       .b = axis_stride(y.arg, i, e->y.rank),
                                       .c = axis_stride(z.arg, i, e->y.rank) };
    tn_product_run(c->pool, &p, c->work);
}

tn_status tn_matmul_forward_cpu(const tn_call *c)
{
    const tn_matmul_attr *t = c->attr;
    const extent e = measure(c, &c->out[0]);
    product(c, &e, e.m, e.n, e.k, as_matrix(&c->in[A], t->transpose_a), as_matrix(&c->in[B], t->transpose_b),
            as_matrix(&c->out[0], false), false);
    return TN_OK;
}

/* What the product will not reach, because a's dead rows are skipped, has gradient 0. */
static bool clear_if_cut(const tn_call *c, const extent *e, int i)
{
    const tn_arg *d = &c->din[i];
    const bool add = c->accumulate >> i & 1;
    if (!e->cut || add) return add;
    const int64_t rows = tn_live_rows(d), n = tn_row_length(d), step = tn_row_step(d);
    for (int64_t r = 0; r < rows; r++) {
        float *x = (float *)d->data + tn_row_offset(d, r);
        for (int64_t j = 0; j < n; j++) x[j * step] = 0;
    }
    return true;
}

tn_status tn_matmul_backward_cpu(const tn_call *c)
{
    const tn_matmul_attr *t = c->attr;
    const extent e = measure(c, &c->dout[0]);
    const matrix dy = as_matrix(&c->dout[0], false), dy_t = as_matrix(&c->dout[0], true);
    if (c->din[A].data) /* d op(a) = dy op(b)^T */
        product(c, &e, e.m, e.k, e.n, dy, as_matrix(&c->in[B], !t->transpose_b), as_matrix(&c->din[A], t->transpose_a),
                clear_if_cut(c, &e, A));
    if (c->din[B].data) /* d op(b)^T = dy^T op(a) */
        product(c, &e, e.n, e.k, e.m, dy_t, as_matrix(&c->in[A], t->transpose_a),
                as_matrix(&c->din[B], !t->transpose_b), clear_if_cut(c, &e, B));
    return TN_OK;
}
