/* reduce: shape check, gradient rule, row. */
#include "ops/reduce/reduce.h"

#include "base/status.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_reduce_forward_cpu, tn_reduce_backward_cpu;

static tn_status reduce_infer(tn_sig *s)
{
    const tn_reduce_attr *a = s->attr;
    const tn_dims x = s->in[0].dims;
    const int axis = a->axis < 0 ? a->axis + x.rank : a->axis;
    if ((unsigned)a->kind >= TN_REDUCE_KINDS || (a->all && a->kind == TN_REDUCE_MAX))
        return tn_error(TN_USAGE, "unknown kind %d: see reduce.h", (int)a->kind);
    if (s->in[0].absent || !tn_dtype_is_float(s->in[0].dtype))
        return tn_error(TN_USAGE, "the argument must be a tensor of floats");
    if (!a->all && (axis < 0 || axis >= x.rank))
        return tn_error(TN_USAGE, "axis %d does not exist: use one in [%d, %d)", a->axis, -x.rank, x.rank);
    s->n_out = 1;
    s->out[0].dtype = a->all ? TN_F32 : tn_elem_dtype(s);
    s->out[0].dims = (tn_dims){ 0 };
    for (int i = 0; !a->all && i < x.rank; i++)
        if (i != axis) s->out[0].dims.dim[s->out[0].dims.rank++] = x.dim[i];
    s->mixes_rows = a->all || axis == 0;
    return TN_OK;
}

static void reduce_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)want;
    u->in = ((const tn_reduce_attr *)s->attr)->kind == TN_REDUCE_MAX;
}

static void reduce_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = c->flops_backward = (double)tn_dims_count(s->in[0].dims);
}

static size_t reduce_work(const tn_sig *s, bool backward)
{
    return backward || ((const tn_reduce_attr *)s->attr)->kind == TN_REDUCE_MAX ? 0 : TN_ELEM_SUM_WORK;
}

const tn_op tn_op_reduce = {
    .name = "reduce",
    .attr_bytes = sizeof(tn_reduce_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .infer = reduce_infer,
    .grad = reduce_grad,
    .cost = reduce_cost,
    .kernel = { [TN_CPU] = { .forward = tn_reduce_forward_cpu,
                             .backward = tn_reduce_backward_cpu,
                             .work = reduce_work },
                [TN_CUDA] = { .forward = tn_reduce_forward_cuda,
                              .backward = tn_reduce_backward_cuda,
                              .work = tn_reduce_work_cuda } },
};

tn_ref tn_reduce_(tn_graph *g, const char *file, int line, tn_reduce_kind kind, tn_ref x, int axis, bool all)
{
    const tn_reduce_attr attr = { .kind = kind, .axis = axis, .all = all };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_reduce, &attr, &x, 1, &y);
}
