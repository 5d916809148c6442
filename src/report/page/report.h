/* A report about a training: what a step consists of, what bounds it, and what it takes of the memory. The same data as Markdown and as
 * one HTML page without scripts. */
#ifndef TN_REPORT_PAGE_H
#define TN_REPORT_PAGE_H

#include "report/advice/advice.h"
#include "report/curves.h"
#include "report/page/figures.h"
#include "report/profile/profile.h"
#include "report/run_figures.h"
#include "report/run_time.h"

/* Two configurations, measured in turn. */
typedef struct tn_comparison {
    const char *name[2];
    const tn_profile *before[TN_PROFILE_ROUNDS], *after[TN_PROFILE_ROUNDS];
} tn_comparison;

typedef struct tn_report {
    const char *title;   /* the run or configuration */
    const char *machine; /* in words */
    const tn_profile *profile;
    const tn_plan *plan;         /* of the training step, whose memory is drawn; or NULL */
    const tn_curves *curves;     /* of the run or both, or NULL */
    const tn_run_time *run;      /* of the run itself, or NULL */
    const tn_run_figure *figure; /* (n_figures) that the run recorded */
    size_t n_figures;
    const char *missing;          /* a sentence on what should be here; or NULL */
    const tn_advice *advice;      /* (n_advice) */
    size_t n_advice, untried;     /* untried: what there was no time for */
    bool advised;                 /* it was looked for */
    const tn_comparison *against; /* or NULL: there is one configuration */
} tn_report;

tn_status tn_report_text(const tn_report *r, FILE *out); /* TN_DISK */
tn_status tn_report_page(const tn_report *r, FILE *out); /* TN_DISK, TN_MEMORY */

/* Where the code of an op is, up to its name: "src/ops/"; "": not in this library. */
const char *tn_report_folder(const char *op);

/* Part by part, what the second takes instead of the first. */
void tn_report_changes_text(const tn_comparison *c, FILE *out);
tn_status tn_report_changes_page(const tn_comparison *c, FILE *out);

/* What to change, a sentence for each; one where there is nothing. */
void tn_report_advice(const tn_report *r, void (*put)(void *ctx, const char *sentence), void *ctx);

/* What both say, sentence by sentence: put is called with each. */
void tn_report_findings(const tn_report *r, void (*put)(void *ctx, const char *sentence), void *ctx);

#endif
