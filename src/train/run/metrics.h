/* What is measured beside the loss, by log.level, and its lines in metrics.jsonl:
 *
 *   info         step, epoch, loss, at evaluations every metric of the model (the loss as heldout, others as heldout_NAME or the key of their row,
 *                by groups heldout_NAME_GROUP), lr, loss_scale where there is one, step_ms (mean since
 *                the line before), seconds, memory in a session's first line where the ladder was used (ladder.h), nonfinite where something was done about it (stopped, skipped, ...), and where the step was looked into
 *                nonfinite_tensor and nonfinite_batch (tn_diagnose)
 *   training     + first_step_s in a session's first line, grad_norm, tokens_per_s (tasks: samples_per_s), utilisation, memory_mb, stall_s, stall_frac,
 *                padding_frac (where the source knows it), memory_fragmentation_percent (of the training step's arena), on a GPU
 *                gpu_utilization_percent, gpu_clock_mhz, gpu_power_w, memory_used_gb and memory_utilization_percent (of the whole GPU, once a second), the model's instruments
 *                and NAME_p10, _p50, _p90 of those that are distributions
 *                (utilisation: not where the numbers decide how much a step computes)
 *   performance  + NAME.forward_ms, NAME.backward_ms of each part of the model, data_ms, optimizer_ms: of the line's step; evaluation_s
 *                and saving_s, where the run evaluated or saved since the last line
 *   profiling    + op.NAME.forward_ms, op.NAME.backward_ms; distributions layer by layer, and NAME_hist.N, the part of the numbers in
 *                [N, 2N); the memory plan in a line of step 0; memory.csv
 *
 * What a level leaves out is not computed. Lines come every log.every steps and at evaluations; only the steps that have
 * one are timed part by part, which keeps the cost of the timers small. Allocates at its open only. */
#ifndef TN_TRAIN_METRICS_H
#define TN_TRAIN_METRICS_H

#include "backend/gpu_usage.h"
#include "train/trainer/histogram.h"
#include "train/run/training.h"

typedef enum tn_log_level { TN_LOG_INFO, TN_LOG_TRAINING, TN_LOG_PERFORMANCE, TN_LOG_PROFILING } tn_log_level;

typedef struct tn_metrics {
    const tn_training *t;
    tn_log_level level;
    int64_t every;
    double peak;                                      /* FLOP/s of the machine; NaN until it is known */
    double working_s;                                 /* inside the steps of this session */
    double data_s;                                    /* of them waiting for data */
    double step_data_s, step_optimizer_s, step_flops; /* of the last step */
    double since_s, since_flops; /* of the steps since the last line: a host sees the ends of steps that a */
    int64_t since;               /* GPU has queued in bursts, so that one of them alone says nothing */
    tn_region_time *regions;     /* (n_regions) */
    size_t n_regions;
    tn_gpu_usage *gpu;      /* NULL: none, or nothing is known of it */
    double holes;           /* tn_plan_holes of the training step */
    tn_histograms *spreads; /* NULL: the model has no instruments, or the level is below them */
    bool timed;             /* the step at work is timed part by part */
} tn_metrics;

tn_log_level tn_log_level_of(const tn_settings *st);

tn_status tn_metrics_open(const tn_training *t, tn_metrics *out);
void tn_metrics_close(tn_metrics *m);

/* Whether a line holds more than the step itself says: instruments look at the parameters as they are then. */
bool tn_metrics_has_instruments(const tn_metrics *m);
/* Whether this step has a line by its number. */
bool tn_metrics_due(const tn_metrics *m, int64_t step, int64_t steps);
/* Around a step; inside it, the clock, or 0 where that level is off. */
void tn_metrics_before(tn_metrics *m, bool line);
double tn_metrics_clock(const tn_metrics *m, tn_log_level level);
void tn_metrics_after(tn_metrics *m, double took_s, bool line, tn_progress_report *r);
/* Bytes that the run needs by plan, and the most that its process has taken, of a GPU what is in use (NaN: not known). */
void tn_metrics_memory(const tn_metrics *m, double *planned, double *peak);
/* Also fills r->instrument. first_step_s: NaN but in the first line of a session. Where somebody is warned (tn_training.warn), a line
 * that the disk does not take waits in memory. */
tn_status tn_metrics_line(tn_metrics *m, tn_progress_report *r, double first_step_s);
/* Writes the lines that wait. TN_DISK: some still do. */
tn_status tn_metrics_flush(const tn_metrics *m);
/* At the end of a run, whatever ended it: tries once more, and warns of how many are lost. */
void tn_metrics_finish(const tn_metrics *m);
void tn_metrics_untime(tn_metrics *m); /* when the step's line is written, or it has none */
/* profiling: the memory plan, once, when a run begins; memory.csv in its directory, whenever it begins or goes on. */
tn_status tn_metrics_plan(const tn_metrics *m, bool begins);

/* The layout of the arena under the plans of training and evaluation as a table, the largest first. */
tn_status tn_layout_csv(tn_trainer *t, const char *csv);
/* metrics.jsonl as a table: a column for every key in the order of appearance, empty where a line has none. */
tn_status tn_metrics_csv(const char *jsonl, const char *csv);

#endif
