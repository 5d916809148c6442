/* Learning rate schedules. End points are hit exactly: every shape is written as peak - (peak - last) * p with p
 * exactly 0 or 1 there. */
#include "optim/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Part of the way down, 0 at the peak and 1 at the end; runs too short to come down stay at the peak. */
static double cosine_progress(const tn_schedule *c, int64_t step)
{
    const int64_t span = c->steps - 1 - c->warmup, done = step - c->warmup;
    if (done <= 0) return 0;
    if (done >= span) return 1;
    return 0.5 - 0.5 * cos(pi * (double)done / (double)span);
}

int64_t tn_schedule_cooldown_start(const tn_schedule *c)
{
    const int64_t start = c->steps - (int64_t)(c->cooldown_frac * (double)c->steps + 0.5);
    return start > c->warmup ? start : c->warmup;
}

static double wsd_progress(const tn_schedule *c, int64_t step)
{
    const int64_t start = tn_schedule_cooldown_start(c), span = c->steps - start;
    if (step < start || span <= 0) return 0;
    const double p = step >= c->steps - 1 ? 1 : (double)(step - start + 1) / (double)span;
    return c->cooldown == TN_COOLDOWN_SQRT ? sqrt(p) : p;
}

double tn_schedule_lr(const tn_schedule *c, int64_t step)
{
    if (step < c->warmup) return c->lr * (double)(step < 0 ? 1 : step + 1) / (double)(c->warmup + 1);
    const double p = c->kind == TN_SCHEDULE_COSINE ? cosine_progress(c, step)
                     : c->kind == TN_SCHEDULE_WSD  ? wsd_progress(c, step)
                                                   : 0;
    const double last = c->lr * c->lr_min_frac;
    return p >= 1 ? last : c->lr - (c->lr - last) * p;
}
