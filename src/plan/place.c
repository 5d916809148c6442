/* Placement by liveness. Each tensor that owns memory is alive from the first node that writes it to the last that
 * touches it; tensors whose lives overlap get disjoint places in one arena. Largest first at the lowest free offset,
 * which is within a few percent of the peak of live bytes for training graphs. */
#include "plan/place.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

static void add_workspaces(tn_graph *g, const tn_place_options *o)
{
    for (size_t i = 0; i < g->n_nodes && g->status == TN_OK; i++) {
        tn_node *n = &g->node[i];
        const tn_sig sig = tn_node_sig(g, n, o->threads);
        const size_t bytes = n->op->kernel[o->device].work ? n->op->kernel[o->device].work(&sig, n->backward) : 0;
        n->work = 0;
        if (bytes) g->node[i].work = tn_graph_new_tensor(g, TN_ROLE_WORK, NULL, TN_U8, tn_shape((int64_t)bytes));
    }
}

/* --- lives ----------------------------------------------------------------------------------------------------------- */

typedef struct lives {
    tn_graph *g;
    int32_t *first, *last; /* by base tensor; first = -1: not used */
} lives;

static void touch(lives *l, int32_t id, int32_t node)
{
    if (!id) return;
    const tn_gtensor *t = &l->g->tensor[id];
    if (l->first[t->base] < 0) l->first[t->base] = node;
    l->last[t->base] = node;
    if (t->live) touch(l, t->live, node);
}

static void find_lives(lives *l, size_t prologue)
{
    tn_graph *g = l->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i];
        const int32_t at = (int32_t)i;
        for (int k = 0; k < n->n_in; k++)
            if (!n->backward || (n->reads_in >> k & 1)) touch(l, n->in[k], at);
        for (int k = 0; k < n->n_out; k++) {
            if (!n->backward || n->makes_out || (n->reads_out >> k & 1)) touch(l, n->out[k], at);
            if (n->backward) touch(l, n->dout[k], at);
        }
        for (int k = 0; n->backward && k < n->n_in; k++) touch(l, n->din[k], at);
        touch(l, n->work, at);
    }
    for (size_t i = 0; i < g->n_outputs; i++) touch(l, g->output[i].id, (int32_t)g->n_nodes);
    for (size_t i = 0; i < prologue; i++)
        for (int k = 0; k < g->node[i].n_out; k++) touch(l, g->node[i].out[k], (int32_t)g->n_nodes);
}

/* --- sharing ----------------------------------------------------------------------------------------------------------- */

static bool whole_activation(const tn_graph *g, int32_t id)
{
    return id && g->tensor[g->tensor[id].base].role == TN_ROLE_ACTIVATION && tn_gtensor_whole(g, &g->tensor[id]);
}

static int count_nonzero(const int32_t *v, int n)
{
    int c = 0;
    for (int i = 0; i < n; i++) c += v[i] != 0;
    return c;
}

/* Another input reads the memory of input 0 in another order (x - x[0]): writing over it would spoil that input. */
static bool read_elsewhere(const tn_graph *g, const tn_node *n)
{
    for (int k = 1; k < n->n_in; k++) {
        const tn_gtensor *x = &g->tensor[n->in[0]], *y = &g->tensor[n->in[k]];
        if (n->in[k] && y->base == x->base && !(tn_gtensor_whole(g, y) && tn_dims_equal(x->dims, y->dims))) return true;
    }
    return false;
}

/* The pair (from, to) of an in-place op whose memory may be one, or false. */
static bool inplace_pair(const lives *l, size_t i, int32_t *from, int32_t *to)
{
    const tn_graph *g = l->g;
    const tn_node *n = &g->node[i];
    if (!(n->op->flags & TN_OP_INPLACE) || !n->n_in || !n->n_out) return false;
    const int32_t a = n->backward ? n->dout[0] : n->in[0], b = n->backward ? n->din[0] : n->out[0];
    if (n->backward ? (n->accumulate & 1) || count_nonzero(n->din, n->n_in) != 1 : count_nonzero(n->out, n->n_out) != 1)
        return false;
    if (!n->backward && read_elsewhere(g, n)) return false;
    if (!whole_activation(g, a) || !whole_activation(g, b) || g->tensor[a].live != g->tensor[b].live) return false;
    *from = g->tensor[a].base;
    *to = g->tensor[b].base;
    const tn_gtensor *x = &g->tensor[*from], *y = &g->tensor[*to];
    return *from != *to && x->dtype == y->dtype && tn_gtensor_count(x) == tn_gtensor_count(y) &&
           l->last[*from] == (int32_t)i && l->first[*to] == (int32_t)i;
}

/* owner[b]: the tensor whose memory b uses. Chains end at the first of them. */
static void share(lives *l, int32_t *owner)
{
    for (size_t i = 0; i < l->g->n_nodes; i++) {
        int32_t from, to;
        if (!inplace_pair(l, i, &from, &to)) continue;
        const int32_t root = owner[from];
        owner[to] = root;
        if (l->last[to] > l->last[root]) l->last[root] = l->last[to];
    }
}

/* --- offsets ----------------------------------------------------------------------------------------------------------- */

static int by_size(const void *pa, const void *pb)
{
    const tn_slot *a = *(const tn_slot *const *)pa, *b = *(const tn_slot *const *)pb;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

/* A slot that has its place. Small, and in one array: a plan of many layers walks it very often. */
typedef struct placed_slot {
    size_t offset, end;
    int32_t first, last;
} placed_slot;

/* Places each slot at the lowest offset free during its life. `placed` stays sorted by offset. */
static size_t place_all(tn_slot **order, int n, placed_slot *placed)
{
    size_t end = 0;
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        tn_slot *s = order[i];
        size_t at = 0;
        int k = 0;
        for (; k < i; k++) {
            if (placed[k].last < s->first || s->last < placed[k].first) continue;
            if (at + s->bytes <= placed[k].offset) break;
            if (placed[k].end > at) at = placed[k].end;
        }
        s->offset = at;
        if (at + s->bytes > end) end = at + s->bytes;
        while (k > 0 && placed[k - 1].offset > at) k--;
        memmove(placed + k + 1, placed + k, sizeof *placed * (size_t)(i - k));
        placed[k] = (placed_slot){ at, at + s->bytes, s->first, s->last };
    }
    return end;
}

/* Sums of bytes stay far from overflow: no machine has 2^60 bytes. */
static bool sizes_ok(tn_graph *g, const tn_placement *p)
{
    double total = 0;
    for (int i = 0; i < p->n_slots; i++) total += p->slot[i].ext < 0 ? (double)p->slot[i].bytes : 0;
    if (total >= 0x1p60) tn_graph_fail(g, "plan", 0, TN_MEMORY, "the step's tensors take %.3g bytes in all", total);
    return total < 0x1p60;
}

static size_t peak_of_activations(tn_graph *g, const tn_placement *p)
{
    size_t peak = 0;
    int64_t *delta = tn_arena_alloc(&g->memory, sizeof *delta * (g->n_nodes + 2));
    if (!delta) {
        g->status = TN_MEMORY;
        return 0;
    }
    for (int i = 0; i < p->n_slots; i++) {
        if (p->slot[i].ext >= 0 || p->slot[i].role == TN_ROLE_WORK) continue;
        delta[p->slot[i].first] += (int64_t)p->slot[i].bytes;
        delta[p->slot[i].last + 1 <= (int32_t)g->n_nodes ? p->slot[i].last + 1 : (int32_t)g->n_nodes + 1] -=
            (int64_t)p->slot[i].bytes;
    }
    int64_t now = 0;
    for (size_t i = 0; i <= g->n_nodes; i++) {
        now += delta[i];
        if (now > (int64_t)peak) peak = (size_t)now;
    }
    return peak;
}

static bool make_slots(tn_graph *g, const lives *l, const int32_t *owner, tn_placement *p)
{
    p->slot_of = tn_arena_alloc(&g->memory, sizeof *p->slot_of * g->n_tensors);
    p->slot = tn_arena_alloc(&g->memory, sizeof *p->slot * g->n_tensors);
    p->extern_tensor = tn_arena_alloc(&g->memory, sizeof *p->extern_tensor * g->n_tensors);
    if (!p->slot_of || !p->slot || !p->extern_tensor) return false;
    memset(p->slot_of, 0xff, sizeof *p->slot_of * g->n_tensors);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const tn_gtensor *t = &g->tensor[i];
        if (t->base != (int32_t)i || l->first[i] < 0 || owner[i] != (int32_t)i) continue;
        const bool inside = t->role == TN_ROLE_ACTIVATION || t->role == TN_ROLE_WORK;
        const size_t bytes = (size_t)tn_gtensor_count(t) * tn_dtype_bytes(t->dtype);
        tn_slot *s = &p->slot[p->n_slots];
        *s = (tn_slot){ .role = t->role,
                        .tensor = (int32_t)i,
                        .bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN,
                        .first = l->first[i],
                        .last = l->last[i],
                        .ext = inside ? -1 : p->n_externs };
        if (!inside) p->extern_tensor[p->n_externs++] = (int32_t)i;
        p->slot_of[i] = p->n_slots++;
    }
    for (size_t i = 1; i < g->n_tensors; i++) p->slot_of[i] = p->slot_of[owner[g->tensor[i].base]];
    return true;
}

void tn_pass_place(tn_graph *g, const tn_place_options *o, tn_placement *p)
{
    *p = (tn_placement){ 0 };
    add_workspaces(g, o);
    if (g->status != TN_OK) return;
    lives l = { .g = g };
    l.first = tn_arena_alloc(&g->memory, sizeof *l.first * g->n_tensors);
    l.last = tn_arena_alloc(&g->memory, sizeof *l.last * g->n_tensors);
    int32_t *owner = tn_arena_alloc(&g->memory, sizeof *owner * g->n_tensors);
    tn_slot **order = tn_arena_alloc(&g->memory, sizeof *order * g->n_tensors);
    placed_slot *placed = tn_arena_alloc(&g->memory, sizeof *placed * g->n_tensors);
    if (!l.first || !l.last || !owner || !order || !placed) {
        g->status = TN_MEMORY;
        return;
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        owner[i] = (int32_t)i;
        l.first[i] = -1;
    }
    find_lives(&l, o->prologue);
    for (size_t i = 0; i < g->n_tensors && o->apart; i++)
        if (l.first[i] >= 0) l.last[i] = (int32_t)g->n_nodes - 1;
    if (!o->apart && tn_graph_switch(g, "opt.inplace")) share(&l, owner);
    if (!make_slots(g, &l, owner, p)) {
        g->status = TN_MEMORY;
        return;
    }
    if (!sizes_ok(g, p)) return;
    int n = 0;
    for (int i = 0; i < p->n_slots; i++)
        if (p->slot[i].ext < 0) order[n++] = &p->slot[i];
    p->arena_bytes = place_all(order, n, placed);
    p->activation_peak = peak_of_activations(g, p);
    if (p->activation_peak > p->arena_bytes) p->activation_peak = p->arena_bytes;
}
