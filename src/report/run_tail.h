/* The last lines of a run's metrics.jsonl: what it said last, in bounded time whatever the size of the file. */
#ifndef TN_REPORT_RUN_TAIL_H
#define TN_REPORT_RUN_TAIL_H

#include "io/jsonl.h"

enum { TN_RUN_TAIL_LINES = 64 };

/* Its lines one by one, for those who want more of them; damaged ones are passed over. */
tn_status tn_run_tail_open(const char *run, tn_jsonl_reader **out);
/* An array of whole lines, the oldest first, without those that are damaged: json_decref it. NULL: there are none. */
json_t *tn_run_tail(const char *run);
/* A number of these lines: the last that is one, or the mean of those that are; NaN: none is. Takes NULL. */
double tn_run_tail_last(const json_t *tail, const char *key);
double tn_run_tail_mean(const json_t *tail, const char *key);

#endif
