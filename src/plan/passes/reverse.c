/* The reverse pass: appends, for a list of (output, cotangent) pairs, the backward nodes of everything a trainable
 * tensor flows through. A frozen tensor gets no gradient, and what would be saved only for it is not kept: backward
 * nodes name exactly the forward tensors they read.
 *
 * Invariant: the gradient memory of a tensor is written whole before it is added to. Gradients of parameters and of
 * inputs that ask for it are always added to: their owner zeroes them. A gradient that is another's as it is (of a sum's
 * terms) is the same tensor until something is added to one of them. */
#include "plan/graph.h"

#include <string.h>

typedef struct reverse {
    tn_graph *g;
    size_t n0;        /* tensors before the pass */
    int32_t *grad;    /* by base: gradient tensor or 0 */
    uint8_t *written; /* by base: whole gradient holds numbers */
    int32_t *mate;    /* by base: the next of those, in a ring, whose gradient is the same tensor; 0 = it has none */
    int32_t *views;   /* by base: the first of the different slices of it that nodes read, 0 = none */
    int32_t *next;    /* by such a slice: the next one of its base */
    int32_t *first;   /* by slice: the one in `views` with the same numbers */
    uint8_t *cover;   /* by base: read only through slices that partition it */
    int32_t *changed; /* by base: the last node that changes it in place, or -1 */
    uint8_t *part;    /* by slice in `views` of a covered base: its gradient is written */
    int32_t at;       /* the forward node whose gradient is being made */
    bool shares;      /* opt.shared_gradients */
} reverse;

/* --- slices that partition their base ------------------------------------------------------------------------------- */

/* A view's memory: the numbers [at, at + length) of every `period` of its base. */
typedef struct stripe {
    int64_t period, at, length;
} stripe;

/* False where v does not lie so in b, however it was reshaped or turned. */
static bool stripe_of(const tn_gtensor *b, const tn_gtensor *v, stripe *s)
{
    int64_t dim[TN_MAX_RANK], step[TN_MAX_RANK], rows = 1;
    const int64_t count = tn_gtensor_count(b);
    int n = 0, i = 0;
    for (int k = 0; k < v->dims.rank; k++) { /* axes by stride, the shortest first */
        int at = n;
        if (v->dims.dim[k] == 1) continue;
        for (; at > 0 && step[at - 1] > v->stride[k]; at--) dim[at] = dim[at - 1], step[at] = step[at - 1];
        dim[at] = v->dims.dim[k], step[at] = v->stride[k];
        n++;
    }
    *s = (stripe){ .period = count, .at = v->offset, .length = 1 };
    for (; i < n && step[i] == s->length; i++) s->length *= dim[i];
    if (i < n) s->period = step[i];
    for (; i < n && step[i] == rows * s->period; i++) rows *= dim[i];
    return i == n && s->length > 0 && rows * s->period == count && s->at + s->length <= s->period;
}

enum { MOST_SLICES = 256 }; /* each is compared with every other: what is in more pieces is zeroed and added to */

/* Notes that nodes read view v. Views of the same numbers are one: the first of them stands for all. */
static void see(reverse *r, int32_t v, stripe *of)
{
    const tn_gtensor *t = &r->g->tensor[v], *b = &r->g->tensor[t->base];
    const bool part = v != t->base && b->role == TN_ROLE_ACTIVATION && t->live == b->live && stripe_of(b, t, &of[v]);
    if (!part || of[v].length == of[v].period) r->cover[t->base] = 0;
    if (!r->cover[t->base]) return;
    int others = 0;
    for (int32_t i = r->views[t->base]; i; i = r->next[i]) {
        const bool apart = of[i].at + of[i].length <= of[v].at || of[v].at + of[v].length <= of[i].at;
        if (of[i].at == of[v].at && of[i].length == of[v].length && of[i].period == of[v].period) {
            r->first[v] = i;
            return;
        }
        if (of[i].period != of[v].period || !apart || ++others == MOST_SLICES) r->cover[t->base] = 0;
    }
    r->first[v] = v;
    r->next[v] = r->views[t->base];
    r->views[t->base] = v;
}

/* Marks the bases whose every reader goes through disjoint slices that make up the whole: their parts need no zeroing. */
static void find_covers(reverse *r, size_t n_nodes)
{
    const tn_graph *g = r->g;
    stripe *of = tn_arena_alloc(&r->g->memory, sizeof *of * r->n0);
    uint8_t *seen = tn_arena_alloc(&r->g->memory, r->n0);
    if (!of || !seen) {
        r->g->status = TN_MEMORY;
        return;
    }
    memset(r->cover, 1, r->n0);
    for (size_t i = 0; i < n_nodes; i++) {
        for (int k = 0; k < g->node[i].n_in; k++) {
            const int32_t id = g->node[i].in[k];
            if (!id || seen[id]) continue;
            seen[id] = 1;
            see(r, id, of);
        }
        for (int k = 0; g->node[i].custom && k < g->node[i].custom->n;
             k++) /* reaches tensors that its node does not read */
            r->cover[g->tensor[g->node[i].custom->xs[k].id].base] = 0;
    }
    for (size_t b = 1; b < r->n0; b++) {
        int64_t covered = 0;
        for (int32_t v = r->views[b]; v; v = r->next[v]) covered += of[v].length;
        r->cover[b] = r->cover[b] && r->views[b] && !g->tensor[b].output && covered == of[r->views[b]].period;
    }
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

/* x, or a view of all of it. */
static bool is_whole(const tn_graph *g, int32_t x)
{
    return tn_gtensor_whole(g, &g->tensor[x]) && g->tensor[x].live == g->tensor[g->tensor[x].base].live;
}

/* The gradient of base x is that of base `of`, as long as nothing is added to either. */
static void take_gradient(reverse *r, int32_t x, int32_t of)
{
    r->grad[x] = r->grad[of];
    r->written[x] = 1;
    if (!r->mate[of]) r->mate[of] = of;
    r->mate[x] = r->mate[of];
    r->mate[of] = x;
}

/* Before something is added to a base's gradient: it is no longer that of its mates. Where the node that made one of them
 * has still to read it, the base gets a copy. */
static void part_ways(reverse *r, int32_t base)
{
    tn_graph *g = r->g;
    const int32_t shared = r->grad[base];
    int32_t before = base;
    bool needed = false;
    if (!r->mate[base]) return;
    for (int32_t m = r->mate[base]; m != base; before = m, m = r->mate[m]) needed |= g->tensor[m].producer <= r->at;
    r->mate[before] = r->mate[base] == before ? 0 : r->mate[base];
    r->mate[base] = 0;
    if (!needed) return;
    r->grad[base] = 0;
    const int32_t own = gradient_of_base(r, base);
    if (own) emit_copy(g, shared, own, false);
    r->written[base] = 1;
}

/* Where the gradient of x is to be written, and whether to add to what is there. */
static int32_t gradient_target(reverse *r, int32_t x, bool *accumulate)
{
    tn_graph *g = r->g;
    const int32_t base = g->tensor[x].base, slice = r->first[x];
    part_ways(r, base);
    const int32_t grad = gradient_of_base(r, base);
    if (!grad) return 0;
    if (is_whole(g, x)) {
        *accumulate = r->written[base];
        r->written[base] = 1;
    } else if (r->cover[base]) {
        *accumulate = r->part[slice];
        r->part[slice] = 1;
    } else {
        if (!r->written[base]) emit_fill(g, grad);
        r->written[base] = 1;
        *accumulate = true;
    }
    return matching_view(g, grad, x);
}

/* The gradient of node output x for reading, or 0 when nothing reached it. Parts nobody wrote are zeroed now. */
static int32_t gradient_source(reverse *r, int32_t x)
{
    tn_graph *g = r->g;
    if (!r->grad[x]) return 0;
    if (r->cover[x] && !r->written[x])
        for (int32_t v = r->views[x]; v; v = r->next[v]) {
            if (r->part[v]) continue;
            r->part[v] = 1;
            const int32_t part = matching_view(g, r->grad[x], v);
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
        if (!dx[i].id || !tn_graph_knows(g, n->file, n->line, dx[i]) || !g->tensor[c->xs[i].id].needs_grad) continue;
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
            (n->in[k] == n->in[i] || !r->cover[g->tensor[n->in[i]].base] || r->first[n->in[k]] == r->first[n->in[i]]))
            return true;
    return false;
}

/* A backward node reads a state as it is at the end of the forward pass, not as node `at` saw it. */
static void check_unchanged(reverse *r, const tn_node *n, uint64_t reads, size_t at)
{
    tn_graph *g = r->g;
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k] || !(reads >> k & 1) || r->changed[g->tensor[n->in[k]].base] <= (int32_t)at) continue;
        const char *name = g->tensor[g->tensor[n->in[k]].base].name;
        tn_graph_fail(g, n->file, n->line, TN_USAGE,
                      "the gradient of %s needs %s, which is changed in place later: give it a "
                      "tn_copy",
                      n->op->name, name ? name : "a state");
    }
}

/* Can input i of n have the gradient of base y? Nothing has reached it yet, and no other input of n lies in its memory. */
static bool may_take(const reverse *r, const tn_node *n, int i, int32_t y)
{
    const tn_graph *g = r->g;
    const int32_t b = g->tensor[n->in[i]].base;
    const tn_gtensor *x = &g->tensor[b], *of = &g->tensor[y];
    if (!r->shares || r->grad[b] || x->role != TN_ROLE_ACTIVATION || of->role != TN_ROLE_ACTIVATION) return false;
    for (int k = 0; k < n->n_in; k++)
        if (k != i && n->in[k] && g->tensor[n->in[k]].base == b) return false;
    return is_whole(g, n->in[i]) && x->dtype == of->dtype && x->live == of->live && tn_dims_equal(x->dims, of->dims);
}

/* Inputs whose gradient is that of the result take it. Returns them. */
static uint64_t take_gradients(reverse *r, const tn_node *n, uint64_t want, const tn_uses *u)
{
    const tn_graph *g = r->g;
    uint64_t taken = 0;
    for (int i = 0; i < n->n_in; i++)
        if ((want & u->passes) >> i & 1 && r->grad[n->out[0]] && may_take(r, n, i, n->out[0])) {
            take_gradient(r, g->tensor[n->in[i]].base, n->out[0]);
            taken |= (uint64_t)1 << i;
        }
    return taken;
}

static void reverse_node(reverse *r, const tn_node *n, size_t at)
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
    tn_uses u = { 0 };
    const tn_sig sig = tn_node_sig(g, n, 1);
    n->op->grad(&sig, want, &u);
    want &= ~take_gradients(r, n, want, &u);
    if (!want) return;
    for (int i = 0; i < n->n_in; i++) {
        bool add = false;
        if (!(want >> i & 1)) continue;
        if (i == 1 && u.equal && din[0] && !(accumulate & 1) && may_take(r, n, 1, g->tensor[n->in[0]].base)) {
            take_gradient(r, g->tensor[n->in[1]].base, g->tensor[n->in[0]].base);
            continue;
        }
        din[i] = gradient_target(r, n->in[i], &add);
        if (overlaps_earlier(r, n, want, i)) {
            later[i] = din[i];
            later_add[i] = true;
            din[i] =
                tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, g->tensor[later[i]].dtype, g->tensor[later[i]].dims);
            g->tensor[din[i]].live = g->tensor[later[i]].live;
            add = false;
        }
        if (add) accumulate |= (uint64_t)1 << i;
    }
    check_unchanged(r, n, u.in, at);
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
    reverse r = {
        .g = g, .n0 = g->n_tensors, .at = (int32_t)nodes, .shares = tn_graph_switch(g, "opt.shared_gradients")
    };
    r.changed = tn_graph_changed(g);
    r.grad = tn_arena_alloc(&g->memory, sizeof *r.grad * r.n0);
    r.part = tn_arena_alloc(&g->memory, r.n0);
    r.written = tn_arena_alloc(&g->memory, r.n0);
    r.cover = tn_arena_alloc(&g->memory, r.n0);
    r.mate = tn_arena_alloc(&g->memory, sizeof *r.mate * r.n0);
    r.first = tn_arena_alloc(&g->memory, sizeof *r.first * r.n0);
    r.views = tn_arena_alloc(&g->memory, sizeof *r.views * r.n0);
    r.next = tn_arena_alloc(&g->memory, sizeof *r.next * r.n0);
    if (!r.changed || !r.grad || !r.part || !r.written || !r.cover || !r.mate || !r.first || !r.views || !r.next) {
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
        r.at = (int32_t)i;
        if (node.custom) reverse_custom(&r, &node);
        else if (node.op->grad) reverse_node(&r, &node, i);
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
    for (int i = 0; i < n; i++)
        if (!tn_graph_knows(g, "custom_gradient", 0, xs[i])) return TN_NONE;
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
