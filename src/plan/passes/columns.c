/* Bias gradients on the way (CUDA). The gradient of a linear op's bias is the sum of the rows of its dy, a pass over
 * memory. The kernel that makes dy has the rows in registers: where that is a norm's backward kernel (dy is then the
 * gradient of a residual stream), it sums them too, and the linear op's backward node forgets its bias. */
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"
#include "plan/graph.h"

/* A backward node whose bias has the sum of dy's rows for a gradient, all of them. */
static bool sums_rows(const tn_graph *g, const tn_node *n)
{
    if (n->op != &tn_op_linear || !n->backward || !n->din[TN_LINEAR_BIAS] || !n->dout[0]) return false;
    const bool slope = ((const tn_linear_attr *)n->attr)->act != TN_ACT_NONE && (n->reads_out >> 1 & 1);
    return !slope && !g->tensor[n->dout[0]].live && !g->tensor[n->in[TN_LINEAR_X]].live;
}

/* The last node before i that writes to the memory of base; -1: none. */
static int64_t last_writer(const tn_graph *g, int32_t base, size_t i)
{
    while (i-- > 0)
        if (tn_node_writes(g, &g->node[i], base)) return (int64_t)i;
    return -1;
}

/* May the gradient at `id` be added to by node `from` instead of node `to`? */
static bool may_move(const tn_graph *g, int32_t id, size_t from, size_t to)
{
    const int32_t base = g->tensor[id].base;
    int times = 0;
    for (size_t i = from; i < to; i++)
        if (tn_node_writes(g, &g->node[i], base) || tn_node_reads(g, &g->node[i], base)) return false;
    for (int k = 0; k < g->node[to].n_in; k++)
        times += g->node[to].din[k] && g->tensor[g->node[to].din[k]].base == base;
    return times == 1;
}

void tn_pass_columns(tn_graph *g)
{
    if (g->status != TN_OK || !tn_graph_switch(g, "opt.column_sums")) return;
    for (size_t i = 0; i < g->n_nodes; i++) {
        tn_node *n = &g->node[i];
        if (!sums_rows(g, n)) continue;
        const int32_t dy = n->dout[0], db = n->din[TN_LINEAR_BIAS];
        const int64_t at = last_writer(g, g->tensor[dy].base, i);
        tn_node *w = at >= 0 ? &g->node[at] : NULL;
        if (!w || w->op != &tn_op_norm || !w->backward || w->din[TN_NORM_X] != dy || w->din[TN_NORM_RESIDUAL] == dy ||
            (w->accumulate >> TN_NORM_X & 1) || w->din[TN_NORM_COLUMNS] || !may_move(g, db, (size_t)at, i))
            continue;
        w->din[TN_NORM_COLUMNS] = db;
        w->accumulate |= (n->accumulate >> TN_LINEAR_BIAS & 1) << TN_NORM_COLUMNS;
        n->din[TN_LINEAR_BIAS] = 0;
    }
}
