/* Standings of the sides against one of them. */
#include "lab/statistics/standings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- lines -------------------------------------------------------------------------------------------------------- */

static tn_status measure(const tn_study *s, tn_arena *arena, tn_standing *v)
{
    const size_t n = v->runs.n, m = s->n_objectives;
    double *y = tn_arena_alloc(arena, sizeof *y * m), *first = tn_arena_alloc(arena, sizeof *first * (n + 1));
    if (!y || !first) return TN_MEMORY;
    for (size_t k = 0; k < m; k++) {
        y[k] = 0;
        for (size_t i = 0; i < n; i++) y[k] += v->runs.trial[i]->y[k] / (double)n;
    }
    for (size_t i = 0; i < n; i++) first[i] = v->runs.trial[i]->y[0];
    if (n > 1) tn_mean_interval(first, n, &v->mean, &v->half);
    else v->mean = n ? first[0] : NAN, v->half = NAN;
    v->y = y;
    return TN_OK;
}

static tn_status correct(const tn_study *s, tn_standing *v, size_t n, double effect, tn_arena *arena)
{
    double *p = tn_arena_alloc(arena, 2 * sizeof *p * (n + 1));
    size_t count = 0, at = 0;
    if (!p) return TN_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (v[i].paired.n) p[count++] = v[i].paired.p;
    TN_RETURN_IF(tn_holm(p, count, p + n));
    for (size_t i = 0; i < n; i++) {
        if (!v[i].paired.n) continue;
        v[i].p_adjusted = p[n + at++];
        tn_compare_outcome(s, &v[i].paired, v[i].p_adjusted, count, effect, &v[i].judged);
    }
    return TN_OK;
}

static int by_mean(const void *a, const void *b)
{
    const tn_standing *p = a, *q = b;
    if (p->mean != q->mean) return p->mean < q->mean ? -1 : 1;
    return p->runs.side - q->runs.side;
}

tn_status tn_standings(const tn_study *s, tn_lab *lab, const tn_comparison *c, int against, double effect,
                       tn_arena *arena, tn_standing **out, size_t *n)
{
    tn_standing *v = tn_arena_alloc(arena, sizeof *v * s->n_sides);
    size_t count = 0, other = 0;
    if (!v) return TN_MEMORY;
    if (!tn_side_in(c->sides, (size_t)against))
        return tn_error(TN_USAGE,
                        "side %s has no finished trial, or is not in --sides: run the study first, or name another "
                        "with --against",
                        s->sides[against].name);
    for (size_t i = 0; i < s->n_sides; i++) {
        if (!tn_side_in(c->sides, i)) continue;
        if ((int)i == against) other = count;
        v[count] = (tn_standing){ .p_adjusted = NAN };
        TN_RETURN_IF(tn_compare_representative(s, lab, &c->contenders[TN_EFFORT_TRIALS * s->n_sides + i], arena,
                                               &v[count].runs));
        TN_RETURN_IF(measure(s, arena, &v[count++]));
    }
    for (size_t i = 0; i < count; i++)
        if (i != other) TN_RETURN_IF(tn_compare_pair(s, &v[i].runs, &v[other].runs, arena, &v[i].paired));
    TN_RETURN_IF(correct(s, v, count, effect, arena));
    qsort(v, count, sizeof *v, by_mean);
    if (s->objectives[0].maximise)
        for (size_t i = 0; i < count / 2; i++) {
            const tn_standing t = v[i];
            v[i] = v[count - 1 - i];
            v[count - 1 - i] = t;
        }
    *out = v;
    *n = count;
    return TN_OK;
}

/* --- curves ------------------------------------------------------------------------------------------------------- */

/* Seeds report at the same steps; a curve that does not is left out. */
static tn_status mean_curve(const tn_study *s, tn_lab *lab, const tn_side_runs *r, tn_arena *arena, tn_series *out)
{
    double *x = NULL, *y = NULL;
    size_t n = 0, curves = 0;
    for (size_t i = 0; i < r->n; i++) {
        tn_trial_curve c;
        size_t k = 0;
        TN_RETURN_IF(tn_lab_curve(lab, r->trial[i]->id, arena, &c));
        while (k < c.metrics && strcmp(c.name[k], s->objectives[0].name) != 0) k++;
        if (k == c.metrics || (curves && c.n != n)) continue;
        if (!curves) {
            n = c.n;
            x = tn_arena_alloc(arena, sizeof *x * (n + 1));
            y = tn_arena_alloc(arena, sizeof *y * (n + 1));
            if (!x || !y) return TN_MEMORY;
            memset(y, 0, sizeof *y * n);
        }
        for (size_t e = 0; e < n; e++) x[e] = (double)c.step[e], y[e] += c.value[e * c.metrics + k];
        curves++;
    }
    for (size_t e = 0; e < n; e++) y[e] /= (double)curves;
    *out = (tn_series){ .name = s->sides[r->side].name, .x = x, .y = y, .n = n };
    return TN_OK;
}

tn_status tn_standings_curves(const tn_study *s, tn_lab *lab, const tn_standing *v, size_t n, tn_arena *arena,
                              tn_plot *out)
{
    tn_series *series = tn_arena_alloc(arena, sizeof *series * (n + 1));
    size_t count = 0;
    if (!series) return TN_MEMORY;
    for (size_t i = 0; i < n; i++) {
        TN_RETURN_IF(mean_curve(s, lab, &v[i].runs, arena, &series[count]));
        count += series[count].n > 0;
    }
    if (!count) return tn_error(TN_USAGE, "no comparison of study %s has reported a curve", s->name);
    *out = (tn_plot){ .title = tn_arena_printf(arena, "%s: %s on the validation split, mean over seeds", s->name,
                                               s->objectives[0].name),
                      .x_label = "steps",
                      .y_label = s->objectives[0].name,
                      .series = series,
                      .count = count };
    return TN_OK;
}
