/* D layer: the gated complex diagonal recurrence. */
#include "models/ten/ten.h"

/* u (B,T,d) is the normalised input; returns the mixer's output (B,T,d).
 *     [x;z] = w_in u, x <- conv4 x, [r;i] = sigmoid(w_ri u + b_ri)
 *     c_t = rho_t e^{i omega} c_{t-1} + gamma_t i_t x_t,  rho_t = exp(-8 r_t softplus(nu)),  gamma_t = sqrt(1-rho_t^2)
 *     out = w_out((c + skip x) silu(z)) */
tn_ref ten_d_layer(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t d = n->c->dim, K = n->c->k;
    const tn_ref tail = tn_carry_state(g, b, "conv_state", tn_shape(b->batch, 3, 2 * K));
    const tn_ref state = tn_carry_state(g, b, "state", tn_shape(b->batch, 2 * K));
    tn_ref tail_after = TN_NONE, after = TN_NONE;
    const tn_ref xz = tn_linear(g, u, tn_param(g, "w_in", tn_shape(4 * K, d), tn_normal(0.02f)));
    const tn_ref x = tn_conv_causal(g, tn_part(g, xz, 0, 2),
                                    tn_param(g, "conv", tn_shape(4, 2 * K), tn_uniform(-0.5f, 0.5f), .no_decay = true),
                                    .reset = b->reset, .state = tail, .final = b->carry ? &tail_after : NULL);
    const tn_ref ri = tn_linear(g, u, tn_param(g, "w_ri", tn_shape(2 * K, d), tn_normal(0.02f)),
                                .bias = tn_param(g, "b_ri", tn_shape(2 * K), tn_zeros), .act = TN_ACT_SIGMOID);
    const tn_ref nu = tn_param(g, "nu", tn_shape(K), ten_init_nu(), .lr = n->c->spectrum_lr);
    const tn_ref c = tn_scan_gated(g, x, ri, nu,
                                   tn_param(g, "omega", tn_shape(K), ten_init_omega(), .lr = n->c->spectrum_lr),
                                   .reset = b->reset, .state = state, .final = b->carry ? &after : NULL);
    tn_carry_keep(g, b, tail, tail_after);
    tn_carry_keep(g, b, state, after);
    ten_note_energy(n, c);
    if (ten_looks(n, b)) ten_look(n, 'D', ten_look_gated(g, ri, nu), c);
    const tn_ref skip = tn_param(g, "skip", tn_shape(2 * K), tn_ones);
    return tn_linear(g, tn_readout(g, c, tn_part(g, xz, 1, 2), .x = x, .skip = skip),
                     tn_param(g, "w_out", tn_shape(d, 2 * K), tn_normal(n->c->out_std)));
}
