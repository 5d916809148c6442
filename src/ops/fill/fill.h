/* fill: a constant tensor.    y = tn_fill(g, tn_shape(B, d), TN_F32, 0.f)    No inputs, no gradient. */
#ifndef TN_OPS_FILL_H
#define TN_OPS_FILL_H

#include <tenon/op.h>

typedef struct tn_fill_attr {
    float value;
    tn_dtype dtype;
    tn_dims dims;
} tn_fill_attr;

extern const tn_op tn_op_fill;

#define tn_fill(g, dims, dtype, value) tn_fill_((g), __FILE__, __LINE__, (dims), (dtype), (value))
tn_ref tn_fill_(tn_graph *g, const char *file, int line, tn_dims dims, tn_dtype dtype, float value);

#endif
