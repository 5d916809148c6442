/* scatter_rows on the CPU (see indexed.h). */
#include "ops/indexed.h"

tn_kernel tn_scatter_rows_forward_cpu, tn_scatter_rows_backward_cpu;

static int64_t live_length(const tn_arg *a)
{
    const int64_t n = a->dims.dim[0];
    return a->live && *a->live < n ? (*a->live < 0 ? 0 : *a->live) : n;
}

/* Entries that count. */
static int64_t entries(const tn_arg *rows, const tn_arg *index)
{
    const int64_t a = live_length(rows), b = live_length(index);
    return a < b ? a : b;
}

tn_status tn_scatter_rows_forward_cpu(const tn_call *c)
{
    const tn_arg *rows = &c->in[0], *index = &c->in[1], *y = &c->out[0];
    const int64_t n = entries(rows, index), R = y->dims.dim[0];
    TN_RETURN_IF(tn_index_check(index->data, n, R, "index", "give the index a live extent where its tail is unused"));
    tn_index_scatter(c->pool, (tn_index_job){ .index = index->data,
                                              .from = rows->data,
                                              .to = y->data,
                                              .n = n,
                                              .rows = R,
                                              .width = tn_index_width(y->dims) });
    return TN_OK;
}

tn_status tn_scatter_rows_backward_cpu(const tn_call *c)
{
    const tn_arg *d = &c->din[0];
    if (!d->data) return TN_OK;
    const bool add = c->accumulate & 1;
    const int64_t n = c->dout[0].data ? entries(d, &c->in[1]) : 0, width = tn_index_width(d->dims);
    tn_index_gather(
        c->pool,
        (tn_index_job){
            .index = c->in[1].data, .from = c->dout[0].data, .to = d->data, .n = n, .width = width, .add = add });
    if (!add) memset((float *)d->data + n * width, 0, sizeof(float) * (size_t)((live_length(d) - n) * width));
    return TN_OK;
}
