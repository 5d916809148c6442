/* sumsq: shape check, cost, row. The kernel keeps one double per tile of its workspace; see sumsq_cpu.c. */
#include "ops/sumsq/sumsq.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_sumsq_forward_cpu;

static tn_status sumsq_infer(tn_sig *s)
{
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i].absent || !tn_dtype_is_float(s->in[i].dtype))
            return tn_error(TN_USAGE, "input %d must be a tensor of floats", i);
    s->n_out = 1;
    s->out[0].dtype = TN_F32;
    s->out[0].dims = tn_shape(1);
    return TN_OK;
}

static void sumsq_cost(const tn_sig *s, tn_cost *c)
{
    for (int i = 0; i < s->n_in; i++) c->flops += 2.0 * (double)tn_dims_count(s->in[i].dims);
}

static size_t sumsq_work(const tn_sig *s, bool backward)
{
    int64_t tiles = 0;
    if (backward) return 0;
    for (int i = 0; i < s->n_in; i++) tiles += tn_sumsq_tiles(tn_dims_count(s->in[i].dims));
    return sizeof(double) * (size_t)tiles;
}

const tn_op tn_op_sumsq = {
    .name = "sumsq",
    .infer = sumsq_infer,
    .cost = sumsq_cost,
    .kernel = { [TN_CPU] = { .forward = tn_sumsq_forward_cpu, .backward = NULL, .work = sumsq_work },
                [TN_CUDA] = { .forward = tn_sumsq_forward_cuda, .work = tn_sumsq_work_cuda } },
};

tn_ref tn_sumsq_(tn_graph *g, const char *file, int line, const tn_ref *xs, int n)
{
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_sumsq, NULL, xs, n, &y);
}
