/* A plan checked without running it: every byte of the arena remembers the tensor that wrote it last. A node must find
 * its own tensors where it reads, must not write over what it still reads (unless its op works in place), and outputs
 * must stand at the end. Header only. Live extents count as whole tensors. */
#ifndef TN_PLAN_CHECK_H
#define TN_PLAN_CHECK_H

#include "plan/plan_internal.h"
#include "testlib.h"

#include <stdlib.h>
#include <string.h>

typedef struct tn_plan_checker {
    const tn_plan *plan;
    int32_t *owner; /* by 4 bytes of the arena: base tensor, 0 = nobody */
} tn_plan_checker;

enum { TN_CHECK_READ, TN_CHECK_WRITE };

/* The words [first, last); false when a read meets another tensor's memory. */
static inline bool tn_plan_check_words(tn_plan_checker *c, size_t first, size_t last, int32_t base, int what)
{
    for (size_t k = first; k < last; k++) {
        if (what == TN_CHECK_WRITE) c->owner[k] = base;
        else if (c->owner[k] != base) return false;
    }
    return true;
}

/* Every element of a view. */
static inline bool tn_plan_check_tensor(tn_plan_checker *c, int32_t id, int what)
{
    const tn_gtensor *t = &c->plan->graph->tensor[id];
    const tn_slot *s = &c->plan->place.slot[c->plan->place.slot_of[t->base]];
    const size_t bytes = tn_dtype_bytes(t->dtype);
    const int64_t n = tn_gtensor_count(t);
    int64_t at[TN_MAX_RANK] = { 0 };
    if (s->ext >= 0) return true;
    if (tn_gtensor_contiguous(t)) {
        const size_t from = s->offset + (size_t)t->offset * bytes;
        return tn_plan_check_words(c, from / 4, (from + (size_t)n * bytes + 3) / 4, t->base, what);
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t e = t->offset;
        for (int i = 0; i < t->dims.rank; i++) e += at[i] * t->stride[i];
        const size_t word = (s->offset + (size_t)e * bytes) / 4;
        if (!tn_plan_check_words(c, word, word + 1, t->base, what)) return false;
        for (int i = t->dims.rank - 1; i >= 0 && ++at[i] == t->dims.dim[i]; i--) at[i] = 0;
    }
    return true;
}

typedef struct tn_plan_touch {
    int32_t reads[4 * TN_MAX_ARGS + 1], writes[TN_MAX_ARGS + 1];
    int n_reads, n_writes;
} tn_plan_touch;

static inline void tn_plan_check_add(const tn_graph *g, tn_plan_touch *t, int32_t id, bool read)
{
    if (!id) return;
    if (read) t->reads[t->n_reads++] = id;
    else t->writes[t->n_writes++] = id;
    if (g->tensor[id].live) t->reads[t->n_reads++] = g->tensor[id].live;
}

static inline tn_plan_touch tn_plan_check_touched(const tn_graph *g, const tn_node *n)
{
    tn_plan_touch t = { 0 };
    const bool adds = n->op == &tn_op_copy && ((const tn_copy_attr *)n->attr)->accumulate;
    for (int k = 0; k < n->n_in; k++)
        if (!n->backward || (n->reads_in >> k & 1)) tn_plan_check_add(g, &t, n->in[k], true);
    for (int k = 0; k < n->n_out; k++) {
        if (n->backward) tn_plan_check_add(g, &t, n->dout[k], true);
        if (n->backward && (n->reads_out >> k & 1)) tn_plan_check_add(g, &t, n->out[k], true);
        if (!n->backward && adds) tn_plan_check_add(g, &t, n->out[k], true);
        if (!n->backward || n->makes_out) tn_plan_check_add(g, &t, n->out[k], false);
    }
    for (int k = 0; n->backward && k < n->n_in; k++) {
        if (n->accumulate >> k & 1) tn_plan_check_add(g, &t, n->din[k], true);
        tn_plan_check_add(g, &t, n->din[k], false);
    }
    return t;
}

static inline void tn_plan_check_node(tn_plan_checker *c, const tn_node *n, const char *what)
{
    const tn_graph *g = c->plan->graph;
    const tn_plan_touch t = tn_plan_check_touched(g, n);
    const int32_t first = n->backward ? n->dout[0] : n->n_in ? n->in[0] : 0;
    const char *dir = n->backward ? " (backward)" : "";
    if (n->work) tn_plan_check_tensor(c, n->work, TN_CHECK_WRITE);
    for (int k = 0; k < t.n_reads; k++)
        if (!tn_plan_check_tensor(c, t.reads[k], TN_CHECK_READ))
            fail_msg("%s: %s%s reads tensor %d, which is not there", what, n->op->name, dir, t.reads[k]);
    for (int k = 0; k < t.n_writes; k++) tn_plan_check_tensor(c, t.writes[k], TN_CHECK_WRITE);
    for (int k = 0; k < t.n_writes; k++)
        if (!tn_plan_check_tensor(c, t.writes[k], TN_CHECK_READ))
            fail_msg("%s: %s%s writes two tensors to one place", what, n->op->name, dir);
    for (int k = 0; k < t.n_reads; k++) {
        const bool over =
            (n->op->flags & TN_OP_INPLACE) && first && g->tensor[t.reads[k]].base == g->tensor[first].base;
        if (!over && !tn_plan_check_tensor(c, t.reads[k], TN_CHECK_READ))
            fail_msg("%s: %s%s writes over tensor %d that it reads", what, n->op->name, dir, t.reads[k]);
    }
    if (n->work && !tn_plan_check_tensor(c, n->work, TN_CHECK_READ))
        fail_msg("%s: %s%s writes over its workspace", what, n->op->name, dir);
}

static inline void tn_plan_check(const tn_plan *p, const char *what)
{
    tn_plan_checker c = { .plan = p, .owner = calloc(p->place.arena_bytes / 4 + 16, sizeof(int32_t)) };
    assert_non_null(c.owner);
    for (size_t i = 0; i < p->graph->n_nodes; i++) tn_plan_check_node(&c, &p->graph->node[i], what);
    for (size_t i = 0; i < p->graph->n_outputs; i++)
        if (!tn_plan_check_tensor(&c, p->graph->output[i].id, TN_CHECK_READ))
            fail_msg("%s: output %s is gone at the end", what, p->graph->output[i].name);
    free(c.owner);
}

#endif
