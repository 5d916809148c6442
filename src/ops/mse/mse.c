/* mse: shape check, gradient rule, row. Inputs: a, b, weights; output: loss. */
#include "ops/mse/mse.h"

#include "ops/logits.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_mse_forward_cpu, tn_mse_backward_cpu;
size_t tn_mse_work_cpu(const tn_sig *s, bool backward);

static tn_status mse_infer(tn_sig *s)
{
    const bool two = !s->in[1].absent;
    if (!tn_dtype_is_float(s->in[0].dtype) || (two && !tn_dtype_is_float(s->in[1].dtype)))
        return tn_error(TN_USAGE, "differences are of floats, not of %s and %s", tn_dtype_name(s->in[0].dtype),
                        tn_dtype_name(s->in[1].dtype));
    if (two && !tn_dims_equal(s->in[0].dims, s->in[1].dims))
        return tn_error(TN_USAGE, "the two inputs must have the same shape: reshape one, since mse does not broadcast");
    TN_RETURN_IF(tn_weights_infer(&s->in[0], &s->in[2], s->in[0].dims.rank));
    s->n_out = 1;
    s->out[0].dtype = TN_F32;
    s->out[0].dims = (tn_dims){ 0 };
    return TN_OK;
}

static void mse_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    u->in = 1 | (s->in[1].absent ? 0 : 2) | (s->in[2].absent ? 0 : 4);
    u->out = want & 4 ? 1 : 0; /* the weights' gradient is a deviation from the mean */
}

static void mse_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = 3 * (double)tn_dims_count(s->in[0].dims);
    c->flops_backward = c->flops;
}

const tn_op tn_op_mse = {
    .name = "mse",
    .infer = mse_infer,
    .grad = mse_grad,
    .cost = mse_cost,
    .kernel = { [TN_CPU] = { .forward = tn_mse_forward_cpu, .backward = tn_mse_backward_cpu, .work = tn_mse_work_cpu },
                [TN_CUDA] = { .forward = tn_mse_forward_cuda,
                              .backward = tn_mse_backward_cuda,
                              .work = tn_mse_work_cuda } },
};

tn_ref tn_mse_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref b, tn_mse_options o)
{
    const tn_ref in[3] = { a, b, o.weights };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_mse, NULL, in, 3, &y);
}
