/* The time of what a row is about, without the rest of a step: by timers around every op of both sides. */
#ifndef TN_REPORT_OPS_ALONE_H
#define TN_REPORT_OPS_ALONE_H

#include "plan/plan.h"
#include "report/probe/ratios.h"

typedef struct tn_ops_alone {
    double plain_ms, fast_ms; /* of a step: medians */
    tn_ratio ratio;           /* n is 0 where nothing was measured */
} tn_ops_alone;

/* Milliseconds of what is in one of two lists alone, or more often in one than in the other (by op, region and direction), and of all ops of
 * the component; of both lists, a (n) and b (m). */
void tn_ops_apart(const tn_node_time *a, size_t n, const tn_node_time *b, size_t m, const char *component,
                  double ms[2]);

/* Of two sides of training steps, in turn; no pair after `until` but the first six. */
tn_status tn_ops_alone_take(void *side[2], const char *component, double until, tn_ops_alone *out);

#endif
