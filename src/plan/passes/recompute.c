/* Recomputation: forward results inside a segment (tn_segment_begin) are dropped and computed again before the
 * segment's backward nodes. What a later segment or the caller reads stays, and so does what took long (TN_OP_COSTLY): attention's time
 * grows with the square of the length, what it gives does not. Clones have the same inputs and random
 * streams, so the bits are the same. */
#include "plan/graph.h"

#include <string.h>

typedef struct recompute {
    tn_graph *g;
    size_t n_forward, n0; /* nodes of the forward pass; tensors before this pass */
    uint8_t *keep;        /* by base tensor: read outside its segment, an output, or assigned */
    uint8_t *clone;       /* by forward node */
    int32_t *twin;        /* by tensor: its recomputed copy, 0 = none (valid for one segment at a time) */
    tn_nodes list;
} recompute;

static int32_t segment_of(const recompute *r, int32_t id)
{
    const int32_t p = r->g->tensor[r->g->tensor[id].base].producer;
    return p >= 0 && (size_t)p < r->n_forward ? r->g->node[p].segment : -1;
}

/* A node that changes a state, or reads one that changes later, would give other numbers the second time. */
static bool only_once(const tn_graph *g, size_t at, const int32_t *changed)
{
    const tn_node *n = &g->node[at];
    bool once = n->op->flags & TN_OP_WRITES_IN0;
    for (int k = 0; k < n->n_in; k++) once |= n->in[k] && changed[g->tensor[n->in[k]].base] > (int32_t)at;
    return once;
}

static void mark_kept(recompute *r, const int32_t *changed)
{
    const tn_graph *g = r->g;
    const unsigned stays = tn_graph_switch(g, "opt.keep_costly") ? TN_OP_COSTLY : 0;
    for (size_t i = 0; i < r->n_forward; i++) {
        const bool kept = g->node[i].op->flags & stays || only_once(g, i, changed);
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int32_t id = g->node[i].in[k];
            if (id && segment_of(r, id) != g->node[i].segment) r->keep[g->tensor[id].base] = 1;
        }
        for (int k = 0; k < g->node[i].n_out && kept; k++) r->keep[g->tensor[g->node[i].out[k]].base] = 1;
    }
    for (size_t i = 1; i < r->n0; i++)
        if (g->tensor[i].output) r->keep[g->tensor[i].base] = 1;
    for (size_t i = 0; i < g->n_assigns; i++) r->keep[g->tensor[g->assign[i].value].base] = 1;
}

static bool recomputable(const recompute *r, int32_t id, int32_t segment)
{
    return id && r->g->tensor[id].role == TN_ROLE_ACTIVATION && (size_t)id < r->n0 && segment_of(r, id) == segment &&
           !r->keep[r->g->tensor[id].base];
}

/* Marks the producers that a backward node of the segment depends on, and theirs. */
static void mark_clones(recompute *r, size_t first, size_t last, int32_t segment)
{
    const tn_graph *g = r->g;
    for (size_t i = first; i < last; i++) {
        const tn_node *n = &g->node[i];
        if (n->segment != segment) continue;
        for (int k = 0; k < n->n_in; k++)
            if ((!n->backward || (n->reads_in >> k & 1)) && recomputable(r, n->in[k], segment))
                r->clone[g->tensor[g->tensor[n->in[k]].base].producer] = 1;
        for (int k = 0; n->backward && k < n->n_out; k++)
            if ((n->reads_out >> k & 1) && recomputable(r, n->out[k], segment))
                r->clone[g->tensor[g->tensor[n->out[k]].base].producer] = 1;
    }
    for (size_t i = r->n_forward; i-- > 0;) {
        const tn_node *n = &g->node[i];
        if (!r->clone[i] || n->segment != segment) continue;
        for (int k = 0; k < n->n_in; k++)
            if (recomputable(r, n->in[k], segment)) r->clone[g->tensor[g->tensor[n->in[k]].base].producer] = 1;
    }
}

/* The tensor that stands for id after recomputation: the same view of its base's twin. */
static int32_t twin_of(recompute *r, int32_t id)
{
    tn_graph *g = r->g;
    if (!id || (size_t)id >= r->n0 || !r->twin[g->tensor[id].base]) return id;
    if (r->twin[id]) return r->twin[id];
    const int32_t base = r->twin[g->tensor[id].base], v = tn_graph_new_view(g, id);
    if (v) g->tensor[v].base = base;
    return r->twin[id] = v;
}

static int32_t *twin_list(recompute *r, const int32_t *ids, int n)
{
    int32_t *out = tn_arena_alloc(&r->g->memory, sizeof *out * (size_t)(n + 1));
    if (!out) r->g->status = TN_MEMORY;
    for (int i = 0; out && i < n; i++) out[i] = twin_of(r, ids[i]);
    return out;
}

static void push_clones(recompute *r, int32_t segment)
{
    tn_graph *g = r->g;
    for (size_t i = 0; i < r->n_forward && g->status == TN_OK; i++) {
        if (!r->clone[i] || g->node[i].segment != segment) continue;
        tn_node n = g->node[i];
        n.in = twin_list(r, n.in, n.n_in);
        for (int k = 0; k < n.n_out; k++) {
            const int32_t id = n.out[k];
            r->twin[id] = tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, g->tensor[id].dtype, g->tensor[id].dims);
            if (r->twin[id]) g->tensor[r->twin[id]].live = twin_of(r, g->tensor[id].live);
        }
        n.out = twin_list(r, g->node[i].out, n.n_out);
        tn_nodes_push(r->g, &r->list, &n);
    }
}

void tn_pass_recompute(tn_graph *g, size_t n_forward)
{
    recompute r = { .g = g, .n_forward = n_forward, .n0 = g->n_tensors };
    if (g->status != TN_OK) return;
    const int32_t *changed = tn_graph_changed(g);
    r.keep = tn_arena_alloc(&g->memory, r.n0);
    r.twin = tn_arena_alloc(&g->memory, sizeof *r.twin * r.n0);
    r.clone = tn_arena_alloc(&g->memory, n_forward + 1);
    if (!changed || !r.keep || !r.twin || !r.clone) {
        g->status = TN_MEMORY;
        return;
    }
    mark_kept(&r, changed);
    for (size_t i = 0; i < n_forward; i++) tn_nodes_push(g, &r.list, &g->node[i]);
    int32_t done = -1; /* the segment whose clones stand already */
    for (size_t i = n_forward; i < g->n_nodes && g->status == TN_OK; i++) {
        tn_node n = g->node[i];
        if (n.segment >= 0 && n.segment != done) {
            done = n.segment;
            memset(r.twin, 0, sizeof *r.twin * r.n0);
            mark_clones(&r, n_forward, g->n_nodes, done);
            push_clones(&r, done);
        }
        if (n.segment >= 0) {
            n.in = twin_list(&r, n.in, n.n_in);
            if (n.backward) n.out = twin_list(&r, n.out, n.n_out);
        }
        tn_nodes_push(g, &r.list, &n);
    }
    tn_graph_take(g, &r.list);
}

void tn_pass_keep_frozen(tn_graph *g)
{
    uint8_t *trained = tn_arena_alloc(&g->memory, (size_t)g->n_segments + 1);
    if (!trained) {
        g->status = TN_MEMORY;
        return;
    }
    memset(trained, 0, (size_t)g->n_segments + 1);
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int32_t id = g->node[i].in[k];
            if (g->node[i].segment >= 0 && id && g->tensor[g->tensor[id].base].role == TN_ROLE_PARAM)
                trained[g->node[i].segment] = 1;
        }
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->node[i].segment >= 0 && !trained[g->node[i].segment]) g->node[i].segment = -1;
}
