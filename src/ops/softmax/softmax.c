/* softmax: shape check, gradient rule, row. */
#include "ops/softmax/softmax.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_softmax_forward_cpu, tn_softmax_backward_cpu;

static tn_status softmax_infer(tn_sig *s)
{
    const tn_type *x = &s->in[0], *m = &s->in[1];
    if (x->absent || !tn_dtype_is_float(x->dtype) || x->dims.rank < 1)
        return tn_error(TN_USAGE, "the argument must be a tensor of floats with at least one axis");
    if (!m->absent) {
        if (m->dtype != TN_I32 && !tn_dtype_is_float(m->dtype))
            return tn_error(TN_USAGE, "the mask is %s: it must be i32 or f32", tn_dtype_name(m->dtype));
        bool fits = m->dims.rank <= x->dims.rank;
        for (int i = 1; fits && i <= m->dims.rank; i++) {
            const int64_t d = m->dims.dim[m->dims.rank - i];
            fits = d == 1 || d == x->dims.dim[x->dims.rank - i];
        }
        if (!fits) return tn_error(TN_USAGE, "the mask does not broadcast to the shape of x");
    }
    s->n_out = 1;
    s->out[0].dtype = x->dtype == TN_F32 ? TN_F32 : s->out[0].dtype;
    s->out[0].dims = x->dims;
    return TN_OK;
}

static void softmax_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->out = 1;
}

static void softmax_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = 4 * (double)tn_dims_count(s->out[0].dims);
    c->flops_backward = c->flops;
}

const tn_op tn_op_softmax = {
    .name = "softmax",
    .attr_bytes = sizeof(tn_softmax_attr),
    .flags = TN_OP_ROWWISE | TN_OP_INPLACE, /* each row is read before its numbers are written */
    .infer = softmax_infer,
    .grad = softmax_grad,
    .cost = softmax_cost,
    .kernel = { [TN_CPU] = { .forward = tn_softmax_forward_cpu, .backward = tn_softmax_backward_cpu },
                [TN_CUDA] = { .forward = tn_softmax_forward_cuda, .backward = tn_softmax_backward_cuda } },
};

tn_ref tn_softmax_(tn_graph *g, const char *file, int line, tn_ref x, bool log, tn_softmax_options o)
{
    const tn_softmax_attr attr = { .scale = o.scale != 0 ? o.scale : 1, .log = log };
    const tn_ref in[2] = { x, tn_stop_gradient(g, o.mask) };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_softmax, &attr, in, 2, &y);
}
