/* scatter_rows: rows put where an index says, zeros elsewhere.      y = tn_scatter_rows(g, rows, index, R)
 *
 *     y[r] = sum over i with index[i] = r of rows[i], in the order of i
 *     rows (n, ...)      index (n) i32      y (R, ...)
 *
 * Only entries below the live extents of index and rows count; each must be in [0, R): anything else is an error that
 * names it. y itself has no live extent. Gradient of rows: gather_rows of dy, zero for entries that do not count. */
#ifndef TN_OPS_SCATTER_ROWS_H
#define TN_OPS_SCATTER_ROWS_H

#include <tenon/op.h>

typedef struct tn_scatter_rows_attr {
    int64_t rows; /* R */
} tn_scatter_rows_attr;

extern const tn_op tn_op_scatter_rows;

#define tn_scatter_rows(g, rows, index, count) tn_scatter_rows_((g), __FILE__, __LINE__, (rows), (index), (count))
tn_ref tn_scatter_rows_(tn_graph *g, const char *file, int line, tn_ref rows, tn_ref index, int64_t count);

#endif
