/* mse: mean of squared differences.
 *
 *     loss = sum_i w_i (a_i - b_i)^2 / sum_i w_i     over all elements; 0 when there are none or sum_i w_i = 0
 *
 * a, b of one shape, b may be TN_NONE (zeros: the mean square of a); weights: absent (1 each), or a tensor whose axes are the first axes of a: one weight for each
 * element, row, or sample -> loss f32, rank 0.        loss = tn_mse(g, a, b, .weights = w)
 * NaN propagates. With live counts, the rows alive in both a and b are compared. Gradients: a, b, weights. */
#ifndef TN_OPS_MSE_H
#define TN_OPS_MSE_H

#include <tenon/op.h>

typedef struct tn_mse_options {
    int unused_;
    tn_ref weights;
} tn_mse_options;

extern const tn_op tn_op_mse;

#define tn_mse(g, a, b, ...) tn_mse_((g), __FILE__, __LINE__, (a), (b), (tn_mse_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_mse_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref b, tn_mse_options o);

#endif
