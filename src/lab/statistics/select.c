/* Selecting, sorting and naming trials. */
#include "lab/statistics/select.h"

#include "lab/search/pareto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double to_small(const tn_study *s, const tn_trial *t, size_t k)
{
    const double y = t->y ? t->y[k] : NAN;
    return isnan(y) ? INFINITY : s->objectives[k].maximise ? -y : y;
}

/* Fronts of the trials that are done; pruned ones have not shown what they can. */
static tn_status mark_fronts(const tn_study *s, tn_selection *v, tn_arena *arena)
{
    const size_t m = v->objectives;
    double *y = tn_arena_alloc(arena, sizeof *y * (v->n * m + 1));
    bool *front = tn_arena_alloc(arena, v->n + 1);
    size_t *at = tn_arena_alloc(arena, sizeof *at * (v->n + 1));
    if (!y || !front || !at) return TN_MEMORY;
    for (int side = 0; side < (int)s->n_sides; side++) {
        size_t n = 0;
        for (size_t i = 0; i < v->n; i++) {
            if (v->trial[i]->side != side || v->trial[i]->state != TN_TRIAL_DONE) continue;
            memcpy(y + n * m, v->y + i * m, sizeof *y * m);
            at[n++] = i;
        }
        if (!n) continue;
        TN_RETURN_IF(tn_pareto_front(y, n, m, front));
        for (size_t i = 0; i < n; i++) v->front[at[i]] = front[i];
    }
    return TN_OK;
}

tn_status tn_select_ended(const tn_study *s, int side, tn_arena *arena, tn_selection *out)
{
    tn_selection v = { .objectives = s->n_objectives };
    v.trial = tn_arena_alloc(arena, sizeof *v.trial * (s->n + 1));
    v.y = tn_arena_alloc(arena, sizeof *v.y * (s->n * s->n_objectives + 1));
    v.front = tn_arena_alloc(arena, s->n + 1);
    if (!v.trial || !v.y || !v.front) return TN_MEMORY;
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        if (t->kind == TN_TRIAL_COMPARE || !tn_trial_ended(t->state) || (side != TN_ALL_SIDES && t->side != side))
            continue;
        for (size_t k = 0; k < v.objectives; k++) v.y[v.n * v.objectives + k] = to_small(s, t, k);
        v.trial[v.n++] = t;
    }
    TN_RETURN_IF(mark_fronts(s, &v, arena));
    *out = v;
    return TN_OK;
}

tn_status tn_select_observed(const tn_study *s, int side, const tn_selection *of, tn_arena *arena, tn_observed *out)
{
    const size_t dims = s->sides[side].space.n;
    double *x = tn_arena_alloc(arena, sizeof *x * (of->n * dims + 1));
    bool *pruned = tn_arena_alloc(arena, of->n + 1);
    if (!x || !pruned) return TN_MEMORY;
    for (size_t i = 0; i < of->n; i++) {
        pruned[i] = of->trial[i]->state != TN_TRIAL_DONE;
        for (size_t k = 0; k < dims; k++) x[i * dims + k] = of->trial[i]->x ? of->trial[i]->x[k] : NAN;
    }
    *out = (tn_observed){ .n = of->n, .objectives = of->objectives, .x = x, .y = of->y, .pruned = pruned };
    return TN_OK;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
    const tn_trial *trial;
    double y;
} ranked;

static int better_first(const void *a, const void *b)
{
    const ranked *p = a, *q = b;
    const int done = (q->trial->state == TN_TRIAL_DONE) - (p->trial->state == TN_TRIAL_DONE);
    if (done) return done;
    if (p->y != q->y) return p->y < q->y ? -1 : 1;
    if (p->trial->number != q->trial->number) return p->trial->number < q->trial->number ? -1 : 1;
    return p->trial->side - q->trial->side;
}

void tn_select_sort(const tn_study *s, size_t objective, const tn_trial **trials, size_t n)
{
    ranked *v = tn_alloc(sizeof *v * (n + 1));
    if (!v) return; /* in the order they came */
    for (size_t i = 0; i < n; i++) v[i] = (ranked){ trials[i], to_small(s, trials[i], objective) };
    qsort(v, n, sizeof *v, better_first);
    for (size_t i = 0; i < n; i++) trials[i] = v[i].trial;
    tn_free(v);
}

tn_status tn_select_volume(const tn_study *s, const tn_selection *of, double *out)
{
    const size_t m = of->objectives;
    double *y = tn_alloc(sizeof *y * ((of->n + 1) * m + 1)), *reference = y ? y + of->n * m : NULL;
    size_t n = 0;
    *out = NAN;
    if (!y) return TN_MEMORY;
    bool known = true;
    for (size_t k = 0; k < m; k++) {
        reference[k] = s->objectives[k].maximise ? -s->objectives[k].reference : s->objectives[k].reference;
        known = known && isfinite(reference[k]);
    }
    for (size_t i = 0; i < of->n; i++)
        if (of->front[i]) memcpy(y + n++ * m, of->y + i * m, sizeof *y * m);
    const tn_status st = known && n ? tn_hypervolume(y, n, m, reference, out) : TN_OK;
    tn_free(y);
    return st;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

void tn_trial_name(const tn_study *s, const tn_trial *t, char *out, size_t bytes)
{
    const char *side = s->sides[t->side].name;
    const int n = snprintf(out, bytes, "%s%s%lld", side, side[0] ? "/" : "", (long long)t->number);
    if (t->kind == TN_TRIAL_COMPARE && n > 0 && (size_t)n < bytes)
        snprintf(out + n, bytes - (size_t)n, "@%llu", (unsigned long long)t->seed);
}

tn_status tn_select_named(const tn_study *s, const char *name, const tn_trial **out)
{
    char known[128], first[128] = "";
    for (size_t i = 0; i < s->n; i++) {
        tn_trial_name(s, &s->trials[i], known, sizeof known);
        if (strcmp(known, name) == 0) return *out = &s->trials[i], TN_OK;
        if (!i) snprintf(first, sizeof first, "%s", known);
    }
    if (!first[0]) return tn_error(TN_USAGE, "study %s has no trials yet", s->name);
    return tn_error(TN_USAGE, "study %s has no trial %.64s: they are named like %s (`tenon lab ls` lists them)",
                    s->name, name, first);
}
