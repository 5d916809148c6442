/* Elementwise ops inside their neighbours (CUDA). Where one op alone reads what another makes, and the kernel of either can
 * do the other's work on numbers that it holds anyway, a tensor is neither written nor read, forward and backward:
 *
 *     silu(conv_causal(x))      the convolution stores silu of its sums (opt.silu_in_conv)
 *     outer(q, k, v by w)       the recurrence multiplies v by its write strengths (opt.write_in_outer)
 *     ... with alpha = -softplus(a), w = sigmoid(b): it makes them of a and b (opt.gates_in_outer)
 *
 * Besides, outer keeps the states that its forward kernel has made where a backward pass will read them (opt.keep_states).
 * Runs before the reverse pass, so that the gradient is the fused node's as well. */
#include "ops/binary/binary.h"
#include "ops/conv_causal/conv_causal.h"
#include "ops/outer/outer.h"
#include "ops/unary/unary.h"
#include "plan/graph.h"

#include <string.h>

typedef struct absorb {
    tn_graph *g;
    bool recompute;
    const tn_seed *seeds;
    int n_seeds;
} absorb;

/* Does anything but node `reader` look at the memory of base x? */
static bool read_elsewhere(const absorb *a, int32_t x, size_t reader)
{
    const tn_graph *g = a->g;
    for (size_t i = 1; i < g->n_tensors; i++)
        if (g->tensor[i].base == x && g->tensor[i].output) return true;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->tensor[g->output[i].id].base == x) return true;
    for (size_t i = 0; i < g->n_assigns; i++)
        if (g->tensor[g->assign[i].value].base == x) return true;
    for (int i = 0; i < a->n_seeds; i++)
        if (g->tensor[a->seeds[i].y.id].base == x) return true;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->node[i];
        for (int k = 0; n->op && i != reader && k < n->n_in; k++)
            if (n->in[k] && g->tensor[n->in[k]].base == x) return true;
        for (int k = 0; n->op && n->custom && k < n->custom->n; k++)
            if (g->tensor[n->custom->xs[k].id].base == x) return true;
    }
    return false;
}

/* The node of op that makes x whole, for node i alone; -1: there is none. */
static int64_t maker_of(const absorb *a, int32_t x, const tn_op *op, size_t i)
{
    const tn_gtensor *t = &a->g->tensor[x];
    if (t->base != x || t->role != TN_ROLE_ACTIVATION || t->producer < 0) return -1;
    const tn_node *n = &a->g->node[t->producer], *reader = &a->g->node[i];
    if (n->op != op || n->custom || reader->custom || n->out[0] != x) return -1;
    if ((a->recompute && n->segment != reader->segment) || read_elsewhere(a, x, i)) return -1;
    return t->producer;
}

/* One node in the place of `at`; `gone`, which may be the same, is done by it too. */
static void put_node(tn_graph *g, size_t at, size_t gone, const tn_op *op, const void *attr, const int32_t *in,
                     int n_in, const int32_t *out, int n_out)
{
    if (!tn_graph_emit(g, op, attr, in, n_in, out, n_out)) return;
    tn_node *both = &g->node[--g->n_nodes];
    both->region = g->node[at].region;
    both->segment = g->node[at].segment;
    both->file = g->node[at].file;
    both->line = g->node[at].line;
    g->node[at] = *both;
    if (gone != at) g->node[gone].op = NULL;
}

/* --- silu(conv_causal(x)) -------------------------------------------------------------------------------------------- */

static bool silu_in_conv(absorb *a, size_t i)
{
    tn_graph *g = a->g;
    const tn_node *n = &g->node[i];
    if (n->op != &tn_op_unary || ((const tn_unary_attr *)n->attr)->kind != TN_UNARY_SILU) return false;
    const int64_t at = maker_of(a, n->in[0], &tn_op_conv_causal, i);
    const tn_gtensor *sum = &g->tensor[n->in[0]], *y = &g->tensor[n->out[0]];
    if (at < 0 || sum->dtype != y->dtype || sum->live != y->live) return false;
    const tn_node c = g->node[at];
    const int32_t out[] = { n->out[0], c.out[1] };
    put_node(g, (size_t)at, i, c.op, &(tn_conv_causal_attr){ .silu = true }, c.in, c.n_in, out, 2);
    return true;
}

/* --- outer(q, k, v by w) ---------------------------------------------------------------------------------------------- */

/* Rows of bf16 begin at multiples of 16 bytes. */
static bool in_vectors(const tn_graph *g, int32_t x)
{
    const tn_gtensor *t = &g->tensor[x];
    const int last = t->dims.rank - 1;
    if (t->offset % 8 || t->stride[last] != 1) return false;
    for (int i = 0; i < last; i++)
        if (t->dims.dim[i] > 1 && t->stride[i] % 8) return false;
    return true;
}

static bool write_in_outer(absorb *a, size_t i)
{
    tn_graph *g = a->g;
    const tn_node n = g->node[i];
    if (n.op != &tn_op_outer || n.in[TN_OUTER_WRITE]) return false;
    const tn_sig sig = tn_node_sig(g, &n, 1);
    const int64_t at = maker_of(a, n.in[TN_OUTER_V], &tn_op_binary, i);
    const bool few = !a->n_seeds && tn_outer_in_steps(&sig); /* of any types, forwards */
    if (at < 0 || (!few && !tn_outer_in_tiles(&sig))) return false;
    const tn_node *by = &g->node[at];
    const tn_gtensor *v = &g->tensor[by->in[0]], *w = &g->tensor[by->in[1]], *y = &g->tensor[n.in[TN_OUTER_V]];
    const bool product =
        ((const tn_binary_attr *)by->attr)->kind == TN_BINARY_MUL && w->dims.rank == 4 && w->dims.dim[3] == 1;
    if (!product || v->live || y->live || !tn_dims_equal(v->dims, y->dims)) return false;
    for (int k = 0; k < 3; k++)
        if (w->dims.dim[k] != v->dims.dim[k]) return false;
    const bool tiles = v->dtype == TN_BF16 && in_vectors(g, by->in[0]) && in_vectors(g, n.in[TN_OUTER_Q]) &&
                       in_vectors(g, n.in[TN_OUTER_K]);
    if (few ? w->live != 0 : !tiles) return false;
    int32_t in[TN_OUTER_INPUTS];
    memcpy(in, n.in, sizeof in);
    in[TN_OUTER_V] = by->in[0];
    in[TN_OUTER_WRITE] = by->in[1];
    put_node(g, i, (size_t)at, n.op, n.attr, in, TN_OUTER_INPUTS, n.out, n.n_out);
    return true;
}

/* --- outer with alpha = -softplus(a) and write = sigmoid(b) ----------------------------------------------------------- */

/* The node that makes x, a unary op of this kind, for node i alone; -1: there is none. */
static int64_t unary_of(const absorb *a, int32_t x, tn_unary_kind kind, size_t i)
{
    const int64_t at = maker_of(a, x, &tn_op_unary, i);
    return at >= 0 && ((const tn_unary_attr *)a->g->node[at].attr)->kind == kind ? at : -1;
}

static bool gates_in_outer(absorb *a, size_t i)
{
    tn_graph *g = a->g;
    const tn_node n = g->node[i];
    if (n.op != &tn_op_outer || !n.in[TN_OUTER_WRITE] || ((const tn_outer_attr *)n.attr)->raw) return false;
    const tn_gtensor *w = &g->tensor[n.in[TN_OUTER_WRITE]];
    const int64_t neg = unary_of(a, n.in[TN_OUTER_ALPHA], TN_UNARY_SCALE, i);
    if (neg < 0 || ((const tn_unary_attr *)g->node[neg].attr)->a != -1 || !tn_gtensor_whole(g, w)) return false;
    const int64_t decay = unary_of(a, g->node[neg].in[0], TN_UNARY_SOFTPLUS, (size_t)neg);
    const int64_t strength = unary_of(a, w->base, TN_UNARY_SIGMOID, i);
    if (decay < 0 || strength < 0 || g->tensor[g->node[strength].in[0]].dims.rank != 3) return false;
    int32_t in[TN_OUTER_INPUTS];
    tn_outer_attr attr = *(const tn_outer_attr *)n.attr;
    const int32_t b = tn_graph_new_view(g, g->node[strength].in[0]);
    if (!b) return false;
    g->tensor[b].dims = tn_shape(g->tensor[b].dims.dim[0], g->tensor[b].dims.dim[1], g->tensor[b].dims.dim[2], 1);
    g->tensor[b].stride[3] = 1;
    memcpy(in, n.in, sizeof in);
    in[TN_OUTER_ALPHA] = g->node[decay].in[0];
    in[TN_OUTER_WRITE] = b;
    attr.raw = true;
    put_node(g, i, (size_t)neg, n.op, &attr, in, TN_OUTER_INPUTS, n.out, n.n_out);
    g->node[decay].op = g->node[strength].op = NULL;
    return true;
}

/* --- states for the backward pass ------------------------------------------------------------------------------------- */

static bool keep_states(absorb *a, size_t i)
{
    tn_graph *g = a->g;
    const tn_node n = g->node[i];
    if (n.op != &tn_op_outer || n.n_out > TN_OUTER_KEPT || !a->n_seeds) return false;
    const tn_sig sig = tn_node_sig(g, &n, 1);
    if (!tn_outer_in_tiles(&sig)) return false;
    for (int k = TN_OUTER_Q; k <= TN_OUTER_V; k++)
        if (!in_vectors(g, n.in[k])) return false;
    const int32_t kept = tn_graph_new_tensor(g, TN_ROLE_ACTIVATION, NULL, TN_BF16, tn_outer_kept_dims(&sig));
    tn_outer_attr attr = *(const tn_outer_attr *)n.attr;
    const int32_t out[] = { n.out[TN_OUTER_O], n.out[TN_OUTER_FINAL], kept };
    attr.keeps = true;
    if (!kept) return false;
    g->tensor[kept].producer = (int32_t)i;
    put_node(g, i, i, n.op, &attr, n.in, n.n_in, out, 3);
    return true;
}

static const struct {
    const char *name;
    bool (*into)(absorb *a, size_t i); /* node i and one before it become one; false: they cannot */
} rules[] = {
    { "opt.silu_in_conv", silu_in_conv },
    { "opt.write_in_outer", write_in_outer },
    { "opt.gates_in_outer", gates_in_outer },
    { "opt.keep_states", keep_states },
};

void tn_pass_absorb(tn_graph *g, bool recompute, const tn_seed *seeds, int n_seeds)
{
    absorb a = { .g = g, .recompute = recompute, .seeds = seeds, .n_seeds = n_seeds };
    bool any = false;
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        if (!tn_graph_switch(g, rules[r].name)) continue;
        for (size_t i = 0; i < g->n_nodes && g->status == TN_OK; i++) any |= g->node[i].op && rules[r].into(&a, i);
    }
    if (any && g->status == TN_OK) tn_graph_close_up(g);
}
