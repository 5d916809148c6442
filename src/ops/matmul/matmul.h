/* matmul: y = scale * op(a) op(b), for every index of the leading axes.
 *
 *     tn_matmul(g, a, b, .transpose_a = false, .transpose_b = false, .scale = 1)
 *     a (...,m,k), or (...,k,m) transposed    b (...,k,n), or (...,n,k) transposed    ->  y (...,m,n)
 *
 * Leading axes are equal, or absent or 1 on one side, which is then used for all; its gradient is the sum, in order.
 * Any strides; f32, bf16 or f16 operands, f32 accumulation. A live extent of a counts: it cuts m, the first leading
 * axis, or (a transposed matrix) the sum over k. scale 0 means 1. NaN propagates. */
#ifndef TN_OPS_MATMUL_H
#define TN_OPS_MATMUL_H

#include <tenon/op.h>

typedef struct tn_matmul_options {
    int unused_;
    bool transpose_a, transpose_b;
    float scale;
} tn_matmul_options;

typedef struct tn_matmul_attr {
    bool transpose_a, transpose_b;
    float scale;
} tn_matmul_attr;

extern const tn_op tn_op_matmul;

#define tn_matmul(g, a, b, ...)                                                                                        \
    tn_matmul_((g), __FILE__, __LINE__, (a), (b), (tn_matmul_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_matmul_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref b, tn_matmul_options o);

#endif
