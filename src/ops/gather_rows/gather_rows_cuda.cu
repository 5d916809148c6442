/* gather_rows on the GPU (see indexed.cuh, also for what becomes of an index outside its range). */
#include "ops/gather_rows/gather_rows.h"
#include "ops/indexed.cuh"

extern "C" tn_status tn_gather_rows_forward_cuda(const tn_call *c)
{
    const tn_arg *index = &c->in[0], *x = &c->in[1], *y = &c->out[0];
    tn_d_indexed j = {};
    j.index = (const int32_t *)index->data, j.live = index->live;
    j.from = x->data, j.from_type = x->dtype, j.rows = x->dims.dim[0], j.rows_live = x->live;
    j.to = y->data, j.to_type = y->dtype;
    j.n = index->dims.dim[0], j.width = tn_d_index_width(x->dims);
    return tn_d_gather(c, j);
}

extern "C" tn_status tn_gather_rows_backward_cuda(const tn_call *c)
{
    const tn_arg *index = &c->in[0], *dy = &c->dout[0], *dx = &c->din[1];
    tn_d_indexed j = {};
    if (!dx->data) return TN_OK;
    j.index = (const int32_t *)index->data, j.live = index->live;
    j.from = dy->data, j.from_type = dy->dtype;
    j.to = dx->data, j.to_type = dx->dtype, j.rows = dx->dims.dim[0];
    j.n = dy->data ? index->dims.dim[0] : 0, j.width = tn_d_index_width(dx->dims);
    j.add = c->accumulate >> 1 & 1;
    return tn_d_scatter(c, j);
}

extern "C" size_t tn_gather_rows_work_cuda(const tn_sig *s, bool backward)
{
    return backward ? tn_d_scatter_work(s->in[0].dims.dim[0], s->in[1].dims.dim[0]) : 0;
}
