/* One trial: trains one point, reports at each evaluation, stops early if its pruner, rules or time limit say so, and
 * is recorded once.
 *
 * Its run directory RUNS/STUDY/SIDE-NUMBER exists only while it holds a checkpoint: short trials never write one,
 * longer ones every ckpt.every_s seconds (20 by default), from which a killed trial resumes bit for bit. */
#ifndef TN_LAB_TRIAL_RUN_H
#define TN_LAB_TRIAL_RUN_H

#include "lab/db/trials.h"
#include "train/run/session.h"
#include "train/trainer/shared.h"

/* What a lane of a worker keeps between its trials. */
typedef struct tn_trial_host {
    tn_lab *lab;
    int64_t study;
    const tn_study_plan *plan;
    const char *runs;             /* folder */
    tn_shared *shared;            /* samples and plans, of all lanes; NULL: each session makes its own */
    tn_context_slot context_slot; /* of this one */
    int64_t first_parameters;     /* of the first side, where `parameters: first` asks; 0: not counted yet */
    void *ctx;
    bool (*interrupted)(void *ctx); /* asked between steps, or NULL: true puts the trial back with a checkpoint */
} tn_trial_host;

/* *lost: another worker has the trial now. Errors of the trial itself (divergence, contradicting settings, too
 * little memory) are recorded in it; errors of the database or the disk are returned, and the trial is put back
 * where possible. */
tn_status tn_trial_run(tn_trial_host *h, const tn_claim *c, const double *x, bool *lost);

/* "RUNS/STUDY/ep-17" (comparisons: "ep-c17") into out (TN_PATH_BYTES). */
tn_status tn_trial_dir(const tn_trial_host *h, const tn_claim *c, char *out);
/* "RUNS/STUDY"; neither may be a link, so that only directories of trials are ever removed. */
tn_status tn_trial_folder(const char *runs, const char *study, char out[TN_PATH_BYTES]);
/* Checks that a trial's directory is one or missing, and may remove it. TN_DISK: a link, or it holds something else. */
tn_status tn_trial_dir_check(const char *dir, bool remove);
/* Removes directories of trials that have ended: a process killed between the two could not. */
tn_status tn_trial_sweep(const tn_trial_host *h, const tn_study *s);
/* The session that a trial trains in; its samples, plans and context may be the host's. */
tn_status tn_trial_session(tn_trial_host *h, const tn_claim *c, const double *x, tn_session *out);
/* The error of a comparison on data without a test split. */
tn_status tn_trial_untested(void);
/* Opens and closes a session for the point: whether trials of this side can run, where, and whether comparisons find a test split. */
tn_status tn_trial_try(tn_trial_host *h, size_t side, const double *x, tn_device *device, bool *testable);

#endif
