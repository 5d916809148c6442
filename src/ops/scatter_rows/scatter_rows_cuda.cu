/* scatter_rows on the GPU (see indexed.cuh, also for what becomes of an index outside its range). */
#include "ops/indexed.cuh"
#include "ops/scatter_rows/scatter_rows.h"

extern "C" tn_status tn_scatter_rows_forward_cuda(const tn_call *c)
{
    const tn_arg *rows = &c->in[0], *index = &c->in[1], *y = &c->out[0];
    tn_d_indexed j = {};
    j.index = (const int32_t *)index->data, j.live = index->live, j.live_too = rows->live;
    j.from = rows->data, j.from_type = rows->dtype;
    j.to = y->data, j.to_type = y->dtype, j.rows = y->dims.dim[0];
    j.n = index->dims.dim[0], j.width = tn_d_index_width(y->dims);
    return tn_d_scatter(c, j);
}

extern "C" tn_status tn_scatter_rows_backward_cuda(const tn_call *c)
{
    const tn_arg *index = &c->in[1], *dy = &c->dout[0], *d = &c->din[0];
    tn_d_indexed j = {};
    if (!d->data) return TN_OK;
    j.index = (const int32_t *)index->data, j.live = index->live, j.live_too = d->live;
    j.from = dy->data, j.from_type = dy->dtype, j.rows = dy->data ? dy->dims.dim[0] : 0;
    j.to = d->data, j.to_type = d->dtype;
    j.n = d->dims.dim[0], j.width = tn_d_index_width(d->dims);
    j.add = c->accumulate & 1, j.zero_rest = !j.add;
    if (!dy->data && j.add) return TN_OK;
    if (!dy->data) { /* nothing comes back: zeros */
        TN_CUDA_TRY(cudaMemsetAsync(d->data, 0, (size_t)(j.n * j.width) * tn_dtype_bytes(d->dtype), tn_cuda_stream(c)));
        return TN_OK;
    }
    return tn_d_gather(c, j);
}

extern "C" size_t tn_scatter_rows_work_cuda(const tn_sig *s, bool backward)
{
    return backward ? 0 : tn_d_scatter_work(s->in[1].dims.dim[0], s->out[0].dims.dim[0]);
}
