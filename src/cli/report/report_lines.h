/* Lines of JSON of `tenon report`. */
#ifndef TN_CLI_REPORT_LINES_H
#define TN_CLI_REPORT_LINES_H

#include "cli/cli.h"
#include "report/page/report.h"

tn_status tn_report_emit(tn_cli *c, const tn_profile *p);
tn_status tn_report_emit_figures(tn_cli *c, const tn_report *r);
tn_status tn_report_emit_run(tn_cli *c, const tn_run_time *t);
tn_status tn_report_emit_advice(tn_cli *c, const tn_advice *advice, size_t n);
tn_status tn_report_emit_changes(tn_cli *c, const tn_comparison *x);

#endif
