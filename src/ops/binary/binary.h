/* binary: y = f(a, b), element by element, shapes broadcast as numpy does (axes aligned at the end; size 1 repeats).
 * Any strides. y is f32 where both inputs are, else it has the type of activations. NaN in either gives NaN.
 *
 *     tn_add(g, a, b)   tn_sub   tn_mul   tn_div   tn_maximum   tn_minimum
 *     tn_add_scaled(g, a, w, x)     a + w x, w a vector over the last axis (or anything that broadcasts)
 *
 * Gradients of a broadcast input are summed in double in a fixed order. At ties maximum and minimum give half of the
 * gradient to each side. Of two inputs the one with the result's shape comes first inside (kinds RSUB, RDIV), so that
 * its live extent passes to the result; the other input's is not looked at. */
#ifndef TN_OPS_BINARY_H
#define TN_OPS_BINARY_H

#include <tenon/op.h>

typedef enum tn_binary_kind {
    TN_BINARY_ADD,
    TN_BINARY_SUB,
    TN_BINARY_MUL,
    TN_BINARY_DIV,
    TN_BINARY_MAXIMUM,
    TN_BINARY_MINIMUM,
    TN_BINARY_RSUB, /* in[1] - in[0] */
    TN_BINARY_RDIV, /* in[1] / in[0] */
    TN_BINARY_KINDS
} tn_binary_kind;

typedef struct tn_binary_attr {
    tn_binary_kind kind;
} tn_binary_attr;

extern const tn_op tn_op_binary;

tn_ref tn_binary_(tn_graph *g, const char *file, int line, tn_binary_kind kind, tn_ref a, tn_ref b);
tn_ref tn_add_scaled_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref w, tn_ref x);

#define tn_binary(g, kind, a, b) tn_binary_((g), __FILE__, __LINE__, (kind), (a), (b))
#define tn_add(g, a, b) tn_binary(g, TN_BINARY_ADD, a, b)
#define tn_sub(g, a, b) tn_binary(g, TN_BINARY_SUB, a, b)
#define tn_mul(g, a, b) tn_binary(g, TN_BINARY_MUL, a, b)
#define tn_div(g, a, b) tn_binary(g, TN_BINARY_DIV, a, b)
#define tn_maximum(g, a, b) tn_binary(g, TN_BINARY_MAXIMUM, a, b)
#define tn_minimum(g, a, b) tn_binary(g, TN_BINARY_MINIMUM, a, b)
#define tn_add_scaled(g, a, w, x) tn_add_scaled_((g), __FILE__, __LINE__, (a), (w), (x))

#endif
