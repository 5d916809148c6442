/* `tenon report --recorded`, and what a report of runs becomes that cannot be measured here. */
#ifndef TN_CLI_REPORT_RECORDED_H
#define TN_CLI_REPORT_RECORDED_H

#include "cli/cli.h"

/* runs (n): as they were typed. why: what kept them from being measured; NULL: --recorded asked for it. TN_USAGE: one is no run. */
tn_status tn_report_recorded(tn_cli *c, const char *const *runs, size_t n, const char *why);

#endif
