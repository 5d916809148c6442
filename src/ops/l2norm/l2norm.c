/* l2norm: shape check, gradient rule, row. */
#include "ops/l2norm/l2norm.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_l2norm_forward_cpu, tn_l2norm_backward_cpu;

static tn_status l2norm_infer(tn_sig *s)
{
    const tn_l2norm_attr *a = s->attr;
    if (s->in[0].absent || !tn_dtype_is_float(s->in[0].dtype) || s->in[0].dims.rank < 1)
        return tn_error(TN_USAGE, "the argument must be a tensor of floats with at least one axis");
    if (!(a->eps > 0)) return tn_error(TN_USAGE, "eps=%g: it must be above 0, for example 1e-6", (double)a->eps);
    s->n_out = 1;
    s->out[0].dtype = tn_elem_dtype(s);
    s->out[0].dims = s->in[0].dims;
    return TN_OK;
}

static void l2norm_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = 1;
}

static void l2norm_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->out[0].dims);
    c->flops = 3 * n;
    c->flops_backward = 7 * n;
}

const tn_op tn_op_l2norm = {
    .name = "l2norm",
    .attr_bytes = sizeof(tn_l2norm_attr),
    .flags = TN_OP_ROWWISE | TN_OP_INPLACE, /* each row is read before its numbers are written */
    .infer = l2norm_infer,
    .grad = l2norm_grad,
    .cost = l2norm_cost,
    .kernel = { [TN_CPU] = { .forward = tn_l2norm_forward_cpu, .backward = tn_l2norm_backward_cpu },
                [TN_CUDA] = { .forward = tn_l2norm_forward_cuda, .backward = tn_l2norm_backward_cuda } },
};

tn_ref tn_l2_normalize_(tn_graph *g, const char *file, int line, tn_ref x, float eps)
{
    const tn_l2norm_attr attr = { .eps = eps };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_l2norm, &attr, &x, 1, &y);
}
