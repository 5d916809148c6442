/* Fuses the residual addition s = a + b into the op that reads it and can add (a norm: tn_fusion.sum_in), which saves a
 * pass over s. Other readers find s where it was. Runs before the reverse pass, so the gradient is the fused node's. */
#include "plan/graph.h"

#include <string.h>

/* Is node i a sum of two tensors of its result's shape and type? */
static bool is_sum(const tn_graph *g, size_t i)
{
    const tn_node *n = &g->node[i];
    if (tn_node_function(n) != TN_FN_ADD || n->in[0] == n->in[1]) return false;
    for (int k = 0; k < 2; k++) {
        const tn_gtensor *term = &g->tensor[n->in[k]], *s = &g->tensor[n->out[0]];
        if (term->dtype != s->dtype || term->live != s->live || !tn_dims_equal(term->dims, s->dims)) return false;
    }
    return true;
}

/* Nodes between the two read s. Their gradients would be added in another order. */
static bool read_between(const tn_graph *g, int32_t s, size_t sum, size_t reader)
{
    for (size_t i = sum + 1; i < reader; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].op && g->tensor[g->node[i].in[k]].base == s) return true;
    return false;
}

/* The node of the sum that node i can take over, or -1. */
static int64_t sum_before(const tn_graph *g, size_t i, bool recompute)
{
    const tn_node *n = &g->node[i];
    if (!n->op->fusion.sum_in || n->in[n->op->fusion.sum_in] || n->custom) return -1;
    const int32_t s = n->in[0], at = g->tensor[s].producer;
    if (g->tensor[s].base != s || g->tensor[s].role != TN_ROLE_ACTIVATION || at < 0) return -1;
    const tn_node *sum = &g->node[at];
    if (!is_sum(g, (size_t)at)) return -1;
    for (int k = 1; k < n->n_in; k++) /* they must be there already where the sum is */
        if (n->in[k] && g->tensor[g->tensor[n->in[k]].base].producer >= at) return -1;
    if (read_between(g, s, (size_t)at, i)) return -1;
    return recompute && sum->segment != n->segment ? -1 : at;
}

static void add_inside(tn_graph *g, size_t sum, size_t i)
{
    const tn_node n = g->node[i], a = g->node[sum];
    const tn_fusion *f = &n.op->fusion;
    int32_t in[TN_MAX_ARGS], out[TN_MAX_ARGS];
    memcpy(in, n.in, sizeof *in * (size_t)n.n_in);
    in[0] = a.in[0], in[f->sum_in] = a.in[1];
    for (int k = 0; k < n.n_out; k++) out[k < f->sum_out ? k : k + 1] = n.out[k];
    out[f->sum_out] = a.out[0];
    if (tn_graph_put(g, sum, i, n.op, n.attr, in, n.n_in, out, n.n_out + 1)) g->node[i].op = NULL;
}

void tn_pass_fuse(tn_graph *g, bool recompute)
{
    bool any = false;
    if (!tn_graph_switch(g, "opt.sum_in_norm")) return;
    for (size_t i = 0; i < g->n_nodes && g->status == TN_OK; i++) {
        const int64_t at = g->node[i].op ? sum_before(g, i, recompute) : -1;
        if (at >= 0) add_inside(g, (size_t)at, i);
        any |= at >= 0;
    }
    if (any && g->status == TN_OK) tn_graph_close_up(g);
}
