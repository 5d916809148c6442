/* Where a run's wall-clock time went, from its newest checkpoint that is whole and the last lines of its metrics: steps, waiting for data, evaluations,
 * saving, and the rest. */
#ifndef TN_REPORT_RUN_TIME_H
#define TN_REPORT_RUN_TIME_H

#include "base/status.h"

#include <stdint.h>

enum { TN_RUN_TIMES = 5 };

typedef struct tn_run_time {
    int64_t step;
    double seconds; /* of all sessions, up to its newest checkpoint */
    struct {
        const char *name;
        double seconds, share; /* NaN: not known */
    } part[TN_RUN_TIMES];      /* "steps", "data", "evaluation", "saving", "other" */
} tn_run_time;

/* "waiting for data" and so on: part i in words. */
const char *tn_run_time_label(int i);
/* TN_BAD_FILE: it has no checkpoint. */
tn_status tn_run_time_read(const char *run, tn_run_time *out);
/* "The run took 12.3 s to step 60: steps 80.1 %, data 2.0 %, evaluation 10.2 %, ..." */
enum { TN_RUN_TIME_TEXT = 320 };
const char *tn_run_time_text(const tn_run_time *t, char buf[TN_RUN_TIME_TEXT]);

#endif
