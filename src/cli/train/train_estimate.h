/* A run that will take long says so once, after a few measured steps, with what would make it shorter here. */
#ifndef TN_CLI_TRAIN_ESTIMATE_H
#define TN_CLI_TRAIN_ESTIMATE_H

#include "cli/train/train_view.h"
#include "train/run/session.h"

typedef struct tn_estimate {
    bool begun, said;
    int64_t step; /* of this session's first report, */
    double at_s;  /* and when that was */
} tn_estimate;

/* Of each report of a training run. */
void tn_train_estimate(tn_estimate *e, const tn_session *on, const tn_progress_report *r, tn_train_view *v);

/* What applies to the run. */
typedef struct tn_shorter {
    double step_s;
    int64_t left, steps, epochs; /* steps to go, and as the settings say */
    bool gpu;                    /* here and not used */
    bool gpu_unbuilt;            /* here, but this build cannot use it */
    double bf16;                 /* matrix products are so many times as fast; 0: not, or they are bf16 already */
    const char *smaller;         /* a preset, or NULL */
} tn_shorter;

void tn_shorter_print(const tn_shorter *s, FILE *f);

#endif
