/* Charts of many trials, as self-contained SVG: scatter, parallel coordinates, bars, timeline. Line plots are in
 * plot.h. Values that are not finite are left out. Points that coincide are drawn once, so files stay small.
 * TN_USAGE: nothing to draw; TN_DISK: cannot write. */
#ifndef TN_REPORT_CHART_H
#define TN_REPORT_CHART_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct tn_scatter {
    const char *title, *x_label, *y_label; /* NULL: none */
    const char *const *groups;             /* (n_groups) names */
    size_t n_groups, n;
    const double *x, *y;   /* (n) */
    const int *group;      /* (n), or NULL: all of the first */
    const bool *front;     /* (n): drawn large, joined by a line in the order of x; or NULL */
    const bool *published; /* (n): somebody else's, drawn as an open diamond, never a front; or NULL */
    bool log_x, log_y;
} tn_scatter;
tn_status tn_chart_scatter(const tn_scatter *c, FILE *out);

/* One upright axis for each dimension, one line across them for each trial. */
typedef struct tn_parallel_axis {
    const char *name;
    const char *low, *high;     /* text at its ends; NULL where there are choices */
    const char *const *choices; /* (n_choices), at their places (i + 0.5) / n_choices; or NULL */
    size_t n_choices;
} tn_parallel_axis;

typedef struct tn_parallel {
    const char *title;
    const tn_parallel_axis *axes; /* (n_axes) */
    size_t n_axes, n;
    const double *place; /* (n, n_axes), 0..1; not finite: the line passes the axis by */
    const double *rank;  /* (n), 0 (best) .. 1: good trials are drawn last and strong */
} tn_parallel;
tn_status tn_chart_parallel(const tn_parallel *c, FILE *out);

/* Rows of groups of bars, with a whisker where the spread is known. */
typedef struct tn_bars {
    const char *title, *x_label;
    const char *const *names;  /* (n) */
    const char *const *groups; /* (n_groups) */
    size_t n, n_groups;
    const double *value, *spread; /* (n, n_groups); spread may be NULL */
} tn_bars;
tn_status tn_chart_bars(const tn_bars *c, FILE *out);

/* Who worked on what, when. */
typedef struct tn_timeline {
    const char *title, *x_label;
    const char *const *states; /* (n_states), by colour */
    size_t n_states, n;
    const double *begin, *end; /* (n) */
    const int *lane, *state;   /* (n) */
} tn_timeline;
tn_status tn_chart_timeline(const tn_timeline *c, FILE *out);

#endif
