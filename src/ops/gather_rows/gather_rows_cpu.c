/* gather_rows on the CPU (see indexed.h). */
#include "ops/indexed.h"

tn_kernel tn_gather_rows_forward_cpu, tn_gather_rows_backward_cpu;

tn_status tn_gather_rows_forward_cpu(const tn_call *c)
{
    const tn_arg *index = &c->in[0], *x = &c->in[1];
    const int64_t n = tn_arg_count(index), R = x->dims.dim[0], rows = x->live && *x->live < R ? *x->live : R;
    TN_RETURN_IF(
        tn_index_check(index->data, n, rows, "index", "give the index a live extent where its tail is unused"));
    tn_index_gather(c->pool, (tn_index_job){ .index = index->data,
                                             .from = x->data,
                                             .to = c->out[0].data,
                                             .n = n,
                                             .rows = R,
                                             .width = tn_index_width(x->dims) });
    return TN_OK;
}

tn_status tn_gather_rows_backward_cpu(const tn_call *c)
{
    tn_index_scatter_back(c);
    return TN_OK;
}
