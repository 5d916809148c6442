/* Steps with what training does around them: its loop, and the lines of metrics that log.* asks for, which go nowhere. For settings that
 * cost nothing in a step alone. The probe's train.eval_every must be 0, and its train.steps more than twice `steps`. */
#ifndef TN_REPORT_PROBE_LINES_H
#define TN_REPORT_PROBE_LINES_H

#include "report/probe/probe.h"

/* *ms: of one of `steps` steps (a multiple of log.every), behind as many that warm up. */
tn_status tn_step_probe_lines(tn_step_probe *p, int64_t steps, double *ms);

#endif
