/* The work of a run by the model's cost rows, such as evaluations of an equilibrium network's map: read from outputs of
 * plans, batch by batch, without padding. Used through tn_watch. */
#ifndef TN_TRAIN_COSTS_H
#define TN_TRAIN_COSTS_H

#include "train/trainer/trainer.h"

typedef struct tn_costs {
    const tn_cost_row *row; /* (n) of the model */
    size_t n;
    int64_t batch;                 /* rows of a batch */
    int64_t calls;                 /* outputs of batches in which any sample took part; of training and of evaluation */
    int64_t samples, eval_samples; /* that took part, by the first row of each */
    double sum[TN_COSTS_MAX];      /* by row, over samples */
    double units[TN_COSTS_MAX];    /* of one */
    bool by_sample[TN_COSTS_MAX];
    size_t like[TN_COSTS_MAX]; /* the first row that counts the same output */
} tn_costs;

tn_status tn_costs_open(const tn_model *m, const tn_settings *st, int64_t batch, tn_costs *out);
/* What just ran, with its outputs still there. */
void tn_costs_add(tn_costs *c, tn_trainer_event what, tn_bound *b);
/* All of it in units. NaN: nothing was counted. */
double tn_costs_units(const tn_costs *c);
/* The sum of a row; 0 where the model has none of that name. */
double tn_costs_sum(const tn_costs *c, const char *name);

#endif
