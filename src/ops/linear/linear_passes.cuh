/* Elementwise passes around linear's matrix products. */
#ifndef TN_OPS_LINEAR_PASSES_CUH
#define TN_OPS_LINEAR_PASSES_CUH

#include "ops/linear/linear.h"
#include "ops/rows.cuh"

/* to (rows,n) contiguous = from, in the type of `to`; rows that are dead in from become 0. */
tn_status tn_linear_convert(const tn_call *c, const tn_arg *to, const tn_arg *from);
/* y = act(pre + bias) + residual; pre gets its bias too. pre may be y. */
tn_status tn_linear_finish(const tn_call *c, const tn_arg *y, const tn_arg *pre, const tn_arg *bias,
                           const tn_arg *residual, tn_act act);
/* Backward: *d is what reaches the product through the activation, dy itself or contiguous at `work` (dead rows 0). parts
 * (tn_linear_parts_bytes), where not NULL: the bias' gradient is made on the way. */
tn_status tn_linear_before_act(const tn_call *c, void *work, float *parts, tn_arg *d);
/* dx *= gelu'(pre), both contiguous rows of whole vectors. */
tn_status tn_linear_slope(const tn_call *c, const tn_arg *dx, const tn_arg *pre);
size_t tn_linear_parts_bytes(int64_t n);
tn_status tn_linear_pass_residual(const tn_call *c);

#endif
