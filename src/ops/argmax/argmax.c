/* argmax: shape check, cost, row, public call. */
#include "ops/argmax/argmax.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_argmax_forward_cpu;

static tn_status argmax_infer(tn_sig *s)
{
    const tn_dims d = s->in[0].dims;
    if (s->in[0].absent || !tn_dtype_is_float(s->in[0].dtype) || d.rank < 2 || d.dim[d.rank - 1] < 1)
        return tn_error(TN_USAGE, "x must be floats of shape (...,n) with at least two axes and n >= 1");
    if (d.dim[d.rank - 1] > INT32_MAX)
        return tn_error(TN_USAGE, "a row of %lld numbers is longer than places of i32 reach",
                        (long long)d.dim[d.rank - 1]);
    s->n_out = 1;
    s->out[0].dtype = TN_I32;
    s->out[0].dims = d;
    s->out[0].dims.rank--;
    s->out[0].dims.dim[d.rank - 1] = 0;
    return TN_OK;
}

static void argmax_cost(const tn_sig *s, tn_cost *c) { c->flops = (double)tn_dims_count(s->in[0].dims); }

const tn_op tn_op_argmax = {
    .name = "argmax",
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .infer = argmax_infer,
    .cost = argmax_cost,
    .kernel = { [TN_CPU] = { .forward = tn_argmax_forward_cpu }, [TN_CUDA] = { .forward = tn_argmax_forward_cuda } },
};

tn_ref tn_argmax_(tn_graph *g, const char *file, int line, tn_ref x)
{
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_argmax, NULL, &x, 1, &y);
}
