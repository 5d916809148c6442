/* The layout of a plan's arena for reports: slots with the names of the ops that write them. */
#include "base/alloc.h"
#include "plan/plan_internal.h"

#include <math.h>
#include <stdlib.h>

static int largest_first(const void *pa, const void *pb)
{
    const tn_layout_row *a = pa, *b = pb;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

size_t tn_plan_layout(const tn_plan *p, tn_layout_row *rows)
{
    const tn_graph *g = p->graph;
    size_t n = 0;
    for (int i = 0; i < p->place.n_slots; i++) {
        const tn_slot *s = &p->place.slot[i];
        if (s->ext >= 0) continue;
        const tn_gtensor *t = &g->tensor[s->tensor];
        const tn_node *by = &g->node[s->first]; /* who touches a place of the arena first writes it */
        if (rows)
            rows[n] = (tn_layout_row){ .name = t->name,
                                       .op = by->op->name,
                                       .region = g->region[by->region],
                                       .backward = by->backward,
                                       .workspace = s->role == TN_ROLE_WORK,
                                       .dtype = t->dtype,
                                       .dims = t->dims,
                                       .offset = s->offset,
                                       .bytes = s->bytes,
                                       .first = (size_t)s->first,
                                       .last = (size_t)s->last < g->n_nodes ? (size_t)s->last : g->n_nodes };
        n++;
    }
    if (rows) qsort(rows, n, sizeof *rows, largest_first);
    return n;
}

double tn_plan_holes(const tn_plan *p)
{
    const size_t steps = p ? p->graph->n_nodes + 2 : 0;
    double *change = p ? tn_alloc(steps * sizeof *change) : NULL, now = 0, most = 0;
    size_t end = 0;
    if (!change) return NAN;
    for (int i = 0; i < p->place.n_slots; i++) {
        const tn_slot *s = &p->place.slot[i];
        if (s->ext >= 0) continue;
        const size_t last = (size_t)s->last < steps - 2 ? (size_t)s->last : steps - 2;
        change[s->first] += (double)s->bytes;
        change[last + 1] -= (double)s->bytes;
        end = s->offset + s->bytes > end ? s->offset + s->bytes : end;
    }
    for (size_t i = 0; i < steps; i++) {
        now += change[i];
        most = now > most ? now : most;
    }
    tn_free(change);
    return end ? 1 - most / (double)end : NAN;
}
