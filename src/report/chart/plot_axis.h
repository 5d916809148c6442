/* Shared by the two writers of plots: axes with ticks, and text safe to print. Private to this folder. */
#ifndef TN_REPORT_PLOT_AXIS_H
#define TN_REPORT_PLOT_AXIS_H

#include "report/chart/plot.h"

enum { TN_PLOT_TICKS = 24, TN_PLOT_MINORS = 128 };

typedef struct tn_plot_axis {
    double lo, hi; /* the ends, in the axis' own scale: log10 of the value on a log axis; lo < hi */
    bool log;
    bool empty; /* no finite value at all; lo and hi are then a stand-in */
    int ticks;
    double at[TN_PLOT_TICKS]; /* (ticks) place between the ends, 0..1, ascending */
    char label[TN_PLOT_TICKS][24];
    int minors; /* log axes: ticks between them without a number */
    double minor[TN_PLOT_MINORS];
} tn_plot_axis;

/* The axes of a plot, each with about so many ticks at most (2 .. TN_PLOT_TICKS): labels as long as an axis divided by
 * that number do not overlap. */
void tn__plot_axes(const tn_plot *p, int x_ticks, int y_ticks, tn_plot_axis *x, tn_plot_axis *y);
/* One axis over n values; `pad`: room beyond the smallest and largest, as a part of their distance. */
void tn__plot_axis_of(const double *value, size_t n, bool log, double pad, int ticks, tn_plot_axis *out);
/* Place of a value on its axis, 0..1; NaN when it has none. */
double tn__plot_place(const tn_plot_axis *a, double value);
/* Place of point i of a series on both axes; false for a gap. */
bool tn__plot_point(const tn_plot_axis *x, const tn_plot_axis *y, const tn_series *s, size_t i, double *px, double *py);

/* Copies the next character of *s to `out` and advances; false at the end. Control characters and bytes that are not
 * UTF-8 become '?': a name may come from a file. */
bool tn__plot_char(const char **s, char out[5]);
size_t tn__plot_columns(const char *s); /* how many such characters */

tn_status tn__plot_check(const tn_plot *p);

#endif
