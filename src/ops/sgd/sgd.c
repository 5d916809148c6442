/* sgd: shape check, cost, row. */
#include "ops/sgd/sgd.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"
#include "ops/segments.h"

tn_kernel tn_sgd_forward_cpu;

static tn_status sgd_infer(tn_sig *s)
{
    const tn_sgd_attr *a = s->attr;
    if (s->n_in != TN_SGD_INPUTS) return tn_error(TN_USAGE, "sgd has %d inputs, not %d", TN_SGD_INPUTS, s->n_in);
    return tn_segments_infer(s, (tn_segments){ a->segment, a->n }, TN_SGD_FLATS);
}

static void sgd_cost(const tn_sig *s, tn_cost *c) { c->flops = 9.0 * (double)tn_dims_count(s->in[0].dims); }

const tn_op tn_op_sgd = {
    .name = "sgd",
    .attr_bytes = sizeof(tn_sgd_attr),
    .infer = sgd_infer,
    .cost = sgd_cost,
    .kernel = { [TN_CPU] = { .forward = tn_sgd_forward_cpu },
                [TN_CUDA] = { .forward = tn_sgd_forward_cuda, .work = tn_sgd_work_cuda } },
};
