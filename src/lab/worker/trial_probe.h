/* What a trial of a side will be and cost, measured by a few training steps, for `lab run --plan`. Writes nothing. */
#ifndef TN_LAB_TRIAL_PROBE_H
#define TN_LAB_TRIAL_PROBE_H

#include "lab/worker/trial_run.h"

typedef struct tn_trial_probe {
    int64_t parameters, steps;
    int64_t tokens;      /* trained on in all; samples are counted by their tokens */
    double memory_bytes; /* of its plans */
    double step_s;       /* of a step; NaN: an environment, which is not played for this */
    double seconds;      /* of the whole: steps, evaluations, and a comparison's test */
    tn_device device;
    tn_width width; /* text is empty where `parameters` changed nothing */
} tn_trial_probe;

/* c: side, kind and seed count; x: the point. seconds: about as long as it may train. */
tn_status tn_trial_probe_side(tn_trial_host *h, const tn_claim *c, const double *x, double seconds,
                              tn_trial_probe *out);

#endif
