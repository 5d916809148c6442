/* A worker: claims trials of a study one after the other and runs them, until none is left, the budget is spent, or it is asked to stop. */
#ifndef TN_LAB_WORKER_H
#define TN_LAB_WORKER_H

#include "lab/study.h"

typedef struct tn_worker_options {
    const char *db, *study;
    int64_t trials; /* numbers below it only; 0: all there are */
    bool compare;   /* of that series instead */
    void *ctx;
    bool (*interrupted)(void *ctx); /* asked between steps and trials, or NULL */
} tn_worker_options;

/* *ran: how many trials it worked on. TN_INTERRUPTED: it was asked to stop; what it had is put back. Other errors are of the database or
 * the disk. */
tn_status tn_worker_run(const tn_worker_options *o, int64_t *ran);

/* "lab.db" -> "lab": where the run directories of its trials are. */
tn_status tn_lab_runs(const char *db, char *out, size_t bytes);

#endif
