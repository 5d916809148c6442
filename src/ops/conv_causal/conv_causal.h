/* conv_causal: short causal convolution along time, every channel on its own.
 *
 *     y_t = bias + sum_{j=0}^{W-1} w_j x_{t-W+1+j}        (element-wise; w_{W-1} meets the token itself)
 *
 *   x      (B,T,C)     w  (W,C), 1 <= W <= 8     bias (C), optional
 *   state  (B,W-1,C), optional: the W-1 inputs before token 0, oldest first; else zeros
 *   reset  (B,T) i32, optional: 1 where a document starts; from there on nothing earlier is seen, not even a NaN
 *   out    y (B,T,C);  final (B,W-1,C): the last W-1 inputs, zeros for what lies before the last document's start; what
 *          a next call takes as its state (T < W-1 shifts the old state). Also differentiable
 *
 *     y = tn_conv_causal(g, x, w, .bias = b, .state = s, .reset = starts, .final = &last)
 *
 * Gradients of x, w, bias and state. Splitting a row in two and carrying the state gives the same bits.
 *
 * The planner alone asks for y = silu(the sum above) (CUDA, opt.silu_in_conv): the sum is never stored, the backward pass
 * computes it again from x. */
#ifndef TN_OPS_CONV_CAUSAL_H
#define TN_OPS_CONV_CAUSAL_H

#include <tenon/op.h>

enum { TN_CONV_MAX_WIDTH = 8, TN_CONV_SUM_TOKENS = 128 }; /* CPU: tokens of a tile of the backward pass */

typedef struct tn_conv_causal_options {
    int unused_;
    tn_ref bias, state, reset;
    tn_ref *final; /* gets the final state */
} tn_conv_causal_options;

typedef struct tn_conv_causal_attr {
    bool silu;
} tn_conv_causal_attr;

enum { TN_CONV_X, TN_CONV_W, TN_CONV_BIAS, TN_CONV_STATE, TN_CONV_RESET, TN_CONV_INPUTS };

extern const tn_op tn_op_conv_causal;

#define tn_conv_causal(g, x, w, ...)                                                                                   \
    tn_conv_causal_((g), __FILE__, __LINE__, (x), (w), (tn_conv_causal_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_conv_causal_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_conv_causal_options o);

#endif
