/* Ablation: each opt.* switch off and on, alternately, in one run: time, memory, and whether the numbers agree. */
#ifndef TN_REPORT_ABLATE_H
#define TN_REPORT_ABLATE_H

#include "tasks/task.h"
#include "train/trainer.h"

typedef struct tn_ablation {
    const char *name;         /* "opt.scan", or "all" */
    double off_ms, on_ms;     /* medians of one training step */
    double gain, gain_spread; /* off/on of paired runs: median, half the distance of the quartiles */
    size_t off_bytes, on_bytes;
    double loss_error; /* relative difference of the losses after `steps` steps */
    int runs, steps;
} tn_ablation;

typedef struct tn_ablate {
    const tn_model *model;
    const tn_settings *settings;
    int64_t batch, length; /* of a model that learns from samples length is the tokens of one */
    const tn_samples *samples; /* of its task; NULL: made-up ones */
    int runs, steps; /* pairs timed; steps trained for parity */
    void *ctx;
    void (*row)(void *ctx, const tn_ablation *a);
} tn_ablate;

/* Switches that change nothing in this model's plan are left out. */
tn_status tn_ablate_run(const tn_ablate *a);

#endif
