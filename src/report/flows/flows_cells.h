/* Private to the still picture: colours of energies, and surfaces as coloured cells. A value falls into one of TN_FLOW_BINS bins, the
 * middle one is zero. Classes: l0 .. of lines, f0 .. of cells. */
#ifndef TN_REPORT_FLOWS_CELLS_H
#define TN_REPORT_FLOWS_CELLS_H

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

enum { TN_FLOW_BINS = 17, TN_FLOW_ZERO = TN_FLOW_BINS / 2 };

int tn__flow_bin(double value, double scale); /* -1: not finite */
void tn__flow_style(FILE *out);               /* <style> of the classes */

/* From (column, row) to pixels: x = x0 + column across.x + row down.x, likewise y. */
typedef struct tn_flow_affine {
    double x0, y0, across_x, across_y, down_x, down_y;
} tn_flow_affine;

/* values (height,width), NaN: no cell; `pixels`: the size in which it is shown. Cells smaller than a few pixels become means of several. */
tn_status tn__flow_cells(FILE *out, const double *values, int64_t width, int64_t height, double scale, double pixels,
                         tn_flow_affine to);

#endif
