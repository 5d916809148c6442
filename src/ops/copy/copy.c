/* copy: shape check, gradient rule, row. */
#include "ops/copy/copy.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_copy_forward_cpu, tn_copy_backward_cpu;

static tn_status copy_infer(tn_sig *s)
{
    const tn_copy_attr *a = s->attr;
    const tn_dtype from = s->in[0].dtype;
    if (a->dtype != from && !(tn_dtype_is_float(a->dtype) && (tn_dtype_is_float(from) || from == TN_I32)))
        return tn_error(TN_USAGE, "no cast from %s to %s", tn_dtype_name(from), tn_dtype_name(a->dtype));
    s->n_out = 1;
    s->out[0].dtype = a->dtype;
    s->out[0].dims = s->in[0].dims;
    return TN_OK;
}

static void copy_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)want;
    u->passes = s->in[0].dtype == s->out[0].dtype; /* dx = dy needs no forward tensor */
}

static void copy_cost(const tn_sig *s, tn_cost *c) { (void)s, (void)c; /* bytes only */ }

const tn_op tn_op_copy = {
    .name = "copy",
    .attr_bytes = sizeof(tn_copy_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .half_in = 1,
    .infer = copy_infer,
    .grad = copy_grad,
    .cost = copy_cost,
    .kernel = { [TN_CPU] = { .forward = tn_copy_forward_cpu, .backward = tn_copy_backward_cpu },
                [TN_CUDA] = { .forward = tn_copy_forward_cuda, .backward = tn_copy_backward_cuda } },
};

tn_ref tn_copy_(tn_graph *g, const char *file, int line, tn_ref x, tn_dtype dtype)
{
    const tn_copy_attr a = { .dtype = dtype };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_copy, &a, &x, 1, &y);
}
