/* Transfer: the best points of one study become the first trials of another. */
#include "lab/db/trials.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether points of another study's side are for side i. */
static bool side_for(const tn_study *from, int side, const tn_study_plan *p, size_t i)
{
    const char *name = from->sides[side].name;
    return !name[0] || !p->sides[i].name[0] || strcmp(name, p->sides[i].name) == 0;
}

static double value_in(const tn_dim *d, const tn_study *from, const tn_trial *t, double otherwise)
{
    const tn_space *s = &from->sides[t->side].space;
    char text[512];
    for (size_t k = 0; k < s->n; k++) {
        if (strcmp(s->dims[k].key, d->key) != 0 || isnan(t->x[k])) continue;
        tn_dim_text(&s->dims[k], t->x[k], text, sizeof text);
        for (size_t c = 0; d->kind == TN_DIM_CHOICE && c < d->n_choices; c++)
            if (strcmp(d->choices[c], text) == 0) return (double)c;
        if (d->kind == TN_DIM_CHOICE || s->dims[k].kind == TN_DIM_CHOICE) continue;
        if (t->x[k] < d->lo || t->x[k] > d->hi) continue;
        return d->kind == TN_DIM_FLOAT && !(d->step > 0)
                   ? t->x[k]
                   : tn_dim_at(d, tn_dim_place(d, t->x[k])); /* on its own steps */
    }
    return otherwise;
}

/* The next best that is worse than `last`, or of equal ones has a higher place. */
static const tn_trial *next_best(const tn_study *from, const tn_study_plan *p, size_t side, const tn_trial *last)
{
    const tn_trial *best = NULL;
    const double way = from->objectives[0].maximise ? -1 : 1;
    for (size_t i = 0; i < from->n; i++) {
        const tn_trial *t = &from->trials[i];
        if (t->state != TN_TRIAL_DONE || t->kind == TN_TRIAL_COMPARE || !t->x || isnan(t->y[0]) ||
            !side_for(from, t->side, p, side))
            continue;
        if (last && !(way * t->y[0] > way * last->y[0] || (t->y[0] == last->y[0] && t > last))) continue;
        if (!best || way * t->y[0] < way * best->y[0]) best = t;
    }
    return best;
}

static tn_status give_side(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, const tn_study *from)
{
    const tn_space *space = &p->sides[side].space;
    const tn_observed none = { .objectives = p->n_objectives };
    double *x = tn_alloc(sizeof *x * (space->n + 1));
    const tn_trial *t = NULL;
    tn_status s = x ? TN_OK : TN_MEMORY;
    for (int64_t k = 0; s == TN_OK && k < p->from_best && (t = next_best(from, p, side, t)); k++) {
        s = tn_sampler_find("random")->draw(&p->sampling, space, &none, k, x);
        for (size_t i = 0; s == TN_OK && i < space->n; i++) {
            if (isnan(x[i])) x[i] = tn_dim_at(&space->dims[i], 0.5); /* another choice may bring it back */
            x[i] = value_in(&space->dims[i], from, t, x[i]);
        }
        tn_space_apply_when(space, x);
        if (s == TN_OK) s = tn_lab_enqueue(lab, study, p, side, TN_TRIAL_ENQUEUED, 0, p->seed + (uint64_t)k, x);
    }
    tn_free(x);
    return s;
}

tn_status tn_lab_transfer(tn_lab *lab, int64_t study, const tn_study_plan *p)
{
    tn_lab *other = NULL;
    tn_study *from = NULL;
    tn_status s = tn_lab_open(p->from_db, false, &other);
    if (s == TN_OK) s = tn_lab_verify(other);
    if (s == TN_OK) s = tn_lab_load(other, p->from_study, &from);
    if (s != TN_OK) tn_error_prefix("transfer");
    for (size_t i = 0; s == TN_OK && i < p->n_sides; i++) s = give_side(lab, study, p, i, from);
    tn_study_free(from);
    tn_lab_close(other);
    return s;
}
