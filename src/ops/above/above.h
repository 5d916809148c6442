/* above: flags of the numbers past a threshold.      keep = tn_above(g, x, threshold)      keep_i = x_i > threshold
 *
 *     x (n) or (n,1), floats, any strides      keep (n) i32: 0 or 1; x's live extent passes on
 *     tn_not_above(g, x, threshold): the other flags, so that each live row is in exactly one of the two
 *
 * NaN is not above anything. No gradient: what depends on the choice of rows is a step function. With tn_compact this
 * splits rows into those that stay and those that leave. */
#ifndef TN_OPS_ABOVE_H
#define TN_OPS_ABOVE_H

#include <tenon/op.h>

typedef struct tn_above_attr {
    float threshold;
    bool invert;
} tn_above_attr;

extern const tn_op tn_op_above;

#define tn_above(g, x, threshold) tn_above_((g), __FILE__, __LINE__, (x), (threshold), false)
#define tn_not_above(g, x, threshold) tn_above_((g), __FILE__, __LINE__, (x), (threshold), true)
tn_ref tn_above_(tn_graph *g, const char *file, int line, tn_ref x, float threshold, bool invert);

#endif
