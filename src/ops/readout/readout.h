/* readout: what stands between a recurrence and the product that reads it, in one pass.
 *
 *     s = scale c + skip x                     x and skip given together, or s = scale c
 *     n = s (mean s^2 + eps)^(-1/2) gain       the mean over each `group` neighbours of a row; n = s where group is 0
 *     y = n act(z)                             act as in gate.h
 *
 *     tn_readout(g, c, z, .x = v, .skip = w, .group = 64, .gain = a)
 *
 *     c, z, x, y (..., W)      skip, gain (W), or TN_NONE (gain: 1)      group divides W and is at most TN_READOUT_GROUP
 *
 * Type as in binary; NaN in a group makes that group of y NaN. Gradients: c, z, x, skip, gain. Nothing is kept for the
 * backward pass but the inputs. opt.readout=off: scale, product, sum, norm, product and gate are ops of their own. */
#ifndef TN_OPS_READOUT_H
#define TN_OPS_READOUT_H

#ifndef TN_OPS_GATE_H /* <tenon/ops.h> has it further up */
#include "ops/gate/gate.h"
#endif

#include <tenon/op.h>

enum { TN_READOUT_GROUP = 1024 };

typedef struct tn_readout_attr {
    tn_gate_kind act;
    float scale, eps;
    int64_t group;
} tn_readout_attr;

typedef struct tn_readout_options {
    int unused_;
    tn_ref x, skip, gain;
    float scale; /* 0 = 1 */
    float eps;   /* 0 = 1e-6 */
    int64_t group;
    tn_gate_kind act; /* silu */
} tn_readout_options;

extern const tn_op tn_op_readout;

#define tn_readout(g, c, z, ...)                                                                                       \
    tn_readout_((g), __FILE__, __LINE__, (c), (z), (tn_readout_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_readout_(tn_graph *g, const char *file, int line, tn_ref c, tn_ref z, tn_readout_options o);

#endif
