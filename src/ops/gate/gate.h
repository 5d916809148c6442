/* gate: y = x act(z), element by element, act = silu, sigmoid or gelu (tanh form). x and z have one shape and any
 * strides (parts of one projection need no copy); y is contiguous. Type as in binary; NaN in either gives NaN.
 *
 *     tn_mul_silu(g, x, z)   tn_mul_sigmoid(g, x, z)   tn_mul_gelu(g, x, z)      x act(z)
 *     tn_swiglu(g, a, b)                                                         silu(a) b
 *
 * dx = dy act(z), dz = dy x act'(z), in one pass: act(z) is never stored. opt.gate=off: act(z) and the product are two
 * ops. */
#ifndef TN_OPS_GATE_H
#define TN_OPS_GATE_H

#include <tenon/op.h>

typedef enum tn_gate_kind { TN_GATE_SILU, TN_GATE_SIGMOID, TN_GATE_GELU, TN_GATE_KINDS } tn_gate_kind;

typedef struct tn_gate_attr {
    tn_gate_kind kind;
} tn_gate_attr;

extern const tn_op tn_op_gate;

tn_ref tn_gate_(tn_graph *g, const char *file, int line, tn_gate_kind kind, tn_ref x, tn_ref z);

#define tn_gate(g, kind, x, z) tn_gate_((g), __FILE__, __LINE__, (kind), (x), (z))
#define tn_mul_silu(g, x, z) tn_gate(g, TN_GATE_SILU, x, z)
#define tn_mul_sigmoid(g, x, z) tn_gate(g, TN_GATE_SIGMOID, x, z)
#define tn_mul_gelu(g, x, z) tn_gate(g, TN_GATE_GELU, x, z)
#define tn_swiglu(g, a, b) tn_gate(g, TN_GATE_SILU, b, a)

#endif
