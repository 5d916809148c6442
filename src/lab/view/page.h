/* The report of a study: one HTML file that needs nothing else, no script and no network. */
#ifndef TN_LAB_PAGE_H
#define TN_LAB_PAGE_H

#include "lab/db/lab.h"

#include <stdio.h>

/* lab: where the curves are. TN_DISK: `out` did not take it. */
tn_status tn_page_write(const tn_study *s, tn_lab *lab, FILE *out);

#endif
