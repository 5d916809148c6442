/* Bias gradients without a pass of their own (CUDA). A bias gradient is the column sum of dy. The kernel that computes
 * dy has its rows in registers; where it can sum them too (a norm's: tn_fusion.columns_in), it does, and the linear
 * op's backward node drops its bias. */
#include "plan/graph.h"

/* A backward node whose bias has the sum of dy's rows for a gradient, all of them. */
static bool sums_rows(const tn_graph *g, const tn_node *n)
{
    const tn_fusion *f = &n->op->fusion;
    if (!f->bias_in || !n->backward || !n->din[f->bias_in] || !n->dout[0]) return false;
    const bool slope = f->pre_out && (n->reads_out >> f->pre_out & 1);
    return !slope && !g->tensor[n->dout[0]].live && !g->tensor[n->in[0]].live;
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

/* Does backward node n make the gradient dy of its input 0 alone, and can it sum its rows? */
static bool makes_rows(const tn_node *n, int32_t dy)
{
    const int columns = n->op->fusion.columns_in;
    if (!columns || !n->backward || n->din[0] != dy || (n->accumulate & 1) || n->din[columns]) return false;
    for (int k = 1; k < n->n_in; k++)
        if (n->din[k] == dy) return false;
    return true;
}

void tn_pass_columns(tn_graph *g)
{
    if (g->status != TN_OK || !tn_graph_switch(g, "opt.column_sums")) return;
    for (size_t i = 0; i < g->n_nodes; i++) {
        tn_node *n = &g->node[i];
        if (!sums_rows(g, n)) continue;
        const int bias = n->op->fusion.bias_in;
        const int32_t dy = n->dout[0], db = n->din[bias];
        const int64_t at = last_writer(g, g->tensor[dy].base, i);
        if (at < 0 || !makes_rows(&g->node[at], dy) || !may_move(g, db, (size_t)at, i)) continue;
        tn_node *w = &g->node[at];
        const int columns = w->op->fusion.columns_in;
        w->din[columns] = db;
        w->accumulate |= (n->accumulate >> bias & 1) << columns;
        n->din[bias] = 0;
    }
}
