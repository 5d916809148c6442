/* compact: shape check, row and CPU kernel (one pass: the list is short next to the rows it stands for). */
#include "ops/compact/compact.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

static tn_status compact_infer(tn_sig *s)
{
    if (s->in[0].dtype != TN_I32 || s->in[0].dims.rank != 1)
        return tn_error(TN_USAGE, "keep must be an i32 vector of flags, it is %s with %d axes",
                        tn_dtype_name(s->in[0].dtype), s->in[0].dims.rank);
    s->n_out = 2;
    s->out[0].dtype = s->out[1].dtype = TN_I32;
    s->out[0].dims = s->in[0].dims;
    s->out[1].dims = tn_shape(1);
    return TN_OK;
}

static tn_status compact_forward_cpu(const tn_call *c)
{
    const int32_t *keep = c->in[0].data;                      /* (n) */
    int32_t *index = c->out[0].data, *count = c->out[1].data; /* (n) (1) */
    const int64_t n = c->in[0].dims.dim[0], live = tn_arg_count(&c->in[0]);
    int32_t kept = 0;
    for (int64_t i = 0; i < live; i++)
        if (keep[i]) index[kept++] = (int32_t)i;
    for (int64_t i = kept; i < n; i++) index[i] = -1;
    *count = kept;
    return TN_OK;
}

const tn_op tn_op_compact = {
    .name = "compact",
    .infer = compact_infer,
    .kernel = { [TN_CPU] = { .forward = compact_forward_cpu }, [TN_CUDA] = { .forward = tn_compact_forward_cuda } },
};

void tn_compact_(tn_graph *g, const char *file, int line, tn_ref keep, tn_ref *index, tn_ref *count)
{
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_compact, NULL, &keep, 1, out);
    *index = out[0];
    *count = out[1];
}
