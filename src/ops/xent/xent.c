/* xent: shape check, gradient rule, row. Inputs: logits, labels, weights; outputs: loss, nll, lse. */
#include "ops/xent/xent.h"

#include "ops/logits.h"
#include "ops/cuda_kernels.h"
#include "ops/rows.h"

tn_kernel tn_xent_forward_cpu, tn_xent_backward_cpu;

static tn_status xent_infer(tn_sig *s)
{
    TN_RETURN_IF(tn_labels_infer(&s->in[0], &s->in[1], &s->in[2]));
    s->n_out = 3;
    for (int i = 0; i < 3; i++) s->out[i].dtype = TN_F32;
    s->out[0].dims = (tn_dims){ 0 };
    s->out[1].dims = s->out[2].dims = s->in[1].dims;
    return TN_OK;
}

static void xent_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    u->in = 2 | (s->in[2].absent ? 0 : 4);
    u->out = 4;
    if (want & 1) u->in |= 1;
    if (want & 4) u->out |= 1 | 2; /* the weights' gradient is made of the terms themselves */
}

static void xent_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[0].dims);
    c->flops = 4 * n; /* max, subtract, exp, add */
    c->flops_backward = 3 * n;
}

/* One sum for each tile of rows. */
static size_t xent_work(const tn_sig *s, bool backward)
{
    const tn_dims d = s->in[0].dims;
    const int64_t tiles = tn_tiles(tn_dims_count(s->in[1].dims), tn_tile_rows(d.dim[d.rank - 1]));
    return backward ? 0 : sizeof(double) * (size_t)(tiles + 1);
}

const tn_op tn_op_xent = {
    .name = "xent",
    .attr_bytes = sizeof(tn_xent_attr),
    .flags = TN_OP_AUX_FROM_1,
    .infer = xent_infer,
    .grad = xent_grad,
    .cost = xent_cost,
    .kernel = { [TN_CPU] = { .forward = tn_xent_forward_cpu, .backward = tn_xent_backward_cpu, .work = xent_work },
                [TN_CUDA] = { .forward = tn_xent_forward_cuda,
                              .backward = tn_xent_backward_cuda,
                              .work = tn_xent_work_cuda } },
};

tn_ref tn_xent_(tn_graph *g, const char *file, int line, tn_ref logits, tn_ref labels, tn_xent_options o)
{
    const tn_xent_attr a = { .ignore = o.ignore_zero ? 0 : o.ignore ? o.ignore : -1, .z_loss = o.z_loss, .sum = o.sum };
    const tn_ref in[3] = { logits, labels, o.weights };
    tn_ref out[3] = { { 0 } };
    tn_graph_add(g, file, line, &tn_op_xent, &a, in, 3, out);
    if (o.nll) *o.nll = out[1];
    return out[0];
}
