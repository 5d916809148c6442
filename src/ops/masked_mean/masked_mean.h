/* masked_mean: pooling over time.    y = tn_masked_mean(g, x, mask):   y_b = sum_t m_bt x_bt / sum_t m_bt
 *
 * x (B,T,d); mask (B,T) i32 or f32, weights >= 0, no gradient; y (B,d), f32 where x is. Positions with weight 0 are not
 * read: NaN there does no harm. Where all weights of a row are 0, y and the gradient are 0. Sums in double.
 * dx_bt = m_bt / sum_t m_bt dy_b. */
#ifndef TN_OPS_MASKED_MEAN_H
#define TN_OPS_MASKED_MEAN_H

#include <tenon/op.h>

extern const tn_op tn_op_masked_mean;

#define tn_masked_mean(g, x, mask) tn_masked_mean_((g), __FILE__, __LINE__, (x), (mask))
tn_ref tn_masked_mean_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref mask);

#endif
