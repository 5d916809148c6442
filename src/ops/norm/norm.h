/* norm: rmsnorm and layernorm over the last axis, with the residual's addition in the same pass.
 *
 *     s = x + residual (x where none is given)
 *     tn_rmsnorm(g, x, w, ...)         y = s (mean s^2 + eps)^(-1/2) w                               eps 1e-6
 *     tn_layernorm(g, x, w, b, ...)    y = (s - mean s) (var s + eps)^(-1/2) w + b, biased variance  eps 1e-5
 *
 *     h = tn_rmsnorm(g, branch, w, .residual = x, .sum = &x);      x is now the new residual stream
 *
 *     x, residual, y, sum (..., d)      w, b (d), or TN_NONE for 1 and 0      .sum receives s, which has a gradient
 *
 * The mean is taken off before squares are summed: a large mean costs no digits. Rows are independent; live extents
 * pass through. NaN in a row makes that row NaN. Gradients: x, residual, w, b. Kept for the backward pass: s (that is x
 * where there is no residual) and one (rms) or three (layer) numbers a row. */
#ifndef TN_OPS_NORM_H
#define TN_OPS_NORM_H

#include <tenon/op.h>

typedef enum tn_norm_kind { TN_NORM_RMS = 0, TN_NORM_LAYER = 1 } tn_norm_kind;

typedef struct tn_norm_attr {
    tn_norm_kind kind;
    float eps;
} tn_norm_attr;

typedef struct tn_norm_options {
    int unused_;
    float eps;       /* 0 = the default above */
    tn_ref residual; /* added to x first */
    tn_ref *sum;     /* receives s */
} tn_norm_options;

extern const tn_op tn_op_norm;

#define tn_rmsnorm(g, x, w, ...)                                                                                       \
    tn_norm_((g), __FILE__, __LINE__, TN_NORM_RMS, (x), (w), TN_NONE, (tn_norm_options){ .unused_ = 0, __VA_ARGS__ })
#define tn_layernorm(g, x, w, b, ...)                                                                                  \
    tn_norm_((g), __FILE__, __LINE__, TN_NORM_LAYER, (x), (w), (b), (tn_norm_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_norm_(tn_graph *g, const char *file, int line, tn_norm_kind kind, tn_ref x, tn_ref w, tn_ref b,
                tn_norm_options o);

#endif
