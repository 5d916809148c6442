/* Small passes over the node list: states are assigned last, dead nodes go, and kernels get the layout they take.
 * After tn_pass_legalize every argument of every node is contiguous, unless its op says it takes strides, and on the CPU
 * f32 or integer, unless its op says it reads half precision there. With opt.views=off every argument is contiguous. */
#include "plan/graph.h"

#include <string.h>

/* A new value that is itself a state is read before any state changes: two states may swap. */
void tn_pass_assign(tn_graph *g)
{
    for (size_t i = 0; i < g->n_assigns && g->status == TN_OK; i++) {
        const tn_role role = g->tensor[g->tensor[g->assign[i].value].base].role;
        if (role == TN_ROLE_STATE || role == TN_ROLE_CACHE)
            g->assign[i].value = tn_copy(g, (tn_ref){ g->assign[i].value }).id;
    }
    for (size_t i = 0; i < g->n_assigns && g->status == TN_OK; i++) {
        const int32_t to = g->assign[i].state;
        tn_ref from = tn_reshape(g, (tn_ref){ g->assign[i].value }, g->tensor[to].dims);
        const tn_copy_attr a = { .dtype = g->tensor[to].dtype };
        if (from.id) tn_graph_emit(g, &tn_op_copy, &a, &from.id, 1, &to, 1);
    }
}

/* --- dead nodes ----------------------------------------------------------------------------------------------------- */

static bool is_outside(const tn_graph *g, int32_t id)
{
    const tn_role role = g->tensor[g->tensor[id].base].role;
    return role != TN_ROLE_ACTIVATION && role != TN_ROLE_WORK;
}

static bool needed(const tn_graph *g, const uint8_t *live, int32_t id)
{
    return id && (live[g->tensor[id].base] || is_outside(g, id));
}

static void read_tensor(const tn_graph *g, uint8_t *live, int32_t id)
{
    if (!id) return;
    live[g->tensor[id].base] = 1;
    if (g->tensor[id].live) live[g->tensor[g->tensor[id].live].base] = 1;
}

/* Bit 0: output 0 may be dropped; bit 1: the others may. */
static unsigned droppable_outputs(const tn_node *n)
{
    if (n->op->flags & TN_OP_OPTIONAL_OUT) return 3;
    return n->op->flags & TN_OP_AUX_FROM_1 ? 2 : 0;
}

/* Removes nodes that write nothing anybody reads; auxiliary outputs that nobody reads become 0. */
void tn_pass_dead(tn_graph *g)
{
    if (g->status != TN_OK) return;
    uint8_t *live = tn_arena_alloc(&g->memory, g->n_tensors), *keep = tn_arena_alloc(&g->memory, g->n_nodes + 1);
    if (!live || !keep) {
        g->status = TN_MEMORY;
        return;
    }
    for (size_t i = 0; i < g->n_outputs; i++) read_tensor(g, live, g->output[i].id);
    for (size_t i = g->n_nodes; i-- > 0;) {
        tn_node *n = &g->node[i];
        const int32_t *written = n->backward ? n->din : n->out;
        const int count = n->backward ? n->n_in : n->n_out;
        for (int k = 0; k < count; k++) keep[i] |= needed(g, live, written[k]);
        for (int k = 0; n->makes_out && k < n->n_out; k++) keep[i] |= needed(g, live, n->out[k]);
        if (!keep[i]) continue;
        for (int k = 0; k < n->n_in; k++)
            if (!n->backward || (n->reads_in >> k & 1)) read_tensor(g, live, n->in[k]);
        for (int k = 0; n->backward && k < n->n_out; k++) {
            if (n->reads_out >> k & 1) read_tensor(g, live, n->out[k]);
            read_tensor(g, live, n->dout[k]);
        }
        for (int k = 0; k < count; k++) /* live counts of what is written */
            if (written[k] && g->tensor[written[k]].live) read_tensor(g, live, g->tensor[written[k]].live);
        const unsigned droppable = droppable_outputs(n);
        for (int k = 0; !n->backward && k < n->n_out; k++)
            if ((droppable >> (k > 0) & 1) && !needed(g, live, n->out[k])) n->out[k] = 0;
    }
    size_t w = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (keep[i]) g->node[w++] = g->node[i];
    g->n_nodes = w;
}

/* --- layouts ----------------------------------------------------------------------------------------------------------- */

typedef struct legal {
    tn_graph *g;
    tn_nodes list;
    bool strided;
    tn_layout layout;
    bool half;         /* the node's kernel takes half precision wherever it is */
    uint64_t in_place; /* arguments the kernel takes as they are: a copy would not be the tensor it changes */
} legal;

/* Moves the node that tn_graph_emit has just appended to the new list. */
static void put_copy(legal *l, int32_t from, int32_t to, bool accumulate, const tn_node *of)
{
    const tn_copy_attr a = { .dtype = l->g->tensor[to].dtype, .accumulate = accumulate };
    tn_node *c = tn_graph_emit(l->g, &tn_op_copy, &a, &from, 1, &to, 1);
    if (!c) return;
    c->region = of->region;
    c->segment = of->segment;
    tn_nodes_push(l->g, &l->list, c);
    l->g->n_nodes--;
}

static bool rows_contiguous(const tn_gtensor *t)
{
    const int last = t->dims.rank - 1;
    return last < 0 || t->dims.dim[last] <= 1 || t->stride[last] == 1;
}

static bool columns_contiguous(const tn_gtensor *t)
{
    const int before = t->dims.rank - 2;
    return before >= 0 && (t->dims.dim[before] <= 1 || t->stride[before] == 1);
}

static bool fits_strided(const legal *l, const tn_gtensor *t)
{
    if (!l->strided) return false;
    return l->layout == TN_LAYOUT_ANY || rows_contiguous(t) || (l->layout == TN_LAYOUT_MATRIX && columns_contiguous(t));
}

static bool fits(const legal *l, int32_t id, bool rows_ok, bool half_ok)
{
    const tn_gtensor *t = &l->g->tensor[id];
    const bool layout = fits_strided(l, t) || tn_gtensor_contiguous(t) || (rows_ok && rows_contiguous(t));
    return layout && (!tn_dtype_is_float(t->dtype) || t->dtype == TN_F32 || half_ok || l->half);
}

static int32_t plain_copy_of(legal *l, int32_t id)
{
    const tn_gtensor t = l->g->tensor[id];
    const int32_t c = tn_graph_new_tensor(l->g, TN_ROLE_ACTIVATION, NULL,
                                          tn_dtype_is_float(t.dtype) && !l->half ? TN_F32 : t.dtype, t.dims);
    if (c) l->g->tensor[c].live = t.live;
    return c;
}

static int32_t *own_list(legal *l, const int32_t *ids, int n)
{
    int32_t *p = tn_arena_alloc(&l->g->memory, sizeof *p * (size_t)(n + 1));
    if (!p) l->g->status = TN_MEMORY;
    else if (n) memcpy(p, ids, sizeof *p * (size_t)n);
    return p;
}

static void legalize_reads(legal *l, int32_t *ids, int n, uint64_t which, uint64_t rows, uint64_t half_ok,
                           const tn_node *of)
{
    for (int i = 0; i < n && l->g->status == TN_OK; i++) {
        if (!ids[i] || !(which >> i & 1) || (l->in_place >> i & 1)) continue;
        if (fits(l, ids[i], rows >> i & 1, half_ok >> i & 1)) continue;
        const int32_t c = plain_copy_of(l, ids[i]);
        if (c) put_copy(l, ids[i], c, false, of);
        ids[i] = c;
    }
}

typedef struct write_back {
    int32_t from, to;
    bool accumulate;
} write_back;

static int legalize_writes(legal *l, int32_t *ids, int n, uint64_t rows, uint64_t *accumulate, write_back *back)
{
    int count = 0;
    for (int i = 0; i < n && l->g->status == TN_OK; i++) {
        if (!ids[i] || (l->in_place >> i & 1) || fits(l, ids[i], rows >> i & 1, false)) continue;
        const int32_t c = plain_copy_of(l, ids[i]);
        const bool add = accumulate && (*accumulate >> i & 1);
        if (add) *accumulate &= ~((uint64_t)1 << i);
        back[count++] = (write_back){ c, ids[i], add };
        ids[i] = c;
    }
    return count;
}

void tn_pass_legalize(tn_graph *g, tn_device device)
{
    legal l = { .g = g };
    const bool views = tn_graph_switch(g, "opt.views");
    write_back back[TN_MAX_ARGS];
    for (size_t i = 0; i < g->n_nodes && g->status == TN_OK; i++) {
        tn_node n = g->node[i];
        l.strided = views && (n.op->flags & TN_OP_STRIDED);
        l.layout = n.op->kernel[device].layout;
        l.in_place = n.op->flags & TN_OP_WRITES_IN0 ? 1 : 0;
        l.half = device != TN_CPU && !(n.op->flags & TN_OP_FULL);
        if (n.op == &tn_op_copy || n.op == &tn_op_fill) {
            tn_nodes_push(g, &l.list, &n);
            continue;
        }
        const uint64_t rows = views ? n.op->strided_in : 0;
        int backs;
        n.in = own_list(&l, n.in, n.n_in);
        n.out = own_list(&l, n.out, n.n_out);
        if (g->status != TN_OK) break;
        legalize_reads(&l, n.in, n.n_in, n.backward ? n.reads_in : UINT64_MAX, rows, n.op->half_in, &n);
        if (n.backward) {
            n.dout = own_list(&l, n.dout, n.n_out);
            n.din = own_list(&l, n.din, n.n_in);
            if (g->status != TN_OK) break;
            legalize_reads(&l, n.out, n.n_out, n.reads_out, 0, 0, &n);
            legalize_reads(&l, n.dout, n.n_out, UINT64_MAX, 0, 0, &n);
            backs = legalize_writes(&l, n.din, n.n_in, rows, &n.accumulate, back);
        } else {
            backs = legalize_writes(&l, n.out, n.n_out, 0, NULL, back);
        }
        tn_nodes_push(g, &l.list, &n);
        for (int k = 0; k < backs; k++) put_copy(&l, back[k].from, back[k].to, back[k].accumulate, &n);
    }
    tn_graph_take(g, &l.list);
}
