/* Tables and pictures of a report, which report_page.c and report_text.c put together. */
#ifndef TN_REPORT_PARTS_H
#define TN_REPORT_PARTS_H

#include "report/page/report.h"
#include "report/page/table.h"

void tn_report_put_parts(const tn_page *to, const tn_profile *p);
void tn_report_put_ops(const tn_page *to, const tn_profile *p);
void tn_report_put_run(const tn_page *to, const tn_run_time *t); /* t may be NULL */
void tn_report_put_use(const tn_page *to, const tn_report *r);
void tn_report_put_figures(const tn_page *to, const tn_report *r);

/* Shares, roofline, timeline and memory. TN_DISK, TN_MEMORY. */
tn_status tn_report_draw(tn_arena *a, const tn_report *r, FILE *out);

#endif
