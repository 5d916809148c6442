/* scatter_rows: shape check, gradient rule, row. */
#include "ops/scatter_rows/scatter_rows.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_scatter_rows_forward_cpu, tn_scatter_rows_backward_cpu;

static tn_status scatter_rows_infer(tn_sig *s)
{
    const tn_type *rows = &s->in[0], *index = &s->in[1];
    const int64_t R = ((const tn_scatter_rows_attr *)s->attr)->rows;
    if (rows->dims.rank < 1 || !tn_dtype_is_float(rows->dtype))
        return tn_error(TN_USAGE, "rows must be a float tensor with rows along its first axis");
    if (index->dtype != TN_I32 || index->dims.rank != 1 || index->dims.dim[0] != rows->dims.dim[0])
        return tn_error(TN_USAGE, "the index must be an i32 vector with one number for each of the %lld rows",
                        (long long)rows->dims.dim[0]);
    if (R < 0) return tn_error(TN_USAGE, "%lld rows: their number cannot be negative", (long long)R);
    s->n_out = 1;
    s->out[0].dims = rows->dims;
    s->out[0].dims.dim[0] = R;
    return TN_OK;
}

static void scatter_rows_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = 1 << 1; /* the index */
}

static void scatter_rows_cost(const tn_sig *s, tn_cost *c) { c->flops = (double)tn_dims_count(s->in[0].dims); }

const tn_op tn_op_scatter_rows = {
    .name = "scatter_rows",
    .attr_bytes = sizeof(tn_scatter_rows_attr),
    .infer = scatter_rows_infer,
    .grad = scatter_rows_grad,
    .cost = scatter_rows_cost,
    .kernel = { [TN_CPU] = { .forward = tn_scatter_rows_forward_cpu, .backward = tn_scatter_rows_backward_cpu },
                [TN_CUDA] = { .forward = tn_scatter_rows_forward_cuda,
                              .backward = tn_scatter_rows_backward_cuda,
                              .work = tn_scatter_rows_work_cuda } },
};

tn_ref tn_scatter_rows_(tn_graph *g, const char *file, int line, tn_ref rows, tn_ref index, int64_t count)
{
    const tn_scatter_rows_attr a = { .rows = count };
    const tn_ref in[] = { rows, index };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_scatter_rows, &a, in, 2, &y);
}
