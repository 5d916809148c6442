/* The search: contests of one axis, and trials of one point in them. */
#include "report/tune/search.h"

#include <math.h>
#include <string.h>

/* Pairs of a trial, one portion after the other while it is undecided. */
static const int portions[] = { 2, 4, 3, 3, 6 };
enum { PORTIONS = sizeof portions / sizeof *portions, MOST_TRIED = TN_TUNE_VALUES, ENOUGH = 9 };

static const double MUCH_SLOWER = 0.93; /* all of the first pairs below it: dropped */
static const double HARDLY = 1.005;     /* an interval below it is no gain */
static const double CLEAR = 1.05;       /* one above it needs no more pairs */
static const double LEAST_GAIN = 1.01;  /* of the median: less is not worth another setting */
static const double HOPELESS = 0.8;     /* a value with such a ratio is not tried again after other settings changed */

typedef struct searching {
    const tn_tune_search *s;
    tn_tune_point best;
    bool dropped[TN_TUNE_AXES][TN_TUNE_VALUES];
    tn_tune_tried list[MOST_TRIED]; /* (n) of the contest */
    int n;
} searching;

/* --- one point ---------------------------------------------------------------------------------------------------------------- */

/* TN_TUNE_TAKEN: it is a gain. leader: the best of the same axis, or NULL. */
static tn_tune_verdict judge(const tn_ratio *r, const tn_ratio *leader, bool strict, bool last)
{
    if (r->high < MUCH_SLOWER) return TN_TUNE_SLOWER;
    if (r->n < (strict ? TN_RATIOS_STRICT_LEAST : TN_RATIOS_LEAST)) return TN_TUNE_UNDECIDED;
    if (r->high < HARDLY) return TN_TUNE_SLOWER;
    if (leader && r->high < leader->low) return TN_TUNE_BEATEN;
    if (r->low > CLEAR) return TN_TUNE_TAKEN;
    if (r->median < (r->n < ENOUGH ? 1 : LEAST_GAIN)) return TN_TUNE_UNCLEAR; /* more pairs would hardly change it */
    if (!last) return TN_TUNE_UNDECIDED;
    return r->low > 1 && r->median >= LEAST_GAIN ? TN_TUNE_TAKEN : TN_TUNE_UNCLEAR;
}

/* Measures until it is decided; t->verdict is TAKEN for a gain. */
static tn_status try_point(searching *g, const tn_ratio *leader, bool strict, tn_tune_tried *t)
{
    const tn_tune_search *s = g->s;
    double ratio[TN_RATIOS_MOST];
    int have = 0;
    tn_tune_verdict verdict = TN_TUNE_UNDECIDED;
    t->ratio = tn_ratio_of(NULL, 0, TN_RATIOS_TAIL);
    t->why[0] = 0;
    for (int i = 0; i < PORTIONS && verdict == TN_TUNE_UNDECIDED; i++) {
        if (s->over(s->ctx)) {
            verdict = TN_TUNE_TIME;
            break;
        }
        int n = portions[i];
        t->verdict = TN_TUNE_UNDECIDED;
        TN_RETURN_IF(s->pairs(s->ctx, &g->best, t, i == 0, &n, ratio + have));
        have += n;
        t->ratio = tn_ratio_of(ratio, have, strict ? TN_RATIOS_STRICT_TAIL : TN_RATIOS_TAIL);
        verdict = t->verdict != TN_TUNE_UNDECIDED ? t->verdict : judge(&t->ratio, leader, strict, i == PORTIONS - 1);
    }
    t->verdict = verdict;
    return TN_OK;
}

static bool is_between(const tn_tune_search *s, int axis, int value)
{
    return axis == s->memory_axis && s->between && s->between[value];
}

/* The lowest value of the memory axis that a point which does not fit is tried with: in a contest of that axis, what lies between it and
 * the next one, which has a trial of its own, or the best. */
static int least_of(const searching *g, const tn_tune_tried *t, int axis)
{
    int v = t->at.at[axis];
    if (t->axis != axis) return 0;
    while (v > 0 && is_between(g->s, axis, v - 1) && v - 1 != g->best.at[axis]) v--;
    return v;
}

/* The highest from `least` on with which the point fits, by halves; below `least`: none. */
static tn_status highest_fitting(const searching *g, const tn_tune_tried *t, int axis, int least, int *found)
{
    int too_high = t->at.at[axis];
    tn_tune_point p = t->at;
    *found = least - 1;
    while (too_high - *found > 1) {
        bool fits = false;
        p.at[axis] = *found + (too_high - *found) / 2;
        TN_RETURN_IF(g->s->fits(g->s->ctx, &p, &fits));
        if (fits) *found = p.at[axis];
        else too_high = p.at[axis];
    }
    return TN_OK;
}

/* What does not fit is tried with the highest value of the memory axis that does; where none does, the point as it was asked for does
 * not fit. */
static tn_status try_smaller(searching *g, const tn_ratio *leader, tn_tune_tried *t)
{
    const int axis = g->s->memory_axis;
    int found;
    TN_RETURN_IF(try_point(g, leader, false, t));
    if (axis < 0 || t->verdict != TN_TUNE_MEMORY) return TN_OK;
    const tn_tune_tried asked = *t;
    const int least = least_of(g, t, axis);
    TN_RETURN_IF(highest_fitting(g, t, axis, least, &found));
    if (found < least || (t->axis == axis && g->dropped[axis][found])) return TN_OK;
    t->at.at[axis] = found;
    if (memcmp(&t->at, &g->best, sizeof t->at) != 0) TN_RETURN_IF(try_point(g, leader, false, t));
    else *t = asked;
    if (t->verdict == TN_TUNE_MEMORY) *t = asked;
    return TN_OK;
}

/* --- one axis ----------------------------------------------------------------------------------------------------------------- */

static tn_tune_tried *leader_of(searching *g)
{
    tn_tune_tried *best = NULL;
    for (int i = 0; i < g->n; i++) {
        tn_tune_tried *t = &g->list[i];
        if (t->verdict == TN_TUNE_TAKEN && (!best || t->ratio.median > best->ratio.median)) best = t;
    }
    return best;
}

static tn_status try_values(searching *g, int axis, const bool *which)
{
    for (int v = 0; v < g->s->values[axis]; v++) {
        if (!which[v] || v == g->best.at[axis] || g->n == MOST_TRIED) continue;
        tn_tune_tried *t = &g->list[g->n];
        const tn_tune_tried *leader = leader_of(g);
        *t = (tn_tune_tried){ .at = g->best, .than = g->best, .axis = axis };
        t->at.at[axis] = v;
        TN_RETURN_IF(try_smaller(g, leader ? &leader->ratio : NULL, t));
        g->n++;
        if (t->verdict == TN_TUNE_REFUSED || (t->ratio.n && t->ratio.high < HOPELESS))
            g->dropped[axis][t->at.at[axis]] = true;
    }
    return TN_OK;
}

/* Measured anew, so that the luck which made it the leader counts no longer, and by a stricter interval, since many values have tried their
 * luck; then its results. */
static tn_status confirm(searching *g, tn_tune_tried *t)
{
    tn_tune_tried again = *t;
    TN_RETURN_IF(try_point(g, NULL, true, &again));
    if (again.verdict == TN_TUNE_TAKEN) TN_RETURN_IF(g->s->check(g->s->ctx, &g->best, &again));
    const bool measured = again.verdict == TN_TUNE_SLOWER || again.verdict == TN_TUNE_UNCLEAR;
    if (measured) again.verdict = TN_TUNE_UNCONFIRMED;
    *t = again;
    return TN_OK;
}

/* The leader, if it holds; else the next. *taken: which, or -1. */
static tn_status take_leader(searching *g, int *taken)
{
    tn_tune_tried *t;
    *taken = -1;
    while (*taken < 0 && (t = leader_of(g))) {
        TN_RETURN_IF(confirm(g, t));
        if (t->verdict == TN_TUNE_TAKEN) *taken = (int)(t - g->list);
    }
    for (int i = 0; i < g->n; i++)
        if (g->list[i].verdict == TN_TUNE_TAKEN && i != *taken) g->list[i].verdict = TN_TUNE_BEATEN;
    if (*taken >= 0) g->best = g->list[*taken].at;
    return TN_OK;
}

static void tell(searching *g)
{
    for (int i = 0; i < g->n && g->s->tried; i++) g->s->tried(g->s->ctx, &g->list[i]);
    g->n = 0;
}

/* A joint move, for settings that help only together. */
static tn_status try_first(searching *g)
{
    int taken;
    tn_tune_tried *t = &g->list[0];
    if (!g->s->first || memcmp(g->s->first, &g->best, sizeof g->best) == 0) return TN_OK;
    *t = (tn_tune_tried){ .at = *g->s->first, .than = g->best, .axis = -1 };
    TN_RETURN_IF(try_smaller(g, NULL, t));
    g->n = 1;
    TN_RETURN_IF(take_leader(g, &taken));
    tell(g);
    return TN_OK;
}

/* All values of an axis; after one was taken, those again that were about as good. */
static tn_status contest(searching *g, int axis, bool *changed)
{
    bool which[TN_TUNE_VALUES];
    int taken = 0;
    *changed = false;
    for (int v = 0; v < TN_TUNE_VALUES; v++) which[v] = !g->dropped[axis][v] && !is_between(g->s, axis, v);
    while (taken >= 0) {
        TN_RETURN_IF(try_values(g, axis, which));
        TN_RETURN_IF(take_leader(g, &taken));
        memset(which, 0, sizeof which);
        for (int i = 0; i < g->n && taken >= 0; i++) {
            const tn_tune_tried *t = &g->list[i];
            const bool near = t->verdict == TN_TUNE_BEATEN && t->ratio.high >= g->list[taken].ratio.low;
            which[t->at.at[axis]] = near && i != taken;
        }
        *changed |= taken >= 0;
        tell(g);
    }
    return TN_OK;
}

tn_status tn_tune_find(const tn_tune_search *s, tn_tune_point *best)
{
    searching g = { .s = s, .best = s->start };
    bool changed;
    TN_RETURN_IF(try_first(&g));
    for (int axis = 0, since = 0; since < s->axes; axis = (axis + 1) % s->axes) {
        TN_RETURN_IF(contest(&g, axis, &changed));
        since = changed ? 1 : since + 1;
    }
    *best = g.best;
    return TN_OK;
}
