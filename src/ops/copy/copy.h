/* copy: y = x in contiguous memory. x has any strides; float types may differ (cast), and i32 becomes a float. The planner also uses it to
 * bring views and half-precision tensors to kernels that want neither.
 *     y = tn_copy(g, x)            same type          y = tn_cast(g, x, TN_BF16)
 *     x (...) any strides, any type      y (...) contiguous; only live rows are copied
 * The planner may give a node several x, with a y for each: one launch on a GPU rounds many weights.
 * Casts to bf16 and f16 round to nearest, ties to even; NaN stays NaN. Gradient: dx = dy. */
#ifndef TN_OPS_COPY_H
#define TN_OPS_COPY_H

#include <tenon/op.h>

typedef struct tn_copy_attr {
    tn_dtype dtype;
    bool accumulate; /* y += x: passes of the planner only */
} tn_copy_attr;

extern const tn_op tn_op_copy;

#define tn_copy(g, x) tn_copy_((g), __FILE__, __LINE__, (x), tn_ref_dtype((g), (x)))
#define tn_cast(g, x, dtype) tn_copy_((g), __FILE__, __LINE__, (x), (dtype))
tn_ref tn_copy_(tn_graph *g, const char *file, int line, tn_ref x, tn_dtype dtype);

#endif
