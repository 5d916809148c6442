/* The nodes of a graph: adding an op, and what passes ask of nodes and do to their list. */
#include "plan/graph.h"

#include <stdio.h>
#include <string.h>

tn_node *tn_graph_emit(tn_graph *g, const tn_op *op, const void *attr, const int32_t *in, int n_in, const int32_t *out,
                       int n_out)
{
    if (g->status != TN_OK) return NULL;
    tn_node n = {
        .op = op, .n_in = n_in, .n_out = n_out, .region = g->current_region, .segment = g->current_segment, .file = ""
    };
    n.in = tn_arena_alloc(&g->memory, sizeof *n.in * (size_t)(n_in + n_out + 1));
    tn_type *types = tn_arena_alloc(&g->memory, sizeof *types * (size_t)(n_in + n_out + 1));
    n.attr = tn_arena_alloc(&g->memory, op->attr_bytes + 1);
    if (!n.in || !types || !n.attr ||
        tn_grow((void **)&g->node, &g->cap_nodes, g->n_nodes + 1, sizeof *g->node) != TN_OK) {
        g->status = TN_MEMORY;
        return NULL;
    }
    n.out = n.in + n_in;
    n.in_type = types;
    n.out_type = types + n_in;
    if (attr) memcpy(n.attr, attr, op->attr_bytes);
    for (int i = 0; i < n_in; i++) {
        n.in[i] = in[i];
        const tn_gtensor *t = &g->tensor[in[i]];
        types[i] = (tn_type){
            .dtype = t->dtype, .dims = t->dims, .absent = !in[i], .trainable = t->needs_grad, .live = t->live != 0
        };
    }
    for (int i = 0; i < n_out; i++) {
        n.out[i] = out[i];
        n.out_type[i] = (tn_type){ .dtype = g->tensor[out[i]].dtype, .dims = g->tensor[out[i]].dims };
    }
    g->node[g->n_nodes] = n;
    return &g->node[g->n_nodes++];
}

/* Shapes of the inputs, for error messages: "(2,3) (3,4)". */
static const char *input_shapes(const tn_type *in, int n, char *buf, size_t bytes)
{
    char one[96];
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < n && used + 2 < bytes; i++)
        used += (size_t)snprintf(buf + used, bytes - used, "%s%s", i ? " " : "",
                                 in[i].absent ? "TN_NONE" : tn_dims_text(in[i].dims, one, sizeof one));
    return buf;
}

static void fail_infer(tn_graph *g, const char *file, int line, const tn_op *op, const tn_type *in, int n_in,
                       tn_status code)
{
    char shapes[256];
    tn_graph_fail(g, file, line, code, "%s of %s: %s", op->name, input_shapes(in, n_in, shapes, sizeof shapes),
                  tn_error_text());
}

/* Takes over what attr owns; the graph's copy is returned. */
static const void *own_attr(tn_graph *g, const tn_op *op, const void *attr)
{
    void *copy = tn_arena_alloc(&g->memory, op->attr_bytes);
    if (!copy || tn_graph_own(g, op->release, copy) != TN_OK) {
        g->status = TN_MEMORY;
        op->release((void *)(uintptr_t)attr);
        return NULL;
    }
    memcpy(copy, attr, op->attr_bytes);
    return copy;
}

/* A fresh tensor for output i of a new node, or a view of what the node changes in place. */
static int32_t new_result(tn_graph *g, const tn_op *op, int i, const tn_type *type, const int32_t *in)
{
    if (i || !(op->flags & TN_OP_WRITES_IN0)) {
        const int32_t id = tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, type->dtype, type->dims);
        if (id) g->tensor[id].producer = (int32_t)g->n_nodes;
        return id;
    }
    return tn_graph_new_view(g, in[0]);
}

/* What is written in place outlives the step: an activation could be placed over, dropped or recomputed. */
static void check_in_place(tn_graph *g, const char *file, int line, const tn_op *op, const int32_t *in)
{
    if (g->status != TN_OK || !(op->flags & TN_OP_WRITES_IN0)) return;
    const tn_role role = g->tensor[in[0]].role;
    if (role == TN_ROLE_INPUT && g->options.carried)
        tn_graph_fail(g, file, line, TN_USAGE,
                      "attention over a cache has no gradient through it: use plan.recompute=layer");
    else if (role != TN_ROLE_STATE && role != TN_ROLE_CACHE)
        tn_graph_fail(g, file, line, TN_USAGE, "%s writes into its first input: give it a tn_state or tn_cache",
                      op->name);
}

static bool has_kernel(const tn_graph *g, const tn_op *op, const tn_sig *s)
{
    const tn_device d = g->options.device;
    return op->kernel[d].forward && (!op->kernel[d].takes || op->kernel[d].takes(s));
}

tn_ref tn_graph_add(tn_graph *g, const char *file, int line, const tn_op *op, const void *attr, const tn_ref *in,
                    int n_in, tn_ref *out)
{
    tn_type in_type[TN_MAX_ARGS], out_type[TN_MAX_ARGS] = { 0 };
    int32_t ids[TN_MAX_ARGS], results[TN_MAX_ARGS];
    bool trainable = false;
    if (op->release) attr = own_attr(g, op, attr); /* whatever happens from here on, the graph releases it */
    if (g->status != TN_OK) goto failed;
    if (n_in > TN_MAX_ARGS)
        tn_graph_fail(g, file, line, TN_USAGE, "%s: %d inputs, at most %d", op->name, n_in, TN_MAX_ARGS);
    for (int i = 0; i < n_in && g->status == TN_OK; i++) {
        if (!tn_graph_knows(g, file, line, in[i])) break;
        ids[i] = in[i].id;
        const tn_gtensor *t = &g->tensor[in[i].id];
        in_type[i] = (tn_type){
            .dtype = t->dtype, .dims = t->dims, .absent = !in[i].id, .trainable = t->needs_grad, .live = t->live != 0
        };
        trainable |= t->needs_grad;
    }
    for (int i = 0; i < TN_MAX_ARGS; i++) out_type[i].dtype = g->options.activation;
    tn_sig sig = { .attr = attr,
                   .n_in = n_in,
                   .in = in_type,
                   .out = out_type,
                   .threads = 1,
                   .round = g->options.round,
                   .bf16x3 = g->options.bf16x3,
                   .portable = !tn_graph_switch(g, "opt.gemm_kernels") };
    const bool on = g->status == TN_OK && !(op->plain && op->switch_name && !tn_graph_switch(g, op->switch_name));
    if (on) {
        const tn_status s = op->infer(&sig);
        if (s != TN_OK) fail_infer(g, file, line, op, in_type, n_in, s);
    }
    if (g->status == TN_OK && op->plain && (!on || !has_kernel(g, op, &sig))) {
        const tn_status s = op->plain(g, attr, in, n_in, out);
        if (s != TN_OK) fail_infer(g, file, line, op, in_type, n_in, s);
        return g->status == TN_OK ? out[0] : TN_NONE;
    }
    check_in_place(g, file, line, op, ids);
    const bool rowwise = n_in > 0 && (op->flags & TN_OP_ROWWISE) && !sig.mixes_rows;
    const int32_t live = rowwise && g->status == TN_OK ? g->tensor[ids[0]].live : 0;
    for (int i = 0; i < sig.n_out && g->status == TN_OK; i++) {
        results[i] = new_result(g, op, i, &out_type[i], ids);
        if (!results[i]) break;
        tn_gtensor *t = &g->tensor[results[i]];
        if (t->base == results[i]) t->live = live;
        const bool aux = (i && (op->flags & TN_OP_AUX_FROM_1)) || (op->aux_from && i >= op->aux_from);
        t->needs_grad = trainable && op->grad && tn_dtype_is_float(t->dtype) && !aux;
    }
    tn_node *node = tn_graph_emit(g, op, attr, ids, n_in, results, sig.n_out);
    if (!node) goto failed;
    node->file = file;
    node->line = line;
    for (int i = 0; i < sig.n_out; i++) out[i] = (tn_ref){ results[i] };
    return out[0];
failed:
    out[0] = TN_NONE;
    return TN_NONE;
}

int32_t *tn_graph_changed(tn_graph *g)
{
    int32_t *at = tn_arena_alloc(&g->memory, sizeof *at * g->n_tensors);
    if (!at) {
        g->status = TN_MEMORY;
        return NULL;
    }
    for (size_t i = 0; i < g->n_tensors; i++) at[i] = -1;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->node[i].op->flags & TN_OP_WRITES_IN0) at[g->tensor[g->node[i].in[0]].base] = (int32_t)i;
    return at;
}

bool tn_node_writes(const tn_graph *g, const tn_node *n, int32_t base)
{
    bool found = false;
    for (int k = 0; n->backward && k < n->n_in; k++) found |= n->din[k] && g->tensor[n->din[k]].base == base;
    for (int k = 0; (!n->backward || n->makes_out) && k < n->n_out; k++)
        found |= n->out[k] && g->tensor[n->out[k]].base == base;
    return found;
}

static bool reads_any(const tn_graph *g, const int32_t *ids, int n, uint64_t which, int32_t base)
{
    for (int k = 0; k < n; k++)
        if ((which >> k & 1) && ids[k] && g->tensor[ids[k]].base == base) return true;
    return false;
}

bool tn_node_reads(const tn_graph *g, const tn_node *n, int32_t base)
{
    return reads_any(g, n->in, n->n_in, n->backward ? n->reads_in : UINT64_MAX, base) ||
           (n->backward &&
            (reads_any(g, n->dout, n->n_out, UINT64_MAX, base) || reads_any(g, n->out, n->n_out, n->reads_out, base)));
}

tn_sig tn_node_sig(const tn_graph *g, const tn_node *n, int threads)
{
    return (tn_sig){ .attr = n->attr,
                     .n_in = n->n_in,
                     .n_out = n->n_out,
                     .in = n->in_type,
                     .out = n->out_type,
                     .threads = threads,
                     .round = g->options.round,
                     .bf16x3 = g->options.bf16x3,
                     .portable = !tn_graph_switch(g, "opt.gemm_kernels"),
                     .makes_out = n->makes_out };
}

/* --- for passes ------------------------------------------------------------------------------------------------------- */

bool tn_graph_put(tn_graph *g, size_t at, size_t like, const tn_op *op, const void *attr, const int32_t *in, int n_in,
                  const int32_t *out, int n_out)
{
    if (!tn_graph_emit(g, op, attr, in, n_in, out, n_out)) return false;
    tn_node *made = &g->node[--g->n_nodes];
    made->region = g->node[like].region;
    made->segment = g->node[like].segment;
    made->file = g->node[like].file;
    made->line = g->node[like].line;
    g->node[at] = *made;
    return true;
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

void tn_nodes_push(tn_graph *g, tn_nodes *l, const tn_node *n)
{
    if (tn_grow((void **)&l->node, &l->capacity, l->n + 1, sizeof *l->node) != TN_OK) g->status = TN_MEMORY;
    else l->node[l->n++] = *n;
}

void tn_graph_take(tn_graph *g, tn_nodes *l)
{
    tn_free(g->status == TN_OK ? g->node : l->node);
    if (g->status != TN_OK) return;
    g->node = l->node;
    g->n_nodes = l->n;
    g->cap_nodes = l->capacity;
}

tn_type *tn_graph_types(tn_graph *g, const tn_type *from, int n)
{
    tn_type *types = tn_arena_alloc(&g->memory, sizeof *types * (size_t)n);
    if (types) memcpy(types, from, sizeof *types * (size_t)n);
    else g->status = TN_MEMORY;
    return types;
}
