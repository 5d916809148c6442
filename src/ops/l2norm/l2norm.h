/* l2norm: rows of unit length.    y = tn_l2_normalize(g, x, eps):  y = x / max(|x|, eps) over the last axis
 *
 * x (..., n) of rank >= 1, y of its shape, f32 where x is. eps > 0: rows shorter than eps are divided by eps, so that a
 * row of zeros stays zero. |x| is computed in double: it cannot overflow. NaN or infinity makes its row NaN.
 * dx = (dy - y (y . dy)) / |x|, and dy / eps in short rows; x is kept. */
#ifndef TN_OPS_L2NORM_H
#define TN_OPS_L2NORM_H

#include <tenon/op.h>

typedef struct tn_l2norm_attr {
    float eps;
} tn_l2norm_attr;

extern const tn_op tn_op_l2norm;

#define tn_l2_normalize(g, x, eps) tn_l2_normalize_((g), __FILE__, __LINE__, (x), (eps))
tn_ref tn_l2_normalize_(tn_graph *g, const char *file, int line, tn_ref x, float eps);

#endif
