/* Points of a chart in pixels, thinned so that a file stays small. Private to this folder. */
#ifndef TN_REPORT_SPOTS_H
#define TN_REPORT_SPOTS_H

#include "report/chart/svg.h"

typedef struct tn_spot {
    double x, y; /* pixels */
    size_t group;
    size_t i;         /* of the caller */
    long row, column; /* of its cell, by tn__spots_thin */
} tn_spot;

/* Leaves one spot of each group in a cell, the one with the smallest i. Cells begin at `pixels` and grow until at most `most`
 * spots are left, whatever their number. Sorted by group, row of cells, column. Returns how many are left. */
size_t tn__spots_thin(tn_spot *v, size_t n, double pixels, size_t most);
/* <path> of the dots of one group, v[0..n) as tn__spots_thin left them. */
void tn__spots_put(FILE *out, const tn_spot *v, size_t n, const char *class, double size);

#endif
