/* pack_weight: the weights of a linear in the order in which its matrix product reads them.
 *
 *     p = tn_pack_weight(g, w, backward)      w (n,k) f32, bf16 or f16, any strides -> p u8 (bytes)
 *
 * p is for the input `packed` of a linear and for nothing else: its bytes are those of the micro-kernel this machine
 * chooses. backward false: for x w^T; true: for dy w. The planner puts it before the first of several products with the
 * same w (opt.pack_weights); each of them has the bits it has without. NaN passes. No gradient: the linear has it. */
#ifndef TN_OPS_PACK_WEIGHT_H
#define TN_OPS_PACK_WEIGHT_H

#include <tenon/op.h>

typedef struct tn_pack_weight_attr {
    bool backward;
} tn_pack_weight_attr;

extern const tn_op tn_op_pack_weight;

#define tn_pack_weight(g, w, backward) tn_pack_weight_((g), __FILE__, __LINE__, (w), (backward))
tn_ref tn_pack_weight_(tn_graph *g, const char *file, int line, tn_ref w, bool backward);

#endif
