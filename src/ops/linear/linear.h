/* linear: y = act(x w^T + bias) + residual in one matrix product; the rest happens while its tiles are stored.
 *
 *     tn_linear(g, x, w, .bias = b, .act = TN_ACT_GELU, .residual = r)
 *     x (...,k) any strides    w (n,k) f32, bf16 or f16    bias (n)    residual (...,n)    ->  y (...,n)
 *
 * Accumulates in f32 (operands rounded to bf16 first where the graph says so). Output 1, for the backward pass only
 * and only with an activation, is the value before it (...,n). A row of y depends on its row of x alone, in the same
 * bits whatever the number of rows; only live rows are computed, and only they count in the gradients of w and bias.
 * NaN propagates. Switch opt.epilogue: off builds product, bias, activation and sum as separate ops. */
#ifndef TN_OPS_LINEAR_H
#define TN_OPS_LINEAR_H

#include <tenon/op.h>

typedef enum tn_act {
    TN_ACT_NONE = 0,
    TN_ACT_GELU = 1,     /* tanh form */
    TN_ACT_GELU_ERF = 2, /* exact */
    TN_ACT_SILU = 3,
    TN_ACT_TANH = 4,
    TN_ACT_SIGMOID = 5,
    TN_ACT_RELU = 6,
    TN_ACTS = 7
} tn_act;

typedef struct tn_linear_options {
    int unused_;
    tn_ref bias;
    tn_act act;
    tn_ref residual;
} tn_linear_options;

/* Inputs of the node. The planner alone fills the last two: w as pack_weight left it (backward: for dy w); and, backward
 * on CUDA, what x is gelu of: dx is then the gradient of that. */
enum {
    TN_LINEAR_X,
    TN_LINEAR_W,
    TN_LINEAR_BIAS,
    TN_LINEAR_RESIDUAL,
    TN_LINEAR_PACKED,
    TN_LINEAR_SLOPE,
    TN_LINEAR_INPUTS
};

typedef struct tn_linear_attr {
    tn_act act;
} tn_linear_attr;

extern const tn_op tn_op_linear;

#define tn_linear(g, x, w, ...)                                                                                        \
    tn_linear_((g), __FILE__, __LINE__, (x), (w), (tn_linear_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_linear_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_linear_options o);

#endif
