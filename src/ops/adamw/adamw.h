/* adamw: one step of AdamW (Loshchilov and Hutter 2019) over a flat array, in place.
 *     g' = coefficient * g           m = beta1 m + (1 - beta1) g'           v = beta2 v + (1 - beta2) g'^2
 *     p -= lr' * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)  +  lr' * decay * p      then g = 0
 * with lr' = lr times the segment's factor, decay only where the segment says so, t = opt_step (1 in the first step;
 * below counts as 1).
 *     in   param, grad, m, v (n) | lr, beta1, beta2, eps, decay, opt_step, coefficient (1) | ok i32 (1)
 *     out  param, grad, m, v: the same memory as the inputs
 * ok = 0: param, m and v keep their bits and only g = 0 happens. keeps_grad: g stays as it is. What lies outside the segments is not touched.
 * NaN in g with ok = 1 reaches p. There is no call for models: tn_optim_plan adds the node. No gradient. */
#ifndef TN_OPS_ADAMW_H
#define TN_OPS_ADAMW_H

#include <tenon/op.h>

struct tn_segment;

typedef struct tn_adamw_attr {
    const struct tn_segment *segment; /* (n); lives as long as the graph. See ops/segments.h */
    int64_t n;
    bool keeps_grad;
} tn_adamw_attr;

extern const tn_op tn_op_adamw;

enum { TN_ADAMW_INPUTS = 12, TN_ADAMW_FLATS = 4 };

#endif
