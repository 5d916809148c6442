/* Ablation: each opt.* switch off and on, alternately, in one run: time, memory, and whether the losses agree. */
#ifndef TN_REPORT_ABLATE_H
#define TN_REPORT_ABLATE_H

#include "train/source/source.h"

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
    int64_t batch, length;   /* B, T */
    const tn_source *source; /* of data, not started; an empty one: made-up numbers */
    int runs, steps;         /* pairs timed; steps trained for parity */
    void *ctx;
    void (*row)(void *ctx, const tn_ablation *a);
} tn_ablate;

/* Switches that change nothing in this model's plan are left out. */
tn_status tn_ablate_run(const tn_ablate *a);

#endif
