/* attention: softmax(scale q k^T + mask) v, in tiles with a running maximum and sum; the T x S matrix never exists.
 *
 *     tn_attention(g, q, k, v, .causal = true, .scale = 0, .lengths = n, .kv_length = c, .window = W, .document = d)
 *     q (B,T,H,D)    k, v (B,S,KV,D) with H a multiple of KV: head h reads head h*KV/H    ->  y (B,T,H,D)
 *     lengths i32 (B): valid keys of each sequence
 *     kv_length i32 (1): valid keys of all sequences, or (B): of each; in device memory
 *     document i32 (B,T), T = S: a token sees keys of its own document alone
 *
 * scale 0 is 1/sqrt(D). Query t stands at position P - T + t, where P is the sequence's kv_length, or S without it: the last query
 * is beside the last key. causal: keys up to the query's position. window W > 0: keys less than W away from it. A
 * query that sees no key gives zeros and no gradient. lengths or kv_length outside 0..S are a usage error when the
 * step runs.
 *
 * q, k, v take any strides (parts of one projection need no copy) and may be bf16 or f16 (caches). Output 1, for the
 * backward pass only, is the log-sum-exp (B,H,T) in f32. A query's bits depend on its own q and the keys it sees
 * alone, NaN and infinity in hidden keys and values included (forward; a gradient may become NaN through hidden
 * non-finite numbers of the same tile). Switch opt.flash: off computes with whole matrices and keeps the
 * probabilities (B,H,T,S). Switch opt.cudnn: on a GPU, the forward pass of bf16 of at least 64 tokens with a causal
 * mask (T = S) or none goes through cuDNN where that measures faster; a NaN or infinity in hidden keys and values may then reach queries near
 * them. */
#ifndef TN_OPS_ATTENTION_H
#define TN_OPS_ATTENTION_H

#include <tenon/op.h>

typedef struct tn_attention_options {
    int unused_;
    bool causal;
    float scale;
    int64_t window;
    tn_ref lengths, kv_length, document;
} tn_attention_options;

typedef struct tn_attention_attr {
    bool causal;
    float scale; /* never 0 */
    int64_t window;
    bool cudnn; /* its kernels may be taken */
} tn_attention_attr;

extern const tn_op tn_op_attention;

#define tn_attention(g, q, k, v, ...)                                                                                  \
    tn_attention_((g), __FILE__, __LINE__, (q), (k), (v), (tn_attention_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_attention_(tn_graph *g, const char *file, int line, tn_ref q, tn_ref k, tn_ref v, tn_attention_options o);

#endif
