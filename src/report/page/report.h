/* A report about a training: what a step consists of, what bounds it, and what it takes of the memory. The same data as Markdown and as
 * one HTML page without scripts. */
#ifndef TN_REPORT_PAGE_H
#define TN_REPORT_PAGE_H

#include "report/curves.h"
#include "report/profile/profile.h"

typedef struct tn_report {
    const char *title;   /* the run or configuration */
    const char *machine; /* in words */
    const tn_profile *profile;
    const tn_plan *plan;     /* of the training step, whose memory is drawn; or NULL */
    const tn_curves *curves; /* of the run, or NULL */
} tn_report;

tn_status tn_report_text(const tn_report *r, FILE *out); /* TN_DISK */
tn_status tn_report_page(const tn_report *r, FILE *out); /* TN_DISK, TN_MEMORY */

/* What both say, sentence by sentence: put is called with each. */
void tn_report_findings(const tn_report *r, void (*put)(void *ctx, const char *sentence), void *ctx);

#endif
