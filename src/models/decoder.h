/* The body of a decoder-only transformer: embedding, layers, last norm, and the matrix of the head. A function of a graph, a
 * shape and a batch, for models that are one (`gpt`) and for those that contain some, each under a scope of its own. Parameters
 * go under the open scopes: embed, position, layer<N>.{norm1,norm2}.w, layer<N>.attn.{w_qkv,b_qkv,w_out,norm_q.w,norm_k.w,...},
 * layer<N>.ffn.{w1,w2,...}, norm_f.w, head. Between tn_frozen_begin and tn_frozen_end they are not trained, and gradients pass
 * through them to whatever the batch's inputs came from.
 *
 * The batch has, as in tn_forward (model.h), "tokens" (B,T), or vectors "prefix" (B,T,d), or both, vectors first; and where keys and
 * values stand before those of each layer
 *     "prefix_keys", "prefix_values"  (B,P,layers*KV,D): heads of layer l are KV*l .. KV*l+KV-1
 * They are used as they are: keys are those behind the rotary turn, and behind the norm of keys. Every token sees them, and stands at
 * P, P+1, ... of which the batch's length knows nothing. A cached batch writes them into rows 0 .. P-1 of its caches: "position"
 * is then P in the step that has them. A row with several documents cannot have them. */
#ifndef TN_MODELS_DECODER_H
#define TN_MODELS_DECODER_H

#include <tenon/model.h>

typedef struct tn_decoder_shape {
    int64_t dim, layers, heads, kv_heads, head_dim, ffn, vocab;
    int64_t context; /* rows of the table of positions, where it is one */
    bool llama;      /* rmsnorm, rotary positions, swiglu, no biases; else layernorm, learned positions, gelu, biases */
    bool qkv_bias, qk_norm, tied;
    bool interleaved; /* rotary pairs */
    tn_rope_scaling rope_scaling;
    double rope_base, rope_stretch, rope_stretch_context; /* as in rope.h, and the next three */
    double rope_beta_fast, rope_beta_slow, rope_attention_factor;
    int64_t conv; /* as in tn_block_heads, and the next two */
    bool conv_silu, gate;
    float norm_eps, dropout; /* eps 0: the norm's own */
} tn_decoder_shape;

/* states NULL, or (layers+1): receives what goes into layer 0, into layer 1, ..., and into the last norm, each (B,T,d). Errors of the
 * graph are kept in it, and returned. */
tn_status tn_decoder_forward(tn_graph *g, const tn_decoder_shape *c, const tn_batch *b, tn_ref *states,
                             tn_forward *out);

/* Tokens that stand before the batch's own: P of "prefix_keys", 0 without. */
int64_t tn_decoder_before(const tn_graph *g, const tn_batch *b);

#endif
