/* The rule of overfit_watch.h. A resumed run knows only its best evaluation; three more decide. */
#include "train/run/overfit_watch.h"

#include <math.h>

static const double LEAST_FRAC = 0.01, NOISES = 3,
                    FADES = 0.95; /* the noise, by evaluation: early jumps say little about later ones */

void tn_overfit_watch_begin(tn_overfit_watch *w, bool higher, double best, int64_t best_step)
{
    *w = (tn_overfit_watch){ .higher = higher, .best = best, .best_step = best_step, .now = best };
}

/* By how much b is worse than a; negative where it is better. */
static double worse_by(const tn_overfit_watch *w, double a, double b) { return w->higher ? a - b : b - a; }

static bool all_worse(const tn_overfit_watch *w)
{
    const double least = fmax(LEAST_FRAC * fabs(w->best), NOISES * w->noise);
    if (w->since < TN_OVERFIT_EVALUATIONS) return false;
    for (int i = 0; i < TN_OVERFIT_EVALUATIONS; i++)
        if (!(worse_by(w, w->best, w->last[i]) > least)) return false;
    return true;
}

static void take_best(tn_overfit_watch *w, int64_t step, double value)
{
    w->noise = fmax(FADES * w->noise, w->widest);
    w->best = w->now = value;
    w->best_step = step;
    w->since = 0;
    w->widest = 0;
    w->worse = w->said = false;
}

bool tn_overfit_watch_add(tn_overfit_watch *w, int64_t step, double value, bool is_best)
{
    if (isnan(value)) return false;
    if (is_best || isnan(w->best)) {
        take_best(w, step, value);
        return false;
    }
    const double change = worse_by(w, w->now, value);
    w->noise = fmax(FADES * w->noise, -change);
    if (fabs(change) > w->widest) w->widest = fabs(change);
    w->now = value;
    w->last[w->since++ % TN_OVERFIT_EVALUATIONS] = value;
    w->worse = all_worse(w);
    const bool first = w->worse && !w->said;
    w->said |= first;
    return first;
}
