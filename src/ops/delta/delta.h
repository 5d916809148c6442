/* delta: the gated delta rule, a recurrence whose state is a matrix that is corrected at a key instead of added to, per
 * sequence b and head h:
 *
 *     D_t = Diag(e^{alpha_t}) keep_t S_{t-1}              keep_t = 0 where reset_t != 0, else 1
 *     S_t = D_t + k_t w_t^T,  w_t = beta_t (v_t - D_t^T k_t)        o_t = S_t^T q_t
 *
 *     o = tn_delta(g, q, k, v, alpha, beta, .state = s0, .reset = doc_start, .final = &s1)
 *
 *     q, k  (B,T,H,N)    keys of length 1 keep S bounded for beta in [0,2]; nothing is normalised here
 *     v     (B,T,H,P)    beta (B,T,H)
 *     alpha (B,T,H)      the logarithm of the decay, <= 0 (-inf forgets everything): one per head (Gated DeltaNet),
 *        or (B,T,H,N)    or one per row of S (Kimi Delta Attention)
 *     state (B,H,N,P)    S before the first token; absent: zero
 *     reset (B,T) i32    absent: none. A reset token's alpha is without effect
 *     o     (B,T,H,P)    final (B,H,N,P) f32: S after the last token (the state itself when T = 0); has a gradient
 *
 * Tokens are worked off in chunks of .chunk (TN_DELTA_CHUNK; longer ones are cut): w of a chunk solves a triangular system. The chunk
 * length changes results by rounding only. Decays are products of e^{alpha}, never quotients, so nothing overflows, and
 * those below 1e-37 count as 0. Later tokens never touch a bit of earlier outputs. NaN and Inf reach the outputs of their own
 * and of later tokens only; in gradients they may spread over their chunk.
 * Gradients: q, k, v, alpha, beta, state. The backward pass keeps nothing but the inputs and computes S again. */
#ifndef TN_OPS_DELTA_H
#define TN_OPS_DELTA_H

#include <tenon/op.h>

enum { TN_DELTA_CHUNK = 32 }; /* tokens that kernels work off at once */

typedef struct tn_delta_attr {
    int64_t chunk;
} tn_delta_attr;

typedef struct tn_delta_options {
    int unused_;
    tn_ref state, reset;
    int64_t chunk; /* 0 = TN_DELTA_CHUNK */
    tn_ref *final; /* receives the state after the last token */
} tn_delta_options;

enum {
    TN_DELTA_Q,
    TN_DELTA_K,
    TN_DELTA_V,
    TN_DELTA_ALPHA,
    TN_DELTA_BETA,
    TN_DELTA_STATE,
    TN_DELTA_RESET,
    TN_DELTA_INPUTS
};

extern const tn_op tn_op_delta;

#define tn_delta(g, q, k, v, alpha, beta, ...)                                                                         \
    tn_delta_((g), __FILE__, __LINE__, (q), (k), (v), (alpha), (beta), (tn_delta_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_delta_(tn_graph *g, const char *file, int line, tn_ref q, tn_ref k, tn_ref v, tn_ref alpha, tn_ref beta,
                 tn_delta_options o);

#endif
