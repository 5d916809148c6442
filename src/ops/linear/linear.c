/* linear: shapes, gradient rule, cost, registration. */
#include "ops/linear/linear.h"

#include "base/status.h"
#include "ops/product.h"
#include "ops/slots.h"

tn_kernel tn_linear_forward_cpu, tn_linear_backward_cpu;

enum { X, W, BIAS, RESIDUAL };

static tn_status linear_infer(tn_sig *s)
{
    const tn_linear_attr *a = s->attr;
    const tn_dims x = s->in[X].dims, w = s->in[W].dims, b = s->in[BIAS].dims;
    if (s->in[X].absent || s->in[W].absent) return tn_error(TN_USAGE, "x and w are needed");
    if (x.rank < 1 || w.rank != 2) return tn_error(TN_USAGE, "x must be (...,k) and w (n,k)");
    if (x.dim[x.rank - 1] != w.dim[1])
        return tn_error(TN_USAGE, "the last axis of x is %lld, of w (n,k) %lld", (long long)x.dim[x.rank - 1],
                        (long long)w.dim[1]);
    for (int i = 0; i < 4; i++)
        if (!s->in[i].absent && (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64))
            return tn_error(TN_USAGE, "input %d is %s: use f32, bf16 or f16", i, tn_dtype_name(s->in[i].dtype));
    if (!s->in[BIAS].absent && (b.rank != 1 || b.dim[0] != w.dim[0]))
        return tn_error(TN_USAGE, "the bias must be (%lld)", (long long)w.dim[0]);
    if (a->act < 0 || a->act >= TN_ACTS) return tn_error(TN_USAGE, "no activation has the number %d", (int)a->act);
    tn_dims y = x;
    y.dim[y.rank - 1] = w.dim[0];
    if (!s->in[RESIDUAL].absent && !tn_dims_equal(s->in[RESIDUAL].dims, y))
        return tn_error(TN_USAGE, "the residual must have the shape of the result");
    s->n_out = a->act == TN_ACT_NONE ? 1 : 2;
    s->out[0].dims = s->out[1].dims = y;
    return TN_OK;
}

static void linear_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const tn_linear_attr *a = s->attr;
    if (want >> X & 1) u->in |= 1 << W;
    if (want >> W & 1) u->in |= 1 << X;
    if (a->act != TN_ACT_NONE && (want & (1 << X | 1 << W | 1 << BIAS))) u->out |= 1 << 1;
}

static double rows_of(const tn_sig *s)
{
    const double n = (double)s->in[W].dims.dim[0];
    return n > 0 ? (double)tn_dims_count(s->out[0].dims) / n : 0;
}

static void linear_cost(const tn_sig *s, tn_cost *c)
{
    const double product = 2 * rows_of(s) * (double)tn_dims_count(s->in[W].dims);
    c->flops = product;
    c->flops_backward = product * ((s->in[X].trainable ? 1 : 0) + (s->in[W].trainable ? 1 : 0));
}

/* Backward: the gradient before the activation (rows,n), then the products. */
static size_t linear_work(const tn_sig *s, bool backward)
{
    const tn_linear_attr *a = s->attr;
    const int64_t n = s->in[W].dims.dim[0], k = s->in[W].dims.dim[1], y = tn_dims_count(s->out[0].dims);
    const int64_t rows = n ? y / n : 0;
    if (!backward) return tn_product_work(rows, n, s->threads);
    const size_t dx = tn_product_work(rows, k, s->threads), dw = tn_product_work(n, k, s->threads);
    const size_t pre = a->act == TN_ACT_NONE ? 0 : tn_align64(sizeof(float) * (size_t)y);
    return pre + (dx > dw ? dx : dw);
}

const tn_op tn_op_linear = {
    .name = "linear",
    .attr_bytes = sizeof(tn_linear_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_AUX_FROM_1,
    .half_in = 1 << X | 1 << W,
    .infer = linear_infer,
    .grad = linear_grad,
    .cost = linear_cost,
    .work = linear_work,
    .kernel = { [TN_CPU] = { tn_linear_forward_cpu, tn_linear_backward_cpu } },
};

tn_ref tn_linear_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_linear_options o)
{
    const tn_linear_attr a = { .act = o.act };
    const tn_ref in[] = { x, w, o.bias, o.residual };
    tn_ref out[2];
    return tn_graph_add(g, file, line, &tn_op_linear, &a, in, 4, out);
}
