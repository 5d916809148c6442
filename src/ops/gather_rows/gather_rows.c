/* gather_rows: shape check, gradient rule, row. The index is input 0, so that its live extent passes on. */
#include "ops/gather_rows/gather_rows.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_gather_rows_forward_cpu, tn_gather_rows_backward_cpu;

static tn_status gather_rows_infer(tn_sig *s)
{
    const tn_type *index = &s->in[0], *x = &s->in[1];
    if (index->dtype != TN_I32 || index->dims.rank != 1)
        return tn_error(TN_USAGE, "the index must be an i32 vector, it is %s with %d axes", tn_dtype_name(index->dtype),
                        index->dims.rank);
    if (x->dims.rank < 1 || (!tn_dtype_is_float(x->dtype) && x->dtype != TN_I32))
        return tn_error(TN_USAGE, "x must be a tensor of floats or i32 with rows along its first axis");
    s->n_out = 1;
    if (x->dtype == TN_I32) s->out[0].dtype = TN_I32;
    s->out[0].dims = x->dims;
    s->out[0].dims.dim[0] = index->dims.dim[0];
    return TN_OK;
}

static void gather_rows_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = 1; /* the index */
}

static void gather_rows_cost(const tn_sig *s, tn_cost *c) { c->flops_backward = (double)tn_dims_count(s->out[0].dims); }

const tn_op tn_op_gather_rows = {
    .name = "gather_rows",
    .flags = TN_OP_ROWWISE,
    .infer = gather_rows_infer,
    .grad = gather_rows_grad,
    .cost = gather_rows_cost,
    .kernel = { [TN_CPU] = { .forward = tn_gather_rows_forward_cpu, .backward = tn_gather_rows_backward_cpu },
                [TN_CUDA] = { .forward = tn_gather_rows_forward_cuda,
                              .backward = tn_gather_rows_backward_cuda,
                              .work = tn_gather_rows_work_cuda } },
};

tn_ref tn_gather_rows_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref index)
{
    const tn_ref in[] = { index, x };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_gather_rows, NULL, in, 2, &y);
}
