/* Comparison with published figures. */
#include "lab/statistics/published.h"

#include "lab/search/pareto.h"
#include "lab/statistics/select.h"
#include "lab/study/study.h"

#include <math.h>
#include <string.h>

static size_t objective_named(const tn_study *s, const char *name)
{
    size_t k = 0;
    while (k < s->n_objectives && strcmp(s->objectives[k].name, name) != 0) k++;
    return k;
}

static bool better(const tn_study *s, size_t k, double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(b) && !isnan(a);
    return s->objectives[k].maximise ? a > b : a < b;
}

/* --- sides -------------------------------------------------------------------------------------------------------- */

/* Done, on its side's front, and worth something: the report leaves out what never got one sample right. */
static bool counts(const tn_study *s, const tn_selection *e, size_t i)
{
    const tn_metric_row *r = tn_study_metric(s->objectives[0].name);
    return e->front[i] && !(r && tn_metric_is_fraction(r) && !(e->trial[i]->y[0] > 0));
}

static bool is_dominated(const tn_study *s, const tn_selection *e, size_t i)
{
    const size_t m = e->objectives;
    for (size_t k = 0; k < e->n; k++)
        if (e->trial[k]->side != e->trial[i]->side && counts(s, e, k) && tn_dominates(e->y + k * m, e->y + i * m, m))
            return true;
    return false;
}

/* Ties in an objective: the better first one, then the lower number. */
static void take_best(const tn_study *s, const tn_trial *t, tn_against_published_side *side)
{
    for (size_t k = 0; k < s->n_objectives; k++) {
        const tn_trial *b = side->best[k];
        if (isnan(t->y[k])) continue;
        if (!b || better(s, k, t->y[k], b->y[k]) || (t->y[k] == b->y[k] && better(s, 0, t->y[0], b->y[0])))
            side->best[k] = t;
    }
}

static tn_status make_sides(const tn_study *s, tn_arena *a, tn_selection *all, tn_against_published_side **out)
{
    tn_against_published_side *v = tn_arena_alloc(a, sizeof *v * (s->n_sides + 1));
    TN_RETURN_IF(tn_select_ended(s, TN_ALL_SIDES, a, all));
    for (size_t i = 0; v && i < s->n_sides; i++) {
        tn_selection own;
        if (!(v[i].best = tn_arena_alloc(a, sizeof *v[i].best * (s->n_objectives + 1)))) return TN_MEMORY;
        TN_RETURN_IF(tn_select_ended(s, (int)i, a, &own));
        TN_RETURN_IF(tn_select_volume(s, &own, &v[i].volume));
    }
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < all->n; i++) {
        tn_against_published_side *side = &v[all->trial[i]->side];
        if (isfinite(all->trial[i]->seconds)) side->hours += all->trial[i]->seconds / 3600;
        if (all->trial[i]->state != TN_TRIAL_DONE) continue;
        take_best(s, all->trial[i], side);
        if (!counts(s, all, i)) continue;
        side->front++;
        side->nondominated += !is_dominated(s, all, i);
    }
    *out = v;
    return TN_OK;
}

/* --- who wins ----------------------------------------------------------------------------------------------------- */

/* Of two sides with the same score: -1 the first, 1 the second, 0 a tie. */
static int break_tie(const tn_study *s, const tn_against_published_side *a, const tn_against_published_side *b,
                     const char **decided)
{
    static const double CLEAR = 0.05; /* the report's */
    const tn_trial *p = a->best[0], *q = b->best[0];
    const size_t seconds = objective_named(s, "seconds");
    *decided = "a tie by every criterion of the rule";
    if (!p || !q) return p ? -1 : q != NULL;
    if (fabs(p->y[0] - q->y[0]) > CLEAR) {
        *decided = "equally many front points; the best values differ by more than 0.05";
        return better(s, 0, p->y[0], q->y[0]) ? -1 : 1;
    }
    if (seconds == s->n_objectives || isnan(p->y[seconds]) || isnan(q->y[seconds]) || p->y[seconds] == q->y[seconds])
        return 0;
    *decided = "equally many front points, and close best values; the faster of these";
    return p->y[seconds] < q->y[seconds] ? -1 : 1;
}

static void decide(const tn_study *s, tn_against_published *b)
{
    const tn_against_published_side *v = b->sides;
    int top = 0;
    bool tie = false;
    b->decided = "front points that no other front dominates";
    for (int i = 1; i < (int)s->n_sides; i++) {
        int way = v[top].nondominated > v[i].nondominated ? -1 : v[top].nondominated < v[i].nondominated;
        if (way == 0) way = break_tie(s, &v[top], &v[i], &b->decided);
        if (way > 0) top = i;
        tie = way == 0 || (tie && way < 0);
    }
    b->winner = tie || s->n_sides < 2 ? -1 : top;
    b->larger = -1;
    for (int i = 0; i < (int)s->n_sides; i++) {
        bool most = s->n_sides > 1 && isfinite(v[i].volume);
        for (int k = 0; k < (int)s->n_sides; k++) most = most && (k == i || !(v[k].volume >= v[i].volume));
        if (most) b->larger = i;
    }
}

/* --- points ------------------------------------------------------------------------------------------------------- */

static const tn_trial *nearest(const tn_study *s, const tn_selection *e, size_t side, const tn_published_point *p)
{
    const size_t size = objective_named(s, "parameters");
    const tn_trial *best = NULL;
    if (size == s->n_objectives || isnan(p->y[size])) return NULL;
    for (size_t i = 0; i < e->n; i++) {
        const tn_trial *t = e->trial[i];
        if (t->side != (int)side || t->state != TN_TRIAL_DONE || !(t->y[size] <= p->y[size]) || isnan(t->y[0]))
            continue;
        if (!best || better(s, 0, t->y[0], best->y[0]) || (t->y[0] == best->y[0] && t->y[size] < best->y[size]))
            best = t;
    }
    return best;
}

tn_status tn_against_published_make(const tn_study *s, tn_arena *arena, tn_against_published *out)
{
    tn_selection all;
    tn_against_published_side *sides = NULL;
    size_t n = 0;
    TN_RETURN_IF(make_sides(s, arena, &all, &sides));
    tn_against_published b = { .sides = sides };
    decide(s, &b);
    for (size_t i = 0; i < s->n_sides; i++) b.n_points += s->published->sides[i].n_points;
    tn_against_published_point *points = tn_arena_alloc(arena, sizeof *points * (b.n_points + 1));
    if (!points) return TN_MEMORY;
    for (size_t i = 0; i < s->n_sides; i++)
        for (size_t k = 0; k < s->published->sides[i].n_points; k++, n++) {
            const tn_published_point *p = &s->published->sides[i].points[k];
            points[n] = (tn_against_published_point){ .side = i, .theirs = p, .ours = nearest(s, &all, i, p) };
        }
    b.points = points;
    *out = b;
    return TN_OK;
}
