/* dropout: shape check, gradient rule, row. */
#include "ops/dropout/dropout.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_dropout_forward_cpu, tn_dropout_backward_cpu;

static tn_status dropout_infer(tn_sig *s)
{
    if (s->in[0].absent || !tn_dtype_is_float(s->in[0].dtype))
        return tn_error(TN_USAGE, "the argument must be a tensor of floats");
    s->n_out = 1;
    s->out[0].dtype = tn_elem_dtype(s);
    s->out[0].dims = s->in[0].dims;
    return TN_OK;
}

static void dropout_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = 2; /* the seed */
}

const tn_op tn_op_dropout = {
    .name = "dropout",
    .attr_bytes = sizeof(tn_dropout_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_INPLACE,
    .infer = dropout_infer,
    .grad = dropout_grad,
    .kernel = { [TN_CPU] = { .forward = tn_dropout_forward_cpu, .backward = tn_dropout_backward_cpu },
                [TN_CUDA] = { .forward = tn_dropout_forward_cuda, .backward = tn_dropout_backward_cuda } },
};

tn_ref tn_dropout_(tn_graph *g, const char *file, int line, tn_ref x, float p)
{
    if (!(p >= 0 && p < 1)) {
        tn_graph_fail(g, file, line, TN_USAGE, "dropout p=%g is outside [0, 1)", (double)p);
        return TN_NONE;
    }
    if (!tn_graph_get_options(g)->training || p == 0) return x;
    const tn_dropout_attr attr = { .p = p, .stream = tn_graph_stream(g) };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_dropout, &attr, (const tn_ref[]){ x, tn_graph_seed(g) }, 2, &y);
}
