/* fill: a constant tensor; also how the planner zeroes gradients. */
#include "ops/fill/fill.h"

#include "ops/cuda_kernels.h"
#include "ops/rows.h"

#include <string.h>

static tn_status fill_infer(tn_sig *s)
{
    const tn_fill_attr *a = s->attr;
    s->n_out = 1;
    s->out[0].dtype = a->dtype;
    s->out[0].dims = a->dims;
    return TN_OK;
}

static void store(void *data, tn_dtype t, int64_t i, float x)
{
    switch (t) {
    case TN_F32: ((float *)data)[i] = x; break;
    case TN_BF16: ((uint16_t *)data)[i] = tn_f32_to_bf16(x); break;
    case TN_F16: ((uint16_t *)data)[i] = tn_f32_to_f16(x); break;
    case TN_F64: ((double *)data)[i] = (double)x; break;
    case TN_I32: ((int32_t *)data)[i] = (int32_t)x; break;
    case TN_I64: ((int64_t *)data)[i] = (int64_t)x; break;
    default: ((uint8_t *)data)[i] = (uint8_t)x; break;
    }
}

static tn_status fill_forward_cpu(const tn_call *c)
{
    const tn_arg *y = &c->out[0];
    const float value = ((const tn_fill_attr *)c->attr)->value;
    const size_t bytes = tn_dtype_bytes(y->dtype);
    const int64_t length = tn_row_length(y), step = tn_row_step(y);
    const int64_t rows = length ? tn_dims_count(y->dims) / length : 0; /* whole capacity, whatever is alive */
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = tn_row_offset(y, r);
        if (value == 0 && step == 1) { /* what the planner asks for: all bits 0 in every type */
            memset((char *)y->data + at * (int64_t)bytes, 0, (size_t)length * bytes);
            continue;
        }
        for (int64_t i = 0; i < length; i++) store(y->data, y->dtype, at + i * step, value);
    }
    return TN_OK;
}

static void fill_cost(const tn_sig *s, tn_cost *c) { (void)s, (void)c; }

const tn_op tn_op_fill = {
    .name = "fill",
    .attr_bytes = sizeof(tn_fill_attr),
    .flags = TN_OP_STRIDED,
    .infer = fill_infer,
    .cost = fill_cost,
    .kernel = { [TN_CPU] = { .forward = fill_forward_cpu }, [TN_CUDA] = { .forward = tn_fill_forward_cuda } },
};

tn_ref tn_fill_(tn_graph *g, const char *file, int line, tn_dims dims, tn_dtype dtype, float value)
{
    const tn_fill_attr a = { .value = value, .dtype = dtype, .dims = dims };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_fill, &a, NULL, 0, &y);
}
