/* Blocks that several models share: norms with their parameters, attention, feed-forward networks, the head. */
#ifndef TN_MODELS_BLOCKS_H
#define TN_MODELS_BLOCKS_H

#include <tenon/model.h>

/* Number i of a standard normal sequence, for first values that a model fills in itself (tn_init.fill). */
float tn_block_normal(float (*uniform)(const void *ctx, uint64_t i), const void *ctx, uint64_t i);
/* First values of a matrix: every block of so many rows has orthogonal ones of this length. */
tn_init tn_block_orthogonal(float length, int64_t rows);

/* eps 0: the norm's own, 1e-6 (rms) and 1e-5 (layer). */
tn_ref tn_block_rmsnorm(tn_graph *g, tn_ref x, const char *name, float eps);   /* parameter NAME.w */
tn_ref tn_block_layernorm(tn_graph *g, tn_ref x, const char *name, float eps); /* parameters NAME.w, NAME.b */

/* x (B,T,d) times w (n,d) -> (B,T,n); with this switch (or NULL) off, in a training step, a product for each of the T steps. */
tn_ref tn_block_product(tn_graph *g, tn_ref x, tn_ref w, const char *switch_name);
/* u (B,T,d) times matrices of rows[i] rows that lie one below the other in w (rows,d): out[i] (B,T,rows[i]), n of them. One product, and
 * its parts are views; where tn_block_projects_apart, a product for each (opt.joint_projections=off, in a training step). */
void tn_block_project(tn_graph *g, tn_ref u, tn_ref w, const int64_t *rows, int n, const char *switch_name,
                      tn_ref *out);
bool tn_block_projects_apart(tn_graph *g);

/* w2 (silu(a) * b), [a;b] = w1 u: parameters w1 (2f,d), w2 (d,f) in the open scope. out_std initialises w2. */
tn_ref tn_block_swiglu(tn_graph *g, tn_ref u, int64_t ffn, float out_std);
/* w2 act(w1 u + b1) + b2. */
tn_ref tn_block_mlp(tn_graph *g, tn_ref u, int64_t ffn, tn_act act, float out_std);

/* Attention in the open scope, causal but for both_ways: w_qkv ((H+2KV) D, d), w_out (d, H D), and where asked for b_qkv, b_out,
 * norm_q.w and norm_k.w (D), conv (taps, (H+2KV) D) and w_z (H D, d). */
typedef struct tn_block_heads {
    int64_t heads, kv_heads;
    int64_t head_dim; /* D; 0: d / heads */
    int64_t window;   /* tokens a token sees, itself among them; 0: all */
    bool both_ways;   /* a token sees all, not those before it alone; never of a cached batch */
    bool qkv_bias, out_bias;
    bool qk_norm; /* rmsnorm over the D numbers of each head of q and k, before they are turned */
    float norm_eps;
    bool rotary, interleaved;
    tn_rope_scaling scaling; /* as in rope.h, and the next two lines */
    double base, stretch, stretch_context;
    double beta_fast, beta_slow, attention_factor;
    float out_std;
    int64_t conv;   /* taps of a causal convolution on queries, keys and values, channel by channel; 0: none */
    bool conv_silu; /* ... and silu behind it */
    bool gate;      /* what is read is multiplied by silu(w_z u) */
    /* (B,P,KV,D) or none: keys (turned already) and values that stand before the layer's own; the tokens stand behind them. */
    tn_ref keys_before, values_before;
} tn_block_heads;

/* u (B,T,d) -> (B,T,d). A cached batch keeps "keys" and "values" (B, capacity, KV, D) and the convolution's tail; what stands before
 * is in rows 0 .. P-1 of them. Those of a window have fewer rows where the batch has a "slot" (models/decode_cache.h). */
tn_ref tn_block_attention(tn_graph *g, tn_ref u, const tn_block_heads *h, const tn_batch *b);

/* x (B,T,C) through a causal convolution of so many taps (0: x as it is), parameter conv (taps, C); documents do not see each
 * other. A cached batch keeps "conv_state" (B, taps-1, C). */
tn_ref tn_block_conv(tn_graph *g, tn_ref x, int64_t taps, const tn_batch *b);
/* The same of n tensors, in place, whose channels lie side by side in the parameter; not of a cached batch. */
void tn_block_convs(tn_graph *g, tn_ref *x, int n, int64_t taps, const tn_batch *b);

/* What the batch's tokens are in the table (vocab, d), behind the vectors of its "prefix" where it has them: (B,T,d). Its "embeddings"
 * (B,T,d), where it has them, are in the place of all that. */
tn_ref tn_block_embed(tn_graph *g, tn_ref table, const tn_batch *b);

/* Rows of a position table (context, d) for the batch, from row `first` on: (T,d); or (B,T,d) by "positions" where it has them. */
tn_ref tn_block_positions(tn_graph *g, tn_ref table, int64_t first, const tn_batch *b);

/* Puts out "loss" (and "logits" where the batch asks) from what a forward pass left. Where there is `extra`, which is added to the loss,
 * the cross-entropy alone is "xent". */
void tn_block_head(tn_graph *g, const tn_forward *f, const tn_batch *b);

#endif
