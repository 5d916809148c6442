/* masked_mean: shape check, gradient rule, row. */
#include "ops/masked_mean/masked_mean.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_masked_mean_forward_cpu, tn_masked_mean_backward_cpu;

static tn_status masked_mean_infer(tn_sig *s)
{
    const tn_type *x = &s->in[0], *m = &s->in[1];
    if (x->absent || !tn_dtype_is_float(x->dtype) || x->dims.rank != 3)
        return tn_error(TN_USAGE, "x must be a tensor of floats of shape (B,T,d)");
    if (m->absent || (m->dtype != TN_I32 && !tn_dtype_is_float(m->dtype)) || m->dims.rank != 2 ||
        m->dims.dim[0] != x->dims.dim[0] || m->dims.dim[1] != x->dims.dim[1])
        return tn_error(TN_USAGE, "the mask must be i32 or f32 of shape (B,T) = (%lld,%lld)", (long long)x->dims.dim[0],
                        (long long)x->dims.dim[1]);
    s->n_out = 1;
    s->out[0].dtype = x->dtype == TN_F32 ? TN_F32 : s->out[0].dtype;
    s->out[0].dims = tn_shape(x->dims.dim[0], x->dims.dim[2]);
    return TN_OK;
}

static void masked_mean_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = 2; /* the mask */
}

static void masked_mean_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = 2 * (double)tn_dims_count(s->in[0].dims);
    c->flops_backward = c->flops / 2;
}

const tn_op tn_op_masked_mean = {
    .name = "masked_mean",
    .flags = TN_OP_ROWWISE,
    .infer = masked_mean_infer,
    .grad = masked_mean_grad,
    .cost = masked_mean_cost,
    .kernel = { [TN_CPU] = { .forward = tn_masked_mean_forward_cpu, .backward = tn_masked_mean_backward_cpu },
                [TN_CUDA] = { .forward = tn_masked_mean_forward_cuda, .backward = tn_masked_mean_backward_cuda } },
};

tn_ref tn_masked_mean_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref mask)
{
    const tn_ref in[2] = { x, tn_stop_gradient(g, mask) };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_masked_mean, NULL, in, 2, &y);
}
