/* Line plots of a few series, as text for a terminal and as an SVG file.
 *
 * Both take the same description, so that what a person sees in the terminal is what lands in a report. It draws
 * lines only: no bars, no second axis. Nothing is measured or smoothed here; a value that is not finite is a gap,
 * never a guess. */
#ifndef TN_REPORT_PLOT_H
#define TN_REPORT_PLOT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct tn_series {
    const char *name;    /* UTF-8; shown in the legend */
    const double *x, *y; /* (n) each; the line breaks at a NaN or infinity in either */
    size_t n;
    size_t like; /* 1 + the series whose colour it has; 0: one of its own */
    bool
        faint; /* SVG only: a thin pale line without its name, for what stands behind another series; grey where none is like it */
    bool points; /* SVG only: a dot at each value */
    size_t ring; /* 1 + the point that is marked with a ring; 0: none */
} tn_series;

typedef struct tn_plot {
    const char *title, *x_label, *y_label; /* NULL: none */
    const tn_series *series;               /* (count), drawn in this order, the last on top */
    size_t count;
    const char *ring;  /* what a ring means, for the legend: "best step"; NULL: nothing is said */
    bool log_y;        /* decades on the y axis; values <= 0 are gaps */
    int width, height; /* text only: columns and rows of the whole plot; 0 = 80 and 20 */
    bool ascii;        /* text only: no character beyond 7 bits */
    bool colour;       /* text only: ANSI colours; without them several series get a mark each instead of fine dots */
} tn_plot;

/* Writes to `out` and leaves it open. TN_USAGE: nothing to draw or no room for it; TN_DISK: `out` did not take it. */
tn_status tn_plot_text(const tn_plot *p, FILE *out);
tn_status tn_plot_svg(const tn_plot *p, FILE *out);

#endif
