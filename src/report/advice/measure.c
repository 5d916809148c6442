/* The gain of one candidate: runs of it in turn with the configuration as it is. */
#include "report/advice/advice.h"

#include "base/clock.h"
#include "report/probe/lines.h"

#include <math.h>

enum { PAIRS = 96, ENOUGH_PAIRS = 12, LEAST_PAIRS = 3, MOST_STEPS = 512, LOADER_STEPS = 8 };
static const double NARROW = 0.04; /* an interval, as a part of the gain */

/* What a step learns from: rows of a batch times batches. */
static double rows_of(const tn_session *s)
{
    return (double)s->batch * (double)tn_settings_int(s->settings, "train.accumulate");
}

/* Steps of a pair so that one lasts long enough for the clock and the queue. */
static int steps_of(double ms) { return ms >= 20 ? 1 : ms > 0 ? (int)fmin(ceil(20 / ms), 256) : 256; }

/* Of a step of each side, as the source counts it; batches of other rows, or of rows with other tokens in them, are other work. */
static double work_of(tn_step_probe *a, tn_step_probe *b)
{
    const double of_a = tn_step_probe_items(a), of_b = tn_step_probe_items(b);
    if (of_a > 0 && of_b > 0) return of_b / of_a;
    return rows_of(tn_step_probe_session(b)) / rows_of(tn_step_probe_session(a));
}

typedef struct sides {
    const tn_advice_turns *t;
    int steps[2]; /* as it is, changed; of a run */
    int64_t lines;
} sides;

static tn_status run(const sides *x, int side, double *ms)
{
    tn_step_probe *p = side ? x->t->changed : x->t->as_is;
    return x->lines ? tn_step_probe_lines(p, x->lines, ms) : tn_step_probe_run(p, x->steps[side], 0, ms);
}

/* On a machine that has nothing else to do a few pairs say it; where neighbours disturb them, as many as there is time for. */
static bool known(const double *ratio, int n)
{
    const tn_ratio r = tn_ratio_of(ratio, n, TN_RATIOS_TAIL);
    return n >= ENOUGH_PAIRS && r.high - r.low <= NARROW * r.median;
}

/* Pairs whose order alternates. */
static tn_status pairs(const sides *x, tn_advice *a)
{
    double ratio[PAIRS], ms[2];
    int n = 0;
    for (; n < PAIRS && (n < LEAST_PAIRS || (!known(ratio, n) && tn_clock_s() < x->t->until)); n++) {
        for (int k = 0; k < 2; k++) TN_RETURN_IF(run(x, k ^ (n & 1), &ms[k ^ (n & 1)]));
        ratio[n] = (x->lines ? 1 : work_of(x->t->as_is, x->t->changed)) * ms[0] / ms[1];
    }
    a->gain = tn_ratio_of(ratio, n, TN_RATIOS_TAIL);
    return TN_OK;
}

/* Both sides take as many steps before anything counts. */
static tn_status go_ahead(const tn_advice_turns *t, int64_t steps, bool *late)
{
    const double begun = tn_clock_s(), left = t->until - begun;
    double ms = 0;
    if (steps > MOST_STEPS) ms = HUGE_VAL;
    if (!isinf(ms)) TN_RETURN_IF(tn_step_probe_run(t->changed, (int)steps, fmax(left / 3, 1e-3), &ms));
    if (!isinf(ms)) TN_RETURN_IF(tn_step_probe_run(t->as_is, (int)steps, fmax(left / 2, 1e-3), &ms));
    *late = isinf(ms);
    return TN_OK;
}

/* Sides take about as long: a step of the candidate may be sixteen times as much work. Where opening them took all of the time, a second is
 * left for the first steps. */
tn_status tn_advice_measure(const tn_advice_turns *t, tn_advice *a, bool *late)
{
    double ms;
    sides x = { .t = t, .lines = a->lines };
    *late = false;
    if (!x.lines) {
        TN_RETURN_IF(tn_step_probe_warm(t->as_is, 0, &ms));
        TN_RETURN_IF(tn_step_probe_warm(t->changed, fmax(t->until - tn_clock_s(), 1), &ms));
        if ((*late = isinf(ms))) return TN_OK;
        if (a->after) TN_RETURN_IF(go_ahead(t, a->after, late));
        if (*late) return TN_OK;
        x.steps[1] = steps_of(ms);
        if (a->loads && x.steps[1] < LOADER_STEPS) x.steps[1] = LOADER_STEPS;
        x.steps[0] = (int)fmin(ceil(x.steps[1] * rows_of(tn_step_probe_session(t->changed)) /
                                    rows_of(tn_step_probe_session(t->as_is))),
                               MOST_STEPS);
    }
    return pairs(&x, a);
}
