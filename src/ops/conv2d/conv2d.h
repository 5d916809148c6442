/* conv2d: y[b,o,i,j] = bias[o] + sum over c,u,v of w[o,c,u,v] x[b,c,i*stride+u-pad,j*stride+v-pad], zeros outside x.
 *
 *     tn_conv2d(g, x, w, .bias = b, .stride = 1, .pad = 0)
 *     x (B,C,Hh,Ww)    w (O,C,kh,kw) f32, bf16 or f16    bias (O)
 *     ->  y (B,O,(Hh+2pad-kh)/stride+1,(Ww+2pad-kw)/stride+1)
 *
 * Patches are gathered in tiles and multiplied as matrices, with f32 accumulation; nothing of the size of all patches
 * exists. stride 0 means 1. Only live images are computed and counted. NaN propagates; padding is a number 0, so a
 * NaN weight reaches every pixel of its channel. */
#ifndef TN_OPS_CONV2D_H
#define TN_OPS_CONV2D_H

#include <tenon/op.h>

typedef struct tn_conv2d_options {
    int unused_;
    tn_ref bias;
    int64_t stride, pad;
} tn_conv2d_options;

typedef struct tn_conv2d_attr {
    int64_t stride, pad;
} tn_conv2d_attr;

extern const tn_op tn_op_conv2d;

#define tn_conv2d(g, x, w, ...)                                                                                        \
    tn_conv2d_((g), __FILE__, __LINE__, (x), (w), (tn_conv2d_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_conv2d_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_conv2d_options o);

#endif
