/* Everything plain, then one row after the other on: each configuration in turn with the one before it. */
#include "report/ablate/ablate_internal.h"

#include "base/clock.h"

#include <math.h>

enum { TURN_PAIRS = 32 };

/* Rows before `on` are fast, those from there on plain. */
static void words_at(const tn_ablating *x, size_t on, tn_ablate_words *out)
{
    out->n = 0;
    for (size_t i = 0; i < x->n; i++) {
        const tn_ablate_row *r = &x->row[i];
        if (!x->cumulative[i]) continue;
        for (size_t k = 0; k < (i < on ? r->n_fast : r->n_plain) && out->n < TN_ABLATE_ALL_WORDS; k++)
            out->word[out->n++] = i < on ? r->fast[k] : r->plain[k];
    }
}

static tn_status open_at(const tn_ablating *x, size_t on, void **side)
{
    tn_ablate_words w;
    words_at(x, on, &w);
    return tn_ablating_open(x, &tn_side_step, &w, false, side);
}

typedef struct turns {
    void *side[2]; /* without and with the row */
    double ms[2];  /* of one */
    double times;  /* so far */
    bool same;     /* the row changes nothing after those before it */
    bool begun;    /* all plain is told */
} turns;

static void close_both(turns *t)
{
    for (int i = 0; i < 2; i++) {
        tn_side_step.close(t->side[i]);
        t->side[i] = NULL;
    }
}

/* Both are opened anew: what a step does may depend on how far the weights have come. */
static tn_status take_turn(tn_ablating *x, size_t i, double until, turns *t)
{
    double ratio[TURN_PAIRS];
    int n = TURN_PAIRS;
    const tn_ablate_row *r = &x->row[i];
    for (size_t k = 0; k < 2; k++) TN_RETURN_IF(open_at(x, i + k, &t->side[k]));
    const tn_plan_difference d =
        r->by_plan && !r->not_on_plans ? tn_side_plans(t->side[0], t->side[1]) : TN_PLANS_DIFFER;
    t->same = d == TN_PLANS_SAME;
    for (size_t k = 0; k < 2 && !t->same; k++) {
        TN_RETURN_IF(tn_side_step.warm(t->side[k], fmax(tn_ablating_left(x), 0.5), &t->ms[k]));
        if (isinf(t->ms[k])) return TN_OK;
    }
    if (t->same) return TN_OK;
    TN_RETURN_IF(tn_ablating_pairs(x, &tn_side_step, t->side, until, &n, ratio, t->ms));
    if (!n) t->ms[1] = HUGE_VAL;
    if (!n) return TN_OK;
    const tn_ratio found = tn_ratio_of(ratio, n, TN_RATIOS_TAIL);
    t->same = d == TN_PLANS_ATTRIBUTES && found.low <= 1 && found.high >= 1;
    if (!t->same) t->times *= found.median;
    return TN_OK;
}

static void tell(const tn_ablating *x, const char *name, const turns *t, int side, double times)
{
    x->o->turn(x->o->ctx,
               &(tn_ablate_turn){
                   .name = name, .ms = t->ms[side], .bytes = tn_side_step.bytes(t->side[side]), .times = times });
}

static tn_status take_turns(tn_ablating *x, double until, size_t count, turns *t)
{
    for (size_t i = 0; i < x->n; i++) {
        const double now = tn_clock_s();
        if (!x->cumulative[i]) continue;
        if (now >= x->until) return TN_OK;
        TN_RETURN_IF(tn_ablating_ask(x, x->row[i].name));
        TN_RETURN_IF(take_turn(x, i, now + fmax(until - now, 0) / (double)count--, t));
        if (isinf(t->ms[0]) || isinf(t->ms[1])) return TN_OK;
        if (!t->same && !t->begun) tell(x, NULL, t, 0, 1);
        if (!t->same) tell(x, x->row[i].name, t, 1, t->times);
        t->begun |= !t->same;
        close_both(t);
    }
    return TN_OK;
}

/* What cannot be opened all plain has no such list. */
tn_status tn_ablate_turns(tn_ablating *x, double until)
{
    turns t = { .times = 1 };
    size_t count = 0;
    for (size_t i = 0; i < x->n; i++) count += x->cumulative[i];
    if (count < 2 || tn_ablating_left(x) <= 0) return TN_OK;
    const tn_status s = take_turns(x, until, count, &t);
    close_both(&t);
    return s == TN_USAGE || s == TN_MEMORY || s == TN_DIVERGED ? TN_OK : s;
}
