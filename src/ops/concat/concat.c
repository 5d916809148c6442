/* concat: shape check, gradient rule, row. */
#include "ops/concat/concat.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_concat_forward_cpu, tn_concat_backward_cpu;

static tn_status concat_infer(tn_sig *s)
{
    if (s->n_in < 1) return tn_error(TN_USAGE, "at least one tensor is needed");
    const int rank = s->in[0].dims.rank, given = ((const tn_concat_attr *)s->attr)->axis;
    const int axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank)
        return tn_error(TN_USAGE, "axis %d does not exist: use one in [%d, %d)", given, -rank, rank);
    tn_dims y = s->in[0].dims;
    y.dim[axis] = 0;
    for (int i = 0; i < s->n_in; i++) {
        const tn_dims x = s->in[i].dims;
        if (s->in[i].absent || !tn_dtype_is_float(s->in[i].dtype))
            return tn_error(TN_USAGE, "tensor %d is not of floats", i);
        bool fits = x.rank == rank;
        for (int k = 0; fits && k < rank; k++) fits = k == axis || x.dim[k] == y.dim[k];
        if (!fits) return tn_error(TN_USAGE, "tensor %d differs from tensor 0 in more than axis %d", i, axis);
        y.dim[axis] += x.dim[axis];
    }
    s->n_out = 1;
    s->out[0].dtype = tn_elem_dtype(s);
    s->out[0].dims = y;
    s->mixes_rows = axis == 0;
    return TN_OK;
}

static void concat_grad(const tn_sig *s, uint64_t want, tn_uses *u) { (void)s, (void)want, (void)u; }

static void concat_cost(const tn_sig *s, tn_cost *c) { (void)s, (void)c; /* bytes only */ }

const tn_op tn_op_concat = {
    .name = "concat",
    .attr_bytes = sizeof(tn_concat_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .infer = concat_infer,
    .grad = concat_grad,
    .cost = concat_cost,
    .kernel = { [TN_CPU] = { .forward = tn_concat_forward_cpu, .backward = tn_concat_backward_cpu },
                [TN_CUDA] = { .forward = tn_concat_forward_cuda, .backward = tn_concat_backward_cuda } },
};

tn_ref tn_concat_(tn_graph *g, const char *file, int line, const tn_ref *refs, int n, int axis)
{
    const tn_concat_attr attr = { .axis = axis };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_concat, &attr, refs, n, &y);
}
