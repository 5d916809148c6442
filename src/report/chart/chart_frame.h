/* The field of a chart with its two axes. Private to src/report/chart_*.c. */
#ifndef TN_REPORT_CHART_FRAME_H
#define TN_REPORT_CHART_FRAME_H

#include "report/chart/chart.h"
#include "report/chart/plot_axis.h"
#include "report/chart/svg.h"

typedef struct tn_frame {
    FILE *out;
    double left, right, top, bottom; /* of the field inside the axes, in pixels */
    tn_plot_axis x, y;
} tn_frame;

double tn__frame_x(const tn_frame *f, double place);
double tn__frame_y(const tn_frame *f, double place);
/* Room for labels of y and a row of names; then title, grid, ticks and labels of the axes. y_ticks: false for charts that name rows themselves. */
void tn__frame_axes(const tn_frame *f, const char *x_label, const char *y_label, bool y_ticks);
/* Names of groups in their colours, in a row at the top right; those not NULL. */
void tn__frame_names(const tn_frame *f, const char *const *names, size_t n);
tn_status tn__frame_done(const tn_frame *f);

#endif
