/* Charts as self-contained SVG. Fill a struct, call its function:
 *
 *     what it shows                              struct           function
 *     lines over x, also as text (plot.h)        tn_plot          tn_plot_svg
 *     points of groups, with their fronts        tn_scatter       tn_chart_scatter
 *     points below ceilings, log-log             tn_roofline      tn_chart_roofline
 *     a bar for each group in each row           tn_bars          tn_chart_bars
 *     parts of a whole, the largest first        tn_shares        tn_chart_shares
 *     layers over x that add up                  tn_area          tn_chart_area
 *     spans of time on tracks                    tn_timeline      tn_chart_timeline
 *     blocks of memory, time by address          tn_memory_map    tn_chart_memory
 *     trials across many dimensions              tn_parallel      tn_chart_parallel
 *
 * Arrays belong to the caller; their shape is beside them. Texts are UTF-8, may come from files, and are escaped; NULL is
 * none. Values that are not finite are left out. A chart has at most 300 kB: of very many values those that look the same
 * are drawn once, extremes stay. Colours go by place: group i has the same in every chart.
 * TN_USAGE: nothing to draw; TN_DISK: cannot write; TN_MEMORY. */
#ifndef TN_REPORT_CHART_H
#define TN_REPORT_CHART_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct tn_scatter {
    const char *title, *x_label, *y_label;
    const char *const *groups; /* (n_groups) names */
    size_t n_groups, n;
    const double *x, *y;   /* (n) */
    const int *group;      /* (n), or NULL: all of the first */
    const bool *front;     /* (n): drawn large, joined by a line in the order of x; or NULL */
    const bool *published; /* (n): somebody else's, drawn as an open diamond, never a front; or NULL */
    bool log_x, log_y;
} tn_scatter;
tn_status tn_chart_scatter(const tn_scatter *c, FILE *out);

/* Of y, or of y per x; > 0. */
typedef struct tn_roof {
    double value;
    const char *name; /* beside it */
    int group;        /* whose colour it has; -1: none */
    bool aside;       /* dashed: it does not bound these points */
} tn_roof;

/* Attainable speed is the lesser of a peak and a bandwidth * x; all of them are drawn, slopes up to the highest peak and peaks from the
 * steepest slope on. Labels go where there is room, the first points first; a point whose label has none shows it where one points at
 * it. */
typedef struct tn_roofline {
    const char *title, *x_label, *y_label;
    const tn_roof *peak, *bandwidth; /* (n_peaks), (n_bandwidths): one of each at least, TN_ROOFS at most */
    size_t n_peaks, n_bandwidths;
    size_t n;
    const double *x, *y;       /* (n) work per byte, work per second; > 0 */
    const char *const *names;  /* (n), or NULL */
    const double *weight;      /* (n) >= 0: areas of the dots; or NULL: all alike */
    const char *const *groups; /* (n_groups), or NULL */
    size_t n_groups;
    const int *group; /* (n), or NULL */
} tn_roofline;
enum { TN_ROOFS = 4 };
tn_status tn_chart_roofline(const tn_roofline *c, FILE *out);

/* Rows of groups of bars, with a whisker where the spread is known. */
typedef struct tn_bars {
    const char *title, *x_label;
    const char *const *names;  /* (n) */
    const char *const *groups; /* (n_groups) */
    size_t n, n_groups;
    const double *value, *spread; /* (n, n_groups); spread may be NULL */
} tn_bars;
tn_status tn_chart_bars(const tn_bars *c, FILE *out);

/* What takes how much: each row has its bar, its value and its percentage of the whole, the largest first. Where parts
 * are less than the whole, the rest is the last row. */
typedef struct tn_shares {
    const char *title, *unit; /* unit: behind values */
    size_t n;
    const char *const *names; /* (n) */
    const double *value;      /* (n) >= 0 */
    double whole;             /* 0: the sum */
} tn_shares;
tn_status tn_chart_shares(const tn_shares *c, FILE *out);

typedef struct tn_area {
    const char *title, *x_label, *y_label;
    const char *const *names; /* (n_layers), the lowest first */
    size_t n_layers, n;
    const double *x; /* (n), ascending */
    const double *y; /* (n_layers, n) >= 0; what is not finite counts as 0 */
    double limit;    /* a dashed line across, such as the memory there is; 0: none */
    const char *limit_name;
} tn_area;
tn_status tn_chart_area(const tn_area *c, FILE *out);

/* Who worked on what, when. */
typedef struct tn_timeline {
    const char *title, *x_label;
    const char *const *states; /* (n_states), by colour */
    const char *const *lanes;  /* (n_lanes) names of tracks; or NULL: worker 1, worker 2, ... */
    size_t n_states, n_lanes, n;
    const double *begin, *end; /* (n) */
    const int *lane, *state;   /* (n) */
    const char *const *names;  /* (n): written into a span that is wide enough; or NULL */
} tn_timeline;
tn_status tn_chart_timeline(const tn_timeline *c, FILE *out);

/* A rectangle for each block: how long it lives, and where. */
typedef struct tn_memory_map {
    const char *title, *x_label, *y_label;
    const char *const *kinds; /* (n_kinds), by colour; or NULL */
    size_t n_kinds, n;
    const double *begin, *end; /* (n) time */
    const double *low, *high;  /* (n) addresses, from 0 or not */
    const int *kind;           /* (n), or NULL */
    const char *const *names;  /* (n), or NULL */
    double limit;              /* as in tn_area; far above all blocks it is a note instead */
    const char *limit_name;
} tn_memory_map;
tn_status tn_chart_memory(const tn_memory_map *c, FILE *out);

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

#endif
