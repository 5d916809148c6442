/* kl: shape check, gradient rule, row. Inputs: teacher, student, weights; outputs: loss, statistics. */
#include "ops/kl/kl.h"

#include "ops/logits.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_kl_forward_cpu, tn_kl_backward_cpu;
size_t tn_kl_work_cpu(const tn_sig *s, bool backward);

static tn_status kl_infer(tn_sig *s)
{
    const tn_kl_attr *a = s->attr;
    const tn_dims d = s->in[0].dims;
    if (!(a->temperature > 0) || isinf(a->temperature))
        return tn_error(TN_USAGE, "temperature %g: it must be positive and finite", (double)a->temperature);
    if (d.rank < 1 || !tn_dims_equal(d, s->in[1].dims))
        return tn_error(TN_USAGE, "the teacher's and the student's logits must have the same shape (...,V)");
    if (!tn_dtype_is_float(s->in[0].dtype) || !tn_dtype_is_float(s->in[1].dtype))
        return tn_error(TN_USAGE, "logits are floats, not %s and %s", tn_dtype_name(s->in[0].dtype),
                        tn_dtype_name(s->in[1].dtype));
    TN_RETURN_IF(tn_weights_infer(&s->in[0], &s->in[2], d.rank - 1));
    if (!s->in[2].absent && s->in[2].dims.rank != d.rank - 1)
        return tn_error(TN_USAGE, "one weight per row: the weights have %d axes instead of %d", s->in[2].dims.rank,
                        d.rank - 1);
    s->n_out = 2;
    s->out[0].dtype = s->out[1].dtype = TN_F32;
    s->out[0].dims = (tn_dims){ 0 };
    s->out[1].dims = d;
    s->out[1].dims.dim[d.rank - 1] = 3;
    return TN_OK;
}

static void kl_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    u->in = s->in[2].absent ? 0 : 4;
    u->out = 2;
    if (want & 3) u->in |= 3;
    if (want & 4) u->out |= 1; /* the weights' gradient is a deviation from the mean */
}

static void kl_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[0].dims);
    c->flops = 14 * n;
    c->flops_backward = 12 * n;
}

const tn_op tn_op_kl = {
    .name = "kl",
    .attr_bytes = sizeof(tn_kl_attr),
    .flags = TN_OP_AUX_FROM_1,
    .infer = kl_infer,
    .grad = kl_grad,
    .cost = kl_cost,
    .kernel = { [TN_CPU] = { .forward = tn_kl_forward_cpu, .backward = tn_kl_backward_cpu, .work = tn_kl_work_cpu },
                [TN_CUDA] = { .forward = tn_kl_forward_cuda,
                              .backward = tn_kl_backward_cuda,
                              .work = tn_kl_work_cuda } },
};

tn_ref tn_kl_(tn_graph *g, const char *file, int line, tn_ref teacher, tn_ref student, tn_kl_options o)
{
    const tn_kl_attr a = { .temperature = o.temperature == 0 ? 1 : o.temperature };
    const tn_ref in[3] = { teacher, student, o.weights };
    tn_ref out[2];
    return tn_graph_add(g, file, line, &tn_op_kl, &a, in, 3, out);
}
