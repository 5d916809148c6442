/* gather_rows: rows by number.      y = tn_gather_rows(g, x, index)      y[i] = x[index[i]]
 *
 *     x (R, ...) floats or i32      index (n) i32, its live extent passes to y      y (n, ...)
 *
 * Only live entries of the index are looked at, and each must be in [0, R), or below x's live extent: anything else is
 * an error that names it. Gradient of x: scatter_rows of dy, rows gathered twice summed in the order of the index. */
#ifndef TN_OPS_GATHER_ROWS_H
#define TN_OPS_GATHER_ROWS_H

#include <tenon/op.h>

extern const tn_op tn_op_gather_rows;

#define tn_gather_rows(g, x, index) tn_gather_rows_((g), __FILE__, __LINE__, (x), (index))
tn_ref tn_gather_rows_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref index);

#endif
