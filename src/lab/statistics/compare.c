/* Choosing whom to compare, and the verdicts. */
#include "lab/statistics/compare.h"

#include "lab/db/trials.h"
#include "lab/statistics/select.h"
#include "lab/study/study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tn_effort_name(tn_effort e)
{
    static const char *const names[TN_EFFORTS] = { "trials", "seconds", "block evaluations" };
    return names[e];
}

/* --- contenders --------------------------------------------------------------------------------------------------- */

static tn_status costs_of(const tn_selection *v, tn_lab *lab, tn_effort e, double *cost)
{
    for (size_t i = 0; i < v->n; i++) {
        if (e == TN_EFFORT_EVALUATIONS)
            TN_RETURN_IF(tn_trial_reported(lab, v->trial[i], "block_evals", false, false, &cost[i]));
        else cost[i] = e == TN_EFFORT_TRIALS ? 1 : v->trial[i]->seconds;
        if (isnan(cost[i]) && v->trial[i]->state == TN_TRIAL_FAILED) cost[i] = 0; /* it never came so far */
    }
    return TN_OK;
}

static double sum_of(const double *v, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += v[i];
    return s;
}

/* Trials in the order of their numbers until the effort is spent; the best of those that are done. */
static tn_status choose(const tn_study *s, const tn_selection *v, const double *cost, double effort, size_t top,
                        tn_contenders *out)
{
    const tn_trial **paid = tn_alloc(sizeof *paid * (v->n + 1));
    double spent = 0;
    size_t n = 0;
    if (!paid) return TN_MEMORY;
    for (size_t i = 0; i < v->n; i++) {
        spent += cost[i];
        if (spent > effort * (1 + 1e-9)) break;
        paid[n++] = v->trial[i];
    }
    tn_select_sort(s, 0, paid, n);
    *out = (tn_contenders){ .considered = n };
    for (size_t i = 0; i < n && i < top && paid[i]->state == TN_TRIAL_DONE; i++) out->trial[out->n++] = paid[i];
    tn_free(paid);
    return TN_OK;
}

tn_side_set tn_compare_finished(const tn_study *s)
{
    tn_side_set sides = 0;
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        if (t->kind == TN_TRIAL_COMPARE && t->state == TN_TRIAL_DONE && t->y && isfinite(t->y[0]))
            sides |= (tn_side_set)1 << t->side;
    }
    return sides;
}

/* Those of the sides that have something to compare. */
static tn_status sides_with_trials(const tn_study *s, tn_side_set asked, tn_side_set *out)
{
    *out = 0;
    if (s->n_sides < 2)
        return tn_error(TN_USAGE, "study %s has one side: a comparison needs `sides` in the study file", s->name);
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        if (t->kind != TN_TRIAL_COMPARE && t->state == TN_TRIAL_DONE && tn_side_in(asked, (size_t)t->side))
            *out |= (tn_side_set)1 << t->side;
    }
    return *out ? TN_OK
                : tn_error(TN_USAGE, "no side of study %s%s has a finished trial: run the study first", s->name,
                           asked ? " that --sides names" : "");
}

tn_status tn_compare_pick(const tn_study *s, tn_lab *lab, tn_side_set sides, size_t top, tn_arena *arena,
                          tn_comparison *out)
{
    tn_comparison c = { .top = top < TN_COMPARE_TOP ? top : TN_COMPARE_TOP };
    tn_selection *v = tn_arena_alloc(arena, sizeof *v * s->n_sides);
    double **cost = tn_arena_alloc(arena, sizeof *cost * s->n_sides);
    c.contenders = tn_arena_alloc(arena, sizeof *c.contenders * TN_EFFORTS * s->n_sides);
    if (!v || !cost || !c.contenders) return TN_MEMORY;
    TN_RETURN_IF(sides_with_trials(s, sides, &c.sides));
    for (size_t i = 0; i < s->n_sides; i++) {
        TN_RETURN_IF(tn_select_ended(s, (int)i, arena, &v[i]));
        cost[i] = tn_arena_alloc(arena, sizeof **cost * (v[i].n + 1));
        if (!cost[i]) return TN_MEMORY;
    }
    for (int e = 0; e < TN_EFFORTS; e++) {
        c.effort[e] = INFINITY;
        for (size_t i = 0; i < s->n_sides; i++) {
            if (!tn_side_in(c.sides, i)) continue;
            TN_RETURN_IF(costs_of(&v[i], lab, (tn_effort)e, cost[i]));
            const double all = sum_of(cost[i], v[i].n);
            c.effort[e] = isnan(all) || all <= 0 ? NAN : fmin(c.effort[e], all);
            if (isnan(c.effort[e])) break;
        }
        for (size_t i = 0; i < s->n_sides && !isnan(c.effort[e]); i++) {
            tn_contenders *to = &c.contenders[(size_t)e * s->n_sides + i];
            if (!tn_side_in(c.sides, i)) continue;
            TN_RETURN_IF(choose(s, &v[i], cost[i], c.effort[e], c.top, to));
            if (!to->n && e != TN_EFFORT_TRIALS)
                c.effort[e] = NAN; /* less than one trial of this side costs: nothing to compare */
            if (!to->n && e == TN_EFFORT_TRIALS)
                return tn_error(TN_USAGE, "side %s of study %s has no finished trial: run the study first",
                                s->sides[i].name, s->name);
        }
    }
    *out = c;
    return TN_OK;
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

static int by_seed(const void *a, const void *b)
{
    const tn_trial *p = *(const tn_trial *const *)a, *q = *(const tn_trial *const *)b;
    return p->seed < q->seed ? -1 : p->seed > q->seed;
}

static tn_status gather(const tn_study *s, tn_lab *lab, const tn_trial *of, tn_arena *arena, tn_side_runs *out)
{
    tn_side_runs r = { .of = of, .side = of->side, .trial = tn_arena_alloc(arena, sizeof *r.trial * (s->n + 1)) };
    if (!r.trial) return TN_MEMORY;
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        if (t->kind == TN_TRIAL_COMPARE && t->config == of->id && t->state == TN_TRIAL_DONE && t->y &&
            isfinite(t->y[0]))
            r.trial[r.n++] = t;
    }
    qsort(r.trial, r.n, sizeof *r.trial, by_seed);
    for (size_t i = 0; i < r.n; i++) {
        double v;
        TN_RETURN_IF(tn_trial_reported(lab, r.trial[i], s->objectives[0].name, true, s->objectives[0].maximise, &v));
        r.validation +=
            (isnan(v) ? r.trial[i]->y[0] : v) / (double)r.n; /* an objective without a curve stands for itself */
    }
    *out = r;
    return TN_OK;
}

tn_status tn_compare_representative(const tn_study *s, tn_lab *lab, const tn_contenders *c, tn_arena *arena,
                                    tn_side_runs *out)
{
    tn_side_runs best = { .n = 0, .side = c->n ? c->trial[0]->side : 0 };
    for (size_t i = 0; i < c->n; i++) {
        tn_side_runs r = { .n = 0 };
        TN_RETURN_IF(gather(s, lab, c->trial[i], arena, &r));
        const bool better = s->objectives[0].maximise ? r.validation > best.validation : r.validation < best.validation;
        if (r.n > best.n || (r.n == best.n && r.n && better)) best = r;
    }
    *out = best;
    return TN_OK;
}

/* Why a comparison has nothing to compare: what the first failed trial of these sides said, or "". */
static const char *first_failure(const tn_study *s, int a, int b)
{
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        if (t->kind == TN_TRIAL_COMPARE && t->state == TN_TRIAL_FAILED && (t->side == a || t->side == b) && t->error)
            return t->error;
    }
    return "";
}

tn_status tn_compare_pair(const tn_study *s, const tn_side_runs *a, const tn_side_runs *b, tn_arena *arena,
                          tn_paired *out)
{
    double *x = tn_arena_alloc(arena, sizeof *x * (a->n + 1)), *y = tn_arena_alloc(arena, sizeof *y * (a->n + 1));
    size_t n = 0;
    if (!x || !y) return TN_MEMORY;
    for (size_t i = 0, k = 0; i < a->n; i++) {
        while (k < b->n && b->trial[k]->seed < a->trial[i]->seed) k++;
        if (k == b->n || b->trial[k]->seed != a->trial[i]->seed) continue;
        x[n] = a->trial[i]->y[0], y[n++] = b->trial[k]->y[0];
    }
    const char *why = n ? "" : first_failure(s, (int)a->side, (int)b->side);
    if (*why)
        return tn_error(TN_USAGE, "%s and %s have no common seed that finished; a trial failed: %.400s",
                        s->sides[a->side].name, s->sides[b->side].name, why);
    if (!n)
        return tn_error(
            TN_USAGE,
            "%s and %s have no common seed that finished: run `tenon lab compare` again, or with more --seeds",
            s->sides[a->side].name, s->sides[b->side].name);
    return tn_paired_compare(x, y, n, out);
}

void tn_compare_outcome(const tn_study *s, const tn_paired *r, double p_adjusted, size_t comparisons, double effect,
                        tn_judged *out)
{
    static const double PART = 0.005, SHARE = 0.005;
    const tn_metric_row *row = tn_study_metric(s->objectives[0].name);
    const double usual = row && tn_metric_is_fraction(row) ? PART : SHARE * (fabs(r->mean_a) + fabs(r->mean_b)) / 2;
    tn_judged v = { .effect = isnan(effect) ? usual : effect, .comparisons = comparisons };
    tn_power sight;
    tn_power_of(r->n, comparisons, &sight);
    v.word = tn_paired_judge(r, p_adjusted, &sight, v.effect, &v.seen);
    v.better = ((v.word == TN_A_LARGER) - (v.word == TN_B_LARGER)) * (s->objectives[0].maximise ? 1 : -1);
    v.aim = fmax(v.effect, fabs(r->difference));
    if (v.word == TN_UNDECIDED) v.seeds = tn_seeds_needed(r, comparisons, v.aim);
    *out = v;
}

static size_t first_of(const tn_verdict *v, size_t n)
{
    size_t i = 0;
    while (i < n && (v[i].of_a != v[n].of_a || v[i].of_b != v[n].of_b)) i++;
    return i;
}

/* Holm over distinct comparisons: the same two points at equal trials and at equal seconds are one. */
static tn_status correct(const tn_study *s, tn_verdict *v, size_t n, double effect, tn_arena *arena)
{
    double *p = tn_arena_alloc(arena, 2 * sizeof *p * (n + 1));
    size_t distinct = 0, at = 0;
    if (!p) return TN_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (v[i].first == i) p[distinct++] = v[i].paired.p;
    TN_RETURN_IF(tn_holm(p, distinct, p + n));
    for (size_t i = 0; i < n; i++) {
        if (v[i].first < i) {
            v[i].p_adjusted = v[v[i].first].p_adjusted;
            v[i].judged = v[v[i].first].judged;
            continue;
        }
        v[i].p_adjusted = p[n + at++];
        tn_compare_outcome(s, &v[i].paired, v[i].p_adjusted, distinct, effect, &v[i].judged);
    }
    return TN_OK;
}

tn_status tn_compare_judge(const tn_study *s, tn_lab *lab, const tn_comparison *c, double effect, tn_arena *arena,
                           tn_verdict **out, size_t *n)
{
    const size_t most = TN_EFFORTS * s->n_sides * (s->n_sides - 1) / 2;
    tn_verdict *v = tn_arena_alloc(arena, sizeof *v * (most + 1));
    tn_side_runs *r = tn_arena_alloc(arena, sizeof *r * s->n_sides);
    size_t count = 0;
    if (!v || !r) return TN_MEMORY;
    if (tn_side_count(c->sides, s->n_sides) < 2)
        return tn_error(
            TN_USAGE, "only one side of study %s has finished trials, and a comparison needs two: run the study first",
            s->name);
    for (int e = 0; e < TN_EFFORTS; e++) {
        if (isnan(c->effort[e])) continue;
        for (size_t i = 0; i < s->n_sides; i++)
            TN_RETURN_IF(tn_compare_representative(s, lab, &c->contenders[(size_t)e * s->n_sides + i], arena, &r[i]));
        for (int a = 0; a < (int)s->n_sides; a++)
            for (int b = a + 1; b < (int)s->n_sides; b++) {
                if (!tn_side_in(c->sides, (size_t)a) || !tn_side_in(c->sides, (size_t)b)) continue;
                v[count] = (tn_verdict){ .effort = (tn_effort)e, .a = a, .b = b, .of_a = r[a].of, .of_b = r[b].of };
                v[count].first = first_of(v, count);
                TN_RETURN_IF(tn_compare_pair(s, &r[a], &r[b], arena, &v[count].paired));
                count++;
            }
    }
    TN_RETURN_IF(correct(s, v, count, effect, arena));
    *out = v;
    *n = count;
    return TN_OK;
}
