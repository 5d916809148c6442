/* text_part: shape check, CPU kernel, row, public call. */
#include "ops/text_part/text_part.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

static tn_status text_part_infer(tn_sig *s)
{
    const tn_text_part_attr *a = s->attr;
    if (s->in[0].dtype != TN_I32 || s->in[0].dims.rank != 1)
        return tn_error(TN_USAGE, "lengths must be i32 of shape (B)");
    if (a->length < 1 || a->length > INT32_MAX || a->parts < 1 || a->parts > INT32_MAX)
        return tn_error(TN_USAGE, "T=%lld and n=%lld must be between 1 and 2^31 - 1", (long long)a->length,
                        (long long)a->parts);
    s->n_out = 1;
    s->out[0].dtype = TN_I32;
    s->out[0].dims = tn_shape(s->in[0].dims.dim[0], a->length);
    return TN_OK;
}

static tn_status text_part_forward(const tn_call *c)
{
    const tn_text_part_attr *a = c->attr;
    const tn_arg *y = &c->out[0];
    const int32_t *lengths = c->in[0].data;
    const int64_t rows = tn_arg_count(&c->in[0]);
    for (int64_t b = 0; b < rows; b++)
        for (int64_t t = 0; t < a->length; t++)
            ((int32_t *)y->data)[b * y->stride[0] + t * y->stride[1]] =
                tn_text_part_of(*a, t, lengths[b * c->in[0].stride[0]]);
    return TN_OK;
}

const tn_op tn_op_text_part = {
    .name = "text_part",
    .attr_bytes = sizeof(tn_text_part_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .infer = text_part_infer,
    .kernel = { [TN_CPU] = { .forward = text_part_forward }, [TN_CUDA] = { .forward = tn_text_part_forward_cuda } },
};

tn_ref tn_text_part_(tn_graph *g, const char *file, int line, tn_ref lengths, int64_t length, int64_t parts)
{
    const tn_text_part_attr a = { .length = length, .parts = parts };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_text_part, &a, &lengths, 1, &y);
}
