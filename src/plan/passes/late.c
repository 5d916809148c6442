/* Losses computed by their backward node. A kernel that needs the same intermediate for outputs and gradients
 * (linear_xent, linear_kl: the logits) computes it once, if nothing reads the outputs before: the forward node is dropped and the
 * backward node writes them. */
#include "plan/graph.h"

#include <string.h>

static bool is_base_of(const tn_graph *g, const tn_node *f, int32_t id)
{
    for (int k = 0; id && k < f->n_out; k++)
        if (f->out[k] && g->tensor[f->out[k]].base == g->tensor[id].base) return true;
    return false;
}

/* Does n read what f makes? */
static bool reads(const tn_graph *g, const tn_node *n, const tn_node *f)
{
    bool found = false;
    for (int k = 0; k < n->n_in; k++)
        if (!n->backward || (n->reads_in >> k & 1)) found |= is_base_of(g, f, n->in[k]);
    for (int k = 0; n->backward && k < n->n_out; k++)
        found |= is_base_of(g, f, n->dout[k]) || ((n->reads_out >> k & 1) && is_base_of(g, f, n->out[k]));
    return found;
}

/* Later its inputs must be what they are now. */
static bool can_wait(const tn_graph *g, const tn_node *f)
{
    for (int k = 0; k < f->n_in; k++) {
        const tn_role role = g->tensor[g->tensor[f->in[k]].base].role;
        if (f->in[k] && (role == TN_ROLE_STATE || role == TN_ROLE_CACHE)) return false;
    }
    return true;
}

/* The forward node of the backward node at i, if the latter may take over; -1 if not. */
static int64_t forward_of(const tn_graph *g, size_t i)
{
    const tn_node *b = &g->node[i];
    int64_t at = -1;
    if (!b->backward || !b->op->late_out || (b->reads_out & ~b->op->late_out)) return -1;
    for (size_t k = 0; k < i && at < 0; k++) {
        const tn_node *f = &g->node[k];
        const bool same = !f->backward && f->op == b->op && f->n_in == b->n_in && f->n_out == b->n_out;
        if (same && memcmp(f->out, b->out, sizeof *f->out * (size_t)f->n_out) == 0 &&
            memcmp(f->in, b->in, sizeof *f->in * (size_t)f->n_in) == 0)
            at = (int64_t)k;
    }
    if (at < 0 || !can_wait(g, &g->node[at])) return -1;
    for (size_t k = 0; k < i; k++)
        if ((int64_t)k != at && reads(g, &g->node[k], &g->node[at])) return -1;
    return at;
}

/* Somebody besides the node itself wants this output. */
static bool wanted(const tn_graph *g, size_t i, int32_t out)
{
    const tn_node alone = { .n_out = 1, .out = &out };
    for (size_t k = 0; k < g->n_outputs; k++)
        if (g->tensor[g->output[k].id].base == g->tensor[out].base) return true;
    for (size_t k = i + 1; k < g->n_nodes; k++)
        if (reads(g, &g->node[k], &alone)) return true;
    return false;
}

void tn_pass_late(tn_graph *g)
{
    if (g->status != TN_OK || !tn_graph_switch(g, "opt.late_loss")) return;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const int64_t f = forward_of(g, i);
        if (f < 0) continue;
        tn_node *b = &g->node[i];
        for (int k = 0; k < b->n_out; k++)
            if (b->out[k] && !wanted(g, i, b->out[k])) b->out[k] = 0;
        b->makes_out = true;
        b->reads_out = 0;
        for (int k = 0; k < b->n_in; k++) b->reads_in |= b->in[k] ? (uint64_t)1 << k : 0;
        memmove(g->node + f, g->node + f + 1, sizeof *g->node * (g->n_nodes - (size_t)f - 1));
        g->n_nodes--;
        i--;
    }
}
