/* concat: tensors one after another along an axis.    y = tn_concat(g, refs, n, axis)
 *
 *     x0 (B,p,d), x1 (B,q,d), axis 1  ->  y (B,p+q,d)
 *
 * refs[n], n <= 64, of one rank and equal sizes but along the axis (negative: from the end); any strides. y is f32
 * where all of them are, else it has the type of activations. Along another axis than 0 the live extent of refs[0]
 * holds for all and passes to y; along axis 0 each input's dead rows become zeros and y has no live extent.
 * Gradient: each input gets its part of dy. */
#ifndef TN_OPS_CONCAT_H
#define TN_OPS_CONCAT_H

#include <tenon/op.h>

typedef struct tn_concat_attr {
    int axis; /* as given */
} tn_concat_attr;

extern const tn_op tn_op_concat;

#define tn_concat(g, refs, n, axis) tn_concat_((g), __FILE__, __LINE__, (refs), (n), (axis))
tn_ref tn_concat_(tn_graph *g, const char *file, int line, const tn_ref *refs, int n, int axis);

#endif
