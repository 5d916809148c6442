/* reduce: sums, means and maxima of x (any strides, any rank).
 *
 *     tn_sum(g, x, axis)   tn_mean(g, x, axis)   tn_max(g, x, axis)     the axis is removed (negative: from the end)
 *     tn_sum_all(g, x)     tn_mean_all(g, x)                            one number, rank 0, always f32
 *     x (n0,n1,n2), axis 1  ->  y (n0,n2)
 *
 * Sums are added in double in a fixed order. Over axis 0 (and over all) only live rows count, and the result has no
 * live extent; over another axis it keeps x's. Of nothing, the sum and the mean are 0 and the maximum is -inf. NaN
 * passes through all of them. The gradient of a maximum goes to the first one (the first NaN, if any). */
#ifndef TN_OPS_REDUCE_H
#define TN_OPS_REDUCE_H

#include <tenon/op.h>

typedef enum tn_reduce_kind { TN_REDUCE_SUM, TN_REDUCE_MEAN, TN_REDUCE_MAX, TN_REDUCE_KINDS } tn_reduce_kind;

typedef struct tn_reduce_attr {
    tn_reduce_kind kind;
    int axis; /* as given */
    bool all;
} tn_reduce_attr;

extern const tn_op tn_op_reduce;

#define tn_reduce(g, kind, x, axis, all) tn_reduce_((g), __FILE__, __LINE__, (kind), (x), (axis), (all))
#define tn_sum(g, x, axis) tn_reduce(g, TN_REDUCE_SUM, x, axis, false)
#define tn_mean(g, x, axis) tn_reduce(g, TN_REDUCE_MEAN, x, axis, false)
#define tn_max(g, x, axis) tn_reduce(g, TN_REDUCE_MAX, x, axis, false)
#define tn_sum_all(g, x) tn_reduce(g, TN_REDUCE_SUM, x, 0, true)
#define tn_mean_all(g, x) tn_reduce(g, TN_REDUCE_MEAN, x, 0, true)
tn_ref tn_reduce_(tn_graph *g, const char *file, int line, tn_reduce_kind kind, tn_ref x, int axis, bool all);

#endif
