/* The log of a trial: reports not yet written, the history that objectives are computed from, the state of rules,
 * and costs: everything that a checkpoint needs to resume exactly. */
#ifndef TN_LAB_TRIAL_LOG_H
#define TN_LAB_TRIAL_LOG_H

#include "lab/db/trials.h"
#include "train/trainer/costs.h"
#include "train/run/training.h"

#include <jansson.h>

enum { TN_LOG_NAME = TN_SCORE_NAME };

typedef struct tn_metric {
    char name[TN_LOG_NAME];
    double value;
    int64_t step; /* at which it was measured */
} tn_metric;

typedef struct tn_trial_log {
    const tn_study_plan *plan;
    const tn_model *model;
    const tn_settings *settings;
    int64_t step;                        /* that metrics are put at */
    tn_metric metric[TN_REPORT_METRICS]; /* (n_metrics) as last measured; NaN: not known */
    size_t n_metrics;
    tn_rule *rules;     /* (plan->n_rules) with what they hold */
    const char *broken; /* the rule that stops the trial; NULL: none */
    tn_costs costs;
    double eval_s; /* in evaluations */

    /* Evaluations so far. */
    tn_metric_list rows; /* metrics that evaluations have: the best of each counts */
    tn_metric_list own;  /* those of the source, of which the last counts */
    struct {
        double epoch, learned, value[TN_METRICS_MAX]; /* of the rows */
    } * history;                                      /* learned: the first of all that is higher where it is better */
    size_t n, capacity;
    double tokens_per_s, memory_bytes; /* of the training; what its plans take */

    /* Not written yet. */
    tn_report *reports;
    size_t n_reports, reports_capacity;
} tn_trial_log;

tn_status tn_trial_log_open(const tn_study_plan *p, const tn_settings *st, const tn_model *model,
                            const tn_source *source, int64_t batch, tn_trial_log *out);
void tn_trial_log_free(tn_trial_log *l);

/* Sets and gets a metric, also by its other name in the model (tn_instrument_row.also); NaN: none. */
void tn_trial_log_put(tn_trial_log *l, const char *name, double value);
double tn_trial_log_get(const tn_trial_log *l, const char *name, bool *there);
/* Tests the rules on `metric`, if it was measured at this step (NULL: all but those tested at every step). */
void tn_trial_log_rules(tn_trial_log *l, double epoch, const char *metric);

/* One evaluation: its metrics become a report, and go into the history. *score: what pruners compare. */
tn_status tn_trial_log_add(tn_trial_log *l, int64_t step, double epoch, double seconds, double *score);
void tn_trial_log_written(tn_trial_log *l); /* the reports are in the database */
/* What was reported before a checkpoint, back into the history. */
tn_status tn_trial_log_recall(tn_trial_log *l, tn_lab *lab, int64_t trial);

json_t *tn_trial_log_save(const tn_trial_log *l);
tn_status tn_trial_log_load(tn_trial_log *l, const json_t *from);

/* y (objectives); seconds: of training and evaluation. Unknown names are NaN; *missing is the first of them. */
void tn_trial_log_objectives(const tn_trial_log *l, double seconds, double parameters, double *y, const char **missing);

#endif
