/* The charts of a study. */
#include "lab/view/view.h"

#include "lab/statistics/importance.h"
#include "lab/statistics/select.h"
#include "report/chart/chart.h"

#include <math.h>
#include <string.h>

enum { CURVES_STRONG = 10, CURVES_PALE = 40, TITLE = 256, DIM_TEXT = 64 };

static const char *side_name(const tn_study *s, size_t i) { return s->sides[i].name[0] ? s->sides[i].name : s->name; }

static const char **side_names(const tn_study *s, tn_arena *a)
{
    const char **v = tn_arena_alloc(a, sizeof *v * (s->n_sides + 1));
    for (size_t i = 0; v && i < s->n_sides; i++) v[i] = side_name(s, i);
    return v;
}

/* --- history ------------------------------------------------------------------------------------------------------ */

tn_status tn_study_history(const tn_study *s, size_t objective, tn_arena *a, tn_plot *out)
{
    tn_series *v = tn_arena_alloc(a, sizeof *v * (s->n_sides + 1));
    if (!v) return TN_MEMORY;
    for (size_t side = 0; side < s->n_sides; side++) {
        tn_selection e;
        TN_RETURN_IF(tn_select_ended(s, (int)side, a, &e));
        double *x = tn_arena_alloc(a, sizeof *x * (e.n + 1)), *y = tn_arena_alloc(a, sizeof *y * (e.n + 1)),
               best = INFINITY;
        if (!x || !y) return TN_MEMORY;
        for (size_t i = 0; i < e.n; i++) {
            if (e.trial[i]->state == TN_TRIAL_DONE) best = fmin(best, e.y[i * e.objectives + objective]);
            x[i] = (double)e.trial[i]->number;
            y[i] = s->objectives[objective].maximise ? -best : best;
        }
        v[side] = (tn_series){ .name = side_name(s, side), .x = x, .y = y, .n = e.n };
    }
    *out = (tn_plot){ .title = tn_arena_printf(a, "Best %s so far", s->objectives[objective].name),
                      .x_label = "trial",
                      .y_label = s->objectives[objective].name,
                      .series = v,
                      .count = s->n_sides };
    return TN_OK;
}

static tn_status history(const tn_study *s, size_t objective, tn_arena *a, FILE *out)
{
    tn_plot p;
    TN_RETURN_IF(tn_study_history(s, objective, a, &p));
    return tn_plot_svg(&p, out);
}

/* --- fronts ------------------------------------------------------------------------------------------------------- */

static bool spans_decades(const double *v, size_t n)
{
    double lo = INFINITY, hi = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) lo = fmin(lo, v[i]), hi = fmax(hi, v[i]);
    return lo > 0 && hi / lo > 20;
}

/* Whether a trial of the front stays on it where only two objectives count. The others need not be asked: whatever they dominate, one of
 * the front dominates too. */
static bool is_on_front_of(const tn_study *s, const tn_selection *e, size_t i, size_t other)
{
    const size_t objective[] = { 0, other };
    if (!e->front[i]) return false;
    for (size_t k = 0; k < e->n; k++) {
        bool worse = false, better = false;
        if (!e->front[k] || e->trial[k]->side != e->trial[i]->side) continue;
        for (size_t o = 0; o < 2; o++) {
            const double d = e->trial[k]->y[objective[o]] - e->trial[i]->y[objective[o]];
            better = better || (s->objectives[objective[o]].maximise ? d > 0 : d < 0);
            worse = worse || (s->objectives[objective[o]].maximise ? d < 0 : d > 0);
        }
        if (better && !worse) return false;
    }
    return true;
}

typedef struct marks { /* trials, then published points */
    double *x, *y;
    int *group;
    bool *front, *published;
    size_t n;
} marks;

static void mark_published(const tn_study *s, size_t other, marks *m)
{
    for (size_t side = 0; s->published && side < s->n_sides; side++)
        for (size_t i = 0; i < s->published->sides[side].n_points; i++, m->n++) {
            const double *y = s->published->sides[side].points[i].y;
            m->x[m->n] = y[other], m->y[m->n] = y[0], m->group[m->n] = (int)side, m->published[m->n] = true;
        }
}

static tn_status pareto(const tn_study *s, size_t other, tn_arena *a, FILE *out)
{
    tn_selection e;
    TN_RETURN_IF(tn_select_ended(s, TN_ALL_SIDES, a, &e));
    if (s->n_objectives < 2 || other == 0 || other >= s->n_objectives)
        return tn_error(TN_USAGE, "a front needs two objectives, and study %s has %zu", s->name, s->n_objectives);
    size_t most = e.n + 1;
    for (size_t side = 0; s->published && side < s->n_sides; side++) most += s->published->sides[side].n_points;
    marks m = { .x = tn_arena_alloc(a, sizeof *m.x * most),
                .y = tn_arena_alloc(a, sizeof *m.y * most),
                .group = tn_arena_alloc(a, sizeof *m.group * most),
                .front = tn_arena_alloc(a, most),
                .published = tn_arena_alloc(a, most) };
    if (!m.x || !m.y || !m.group || !m.front || !m.published) return TN_MEMORY;
    for (; m.n < e.n; m.n++) {
        const tn_trial *t = e.trial[m.n];
        m.x[m.n] = t->state == TN_TRIAL_DONE && t->y ? t->y[other] : NAN;
        m.y[m.n] = t->state == TN_TRIAL_DONE && t->y ? t->y[0] : NAN;
        m.group[m.n] = t->side, m.front[m.n] = is_on_front_of(s, &e, m.n, other);
    }
    mark_published(s, other, &m);
    const tn_scatter c = { .title =
                               tn_arena_printf(a, "%s against %s", s->objectives[0].name, s->objectives[other].name),
                           .x_label = s->objectives[other].name,
                           .y_label = s->objectives[0].name,
                           .groups = side_names(s, a),
                           .n_groups = s->n_sides,
                           .n = m.n,
                           .x = m.x,
                           .y = m.y,
                           .group = m.group,
                           .front = m.front,
                           .published = m.published,
                           .log_x = spans_decades(m.x, m.n) };
    return tn_chart_scatter(&c, out);
}

/* --- parallel coordinates ----------------------------------------------------------------------------------------- */

static tn_status parallel(const tn_study *s, int side, tn_arena *a, FILE *out)
{
    tn_selection e;
    const tn_space *space = &s->sides[side].space;
    TN_RETURN_IF(tn_select_ended(s, side, a, &e));
    const size_t axes = space->n;
    tn_parallel_axis *v = tn_arena_alloc(a, sizeof *v * (axes + 1));
    double *place = tn_arena_alloc(a, sizeof *place * (e.n * axes + 1)),
           *rank = tn_arena_alloc(a, sizeof *rank * (e.n + 1));
    const tn_trial **order = tn_arena_alloc(a, sizeof *order * (e.n + 1));
    if (!v || !place || !rank || !order) return TN_MEMORY;
    for (size_t k = 0; k < axes; k++) {
        const tn_dim *d = &space->dims[k];
        v[k] = (tn_parallel_axis){ .name = d->key,
                                   .choices = d->kind == TN_DIM_CHOICE ? d->choices : NULL,
                                   .n_choices = d->n_choices };
        if (d->kind == TN_DIM_CHOICE) continue;
        v[k].low = tn_arena_printf(a, "%.3g", d->lo);
        v[k].high = tn_arena_printf(a, "%.3g", d->hi);
    }
    memcpy(order, e.trial, sizeof *order * e.n);
    tn_select_sort(s, 0, order, e.n);
    for (size_t i = 0; i < e.n; i++) {
        rank[i] = order[i]->x ? (double)i / (double)(e.n > 1 ? e.n - 1 : 1) : NAN;
        for (size_t k = 0; k < axes; k++)
            place[i * axes + k] =
                order[i]->x && !isnan(order[i]->x[k]) ? tn_dim_place(&space->dims[k], order[i]->x[k]) : NAN;
    }
    const tn_parallel c = { .title = tn_arena_printf(a, "%s: best 10 %% by %s highlighted", side_name(s, (size_t)side),
                                                     s->objectives[0].name),
                            .axes = v,
                            .n_axes = axes,
                            .n = e.n,
                            .place = place,
                            .rank = rank };
    return tn_chart_parallel(&c, out);
}

/* --- importance --------------------------------------------------------------------------------------------------- */

static size_t row_of(const char **names, size_t *n, const char *key)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(names[i], key) == 0) return i;
    names[*n] = key;
    return (*n)++;
}

static tn_status importance(const tn_study *s, size_t objective, tn_arena *a, FILE *out)
{
    size_t most = 0, n = 0, drawn = 0;
    for (size_t i = 0; i < s->n_sides; i++) most += s->sides[i].space.n;
    const char **names = tn_arena_alloc(a, sizeof *names * (most + 1));
    double *value = tn_arena_alloc(a, sizeof *value * (most * s->n_sides + 1)),
           *spread = tn_arena_alloc(a, sizeof *spread * (most * s->n_sides + 1));
    double *part = tn_arena_alloc(a, sizeof *part * (most + 1)), *wide = tn_arena_alloc(a, sizeof *wide * (most + 1));
    if (!names || !value || !spread || !part || !wide) return TN_MEMORY;
    for (size_t i = 0; i < most * s->n_sides; i++) value[i] = spread[i] = NAN;
    for (size_t side = 0; side < s->n_sides; side++) {
        tn_selection e;
        tn_observed seen;
        const tn_space *space = &s->sides[side].space;
        TN_RETURN_IF(tn_select_ended(s, (int)side, a, &e));
        TN_RETURN_IF(tn_select_observed(s, (int)side, &e, a, &seen));
        const tn_status st = tn_importance(space, &seen, objective, 1, part, wide);
        if (st == TN_USAGE) continue; /* too few yet */
        TN_RETURN_IF(st);
        drawn++;
        for (size_t k = 0; k < space->n; k++) {
            const size_t row = row_of(names, &n, space->dims[k].key);
            value[row * s->n_sides + side] = part[k], spread[row * s->n_sides + side] = wide[k];
        }
    }
    if (!drawn) return tn_error(TN_USAGE, "importance needs at least 20 finished trials");
    const tn_bars c = { .title = tn_arena_printf(a, "Importance for %s", s->objectives[objective].name),
                        .x_label = "fraction of variance (fANOVA)",
                        .names = names,
                        .groups = side_names(s, a),
                        .n = n,
                        .n_groups = s->n_sides,
                        .value = value,
                        .spread = spread };
    return tn_chart_bars(&c, out);
}

/* --- timeline ----------------------------------------------------------------------------------------------------- */

static tn_status timeline(const tn_study *s, tn_arena *a, FILE *out)
{
    static const char *const names[] = { "done", "pruned", "failed", "timeout", "running" };
    static const int shown[TN_TRIAL_STATES] = {
        [TN_TRIAL_WAITING] = -1, [TN_TRIAL_RUNNING] = 4, [TN_TRIAL_DONE] = 0,
        [TN_TRIAL_PRUNED] = 1,   [TN_TRIAL_FAILED] = 2,  [TN_TRIAL_TIMEOUT] = 3
    };
    double *begin = tn_arena_alloc(a, sizeof *begin * (s->n + 1)), *end = tn_arena_alloc(a, sizeof *end * (s->n + 1)),
           zero = INFINITY;
    int *lane = tn_arena_alloc(a, sizeof *lane * (s->n + 1)), *state = tn_arena_alloc(a, sizeof *state * (s->n + 1));
    const char **used = tn_arena_alloc(a, sizeof *used * 5);
    if (!begin || !end || !lane || !state || !used) return TN_MEMORY;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->trials[i].started)) zero = fmin(zero, s->trials[i].started);
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        begin[i] = t->started - zero, end[i] = t->ended - zero;
        lane[i] = t->worker > 0 ? t->worker - 1 : -1, state[i] = shown[t->state];
        if (state[i] >= 0) used[state[i]] = names[state[i]];
    }
    const tn_timeline c = { .title = "Worker timeline",
                            .x_label = "seconds",
                            .states = used,
                            .n_states = 5,
                            .n = s->n,
                            .begin = begin,
                            .end = end,
                            .lane = lane,
                            .state = state };
    return tn_chart_timeline(&c, out);
}

/* --- learning curves ---------------------------------------------------------------------------------------------- */

static bool take_curve(const tn_study *s, const tn_trial *t, size_t objective, const tn_trial_curve *c, tn_arena *a,
                       tn_series *out)
{
    size_t k = 0;
    while (k < c->metrics && strcmp(c->name[k], s->objectives[objective].name) != 0) k++;
    if (k == c->metrics) k = 0; /* seconds or parameters have no curve: the first thing it reported */
    double *y = tn_arena_alloc(a, sizeof *y * (c->n + 1));
    char name[DIM_TEXT];
    if (!y || !c->n || !c->metrics) return false;
    for (size_t i = 0; i < c->n; i++) y[i] = c->value[i * c->metrics + k];
    tn_trial_name(s, t, name, sizeof name);
    *out = (tn_series){ .name = tn_arena_strdup(a, name), .x = c->epoch, .y = y, .n = c->n };
    return out->name != NULL;
}

static tn_status curves(const tn_study *s, tn_lab *lab, int side, size_t objective, tn_arena *a, FILE *out)
{
    tn_selection e;
    TN_RETURN_IF(tn_select_ended(s, side, a, &e));
    tn_series *v = tn_arena_alloc(a, sizeof *v * (CURVES_STRONG + CURVES_PALE));
    size_t n = 0;
    if (!v) return TN_MEMORY;
    tn_select_sort(s, objective, e.trial, e.n);
    const size_t strong = e.n < CURVES_STRONG ? e.n : CURVES_STRONG, rest = e.n - strong,
                 pale = rest < CURVES_PALE ? rest : CURVES_PALE;
    for (size_t i = 0; i < pale + strong;
         i++) { /* pale ones first, evenly from all the others; the best last, on top */
        const size_t at = i < pale ? strong + i * rest / pale : pale + strong - 1 - i;
        tn_trial_curve c;
        TN_RETURN_IF(tn_lab_curve(lab, e.trial[at]->id, a, &c));
        if (!take_curve(s, e.trial[at], objective, &c, a, &v[n])) continue;
        v[n].faint = i < pale;
        n++;
    }
    if (!n) return tn_error(TN_USAGE, "no trial of %s has reported a curve", side_name(s, (size_t)side));
    const tn_plot p = { .title = tn_arena_printf(a, "%s: learning curves", side_name(s, (size_t)side)),
                        .x_label = "epoch",
                        .y_label = s->objectives[objective].name,
                        .series = v,
                        .count = n };
    return tn_plot_svg(&p, out);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

const char *tn_study_chart_name(tn_study_chart c)
{
    static const char *const names[TN_STUDY_CHARTS] = { "history",    "pareto",   "parallel",
                                                        "importance", "timeline", "curves" };
    return c < TN_STUDY_CHARTS ? names[c] : NULL;
}

tn_status tn_study_chart_draw(tn_study_chart c, const tn_study *s, tn_lab *lab, int side, size_t objective, FILE *out)
{
    tn_arena a = { 0 };
    tn_status st = TN_OK;
    if (objective >= s->n_objectives || side < 0 || (size_t)side >= s->n_sides)
        return tn_error(TN_USAGE, "study %s has no such side or objective", s->name);
    switch (c) {
    case TN_STUDY_HISTORY: st = history(s, objective, &a, out); break;
    case TN_STUDY_PARETO: st = pareto(s, objective, &a, out); break;
    case TN_STUDY_PARALLEL: st = parallel(s, side, &a, out); break;
    case TN_STUDY_IMPORTANCE: st = importance(s, objective, &a, out); break;
    case TN_STUDY_TIMELINE: st = timeline(s, &a, out); break;
    case TN_STUDY_CURVES: st = curves(s, lab, side, objective, &a, out); break;
    case TN_STUDY_CHARTS: break;
    }
    tn_arena_free(&a);
    return st;
}
