/* softmax: over the last axis of x (..., n), n numbers to weights that sum to 1.
 *
 *     tn_softmax(g, x, .scale = 1, .mask = m)      y = e^(scale x - max) / sum, over positions with m != 0
 *     tn_log_softmax(g, x)                         y = x - log sum e^x
 *
 * scale 0 means 1. mask: i32 or f32, any shape that broadcasts to x's (axes aligned at the end), no gradient; masked
 * positions have weight 0. A row with no position left (all masked or all -inf) has all weights 0, and all logarithms
 * -inf. NaN or +inf anywhere unmasked in a row makes the whole row NaN. x has rank >= 1; y has its shape and is f32
 * where x is. A vector with a live extent is summed over what is alive.
 *
 * dx = scale y (dy - sum dy y); log: dx = dy - e^y sum dy. Only y is kept. */
#ifndef TN_OPS_SOFTMAX_H
#define TN_OPS_SOFTMAX_H

#include <tenon/op.h>

typedef struct tn_softmax_attr {
    float scale;
    bool log;
} tn_softmax_attr;

typedef struct tn_softmax_options {
    int unused_;
    float scale;
    tn_ref mask;
} tn_softmax_options;

extern const tn_op tn_op_softmax;

#define tn_softmax(g, x, ...)                                                                                          \
    tn_softmax_((g), __FILE__, __LINE__, (x), false, (tn_softmax_options){ .unused_ = 0, __VA_ARGS__ })
#define tn_log_softmax(g, x) tn_softmax_((g), __FILE__, __LINE__, (x), true, (tn_softmax_options){ .unused_ = 0 })
tn_ref tn_softmax_(tn_graph *g, const char *file, int line, tn_ref x, bool log, tn_softmax_options o);

#endif
