/* argmax: where the largest number of each row stands.      i = tn_argmax(g, x)
 *
 *     x (...,n) floats, any strides      i (...) i32 from 0 to n-1; x's live extent passes on
 *
 * Of equal numbers the first counts. A row with a NaN has no largest number: -1. n is at least 1. No gradient: the place is a
 * step function. Greedy decoding takes the next token with it. */
#ifndef TN_OPS_ARGMAX_H
#define TN_OPS_ARGMAX_H

#include <tenon/op.h>

extern const tn_op tn_op_argmax;

#define tn_argmax(g, x) tn_argmax_((g), __FILE__, __LINE__, (x))
tn_ref tn_argmax_(tn_graph *g, const char *file, int line, tn_ref x);

#endif
