/* matmul: shapes, gradient rule, cost, registration. */
#include "ops/matmul/matmul.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/product.h"

tn_kernel tn_matmul_forward_cpu, tn_matmul_backward_cpu;

enum { A, B };

/* Leading axes of the result, aligned at the end; false when two sizes disagree. */
static bool broadcast(tn_dims a, tn_dims b, tn_dims *y)
{
    y->rank = a.rank > b.rank ? a.rank : b.rank;
    for (int i = 0; i < y->rank - 2; i++) {
        const int ia = i - (y->rank - a.rank), ib = i - (y->rank - b.rank);
        const int64_t da = ia < 0 ? 1 : a.dim[ia], db = ib < 0 ? 1 : b.dim[ib];
        if (da != db && da != 1 && db != 1) return false;
        y->dim[i] = da == 1 ? db : da;
    }
    return true;
}

static tn_status matmul_infer(tn_sig *s)
{
    const tn_matmul_attr *t = s->attr;
    const tn_dims a = s->in[A].dims, b = s->in[B].dims;
    tn_dims y = { 0 };
    if (s->in[A].absent || s->in[B].absent) return tn_error(TN_USAGE, "a and b are needed");
    if (a.rank < 2 || b.rank < 2) return tn_error(TN_USAGE, "both must be matrices (...,rows,columns)");
    for (int i = 0; i < 2; i++)
        if (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64)
            return tn_error(TN_USAGE, "input %d is %s: use f32, bf16 or f16", i, tn_dtype_name(s->in[i].dtype));
    const int64_t m = a.dim[a.rank - (t->transpose_a ? 1 : 2)], k = a.dim[a.rank - (t->transpose_a ? 2 : 1)];
    const int64_t kb = b.dim[b.rank - (t->transpose_b ? 1 : 2)], n = b.dim[b.rank - (t->transpose_b ? 2 : 1)];
    if (k != kb) return tn_error(TN_USAGE, "op(a) has %lld columns, op(b) %lld rows", (long long)k, (long long)kb);
    if (!broadcast(a, b, &y)) return tn_error(TN_USAGE, "leading axes must be equal, absent or 1");
    y.dim[y.rank - 2] = m;
    y.dim[y.rank - 1] = n;
    s->n_out = 1;
    s->out[0].dims = y;
    /* Row i of y comes from row i of a, unless axis 0 of a is summed, repeated or not there. */
    s->mixes_rows = (a.rank == 2 && t->transpose_a) || a.rank < y.rank || (a.rank > 2 && a.dim[0] != y.dim[0]);
    return TN_OK;
}

static void matmul_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s;
    if (want >> A & 1) u->in |= 1 << B;
    if (want >> B & 1) u->in |= 1 << A;
}

static int64_t inner(const tn_sig *s)
{
    const tn_dims a = s->in[A].dims;
    return a.dim[a.rank - (((const tn_matmul_attr *)s->attr)->transpose_a ? 2 : 1)];
}

static void matmul_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = 2 * (double)tn_dims_count(s->out[0].dims) * (double)inner(s);
    c->flops_backward = c->flops * ((s->in[A].trainable ? 1 : 0) + (s->in[B].trainable ? 1 : 0));
}

/* Folding may grow any side by the leading axes. */
static size_t matmul_work(const tn_sig *s, bool backward)
{
    const tn_dims y = s->out[0].dims;
    int64_t batch = 1, side = backward ? inner(s) : 1;
    for (int i = 0; i < y.rank - 2; i++) batch *= y.dim[i];
    for (int i = y.rank - 2; i < y.rank; i++) side = y.dim[i] > side ? y.dim[i] : side;
    return tn_product_work(side * batch, side * batch, s->threads);
}

const tn_op tn_op_matmul = {
    .name = "matmul",
    .attr_bytes = sizeof(tn_matmul_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .half_in = 1 << A | 1 << B,
    .infer = matmul_infer,
    .grad = matmul_grad,
    .cost = matmul_cost,
    .kernel = { [TN_CPU] = { .forward = tn_matmul_forward_cpu,
                             .backward = tn_matmul_backward_cpu,
                             .work = matmul_work },
                [TN_CUDA] = { .forward = tn_matmul_forward_cuda,
                              .backward = tn_matmul_backward_cuda,
                              .work = tn_matmul_work_cuda,
                              .layout = TN_LAYOUT_MATRIX } },
};

tn_ref tn_matmul_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref b, tn_matmul_options o)
{
    const tn_matmul_attr t = { .transpose_a = o.transpose_a,
                               .transpose_b = o.transpose_b,
                               .scale = o.scale == 0 ? 1.f : o.scale };
    const tn_ref in[] = { a, b };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_matmul, &t, in, 2, &y);
}
