/* Sums of a residual stream. Where a norm follows s = a + b, the norm's own kernel makes the sum on its way (its residual
 * input), at the place where the sum was: one pass over s less. What else reads s finds it there. Runs before the reverse
 * pass, so that the gradient is the fused node's as well. */
#include "ops/binary/binary.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"
#include "plan/graph.h"

/* Is node i a sum of two tensors of its result's shape and type? */
static bool is_sum(const tn_graph *g, size_t i)
{
    const tn_node *n = &g->node[i];
    if (n->op != &tn_op_binary || ((const tn_binary_attr *)n->attr)->kind != TN_BINARY_ADD || n->in[0] == n->in[1])
        return false;
    for (int k = 0; k < 2; k++) {
        const tn_gtensor *term = &g->tensor[n->in[k]], *s = &g->tensor[n->out[0]];
        if (term->dtype != s->dtype || term->live != s->live || !tn_dims_equal(term->dims, s->dims)) return false;
    }
    return true;
}

/* Nodes between the two read s. Their gradients would be added in another order. */
static bool read_between(const tn_graph *g, int32_t s, size_t sum, size_t norm)
{
    for (size_t i = sum + 1; i < norm; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].op && g->tensor[g->node[i].in[k]].base == s) return true;
    return false;
}

/* The node of the sum that norm node i can take over, or -1. */
static int64_t sum_before(const tn_graph *g, size_t i, bool recompute)
{
    const tn_node *n = &g->node[i];
    if (n->op != &tn_op_norm || n->in[TN_NORM_RESIDUAL] || n->custom) return -1;
    const int32_t s = n->in[TN_NORM_X], at = g->tensor[s].producer;
    if (g->tensor[s].base != s || g->tensor[s].role != TN_ROLE_ACTIVATION || at < 0) return -1;
    const tn_node *sum = &g->node[at];
    if (!is_sum(g, (size_t)at)) return -1;
    for (int k = TN_NORM_W; k <= TN_NORM_B; k++) /* they must be there already where the sum is */
        if (n->in[k] && g->tensor[g->tensor[n->in[k]].base].producer >= at) return -1;
    if (read_between(g, s, (size_t)at, i)) return -1;
    return recompute && sum->segment != n->segment ? -1 : at;
}

static void add_in_norm(tn_graph *g, size_t sum, size_t norm)
{
    const tn_node n = g->node[norm], a = g->node[sum];
    const int32_t in[TN_NORM_INPUTS] = { a.in[0], a.in[1], n.in[TN_NORM_W], n.in[TN_NORM_B] };
    const int32_t out[] = { n.out[TN_NORM_Y], a.out[0], n.out[1] };
    if (!tn_graph_emit(g, &tn_op_norm, n.attr, in, TN_NORM_INPUTS, out, 3)) return;
    tn_node *both = &g->node[--g->n_nodes];
    both->region = n.region;
    both->segment = n.segment;
    both->file = n.file;
    both->line = n.line;
    g->node[sum] = *both;
    g->node[norm].op = NULL;
}

void tn_graph_close_up(tn_graph *g)
{
    size_t w = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->node[i].op) g->node[w++] = g->node[i];
    g->n_nodes = w;
    for (size_t i = 0; i < w; i++)
        for (int k = 0; k < g->node[i].n_out; k++)
            if (g->tensor[g->node[i].out[k]].producer >= 0) g->tensor[g->node[i].out[k]].producer = (int32_t)i;
    for (size_t i = 1; i < g->n_tensors; i++) g->tensor[i].producer = g->tensor[g->tensor[i].base].producer;
}

void tn_pass_fuse(tn_graph *g, bool recompute)
{
    bool any = false;
    if (!tn_graph_switch(g, "opt.sum_in_norm")) return;
    for (size_t i = 0; i < g->n_nodes && g->status == TN_OK; i++) {
        const int64_t at = g->node[i].op ? sum_before(g, i, recompute) : -1;
        if (at >= 0) add_in_norm(g, (size_t)at, i);
        any |= at >= 0;
    }
    if (any && g->status == TN_OK) tn_graph_close_up(g);
}
