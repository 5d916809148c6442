/* adamw: shape check, cost, row. */
#include "ops/adamw/adamw.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/segments.h"

tn_kernel tn_adamw_forward_cpu;

static tn_status adamw_infer(tn_sig *s)
{
    const tn_adamw_attr *a = s->attr;
    if (s->n_in != TN_ADAMW_INPUTS) return tn_error(TN_USAGE, "adamw has %d inputs, not %d", TN_ADAMW_INPUTS, s->n_in);
    return tn_segments_infer(s, (tn_segments){ a->segment, a->n }, TN_ADAMW_FLATS);
}

static void adamw_cost(const tn_sig *s, tn_cost *c) { c->flops = 16.0 * (double)tn_dims_count(s->in[0].dims); }

const tn_op tn_op_adamw = {
    .name = "adamw",
    .attr_bytes = sizeof(tn_adamw_attr),
    .infer = adamw_infer,
    .cost = adamw_cost,
    .kernel = { [TN_CPU] = { .forward = tn_adamw_forward_cpu },
                [TN_CUDA] = { .forward = tn_adamw_forward_cuda, .work = tn_adamw_work_cuda } },
};
