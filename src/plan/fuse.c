/* Sums of a residual stream, made by the op before or behind them. Where a product's result is only added to something, the
 * product adds it while its tiles are stored (linear's residual input). Where a norm follows another sum, the norm makes
 * the sum on its way, at the place where the sum was; what else reads it finds it there. Each saves a pass over memory.
 * Runs before the reverse pass, so that gradients are those of the fused nodes. */
#include "ops/binary/binary.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"
#include "plan/graph.h"

#include <string.h>

/* Is node i a sum of two tensors of its result's shape and type? */
static bool is_sum(const tn_graph *g, size_t i)
{
    const tn_node *n = &g->node[i];
    if (n->op != &tn_op_binary || ((const tn_binary_attr *)n->attr)->kind != TN_BINARY_ADD || n->in[0] == n->in[1]) return false;
    for (int k = 0; k < 2; k++) {
        const tn_gtensor *term = &g->tensor[n->in[k]], *s = &g->tensor[n->out[0]];
        if (term->dtype != s->dtype || term->live != s->live || !tn_dims_equal(term->dims, s->dims)) return false;
    }
    return true;
}

/* The new node, made from one that it replaces, takes the place of node `at`. */
static void put_in_place(tn_graph *g, size_t at, const tn_node *of)
{
    tn_node *new = &g->node[--g->n_nodes];
    new->region = of->region;
    new->segment = of->segment;
    new->file = of->file;
    new->line = of->line;
    g->node[at] = *new;
}

/* --- products --------------------------------------------------------------------------------------------------------- */

static bool read_once(const tn_graph *g, int32_t base)
{
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; g->node[i].op && k < g->node[i].n_in; k++) n += g->tensor[g->node[i].in[k]].base == base;
        for (int k = 0; g->node[i].custom && k < g->node[i].custom->n; k++)
            n += g->tensor[g->node[i].custom->xs[k].id].base == base;
    }
    for (size_t i = 0; i < g->n_outputs; i++) n += g->tensor[g->output[i].id].base == base;
    for (size_t i = 0; i < g->n_assigns; i++) n += g->tensor[g->assign[i].value].base == base;
    return n == 1;
}

/* Which term of the sum at i is the bare product just before it; -1: none. */
static int product_in(const tn_graph *g, size_t i)
{
    if (i < 1 || !is_sum(g, i)) return -1;
    const tn_node *l = &g->node[i - 1];
    if (l->op != &tn_op_linear || ((const tn_linear_attr *)l->attr)->act != TN_ACT_NONE || l->in[TN_LINEAR_RESIDUAL]) return -1;
    for (int k = 0; k < 2; k++)
        if (g->node[i].in[k] == l->out[0] && read_once(g, l->out[0])) return k;
    return -1;
}

static void add_in_product(tn_graph *g, size_t i, int which)
{
    const tn_node l = g->node[i - 1], sum = g->node[i];
    int32_t in[TN_LINEAR_INPUTS];
    memcpy(in, l.in, sizeof in);
    in[TN_LINEAR_RESIDUAL] = sum.in[!which];
    if (!tn_graph_emit(g, &tn_op_linear, l.attr, in, TN_LINEAR_INPUTS, sum.out, 1)) return;
    put_in_place(g, i, &l);
    g->node[i - 1].op = NULL;
}

/* --- norms ------------------------------------------------------------------------------------------------------------ */

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
    put_in_place(g, sum, &n);
    g->node[norm].op = NULL;
}

/* Drops the nodes without an op; tensors are told the new numbers of theirs. */
static void close_up(tn_graph *g)
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
    const bool products = tn_graph_switch(g, "opt.sum_in_product"), norms = tn_graph_switch(g, "opt.sum_in_norm");
    for (size_t i = 0; products && i < g->n_nodes && g->status == TN_OK; i++) {
        const int which = product_in(g, i);
        if (which >= 0) add_in_product(g, i, which);
    }
    for (size_t i = 0; norms && i < g->n_nodes && g->status == TN_OK; i++) {
        const int64_t at = g->node[i].op ? sum_before(g, i, recompute) : -1;
        if (at >= 0) add_in_norm(g, (size_t)at, i);
    }
    if (g->status == TN_OK) close_up(g);
}
