/* Single numbers of a report, for the page, its Markdown and --json alike. */
#ifndef TN_REPORT_FIGURES_H
#define TN_REPORT_FIGURES_H

#include "report/profile/profile.h"

typedef struct tn_figure {
    const char *name, *unit;
    double value; /* NaN: not known */
} tn_figure;

enum { TN_FIGURES = 16 };

/* Each fills rows that are known, and returns how many: what the machine can do at most, */
size_t tn_figures_of_ceilings(const tn_profile *p, tn_figure row[TN_FIGURES]);
/* what the memory plan consists of, in MB, its total, and the measured peak; plan: of the training step, or NULL, */
size_t tn_figures_of_memory(const tn_profile *p, const tn_plan *plan, tn_figure row[TN_FIGURES]);
/* and how much of the step the machine worked. */
size_t tn_figures_of_use(const tn_profile *p, tn_figure row[TN_FIGURES]);

#endif
