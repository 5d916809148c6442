/* Rows of a profile from steps that a GPU replays as a whole, where a trace of the device can be taken: their times are those of
 * training, which steps that are queued op by op are not. */
#ifndef TN_REPORT_REPLAYED_H
#define TN_REPORT_REPLAYED_H

#include "report/profile/profile.h"

/* Puts the times of a trace of `steps` steps into the rows of p, which has those of queued steps: optimizer_ms and node are of all
 * those steps. What is left of a step is the host's. False, and p as it was: the rows are others, or have no time. */
bool tn_profile_use_times(tn_profile *p, const tn_node_time *node, size_t n, int steps, double optimizer_ms);

/* The part of the time of kernels that have a mark. */
double tn_profile_marked(const tn_span *spans, size_t n);

/* Milliseconds between kernels and copies of which one follows the other in a replay: what launching takes. spans: by begin. */
double tn_profile_gaps(const tn_span *spans, size_t n);

/* Runs a few steps under the device's trace; next: the optimizer's, which goes on. Where there is no trace to take, or nothing in it is
 * known to be of these plans, p stays as it is. What the steps return. */
tn_status tn_profile_replay(tn_session *s, tn_profile *p, int64_t *next);

#endif
