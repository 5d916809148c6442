/* A transformer encoder without a causal mask, norms behind the sums ("Attention is all you need", section 3), for models that read
 * a whole text at once. What stands behind a text's end reaches nothing: attention does not see it. */
#ifndef TN_MODELS_ENCODER_H
#define TN_MODELS_ENCODER_H

#include <tenon/model.h>

typedef struct tn_encoder_shape {
    int64_t heads, ffn, layers;
    float dropout;
} tn_encoder_shape;

/* x (B,T,d) -> (B,T,d), scopes layer0, layer1, ...: qkv, out, norm1, ffn1, ffn2, norm2. lengths i32 (B), or TN_NONE: all counts. */
tn_ref tn_encoder_layers(tn_graph *g, const tn_encoder_shape *c, tn_ref x, tn_ref lengths);

/* Heads of `queries` (B,S,d) look at x (B,T,d): parameters q.w, q.b, kv.w, kv.b, out.w, out.b. At first a query finds what is like it:
 * queries and keys are mapped to themselves, queries times `focus`. */
tn_ref tn_encoder_look(tn_graph *g, int64_t heads, float focus, tn_ref queries, tn_ref x, tn_ref lengths);

/* First values of a table of places (T,d): sines and cosines of this size, of the places first, first + stride, ... */
tn_init tn_encoder_waves(float size, float first, float stride);

tn_ref tn_dense(tn_graph *g, tn_ref x, const char *name, int64_t to, tn_act act); /* parameters NAME.w, NAME.b */
tn_ref tn_floats(tn_graph *g, tn_ref x); /* x in f32, whatever activations are */

#endif
