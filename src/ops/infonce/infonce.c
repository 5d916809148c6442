/* infonce: shape check, gradient rule, cost, row. Inputs: a, b, temperature; outputs: loss, logsumexps. */
#include "ops/infonce/infonce.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

#include <math.h>

tn_kernel tn_infonce_forward_cpu, tn_infonce_backward_cpu;
size_t tn_infonce_work_cpu(const tn_sig *s, bool backward);

static tn_status infonce_infer(tn_sig *s)
{
    const tn_infonce_attr *a = s->attr;
    const tn_dims d = s->in[0].dims, t = s->in[2].dims;
    if (d.rank != 2 || !tn_dims_equal(d, s->in[1].dims))
        return tn_error(TN_USAGE, "a and b must both be (N,d): row i of one belongs to row i of the other");
    if (!tn_dtype_is_float(s->in[0].dtype) || !tn_dtype_is_float(s->in[1].dtype))
        return tn_error(TN_USAGE, "a and b must be floats, not %s and %s", tn_dtype_name(s->in[0].dtype),
                        tn_dtype_name(s->in[1].dtype));
    if (!s->in[2].absent && (t.rank != 1 || t.dim[0] != 1 || !tn_dtype_is_float(s->in[2].dtype)))
        return tn_error(TN_USAGE, "the temperature must be a float tensor of shape (1)");
    if (!(a->temperature > 0) || isinf(a->temperature))
        return tn_error(TN_USAGE, "temperature %g: it must be positive and finite", (double)a->temperature);
    s->n_out = 2;
    s->out[0].dtype = s->out[1].dtype = TN_F32;
    s->out[0].dims = (tn_dims){ 0 };
    s->out[1].dims = tn_shape(2, d.dim[0]);
    return TN_OK;
}

static void infonce_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)want; /* every gradient needs the similarities again */
    u->in = 3 | (s->in[2].absent ? 0 : 4);
    u->out = 2;
}

static void infonce_cost(const tn_sig *s, tn_cost *c)
{
    const double N = (double)s->in[0].dims.dim[0], d = (double)s->in[0].dims.dim[1];
    c->flops = N * N * (2 * d + 8);
    c->flops_backward = N * N * (6 * d + 8);
}

const tn_op tn_op_infonce = {
    .name = "infonce",
    .attr_bytes = sizeof(tn_infonce_attr),
    .flags = TN_OP_AUX_FROM_1,
    .infer = infonce_infer,
    .grad = infonce_grad,
    .cost = infonce_cost,
    .kernel = { [TN_CPU] = { .forward = tn_infonce_forward_cpu,
                             .backward = tn_infonce_backward_cpu,
                             .work = tn_infonce_work_cpu },
                [TN_CUDA] = { .forward = tn_infonce_forward_cuda,
                              .backward = tn_infonce_backward_cuda,
                              .work = tn_infonce_work_cuda } },
};

tn_ref tn_infonce_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref b, tn_infonce_options o)
{
    const tn_infonce_attr attr = { .temperature = o.temperature == 0 ? 1 : o.temperature };
    const tn_ref in[3] = { a, b, o.temperature_tensor };
    tn_ref out[2];
    if (o.temperature != 0 && o.temperature_tensor.id)
        tn_graph_fail(g, file, line, TN_USAGE, "infonce: give a temperature or a temperature_tensor, not both");
    return tn_graph_add(g, file, line, &tn_op_infonce, &attr, in, 3, out);
}
