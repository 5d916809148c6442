/* grouped_matmul: shapes, gradient rule, cost, registration. */
#include "ops/grouped_matmul/grouped_matmul.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/product.h"

tn_kernel tn_grouped_matmul_forward_cpu, tn_grouped_matmul_backward_cpu;

enum { X, W, OFFSETS };

static tn_status grouped_infer(tn_sig *s)
{
    const tn_dims x = s->in[X].dims, w = s->in[W].dims, o = s->in[OFFSETS].dims;
    for (int i = 0; i < 3; i++)
        if (s->in[i].absent) return tn_error(TN_USAGE, "x, w and offsets are needed");
    if (x.rank != 2 || w.rank != 3 || x.dim[1] != w.dim[2])
        return tn_error(TN_USAGE, "x must be (R,k) and w (G,n,k) with the same k");
    if (s->in[OFFSETS].dtype != TN_I32 || o.rank != 1 || o.dim[0] != w.dim[0] + 1)
        return tn_error(TN_USAGE, "offsets must be i32 of shape (%lld): one more than there are groups",
                        (long long)w.dim[0] + 1);
    for (int i = X; i <= W; i++)
        if (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64)
            return tn_error(TN_USAGE, "input %d is %s: use f32, bf16 or f16", i, tn_dtype_name(s->in[i].dtype));
    s->n_out = 1;
    s->out[0].dims = tn_shape(x.dim[0], w.dim[1]);
    return TN_OK;
}

static void grouped_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s;
    u->in |= 1 << OFFSETS;
    if (want >> X & 1) u->in |= 1 << W;
    if (want >> W & 1) u->in |= 1 << X;
}

static void grouped_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = 2 * (double)tn_dims_count(s->out[0].dims) * (double)s->in[X].dims.dim[1];
    c->flops_backward = c->flops * ((s->in[X].trainable ? 1 : 0) + (s->in[W].trainable ? 1 : 0));
}

static size_t grouped_work(const tn_sig *s, bool backward)
{
    const int64_t rows = s->in[X].dims.dim[0], k = s->in[X].dims.dim[1], n = s->in[W].dims.dim[1];
    if (!backward) return tn_product_work(rows, n, s->threads);
    const size_t dx = tn_product_work(rows, k, s->threads), dw = tn_product_work(n, k, s->threads);
    return dx > dw ? dx : dw;
}

const tn_op tn_op_grouped_matmul = {
    .name = "grouped_matmul",
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .half_in = 1 << X | 1 << W,
    .infer = grouped_infer,
    .grad = grouped_grad,
    .cost = grouped_cost,
    .kernel = { [TN_CPU] = { .forward = tn_grouped_matmul_forward_cpu,
                             .backward = tn_grouped_matmul_backward_cpu,
                             .work = grouped_work },
                [TN_CUDA] = { .forward = tn_grouped_matmul_forward_cuda,
                              .backward = tn_grouped_matmul_backward_cuda } },
};

tn_ref tn_grouped_matmul_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_ref offsets)
{
    const tn_ref in[] = { x, w, offsets };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_grouped_matmul, NULL, in, 3, &y);
}
