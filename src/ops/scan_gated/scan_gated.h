/* scan_gated: the gated complex diagonal recurrence of the D layer, gates and scan in one op.
 *
 *     l_t = -8 r_t softplus(nu)    rho_t = exp(l_t)    gamma_t = sqrt(max(-expm1(2 l_t), 1e-6))
 *     c_t = keep_t rho_t e^{i omega} c_{t-1} + gamma_t i_t x_t        keep_t = 0 where reset_t = 1, else 1
 *
 *   x      (B,T,2K)  each token [real parts (K) | imaginary parts (K)]; so are all states and outputs
 *   ri     (B,T,2K)  [r (K) | i (K)], gates in [0,1]: already through the sigmoid
 *   nu, omega  (K)    state (B,2K), optional    reset (B,T) i32, optional: 1 where a document starts
 *   out    c (B,T,2K);  final (B,2K), also differentiable
 *
 *     c = tn_scan_gated(g, x, ri, nu, omega, .state = s, .reset = starts, .final = &last)
 *
 * Gradients of x, ri, nu, omega and state; where the clamp under the root holds, gamma has no slope. NaN passes. The
 * recurrence, its precision and .chunk are those of scan; gates are computed inside and never stored. opt.scan_gated
 * off builds them from unary and binary ops and a scan with rho and gamma per token. */
#ifndef TN_OPS_SCAN_GATED_H
#define TN_OPS_SCAN_GATED_H

#include <tenon/op.h>

typedef struct tn_scan_gated_attr {
    int64_t chunk;
} tn_scan_gated_attr;

typedef struct tn_scan_gated_options {
    int unused_;
    tn_ref state, reset;
    tn_ref *final; /* gets the final state */
    int64_t chunk;
} tn_scan_gated_options;

enum { TN_GATED_X, TN_GATED_RI, TN_GATED_NU, TN_GATED_OMEGA, TN_GATED_STATE, TN_GATED_RESET, TN_GATED_INPUTS };

extern const tn_op tn_op_scan_gated;

#define tn_scan_gated(g, x, ri, nu, omega, ...)                                                                        \
    tn_scan_gated_((g), __FILE__, __LINE__, (x), (ri), (nu), (omega),                                                  \
                   (tn_scan_gated_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_scan_gated_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref ri, tn_ref nu, tn_ref omega,
                      tn_scan_gated_options o);

#endif
