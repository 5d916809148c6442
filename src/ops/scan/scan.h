/* scan: the complex diagonal recurrence, one number c per channel and token.
 *
 *     c_t = keep_t rho_t e^{i omega_t} c_{t-1} + gamma_t x_t        keep_t = 0 where reset_t = 1, else 1
 *
 *   x      (B,T,2K)  each token [real parts (K) | imaginary parts (K)]; so are all states and outputs
 *   rho    (K), or (B,T,K) for one modulus per token          omega  (K) or (B,T,K): phase in radians
 *   gamma  (K) or (B,T,K), optional: scale of the input       state  (B,2K), optional: c before token 0, else zero
 *   reset  (B,T) i32, optional: 1 where a document starts; nothing of an earlier token passes, not even a NaN
 *   out    c (B,T,2K);  final (B,2K) = c of the last token (the state itself when T = 0), also differentiable
 *
 *     c = tn_scan(g, x, rho, omega, .gamma = gm, .state = s, .reset = starts, .final = &last)
 *
 * With rho and omega per channel, lambda = rho e^{i omega} is computed in double and rounded once to f32 (re, im):
 * that rounded number is what is raised to the power of thousands of tokens. Per token it is not rounded. The state is
 * carried in double: from one piece of a few tokens to the next where lambda is per channel, else at every token; only
 * where all lambdas per channel forget within a few hundred tokens (TN_SCAN_BRIEF) is it f32 throughout. On the GPU,
 * with all coefficients per channel, it is f32 within chunks of 128 or 256 tokens and, where rows are longer, double from
 * one to the next (scan_stream.cuh), or f32 in a tree of fixed shape over time on GPUs with little shared memory (scan_tiles.cuh).
 * Gradients of x, rho, omega, gamma and state are exact through every carry; the backward pass keeps c and what it
 * needs of the inputs.
 *
 * .chunk: tokens per piece when a scan of few channels is cut along time for more threads (0: the default); changes
 * results by rounding only. .plain: one step per token, the twin that opt.scan=off builds. */
#ifndef TN_OPS_SCAN_H
#define TN_OPS_SCAN_H

#include <tenon/op.h>

enum { TN_SCAN_CHUNK = 256 };

typedef struct tn_scan_attr {
    int64_t chunk;
    bool plain;
} tn_scan_attr;

typedef struct tn_scan_options {
    int unused_;
    tn_ref gamma, state, reset;
    tn_ref *final; /* gets the final state */
    int64_t chunk;
    bool plain;
} tn_scan_options;

enum { TN_SCAN_X, TN_SCAN_RHO, TN_SCAN_OMEGA, TN_SCAN_GAMMA, TN_SCAN_STATE, TN_SCAN_RESET, TN_SCAN_INPUTS };

extern const tn_op tn_op_scan;

#define tn_scan(g, x, rho, omega, ...)                                                                                 \
    tn_scan_((g), __FILE__, __LINE__, (x), (rho), (omega), (tn_scan_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_scan_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref rho, tn_ref omega, tn_scan_options o);

#endif
