/* sumsq: s = sum of x^2 over all elements of all inputs, for the norm of the whole gradient.
 *     s = tn_sumsq(g, xs, n)         xs: n tensors of any shape, s: f32 (1)
 * Summed in double in one fixed order (tiles of fixed size, then tile by tile), rounded to f32 once. NaN and Inf stay;
 * a sum beyond f32 (norms above 1.8e19) is Inf. No gradient. */
#ifndef TN_OPS_SUMSQ_H
#define TN_OPS_SUMSQ_H

#include <tenon/op.h>

enum { TN_SUMSQ_TILE = 16384 }; /* elements: it decides the order of the sum */
static inline int64_t tn_sumsq_tiles(int64_t n) { return (n + TN_SUMSQ_TILE - 1) / TN_SUMSQ_TILE; }

extern const tn_op tn_op_sumsq;

#define tn_sumsq(g, xs, n) tn_sumsq_((g), __FILE__, __LINE__, (xs), (n))
tn_ref tn_sumsq_(tn_graph *g, const char *file, int line, const tn_ref *xs, int n);

#endif
