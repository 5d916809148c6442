/* matmul on the GPU: forward and both gradients are cuBLASLt products, batched over one leading axis (or several that lie
 * evenly) and repeated over the rest; an axis that is broadcast on the side being differentiated is added up in order.
 * Operands of other types than y's, and an a with dead rows, are converted into the workspace first, dead rows as 0. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/gemm.h"
#include "ops/matmul/matmul.h"

enum { A, B, THREADS = 256 };

/* A matrix in the orientation of the product, for every index of y's leading axes. */
struct matrix {
    void *data;
    tn_dtype dtype;
    int64_t row, col;
    int64_t step[TN_MAX_RANK]; /* by axis of y; 0 where it is broadcast */
};

static matrix as_matrix(const tn_arg *x, bool transposed, int rank)
{
    const int64_t *s = x->stride + x->dims.rank - 2, *d = x->dims.dim + x->dims.rank - 2;
    matrix m = {};
    m.data = x->data;
    m.dtype = x->dtype;
    int64_t row = s[0], col = s[1];
    /* an axis of one element has any step: take one that cuBLASLt knows */
    if (d[1] == 1) col = 1;
    if (d[0] == 1 && col != 1) row = 1;
    if (d[0] == 1 && col == 1) row = d[1];
    if (d[1] == 1 && d[0] != 1 && row == 1) col = d[0];
    m.row = transposed ? col : row;
    m.col = transposed ? row : col;
    for (int i = 0; i < rank - 2; i++) {
        const int k = i - (rank - x->dims.rank);
        m.step[i] = k < 0 || x->dims.dim[k] == 1 ? 0 : x->stride[k];
    }
    return m;
}

static __global__ void convert(TN_GRID tn_arg to, TN_GRID tn_arg from, int64_t total)
{
    const int64_t alive = tn_d_count(from);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x)
        tn_store(to.data, to.dtype, i, i < alive ? tn_load(from.data, from.dtype, tn_d_offset(from, i)) : 0.f);
}

/* x itself, or a contiguous copy of the type at *work, which then moves on. */
static tn_status operand(const tn_call *c, const tn_arg *given, tn_dtype type, char **work, tn_arg *out)
{
    const tn_arg from = *given, *x = &from; /* out may be what was given */
    *out = from;
    const int64_t total = tn_all_count(x);
    if ((x->dtype == type && !x->live) || !x->data || total == 0) return TN_OK;
    *out = tn_contiguous_at(x, *work, type);
    *work += tn_align256((size_t)total * tn_dtype_bytes(type));
    convert<<<tn_blocks(c, total, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(*out, *x, total);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" size_t tn_matmul_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dtype type = s->out[0].dtype;
    size_t bytes = 0;
    for (int i = 0; i < 2; i++)
        if (s->in[i].dtype != type || s->in[i].live || (backward && s->in[A].live))
            bytes += tn_align256((size_t)tn_dims_count(s->in[i].dims) * tn_dtype_bytes(type));
    if (backward && s->in[A].live) bytes += tn_align256((size_t)tn_dims_count(s->out[0].dims) * tn_dtype_bytes(type));
    return bytes;
}

static char *offset(const matrix *m, const int64_t *index, int axes)
{
    int64_t off = 0;
    for (int i = 0; i < axes; i++) off += index[i] * m->step[i];
    return (char *)m->data + off * (int64_t)tn_dtype_bytes(m->dtype);
}

/* z (m,n) (+)= scale x (m,k) y (k,n) over the leading axes of `lead`. The innermost axes that step evenly in all three
 * are one batch, unless z stays in place there. */
static tn_status product(const tn_call *c, tn_dims lead, int64_t m, int64_t n, int64_t k, const matrix *x,
                         const matrix *y, const matrix *z, bool add)
{
    int axes = lead.rank - 2, outer = axes;
    int64_t batch = 1, index[TN_MAX_RANK] = { 0 }, total = 1;
    for (int i = axes - 1; i >= 0; i--) {
        if (lead.dim[i] > 1 && z->step[i] == 0) break;
        if (i < axes - 1 && batch > 1) {
            const int64_t d = lead.dim[i + 1];
            if (lead.dim[i] > 1 && (x->step[i] != d * x->step[i + 1] || y->step[i] != d * y->step[i + 1] ||
                                    z->step[i] != d * z->step[i + 1]))
                break;
        }
        batch *= lead.dim[i];
        outer = i;
    }
    int inner = outer;
    for (int i = outer; i < axes; i++)
        if (lead.dim[i] > 1) inner = i; /* the innermost axis that moves gives the step */
    for (int i = 0; i < outer; i++) total *= lead.dim[i];
    for (int64_t at = 0; at < total; at++) {
        tn_cuda_gemm g = {};
        int64_t rest = at;
        bool first = true; /* of the products that go to the same place */
        for (int i = outer - 1; i >= 0; i--) {
            index[i] = rest % lead.dim[i];
            rest /= lead.dim[i];
            if (z->step[i] == 0 && index[i] > 0) first = false;
        }
        g.m = m, g.n = n, g.k = k, g.batch = batch, g.type = x->dtype, g.c_type = z->dtype, g.tf32 = c->tf32;
        g.a = offset(x, index, outer), g.a_row = x->row, g.a_col = x->col;
        g.b = offset(y, index, outer), g.b_row = y->row, g.b_col = y->col;
        g.c = offset(z, index, outer), g.c_row = z->row;
        if (axes > outer) g.a_batch = x->step[inner], g.b_batch = y->step[inner], g.c_batch = z->step[inner];
        g.alpha = ((const tn_matmul_attr *)c->attr)->scale;
        g.beta = add || !first ? 1.f : 0.f;
        TN_RETURN_IF(tn_cuda_gemm_run(tn_cuda_queue_of(c), &g));
    }
    return TN_OK;
}

/* cuBLASLt wants contiguous rows of z; where its columns are contiguous, z^T = y^T x^T. */
static tn_status product_any(const tn_call *c, tn_dims lead, int64_t m, int64_t n, int64_t k, matrix x, matrix y,
                             matrix z, bool add)
{
    if (m == 0 || n == 0) return TN_OK;
    if (z.col == 1) return product(c, lead, m, n, k, &x, &y, &z, add);
    const matrix xt = { y.data, y.dtype, y.col, y.row }, yt = { x.data, x.dtype, x.col, x.row },
                 zt = { z.data, z.dtype, z.col, z.row };
    matrix a = xt, b = yt, t = zt;
    for (int i = 0; i < TN_MAX_RANK; i++) a.step[i] = y.step[i], b.step[i] = x.step[i], t.step[i] = z.step[i];
    return product(c, lead, n, m, k, &a, &b, &t, add);
}

static int64_t inner_size(const tn_call *c)
{
    const tn_arg *a = &c->in[A];
    return a->dims.dim[a->dims.rank - (((const tn_matmul_attr *)c->attr)->transpose_a ? 2 : 1)];
}

extern "C" tn_status tn_matmul_forward_cuda(const tn_call *c)
{
    const tn_matmul_attr *t = (const tn_matmul_attr *)c->attr;
    const tn_arg *y = &c->out[0];
    const int rank = y->dims.rank;
    char *work = (char *)c->work;
    tn_arg a, b;
    if (tn_all_count(y) == 0) return TN_OK;
    if (inner_size(c) == 0) return tn_clear_gradient(c, y, false);
    TN_RETURN_IF(operand(c, &c->in[A], y->dtype, &work, &a));
    TN_RETURN_IF(operand(c, &c->in[B], y->dtype, &work, &b));
    return product_any(c, y->dims, y->dims.dim[rank - 2], y->dims.dim[rank - 1], inner_size(c),
                       as_matrix(&a, t->transpose_a, rank), as_matrix(&b, t->transpose_b, rank),
                       as_matrix(y, false, rank), false);
}

extern "C" tn_status tn_matmul_backward_cuda(const tn_call *c)
{
    const tn_matmul_attr *t = (const tn_matmul_attr *)c->attr;
    const tn_arg *given = &c->dout[0];
    const int rank = given->dims.rank;
    const int64_t m = given->dims.dim[rank - 2], n = given->dims.dim[rank - 1], k = inner_size(c);
    const bool add_a = c->accumulate >> A & 1, add_b = c->accumulate >> B & 1;
    char *work = (char *)c->work;
    tn_arg a, b, dy = *given;
    if (m == 0 || n == 0 || k == 0 || tn_all_count(given) == 0) {
        TN_RETURN_IF(tn_clear_gradient(c, &c->din[A], add_a));
        return tn_clear_gradient(c, &c->din[B], add_b);
    }
    if (c->in[A].live && !t->transpose_a) dy.live = c->in[A].live; /* its rows are a's */
    TN_RETURN_IF(operand(c, &dy, given->dtype, &work, &dy));
    TN_RETURN_IF(operand(c, &c->in[A], dy.dtype, &work, &a));
    b = c->in[B];
    if (c->in[A].live && t->transpose_a &&
        c->in[A].dims.rank == 2) { /* a's rows are the sum's: those of op(b) die with them */
        if (t->transpose_b || b.dims.rank != 2)
            return tn_error(
                TN_USAGE,
                "matmul with a transposed a of live rows and this b has no gradient on the GPU: use device=cpu");
        b.live = c->in[A].live;
    }
    TN_RETURN_IF(operand(c, &b, dy.dtype, &work, &b));
    if (c->din[A].data) /* d op(a) = dy op(b)^T */
        TN_RETURN_IF(product_any(c, dy.dims, m, k, n, as_matrix(&dy, false, rank), as_matrix(&b, !t->transpose_b, rank),
                                 as_matrix(&c->din[A], t->transpose_a, rank), add_a));
    if (c->din[B].data) /* d op(b) = op(a)^T dy */
        TN_RETURN_IF(product_any(c, dy.dims, k, n, m, as_matrix(&a, !t->transpose_a, rank), as_matrix(&dy, false, rank),
                                 as_matrix(&c->din[B], t->transpose_b, rank), add_b));
    return TN_OK;
}
