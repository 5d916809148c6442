/* dropout: y = tn_dropout(g, x, p):  each element is kept with probability 1 - p and divided by it, else 0.
 *
 * x itself is returned when the graph is not training or p is 0. Which elements are kept is a function of the run's
 * seed and step (tn_graph_seed), of the place in the graph (stream) and of the element's row-major index i:
 *     word i mod 4 of Philox block i / 4 with key seed + step * 0x9E3779B97F4A7C15 and this stream, as a number in
 *     [0,1) of 24 bits, is >= p
 * so nothing is saved: the backward pass and a recomputed forward pass draw the same mask. 0 <= p < 1. x (...) of any
 * strides, y (...) f32 where x is. NaN that is dropped is 0. dx = mask dy / (1 - p). */
#ifndef TN_OPS_DROPOUT_H
#define TN_OPS_DROPOUT_H

#include <tenon/op.h>

typedef struct tn_dropout_attr {
    float p;
    uint64_t stream;
} tn_dropout_attr;

extern const tn_op tn_op_dropout;

#define tn_dropout(g, x, p) tn_dropout_((g), __FILE__, __LINE__, (x), (p))
tn_ref tn_dropout_(tn_graph *g, const char *file, int line, tn_ref x, float p);

#endif
