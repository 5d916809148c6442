/* unary: y = f(x), element by element. x has any shape and strides; y has its shape. y is f32 where x is, else it has
 * the type of activations. NaN gives NaN. Live rows only.
 *
 *     tn_gelu       x s(2u), u = sqrt(2/pi) (x + 0.044715 x^3)     tn_gelu_erf   x Phi(x)
 *     tn_silu       x s(x), s(x) = 1 / (1 + e^-x)                  tn_sigmoid    s(x)
 *     tn_softplus   log(1 + e^x)                                   tn_logcosh    log cosh x
 *     tn_tanh  tn_relu  tn_exp  tn_expm1  tn_log  tn_sqrt  tn_square  tn_abs  tn_sin  tn_cos  tn_reciprocal
 *     tn_clamp_min(g, x, lo)   max(x, lo)
 *     tn_affine(g, x, a, b)    a x + b         tn_scale(g, x, a)   a x         tn_neg(g, x)   -x
 *
 * None overflows on the way to a finite result (softplus and silu at +-100 are right). The backward pass reads x, y or
 * neither, whichever is right, and runs in place. Slopes at corners: relu and clamp_min 0, abs 0. */
#ifndef TN_OPS_UNARY_H
#define TN_OPS_UNARY_H

#include <tenon/op.h>

typedef enum tn_unary_kind {
    TN_UNARY_GELU,
    TN_UNARY_GELU_ERF,
    TN_UNARY_SILU,
    TN_UNARY_TANH,
    TN_UNARY_SIGMOID,
    TN_UNARY_RELU,
    TN_UNARY_EXP,
    TN_UNARY_EXPM1,
    TN_UNARY_LOG,
    TN_UNARY_SQRT,
    TN_UNARY_SQUARE,
    TN_UNARY_ABS,
    TN_UNARY_SOFTPLUS,
    TN_UNARY_LOGCOSH,
    TN_UNARY_SIN,
    TN_UNARY_COS,
    TN_UNARY_RECIPROCAL,
    TN_UNARY_CLAMP_MIN,
    TN_UNARY_SCALE,
    TN_UNARY_AFFINE,
    TN_UNARY_KINDS
} tn_unary_kind;

typedef struct tn_unary_attr {
    tn_unary_kind kind;
    float a, b; /* clamp_min: a is the bound; scale, affine: a x + b */
} tn_unary_attr;

extern const tn_op tn_op_unary;

tn_ref tn_unary_(tn_graph *g, const char *file, int line, tn_unary_kind kind, tn_ref x, float a, float b);

#define tn_unary(g, kind, x, a, b) tn_unary_((g), __FILE__, __LINE__, (kind), (x), (a), (b))
#define tn_gelu(g, x) tn_unary(g, TN_UNARY_GELU, x, 0, 0)
#define tn_gelu_erf(g, x) tn_unary(g, TN_UNARY_GELU_ERF, x, 0, 0)
#define tn_silu(g, x) tn_unary(g, TN_UNARY_SILU, x, 0, 0)
#define tn_tanh(g, x) tn_unary(g, TN_UNARY_TANH, x, 0, 0)
#define tn_sigmoid(g, x) tn_unary(g, TN_UNARY_SIGMOID, x, 0, 0)
#define tn_relu(g, x) tn_unary(g, TN_UNARY_RELU, x, 0, 0)
#define tn_exp(g, x) tn_unary(g, TN_UNARY_EXP, x, 0, 0)
#define tn_expm1(g, x) tn_unary(g, TN_UNARY_EXPM1, x, 0, 0)
#define tn_log(g, x) tn_unary(g, TN_UNARY_LOG, x, 0, 0)
#define tn_sqrt(g, x) tn_unary(g, TN_UNARY_SQRT, x, 0, 0)
#define tn_square(g, x) tn_unary(g, TN_UNARY_SQUARE, x, 0, 0)
#define tn_abs(g, x) tn_unary(g, TN_UNARY_ABS, x, 0, 0)
#define tn_softplus(g, x) tn_unary(g, TN_UNARY_SOFTPLUS, x, 0, 0)
#define tn_logcosh(g, x) tn_unary(g, TN_UNARY_LOGCOSH, x, 0, 0)
#define tn_sin(g, x) tn_unary(g, TN_UNARY_SIN, x, 0, 0)
#define tn_cos(g, x) tn_unary(g, TN_UNARY_COS, x, 0, 0)
#define tn_reciprocal(g, x) tn_unary(g, TN_UNARY_RECIPROCAL, x, 0, 0)
#define tn_clamp_min(g, x, lo) tn_unary(g, TN_UNARY_CLAMP_MIN, x, lo, 0)
#define tn_scale(g, x, a) tn_unary(g, TN_UNARY_SCALE, x, a, 0)
#define tn_affine(g, x, a, b) tn_unary(g, TN_UNARY_AFFINE, x, a, b)
#define tn_neg(g, x) tn_unary(g, TN_UNARY_SCALE, x, -1, 0)

#endif
