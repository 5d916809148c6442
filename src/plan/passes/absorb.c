/* Fuses neighbouring ops into one node (CUDA). Where only one op reads what another computes, and the kernel of either
 * can do the other's work in registers, the tensor between them is not written, forward or backward. The rules are in
 * the ops' rows, for instance
 *
 *     silu(conv_causal(x))      the convolution stores silu of its sums (opt.silu_in_conv)
 *     outer(q, k, v by w)       the recurrence multiplies v by its write strengths (opt.write_in_outer)
 *
 * Runs before the reverse pass, so the gradient is the fused node's. */
#include "ops/absorb.h"
#include "plan/graph.h"

#include <string.h>

typedef struct tn_absorb_pass {
    bool recompute;
    const tn_seed *seeds;
    int n_seeds;
} pass;

/* Does anything but node `reader` look at the memory of base x? */
static bool read_elsewhere(const tn_graph *g, const pass *p, int32_t x, size_t reader)
{
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].base == x && g->tensor[i].output) return true;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->tensor[g->output[i].id].base == x) return true;
    for (size_t i = 0; i < g->n_assigns; i++)
        if (g->tensor[g->assign[i].value].base == x) return true;
    for (int i = 0; i < p->n_seeds; i++)
        if (g->tensor[p->seeds[i].y.id].base == x) return true;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i];
        for (int k = 0; n->op && i != reader && k < n->n_in; k++)
            if (n->in[k] && g->tensor[n->in[k]].base == x) return true;
        for (int k = 0; n->op && n->custom && k < n->custom->n; k++)
            if (g->tensor[n->custom->xs[k].id].base == x) return true;
    }
    return false;
}

/* May two nodes become one whose only link is x, output 0 of `maker`? */
static bool may_join(const tn_absorbing *a, int32_t x, size_t maker, size_t reader)
{
    const tn_graph *g = a->g;
    const tn_node *m = &g->node[maker], *r = &g->node[reader];
    return g->tensor[x].base == x && g->tensor[x].role == TN_ROLE_ACTIVATION && m->op && m->out[0] == x && !m->custom &&
           !r->custom && !(a->pass->recompute && m->segment != r->segment) && !read_elsewhere(g, a->pass, x, reader);
}

static bool found(tn_absorbing *a, size_t node)
{
    if (a->n_found == (int)(sizeof a->found / sizeof *a->found)) return false;
    a->found[a->n_found++] = node;
    return true;
}

static bool reads(const tn_node *n, int32_t x)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] == x) return true;
    return false;
}

bool tn_absorb_maker(tn_absorbing *a, tn_ref x, tn_function f, tn_ref operand[2])
{
    const tn_graph *g = a->g;
    const int32_t at = g->tensor[x.id].producer;
    size_t reader = a->node;
    for (int i = 0; i < a->n_found; i++)
        if (reads(&g->node[a->found[i]], x.id)) reader = a->found[i];
    if (!x.id || at < 0 || tn_node_function(&g->node[at]) != f || !may_join(a, x.id, (size_t)at, reader)) return false;
    for (int k = 0; k < 2; k++) operand[k] = (tn_ref){ k < g->node[at].n_in ? g->node[at].in[k] : 0 };
    return found(a, (size_t)at);
}

tn_ref tn_absorb_reader(tn_absorbing *a, tn_function f)
{
    const tn_graph *g = a->g;
    const int32_t x = a->out[0].id;
    for (size_t i = a->node + 1; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i];
        if (tn_node_function(n) != f || n->in[0] != x || !may_join(a, x, a->node, i)) continue;
        const tn_gtensor *y = &g->tensor[n->out[0]];
        const bool same = y->dtype == g->tensor[x].dtype && y->live == g->tensor[x].live;
        return same && found(a, i) ? (tn_ref){ n->out[0] } : TN_NONE;
    }
    return TN_NONE;
}

tn_ref tn_absorb_base(const tn_absorbing *a, tn_ref x)
{
    const tn_gtensor *t = &a->g->tensor[x.id];
    return x.id && tn_gtensor_whole(a->g, t) ? (tn_ref){ t->base } : TN_NONE;
}

tn_ref tn_absorb_column(tn_absorbing *a, tn_ref x)
{
    const int32_t id = a->g->tensor[x.id].dims.rank < TN_MAX_RANK ? tn_graph_new_view(a->g, x.id) : 0;
    tn_gtensor *t = &a->g->tensor[id];
    if (!id) return TN_NONE;
    t->stride[t->dims.rank] = 1;
    t->dims.dim[t->dims.rank++] = 1;
    return (tn_ref){ id };
}

tn_ref tn_absorb_result(tn_absorbing *a, tn_dtype dtype, tn_dims dims)
{
    const int32_t id = tn_graph_new_tensor(a->g, TN_ROLE_ACTIVATION, NULL, dtype, dims);
    if (id) a->g->tensor[id].producer = (int32_t)a->node;
    return (tn_ref){ id };
}

bool tn_absorb_live(const tn_absorbing *a, tn_ref x) { return a->g->tensor[x.id].live; }

bool tn_absorb_aligned(const tn_absorbing *a, tn_ref x, int64_t numbers)
{
    const tn_gtensor *t = &a->g->tensor[x.id];
    const int last = t->dims.rank - 1;
    if (t->offset % numbers || t->stride[last] != 1) return false;
    for (int i = 0; i < last; i++)
        if (t->dims.dim[i] > 1 && t->stride[i] % numbers) return false;
    return true;
}

/* Node i takes in what the rule says; false: nothing. */
static bool apply(tn_graph *g, const pass *p, size_t i, const tn_absorb_rule *rule)
{
    const tn_node *n = &g->node[i];
    tn_absorbing a = { .g = g, .trains = p->n_seeds > 0, .n_in = n->n_in, .n_out = n->n_out, .node = i, .pass = p };
    a.sig = tn_node_sig(g, n, 1);
    a.attr = tn_arena_alloc(&g->memory, n->op->attr_bytes + 1);
    if (!a.attr) g->status = TN_MEMORY;
    if (!a.attr) return false;
    memcpy(a.attr, n->attr, n->op->attr_bytes);
    for (int k = 0; k < n->n_in; k++) a.in[k].id = n->in[k];
    for (int k = 0; k < n->n_out; k++) a.out[k].id = n->out[k];
    if (!rule->takes(&a)) return false;
    int32_t in[TN_MAX_ARGS], out[TN_MAX_ARGS];
    for (int k = 0; k < a.n_in; k++) in[k] = a.in[k].id;
    for (int k = 0; k < a.n_out; k++) out[k] = a.out[k].id;
    tn_graph_put(g, i, i, g->node[i].op, a.attr, in, a.n_in, out, a.n_out);
    for (int k = 0; k < a.n_found; k++) g->node[a.found[k]].op = NULL;
    return true;
}

void tn_pass_absorb(tn_graph *g, bool recompute, const tn_seed *seeds, int n_seeds)
{
    const pass p = { .recompute = recompute, .seeds = seeds, .n_seeds = n_seeds };
    bool any = false;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_absorb_rule *rule = g->node[i].op ? g->node[i].op->fusion.absorbs : NULL;
        for (; rule && rule->switch_name && g->status == TN_OK; rule++)
            any |= tn_graph_switch(g, rule->switch_name) && apply(g, &p, i, rule);
    }
    if (any && g->status == TN_OK) tn_graph_close_up(g);
}
