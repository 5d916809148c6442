/* gru: one step of a GRU cell in its "reset after" form (gates in the order r, z, n), for N rows at a time.
 *
 *     tn_gru(g, x, h, w_i, w_h, b_i, b_h)
 *     x (N,I)    h (N,H)    w_i (3H,I)    w_h (3H,H)    b_i (3H)    b_h (3H)    ->  h' (N,H)
 *
 *     r = sigmoid(w_ir x + b_ir + w_hr h + b_hr)         q = w_hn h + b_hn
 *     z = sigmoid(w_iz x + b_iz + w_hz h + b_hz)         n = tanh(w_in x + b_in + r q)         h' = n + z (h - n)
 *
 * Output 1, for the backward pass only, holds r, z, n and q (N,4H). Products accumulate in f32 (operands rounded to bf16
 * first where the graph says so); rows of x and h may lie anywhere. A row of h' depends on its rows of x and h alone, in the
 * same bits whatever the number of rows; only live rows are computed, and only they count in the gradients of weights and
 * biases. NaN propagates. Switch opt.gru_fused: off builds two products and element-wise ops. */
#ifndef TN_OPS_GRU_H
#define TN_OPS_GRU_H

#include <tenon/op.h>

/* Inputs of the node. */
enum { TN_GRU_X, TN_GRU_H, TN_GRU_WI, TN_GRU_WH, TN_GRU_BI, TN_GRU_BH, TN_GRU_INPUTS };

extern const tn_op tn_op_gru;

#define tn_gru(g, x, h, w_i, w_h, b_i, b_h) tn_gru_((g), __FILE__, __LINE__, (x), (h), (w_i), (w_h), (b_i), (b_h))
tn_ref tn_gru_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref h, tn_ref w_i, tn_ref w_h, tn_ref b_i,
               tn_ref b_h);

#endif
