/* grouped_matmul: rows of x in consecutive groups, each group with a matrix of its own (mixtures of experts,
 * per-trial weights): y[r] = w[i] x[r] for offsets[i] <= r < offsets[i+1]; rows outside every group are 0.
 *
 *     tn_grouped_matmul(g, x, w, offsets)
 *     x (R,k)    w (G,n,k) f32, bf16 or f16    offsets i32 (G+1), never falling, within 0..R    ->  y (R,n)
 *
 * Bad offsets are a usage error when the step runs, before anything is written. A group may be empty (its dw is 0). A
 * live extent of x cuts the groups. Accumulates in f32; NaN propagates within its row. */
#ifndef TN_OPS_GROUPED_MATMUL_H
#define TN_OPS_GROUPED_MATMUL_H

#include <tenon/op.h>

extern const tn_op tn_op_grouped_matmul;

#define tn_grouped_matmul(g, x, w, offsets) tn_grouped_matmul_((g), __FILE__, __LINE__, (x), (w), (offsets))
tn_ref tn_grouped_matmul_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_ref offsets);

#endif
