/* outer: a recurrence whose state is a matrix, with data-dependent decay, per sequence b and head h:
 *
 *     S_t = e^{alpha_t} keep_t S_{t-1} + k_t v_t^T        o_t = S_t^T q_t        keep_t = 0 where reset_t != 0, else 1
 *
 *     o = tn_outer(g, q, k, v, alpha, .state = s0, .reset = doc_start, .final = &s1)
 *
 *     q, k  (B,T,H,N)    v (B,T,H,P)    alpha (B,T,H) the logarithm of the decay, <= 0 (-inf forgets everything)
 *     state (B,H,N,P)    S before the first token; absent: zero
 *     reset (B,T) i32    absent: none. A reset token's alpha is without effect
 *     o     (B,T,H,P)    final (B,H,N,P) f32: S after the last token (the state itself when T = 0); has a gradient
 *
 * Tokens are worked off in chunks of .chunk (64): inside a chunk as masked matrix products, between chunks through S.
 * The chunk length changes results by rounding only. Decays are products of e^{alpha}, never quotients, so nothing
 * overflows, and those below 1e-37 count as 0. Later tokens never touch a bit of earlier outputs. NaN and Inf reach the
 * outputs of their own and of later tokens only; in gradients they may spread over their chunk.
 * Gradients: q, k, v, alpha, state. The backward pass keeps nothing but the inputs and computes S again.
 *
 * What the planner alone asks for, on CUDA: an input `write` (B,T,H,1), by whose numbers v_t is to be multiplied, and which
 * has a gradient too (opt.write_in_outer); alpha = -softplus(a) and write = sigmoid(b) made of a and b (opt.gates_in_outer);
 * a third output, S before every chunk, as the forward kernel makes it anyway, for the backward pass (opt.keep_states). */
#ifndef TN_OPS_OUTER_H
#define TN_OPS_OUTER_H

#include <tenon/op.h>

/* CHUNK: tokens of one, unless .chunk says otherwise, and between the states that are kept. FEW: up to so many tokens are worked off
 * one by one, chosen by T alone, never by the data. */
enum { TN_OUTER_CHUNK = 64, TN_OUTER_FEW = 4 };

typedef struct tn_outer_attr {
    int64_t chunk;
    bool steps; /* one step per token: the plain twin */
    bool keeps; /* there is an output TN_OUTER_KEPT, for the backward pass */
    bool raw;   /* given are a and b of alpha = -softplus(a), write = sigmoid(b) */
} tn_outer_attr;

typedef struct tn_outer_options {
    int unused_;
    tn_ref state, reset;
    int64_t chunk; /* 0: TN_OUTER_CHUNK */
    tn_ref *final; /* receives the state after the last token */
} tn_outer_options;

enum {
    TN_OUTER_Q,
    TN_OUTER_K,
    TN_OUTER_V,
    TN_OUTER_ALPHA,
    TN_OUTER_STATE,
    TN_OUTER_RESET,
    TN_OUTER_WRITE,
    TN_OUTER_INPUTS
};
enum { TN_OUTER_O, TN_OUTER_FINAL, TN_OUTER_KEPT };

extern const tn_op tn_op_outer;

#define tn_outer(g, q, k, v, alpha, ...)                                                                               \
    tn_outer_((g), __FILE__, __LINE__, (q), (k), (v), (alpha), (tn_outer_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_outer_(tn_graph *g, const char *file, int line, tn_ref q, tn_ref k, tn_ref v, tn_ref alpha,
                 tn_outer_options o);

#endif
