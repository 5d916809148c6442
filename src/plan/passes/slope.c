/* Activation derivatives inside matrix products (CUDA). Where h = gelu(pre) of one linear op is read by one other
 * linear op alone, the product that computes the gradient of h also multiplies it by gelu'(pre) while storing its
 * tiles: one pass over memory less. It gets `pre` as an input, and the other node drops its activation. */
#include "plan/graph.h"

/* The one node that writes the gradient at `id`, which `reader` alone reads; -1: there are more. */
static int64_t only_writer(const tn_graph *g, int32_t id, size_t reader)
{
    const int32_t base = g->tensor[id].base;
    int64_t writer = -1;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->tensor[g->output[i].id].base == base) return -1;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (i != reader && tn_node_reads(g, &g->node[i], base)) return -1;
        if (!tn_node_writes(g, &g->node[i], base)) continue;
        if (writer >= 0) return -1;
        writer = (int64_t)i;
    }
    return writer;
}

/* Is what lies at `id` there before node i runs? */
static bool made_before(const tn_graph *g, int32_t id, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (tn_node_writes(g, &g->node[k], g->tensor[id].base)) return true;
    return false;
}

/* A backward node that multiplies its one gradient by the slope of gelu at its output before it. */
static bool waits_for_slope(const tn_graph *g, const tn_node *n)
{
    const int out = n->op->fusion.pre_out;
    if (!out || !n->backward || !n->op->fusion.is_gelu(n->attr)) return false;
    if (!(n->reads_out >> out & 1) || !n->out[out] || !n->dout[0] || n->in[n->op->fusion.after_in]) return false;
    const tn_gtensor *d = &g->tensor[n->dout[0]], *pre = &g->tensor[n->out[out]];
    return d->base == n->dout[0] && d->dtype == TN_BF16 && pre->dtype == TN_BF16 && !d->live && !pre->live &&
           d->dims.rank > 0 && d->dims.dim[d->dims.rank - 1] % 8 == 0 && tn_gtensor_contiguous(d) &&
           tn_gtensor_contiguous(pre);
}

/* Nothing to multiply by any more, and no workspace for the product. */
static void forget_slope(tn_graph *g, tn_node *n)
{
    tn_type *types = tn_graph_types(g, n->out_type, n->n_out);
    if (!types) return;
    types[n->op->fusion.pre_out].absent = true;
    n->out_type = types;
    n->reads_out &= ~((uint64_t)1 << n->op->fusion.pre_out);
}

void tn_pass_slopes(tn_graph *g)
{
    if (g->status != TN_OK || !tn_graph_switch(g, "opt.slopes")) return;
    for (size_t i = 0; i < g->n_nodes && g->status == TN_OK; i++) {
        tn_node *n = &g->node[i];
        if (!waits_for_slope(g, n)) continue;
        const int64_t at = only_writer(g, n->dout[0], i);
        tn_node *w = at >= 0 && (size_t)at < i ? &g->node[at] : NULL;
        const int slope = w ? w->op->fusion.slope_in : 0;
        const int32_t pre = n->out[n->op->fusion.pre_out];
        if (!slope || !w->backward || w->din[0] != n->dout[0] || (w->accumulate & 1) || w->in[slope] ||
            !made_before(g, pre, (size_t)at))
            continue;
        w->in[slope] = pre;
        w->reads_in |= (uint64_t)1 << slope;
        forget_slope(g, n);
    }
}
