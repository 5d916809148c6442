/* Shared by the writers of plots and charts: axes with ticks, and text safe to print. Private to this folder. */
#ifndef TN_REPORT_PLOT_AXIS_H
#define TN_REPORT_PLOT_AXIS_H

#include "report/chart/plot.h"

enum { TN_PLOT_TICKS = 24, TN_PLOT_MINORS = 128 };

typedef struct tn_plot_axis {
    double lo, hi; /* the ends, in the axis' own scale: log10 of the value on a log axis; lo < hi */
    bool log;
    bool empty; /* no finite value at all; lo and hi are then a stand-in */
    int ticks;
    double at[TN_PLOT_TICKS];       /* (ticks) place between the ends, 0..1, ascending */
    double label_at[TN_PLOT_TICKS]; /* (ticks) place of the label's middle: that of the tick, or moved into the room */
    char label[TN_PLOT_TICKS][24];
    int minors; /* log axes: ticks between them without a number */
    double minor[TN_PLOT_MINORS];
} tn_plot_axis;

/* Where the labels of an axis go. Lengths are pixels, or characters of a text. */
typedef struct tn_plot_room {
    double length; /* of the axis */
    double letter; /* width of a character along the axis; 0: labels stand above each other */
    double gap;    /* least distance of two labels, or of their lines where they stand above each other */
    double over;   /* a label may reach so far beyond either end */
    int most;      /* ticks */
} tn_plot_room;

/* The range of an axis, without ticks: of n values, or of both axes of a plot. `pad`: room beyond the smallest and
 * largest, as a part of their distance. Values that differ by less than doubles can show are one value. */
void tn__plot_range(const double *value, size_t n, bool log, double pad, tn_plot_axis *out);
void tn__plot_ranges(const tn_plot *p, tn_plot_axis *x, tn_plot_axis *y);
/* Ticks at round numbers whose labels do not overlap, three at least where the room lets them. */
void tn__plot_ticks(tn_plot_axis *a, const tn_plot_room *room);
/* How many characters the longest label has. */
size_t tn__plot_label_columns(const tn_plot_axis *a);

/* Place of a value on its axis, 0..1; NaN when it has none. */
double tn__plot_place(const tn_plot_axis *a, double value);
/* Place of point i of a series on both axes; false for a gap. */
bool tn__plot_point(const tn_plot_axis *x, const tn_plot_axis *y, const tn_series *s, size_t i, double *px, double *py);
/* Place of a series' ring on both axes; false where it has none. */
bool tn__plot_ring(const tn_plot_axis *x, const tn_plot_axis *y, const tn_series *s, double *px, double *py);

/* Copies the next character of *s to `out` and advances; false at the end. Control characters and bytes that are not
 * UTF-8 become '?': a name may come from a file. */
bool tn__plot_char(const char **s, char out[5]);
size_t tn__plot_columns(const char *s); /* how many such characters */

tn_status tn__plot_check(const tn_plot *p);

#endif
