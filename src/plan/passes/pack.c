/* Packs weights once for several matrix products. A weight is constant over the runs of a plan between two writes, and
 * a body's constant over all iterations; where the packed form is used often enough, a pack_weight node makes it. These
 * nodes come first: the plan's prologue, which later runs may skip. Their results stay until the end of the plan. */
#include "ops/pack_weight/pack_weight.h"
#include "plan/graph.h"

#include <string.h>

enum { WORTH_IT = 3 }; /* uses: packing once and reading twice is no faster than packing twice on the way */
/* Products of a few rows read a weight where it lies, in blocks that they turn. Packed it takes less than half the instructions and
 * is one stream of memory, but the packing is a few times that, and the weight is there twice: for decoding only. */
enum { FEW_ROWS = 4, FEW_NUMBERS = 1 << 12, MANY_TIMES = 1024 };

static bool is_constant(const tn_graph *g, int32_t id)
{
    const tn_gtensor *t = &g->tensor[g->tensor[id].base];
    return t->role == TN_ROLE_PARAM || t->role == TN_ROLE_FROZEN || t->constant;
}

static bool packs_for_many(const tn_graph *g, const tn_node *n)
{
    const tn_dims w = g->tensor[n->in[n->op->fusion.weight_in]].dims;
    return !n->backward && tn_dims_count(w) >= FEW_NUMBERS &&
           tn_dims_count(g->tensor[n->out[0]].dims) <= FEW_ROWS * w.dim[0];
}

/* The weight that a node multiplies by and may read packed; 0: none. */
static int32_t weight_of(const tn_graph *g, const tn_node *n, int64_t repeats)
{
    const tn_fusion *f = &n->op->fusion;
    if (!f->packed_in || (n->backward && !n->din[0])) return 0;
    const tn_sig s = tn_node_sig(g, n, 1);
    const bool pays = f->packs(&s, n->backward) || (repeats >= MANY_TIMES && packs_for_many(g, n));
    return pays && is_constant(g, n->in[f->weight_in]) ? n->in[f->weight_in] : 0;
}

static bool same_view(const tn_gtensor *a, const tn_gtensor *b)
{
    return a->base == b->base && a->offset == b->offset && a->dtype == b->dtype && tn_dims_equal(a->dims, b->dims) &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/* Do nodes i and k read the same packed weight? */
static bool share(const tn_graph *g, size_t i, int32_t w, size_t k, int64_t repeats)
{
    const int32_t v = g->node[i].backward == g->node[k].backward ? weight_of(g, &g->node[k], repeats) : 0;
    return v && same_view(&g->tensor[w], &g->tensor[v]);
}

static void read_packed(tn_graph *g, size_t i, int32_t packed)
{
    const int in = g->node[i].op->fusion.packed_in;
    g->node[i].in[in] = packed;
    g->node[i].reads_in |= (uint64_t)1 << in;
}

/* Moves the last `count` nodes to the front. */
static void bring_forward(tn_graph *g, size_t count)
{
    tn_node *moved = tn_arena_alloc(&g->memory, sizeof *moved * (count + 1));
    if (!moved) {
        g->status = TN_MEMORY;
        return;
    }
    memcpy(moved, g->node + g->n_nodes - count, sizeof *moved * count);
    memmove(g->node + count, g->node, sizeof *moved * (g->n_nodes - count));
    memcpy(g->node, moved, sizeof *moved * count);
}

size_t tn_pass_pack(tn_graph *g, int64_t repeats)
{
    const size_t n = g->n_nodes;
    if (g->status != TN_OK || !tn_graph_switch(g, "opt.pack_weights")) return 0;
    for (size_t i = 0; i < n && g->status == TN_OK; i++) {
        const int in = g->node[i].op->fusion.packed_in;
        const int32_t w = in && !g->node[i].in[in] ? weight_of(g, &g->node[i], repeats) : 0;
        int64_t uses = 0;
        for (size_t k = i; w && k < n; k++) uses += share(g, i, w, k, repeats) ? repeats : 0;
        if (uses < WORTH_IT) continue;
        const tn_ref packed = tn_pack_weight(g, (tn_ref){ w }, g->node[i].backward);
        for (size_t k = i; packed.id && k < n; k++)
            if (share(g, i, w, k, repeats)) read_packed(g, k, packed.id);
    }
    const size_t packs = g->n_nodes - n;
    if (g->status == TN_OK && packs) bring_forward(g, packs);
    return packs;
}

/* --- one type for both operands ------------------------------------------------------------------------------------ */

static bool to_round(const tn_graph *g, const tn_node *n, int k)
{
    const int32_t id = n->op->fusion.rounded_in >> k & 1 ? n->in[k] : 0;
    return id && g->tensor[id].dtype == TN_F32 && is_constant(g, id) && (!n->backward || (n->reads_in >> k & 1));
}

/* So that no workspace is asked for to round it again. */
static void retype(tn_graph *g, tn_node *n, int k)
{
    tn_type *types = tn_graph_types(g, n->in_type, n->n_in);
    if (!types) return;
    types[k].dtype = g->options.activation;
    n->in_type = types;
}

/* All later reads of the same view read the rounded one. */
static void read_rounded(tn_graph *g, size_t from, size_t n, int32_t w, int32_t rounded)
{
    for (size_t i = from; i < n; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (to_round(g, &g->node[i], k) && same_view(&g->tensor[g->node[i].in[k]], &g->tensor[w])) {
                g->node[i].in[k] = rounded;
                retype(g, &g->node[i], k);
            }
}

/* Weights that one node rounds. */
typedef struct pile {
    int32_t from[TN_MAX_ARGS], to[TN_MAX_ARGS];
    int n;
} pile;

static void emit_pile(tn_graph *g, pile *p)
{
    const tn_copy_attr a = { .dtype = g->options.activation };
    if (p->n) tn_graph_emit(g, &tn_op_copy, &a, p->from, p->n, p->to, p->n);
    p->n = 0;
}

size_t tn_pass_round_weights(tn_graph *g)
{
    const size_t n = g->n_nodes;
    const tn_dtype half = g->options.activation;
    pile p = { .n = 0 };
    if (g->status != TN_OK || half == TN_F32) return 0;
    for (size_t i = 0; i < n && g->status == TN_OK; i++)
        for (int k = 0; k < g->node[i].n_in && g->status == TN_OK; k++) {
            if (!to_round(g, &g->node[i], k)) continue;
            const int32_t w = g->node[i].in[k];
            const int32_t rounded = tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, half, g->tensor[w].dims);
            if (!rounded) break;
            read_rounded(g, i, n, w, rounded);
            p.from[p.n] = w;
            p.to[p.n++] = rounded;
            if (p.n == TN_MAX_ARGS) emit_pile(g, &p);
        }
    emit_pile(g, &p);
    const size_t rounds = g->n_nodes - n;
    if (g->status == TN_OK && rounds) bring_forward(g, rounds);
    return rounds;
}
