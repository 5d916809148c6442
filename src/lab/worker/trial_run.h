/* One trial: the training of one point, reported at each evaluation, stopped where its pruner, its rules or its time say so, recorded once.
 *
 * The run directory RUNS/STUDY/SIDE-NUMBER exists only while there is a checkpoint in it: a trial of seconds never makes one, a longer one
 * every ckpt.every_s seconds (20 unless the study sets it), so that one that was killed goes on from there, bit for bit. */
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

/* *lost: somebody else has the trial now. Errors of the trial itself (it diverged, its settings contradict each other, it does not fit
 * memory) are recorded in it; those that are returned are of the database or the disk, and the trial is put back where that can still be
 * done. */
tn_status tn_trial_run(tn_trial_host *h, const tn_claim *c, const double *x, bool *lost);

/* "RUNS/STUDY/ep-17" (comparisons: "ep-c17") into out (TN_PATH_BYTES). */
tn_status tn_trial_dir(const tn_trial_host *h, const tn_claim *c, char *out);
/* "RUNS/STUDY", which must not be a link, nor RUNS: what is removed there has to be what trials made. */
tn_status tn_trial_folder(const char *runs, const char *study, char out[TN_PATH_BYTES]);
/* That a trial's directory is one (or not there), or it is removed too. TN_DISK: a link, or it holds something else. */
tn_status tn_trial_dir_check(const char *dir, bool remove);
/* Removes directories that trials left which have ended: a process that is killed between the two cannot. */
tn_status tn_trial_sweep(const tn_trial_host *h, const tn_study *s);
/* The session that a trial trains in; its samples, plans and context may be the host's. */
tn_status tn_trial_session(tn_trial_host *h, const tn_claim *c, const double *x, tn_session *out);
/* Opens a session for the point and closes it: whether trials of this side can run at all, and where. */
tn_status tn_trial_try(tn_trial_host *h, size_t side, const double *x, tn_device *device);

#endif
