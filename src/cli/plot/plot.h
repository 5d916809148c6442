/* tenon plot, in two files: what is drawn where, and the page. */
#ifndef TN_CLI_PLOT_H
#define TN_CLI_PLOT_H

#include "cli/cli.h"
#include "report/curves.h"

/* "4.7878", "-": a value as the table has it. */
const char *tn_plot_number(double x, char buf[24]);
/* One HTML file, without scripts or other files: the chart and the table. */
tn_status tn_plot_page(const tn_curves *c, const tn_plot *chart, FILE *f);

#endif
