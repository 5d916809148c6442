/* take_samples: shape check, row, public call. */
#include "ops/take_samples/take_samples.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_take_samples_forward_cpu;

static tn_status take_samples_infer(tn_sig *s)
{
    const tn_type *number = &s->in[0], *valid = &s->in[1], *set = &s->in[2];
    if (number->dtype != TN_I32 || number->dims.rank != 1)
        return tn_error(TN_USAGE, "the numbers must be an i32 vector, they are %s with %d axes",
                        tn_dtype_name(number->dtype), number->dims.rank);
    if (valid->dtype != TN_I32 || tn_dims_count(valid->dims) != 1)
        return tn_error(TN_USAGE, "how many rows are valid must be one i32 number");
    if (set->dims.rank < 1 || (set->dtype != TN_U8 && set->dtype != TN_F32 && set->dtype != TN_I32))
        return tn_error(TN_USAGE, "the set must be u8, f32 or i32 with samples along its first axis");
    s->n_out = 1;
    s->out[0].dtype = set->dtype == TN_I32 ? TN_I32 : TN_F32;
    s->out[0].dims = set->dims;
    s->out[0].dims.dim[0] = number->dims.dim[0];
    return TN_OK;
}

static void take_samples_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = s->in[2].dtype == TN_U8 ? (double)tn_dims_count(s->out[0].dims) : 0;
}

const tn_op tn_op_take_samples = {
    .name = "take_samples",
    .attr_bytes = sizeof(tn_take_samples_attr),
    .infer = take_samples_infer,
    .cost = take_samples_cost,
    .kernel = { [TN_CPU] = { .forward = tn_take_samples_forward_cpu },
                [TN_CUDA] = { .forward = tn_take_samples_forward_cuda } },
    .fusion = { .some_rows = 1 << 2 },
};

tn_ref tn_take_samples_(tn_graph *g, const char *file, int line, tn_ref set, tn_ref number, tn_ref valid, float scale,
                        float pad)
{
    const tn_take_samples_attr a = { .scale = scale, .pad = pad };
    const tn_ref in[] = { number, valid, set };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_take_samples, &a, in, 3, &y);
}
