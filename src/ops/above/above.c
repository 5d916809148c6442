/* above: shape check, CPU kernel, row, public call. */
#include "ops/above/above.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

static tn_status above_infer(tn_sig *s)
{
    const tn_dims d = s->in[0].dims;
    if (!tn_dtype_is_float(s->in[0].dtype) || d.rank < 1 || d.rank > 2 || (d.rank == 2 && d.dim[1] != 1))
        return tn_error(TN_USAGE, "x must be floats of shape (n) or (n,1): one number a row");
    s->n_out = 1;
    s->out[0].dtype = TN_I32;
    s->out[0].dims = tn_shape(d.dim[0]);
    return TN_OK;
}

/* One pass in the calling thread; the list is short next to the rows it stands for. */
static tn_status above_forward(const tn_call *c)
{
    const tn_above_attr *a = c->attr;
    const float *restrict x = c->in[0].data; /* (n) or (n,1), rows stride[0] apart */
    int32_t *restrict keep = c->out[0].data; /* (n) */
    const int64_t n = tn_arg_count(&c->in[0]), step = c->in[0].stride[0], out = c->out[0].stride[0];
    for (int64_t i = 0; i < n; i++) keep[i * out] = (x[i * step] > a->threshold) != a->invert;
    return TN_OK;
}

const tn_op tn_op_above = {
    .name = "above",
    .attr_bytes = sizeof(tn_above_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .infer = above_infer,
    .kernel = { [TN_CPU] = { .forward = above_forward }, [TN_CUDA] = { .forward = tn_above_forward_cuda } },
};

tn_ref tn_above_(tn_graph *g, const char *file, int line, tn_ref x, float threshold, bool invert)
{
    const tn_above_attr a = { .threshold = threshold, .invert = invert };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_above, &a, &x, 1, &y);
}
