/* The reverse pass: appends, for a list of (output, cotangent) pairs, the backward nodes of everything a trainable
 * tensor flows through. A frozen tensor gets no gradient, and what would be saved only for it is not kept: backward
 * nodes name exactly the forward tensors they read.
 *
 * Invariant: the gradient memory of a tensor is written whole before it is added to. Gradients of parameters and of
 * inputs that ask for it are always added to: their owner zeroes them. */
#include "plan/graph.h"

#include <string.h>

typedef struct reverse {
    tn_graph *g;
    size_t n0;        /* tensors before the pass */
    int32_t *grad;    /* by base: gradient tensor or 0 */
    uint8_t *written; /* by base: whole gradient holds numbers */
    uint8_t *seen;    /* by tensor: a forward node reads it */
    uint8_t *cover;   /* by base: read only through slices that partition it */
    int32_t *part;    /* by slice of a covered base: its gradient view, 0 = not written yet */
} reverse;

/* --- slices that partition their base ------------------------------------------------------------------------------- */

/* The axis along which v is a slice of b with b's own strides, or -1. */
static int slice_axis(const tn_gtensor *b, const tn_gtensor *v)
{
    int axis = -1;
    if (v->dims.rank != b->dims.rank || v->live != b->live) return -1;
    for (int i = 0; i < b->dims.rank; i++) {
        if (v->stride[i] != b->stride[i]) return -1;
        if (v->dims.dim[i] == b->dims.dim[i]) continue;
        if (axis >= 0) return -1;
        axis = i;
    }
    return axis;
}

/* The lengths of the slices of b add up to b; do any two overlap? */
static bool disjoint(const reverse *r, int32_t b, int axis)
{
    enum { MOST = 64 };
    const tn_gtensor *t = r->g->tensor;
    int32_t v[MOST];
    int n = 0;
    for (size_t i = 1; i < r->n0; i++) {
        if (!r->seen[i] || t[i].base != b) continue;
        if (n == MOST) return false;
        v[n++] = (int32_t)i;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            const int64_t s = t[b].stride[axis], p = t[v[i]].offset / s, q = t[v[k]].offset / s;
            if (p < q + t[v[k]].dims.dim[axis] && q < p + t[v[i]].dims.dim[axis]) return false;
        }
    return true;
}

/* Marks the bases whose every reader goes through disjoint slices: their parts need no zeroing. */
static void find_covers(reverse *r, size_t n_nodes)
{
    const tn_graph *g = r->g;
    int64_t *covered = tn_arena_alloc(&r->g->memory, sizeof *covered * r->n0);
    int8_t *axis = tn_arena_alloc(&r->g->memory, r->n0);
    if (!covered || !axis) {
        r->g->status = TN_MEMORY;
        return;
    }
    memset(r->cover, 1, r->n0);
    for (size_t i = 0; i < n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int32_t id = g->node[i].in[k];
            if (!id || r->seen[id]) continue;
            r->seen[id] = 1;
            const tn_gtensor *v = &g->tensor[id], *b = &g->tensor[v->base];
            const int a = id == v->base || b->role != TN_ROLE_ACTIVATION ? -1 : slice_axis(b, v);
            if (a < 0 || (covered[v->base] && axis[v->base] != a)) {
                r->cover[v->base] = 0;
                continue;
            }
            axis[v->base] = (int8_t)a;
            covered[v->base] += v->dims.dim[a];
        }
    for (size_t i = 0; i < n_nodes; i++) /* a custom gradient reaches tensors that its node does not read */
        for (int k = 0; g->node[i].custom && k < g->node[i].custom->n; k++)
            r->cover[g->tensor[g->node[i].custom->xs[k].id].base] = 0;
    for (size_t b = 1; b < r->n0; b++)
        r->cover[b] = r->cover[b] && covered[b] && !g->tensor[b].output && covered[b] == g->tensor[b].dims.dim[axis[b]] &&
                      disjoint(r, (int32_t)b, axis[b]);
}

/* --- gradient memory ------------------------------------------------------------------------------------------------- */

static void emit_fill(tn_graph *g, int32_t id)
{
    const tn_fill_attr a = { .value = 0, .dtype = g->tensor[id].dtype, .dims = g->tensor[id].dims };
    tn_graph_emit(g, &tn_op_fill, &a, NULL, 0, &id, 1);
}

static void emit_copy(tn_graph *g, int32_t from, int32_t to, bool accumulate)
{
    const tn_copy_attr a = { .dtype = g->tensor[to].dtype, .accumulate = accumulate };
    tn_graph_emit(g, &tn_op_copy, &a, &from, 1, &to, 1);
}

static int32_t gradient_of_base(reverse *r, int32_t base)
{
    tn_graph *g = r->g;
    if (r->grad[base]) return r->grad[base];
    const tn_gtensor b = g->tensor[base];
    const bool param = b.role == TN_ROLE_PARAM, input = b.role == TN_ROLE_INPUT && b.wanted;
    const char *name = param || input ? tn_arena_printf(&g->memory, "d.%s", b.name) : NULL;
    if ((param || input) && !name) g->status = TN_MEMORY;
    const tn_role role = param ? TN_ROLE_GRAD : input ? TN_ROLE_DINPUT : TN_ROLE_ACTIVATION;
    const int32_t id = tn_graph_new_tensor(g, role, name, param ? TN_F32 : b.dtype, b.dims);
    if (!id) return 0;
    g->tensor[id].live = b.live;
    g->tensor[id].source = base;
    r->written[base] = param || (input && b.wanted_adds);
    return r->grad[base] = id;
}

/* The view of `grad` that corresponds to view x of its base. */
static int32_t matching_view(tn_graph *g, int32_t grad, int32_t x)
{
    if (g->tensor[x].base == x) return grad;
    const int32_t id = tn_graph_new_view(g, grad);
    if (!id) return 0;
    const tn_gtensor *v = &g->tensor[x];
    tn_gtensor *t = &g->tensor[id];
    t->dims = v->dims;
    t->offset = v->offset;
    t->live = v->live;
    memcpy(t->stride, v->stride, sizeof t->stride);
    return id;
}

/* Where the gradient of x is to be written, and whether to add to what is there. */
static int32_t gradient_target(reverse *r, int32_t x, bool *accumulate)
{
    tn_graph *g = r->g;
    const int32_t base = g->tensor[x].base, grad = gradient_of_base(r, base);
    if (!grad) return 0;
    if (tn_gtensor_whole(g, &g->tensor[x]) && g->tensor[x].live == g->tensor[base].live) {
        *accumulate = r->written[base];
        r->written[base] = 1;
        return matching_view(g, grad, x);
    }
    if (r->cover[base]) {
        *accumulate = r->part[x] != 0;
        if (!r->part[x]) r->part[x] = matching_view(g, grad, x);
        return r->part[x];
    }
    if (!r->written[base]) emit_fill(g, grad);
    r->written[base] = 1;
    *accumulate = true;
    return matching_view(g, grad, x);
}

/* The gradient of node output x for reading, or 0 when nothing reached it. Parts nobody wrote are zeroed now. */
static int32_t gradient_source(reverse *r, int32_t x)
{
    tn_graph *g = r->g;
    if (!r->grad[x]) return 0;
    if (r->cover[x] && !r->written[x])
        for (size_t v = 1; v < r->n0; v++)
            if (r->seen[v] && g->tensor[v].base == x && !r->part[v]) {
                const int32_t part = matching_view(g, r->grad[x], (int32_t)v);
                if (part) emit_fill(g, part);
            }
    return r->grad[x];
}

/* --- nodes --------------------------------------------------------------------------------------------------------------- */

static void reverse_custom(reverse *r, const tn_node *n)
{
    tn_graph *g = r->g;
    const tn_custom *c = n->custom;
    const int32_t dy = gradient_source(r, n->out[0]);
    tn_ref dx[TN_MAX_ARGS] = { { 0 } };
    if (!dy) return;
    c->build(g, (tn_ref){ dy }, c->xs, c->n, dx, c->user);
    for (int i = 0; i < c->n && g->status == TN_OK; i++) {
        if (!dx[i].id || !g->tensor[c->xs[i].id].needs_grad) continue;
        if (tn_gtensor_count(&g->tensor[dx[i].id]) != tn_gtensor_count(&g->tensor[c->xs[i].id])) {
            tn_graph_fail(g, n->file, n->line, TN_USAGE, "custom gradient %d has another size than its tensor", i);
            return;
        }
        bool add;
        const int32_t to = gradient_target(r, c->xs[i].id, &add);
        if (to) emit_copy(g, dx[i].id, to, add);
    }
}

/* Two wanted gradients in overlapping memory (x*x): the later one goes through a temporary. */
static bool overlaps_earlier(const reverse *r, const tn_node *n, uint64_t want, int i)
{
    const tn_graph *g = r->g;
    for (int k = 0; k < i; k++)
        if ((want >> k & 1) && g->tensor[n->in[k]].base == g->tensor[n->in[i]].base &&
            (n->in[k] == n->in[i] || !r->cover[g->tensor[n->in[i]].base]))
            return true;
    return false;
}

static void reverse_node(reverse *r, const tn_node *n)
{
    tn_graph *g = r->g;
    uint64_t want = 0, accumulate = 0;
    bool any = false;
    int32_t *dout = tn_arena_alloc(&g->memory, sizeof *dout * (size_t)(n->n_in + n->n_out + 1));
    int32_t later[TN_MAX_ARGS] = { 0 };
    bool later_add[TN_MAX_ARGS] = { 0 };
    if (!dout) {
        g->status = TN_MEMORY;
        return;
    }
    int32_t *din = dout + n->n_out;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && g->tensor[n->in[i]].needs_grad) want |= (uint64_t)1 << i;
    if (!want) return;
    for (int i = 0; i < n->n_out; i++) any |= (dout[i] = gradient_source(r, n->out[i])) != 0;
    if (!any) return;
    for (int i = 0; i < n->n_in; i++) {
        bool add = false;
        if (!(want >> i & 1)) continue;
        din[i] = gradient_target(r, n->in[i], &add);
        if (overlaps_earlier(r, n, want, i)) {
            later[i] = din[i];
            later_add[i] = true;
            din[i] = tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, g->tensor[later[i]].dtype, g->tensor[later[i]].dims);
            g->tensor[din[i]].live = g->tensor[later[i]].live;
            add = false;
        }
        if (add) accumulate |= (uint64_t)1 << i;
    }
    tn_uses u = { 0 };
    const tn_sig sig = tn_node_sig(g, n, 1);
    n->op->grad(&sig, want, &u);
    tn_node *b = tn_graph_emit(g, n->op, NULL, n->in, n->n_in, n->out, n->n_out);
    if (!b) return;
    b->attr = n->attr;
    b->in_type = n->in_type;
    b->out_type = n->out_type;
    b->backward = true;
    b->dout = dout;
    b->din = din;
    b->accumulate = accumulate;
    b->reads_in = u.in;
    b->reads_out = u.out;
    b->file = n->file;
    b->line = n->line;
    for (int i = 0; i < n->n_in; i++)
        if (later[i]) emit_copy(g, din[i], later[i], later_add[i]);
}

static void finish_wanted(reverse *r)
{
    for (size_t i = 1; i < r->n0 && r->g->status == TN_OK; i++) {
        const tn_gtensor t = r->g->tensor[i];
        if (t.role != TN_ROLE_INPUT || !t.wanted || t.base != (int32_t)i) continue;
        const int32_t grad = gradient_of_base(r, (int32_t)i);
        if (grad && !r->written[i]) emit_fill(r->g, grad);
    }
}

void tn_pass_reverse(tn_graph *g, const tn_seed *seeds, int n)
{
    const size_t nodes = g->n_nodes;
    if (g->status != TN_OK) return;
    reverse r = { .g = g, .n0 = g->n_tensors };
    r.grad = tn_arena_alloc(&g->memory, sizeof *r.grad * r.n0);
    r.part = tn_arena_alloc(&g->memory, sizeof *r.part * r.n0);
    r.written = tn_arena_alloc(&g->memory, r.n0);
    r.cover = tn_arena_alloc(&g->memory, r.n0);
    r.seen = tn_arena_alloc(&g->memory, r.n0);
    if (!r.grad || !r.part || !r.written || !r.cover || !r.seen) {
        g->status = TN_MEMORY;
        return;
    }
    find_covers(&r, nodes);
    for (int i = 0; i < n && g->status == TN_OK; i++) {
        bool add;
        if (!g->tensor[seeds[i].y.id].needs_grad) continue; /* depends on nothing trainable */
        r.cover[g->tensor[seeds[i].y.id].base] = 0;
        const int32_t to = gradient_target(&r, seeds[i].y.id, &add);
        tn_ref dy = tn_reshape(g, seeds[i].dy, g->tensor[to].dims);
        if (dy.id) emit_copy(g, dy.id, to, add);
    }
    const int32_t region = g->current_region, segment = g->current_segment;
    for (size_t i = nodes; i-- > 0 && g->status == TN_OK;) {
        const tn_node node = g->node[i]; /* the table may move */
        g->current_region = node.region;
        g->current_segment = node.segment;
        if (node.custom) reverse_custom(&r, &node);
        else if (node.op->grad) reverse_node(&r, &node);
    }
    g->current_region = region;
    g->current_segment = segment;
    finish_wanted(&r);
}

tn_ref tn_custom_gradient(tn_graph *g, tn_ref y, const tn_ref *xs, int n, tn_grad_build *build, void *user)
{
    tn_ref out = tn_stop_gradient(g, y);
    out = tn_copy(g, out);
    if (g->status != TN_OK || !out.id) return TN_NONE;
    if (n < 0 || n > TN_MAX_ARGS) {
        tn_graph_fail(g, "custom_gradient", 0, TN_USAGE, "a custom gradient of %d tensors, at most %d", n, TN_MAX_ARGS);
        return TN_NONE;
    }
    tn_custom *c = tn_arena_alloc(&g->memory, sizeof *c + sizeof *c->xs * (size_t)n);
    if (!c) {
        g->status = TN_MEMORY;
        return TN_NONE;
    }
    *c = (tn_custom){ .build = build, .user = user, .n = n, .xs = (tn_ref *)(c + 1) };
    memcpy(c->xs, xs, sizeof *xs * (size_t)n);
    g->node[g->n_nodes - 1].custom = c;
    for (int i = 0; i < n; i++)
        if (xs[i].id && g->tensor[xs[i].id].needs_grad) g->tensor[out.id].needs_grad = true;
    return out;
}
