/* The learning rate of each step: a pure function, so that a resumed run needs no state. Steps count from 0; the peak
 * is reached after `warmup` steps, step steps-1 has the last rate, and that stays from there on.
 *     warm-up   lr (s + 1) / (warmup + 1)              for s < warmup
 *     cosine    from lr to lr_min_frac lr along half a cosine over the rest
 *     wsd       lr, then down to lr_min_frac lr over the last cooldown_frac of all steps
 *     constant  lr */
#ifndef TN_OPTIM_SCHEDULE_H
#define TN_OPTIM_SCHEDULE_H

#include <stdint.h>

typedef enum tn_schedule_kind {
    TN_SCHEDULE_COSINE = 0,
    TN_SCHEDULE_WSD = 1,
    TN_SCHEDULE_CONSTANT = 2
} tn_schedule_kind;
typedef enum tn_cooldown { TN_COOLDOWN_LINEAR = 0, TN_COOLDOWN_SQRT = 1 } tn_cooldown; /* 1 - p, or 1 - sqrt(p) */

typedef struct tn_schedule {
    tn_schedule_kind kind;
    double lr;          /* the peak */
    double lr_min_frac; /* last rate as a part of the peak */
    int64_t warmup, steps;
    double cooldown_frac; /* wsd: part of the steps */
    tn_cooldown cooldown;
} tn_schedule;

double tn_schedule_lr(const tn_schedule *c, int64_t step);
int64_t tn_schedule_cooldown_start(const tn_schedule *c); /* wsd: the first step below the peak */

#endif
