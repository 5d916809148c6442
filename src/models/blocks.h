/* Pieces that several models share: normalisation with its parameters, feed-forward networks, the head. */
#ifndef TN_MODELS_BLOCKS_H
#define TN_MODELS_BLOCKS_H

#include <tenon/model.h>

tn_ref tn_block_rmsnorm(tn_graph *g, tn_ref x, const char *name);   /* parameter NAME.w */
tn_ref tn_block_layernorm(tn_graph *g, tn_ref x, const char *name); /* parameters NAME.w, NAME.b */

/* w2 (silu(a) * b), [a;b] = w1 u: parameters w1 (2f,d), w2 (d,f) in the open scope. out_std initialises w2. */
tn_ref tn_block_swiglu(tn_graph *g, tn_ref u, int64_t ffn, float out_std);
/* w2 gelu(w1 u + b1) + b2. */
tn_ref tn_block_gelu(tn_graph *g, tn_ref u, int64_t ffn, float out_std);

/* Puts out "loss" (and "logits" where the batch asks) from the final activations and a head (vocab, d). */
void tn_block_head(tn_graph *g, tn_ref x, tn_ref head, const tn_batch *b);

#endif
