/* sgd: one step of gradient descent with momentum over a flat array, in place.
 *     g' = coefficient * g           m = momentum m + g'           u = m, or g' + momentum m (Nesterov)
 *     p -= lr' * u + lr' * decay * p            then g = 0
 * with lr' = lr times the segment's factor, decay only where the segment says so.
 *     in   param, grad, m (n) | lr, momentum, decay, coefficient (1) | ok i32 (1)
 *     out  param, grad, m: the same memory as the inputs
 * ok = 0: param and m keep their bits and only g = 0 happens. What lies outside the segments is not touched.
 * NaN in g with ok = 1 reaches p. There is no call for models: tn_optim_plan adds the node. No gradient. */
#ifndef TN_OPS_SGD_H
#define TN_OPS_SGD_H

#include <tenon/op.h>

struct tn_segment;

typedef struct tn_sgd_attr {
    const struct tn_segment *segment; /* (n); lives as long as the graph. See ops/segments.h */
    int64_t n;
    bool nesterov;
} tn_sgd_attr;

extern const tn_op tn_op_sgd;

enum { TN_SGD_INPUTS = 8, TN_SGD_FLATS = 3 };

#endif
