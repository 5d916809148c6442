/* A worker: claims trials of a study and runs them in its lanes, until none is left, the budget is spent, or it is
 * asked to stop. Lanes are threads: they share samples and plans, and a device on which processes would take turns. */
#ifndef TN_LAB_WORKER_H
#define TN_LAB_WORKER_H

#include "lab/study/study.h"

typedef struct tn_worker_options {
    const char *db, *study;
    int64_t trials;           /* numbers below it only; 0: all there are */
    bool compare;             /* of that series instead */
    tn_side_set sides;        /* of these alone; the others wait */
    int lanes;                /* trials at once; 0: 1 */
    const tn_user_args *user; /* what the user typed, for models of their own */
    void *ctx;
    bool (*interrupted)(void *ctx); /* asked between steps and trials, by all lanes, or NULL */
} tn_worker_options;

enum { TN_WORKER_LANES = 256, TN_WORKER_GPU_LANES = 8 }; /* at most; default on a GPU */

/* *ran: how many trials it worked on. TN_INTERRUPTED: it was asked to stop; its trials are put back. Other errors
 * are of the database or the disk; the first one stops all lanes at their next step. */
tn_status tn_worker_run(const tn_worker_options *o, int64_t *ran);

/* "lab.db" -> "lab": where the run directories of its trials are. */
tn_status tn_lab_runs(const char *db, char *out, size_t bytes);

#endif
