/* D layer: the gated complex diagonal recurrence. */
#include "models/ten/ten.h"

/* u (B,T,d) is the normalised input; returns the mixer's output (B,T,d).
 *     [x;z] = w_in u, x <- conv x, [r;i] = sigmoid(w_ri u + b_ri)
 *     c_t = rho_t e^{i omega} c_{t-1} + gamma_t i_t x_t,  rho_t = exp(-8 r_t softplus(nu)),  gamma_t = sqrt(1-rho_t^2)
 *     out = w_out((c + skip x) silu(z)) */
tn_ref ten_d_layer(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t d = c->dim, K = c->k, parts = c->gate == TEN_GATE_SILU ? 2 : 1;
    const tn_ref state = tn_decode_cache_state(g, b, "state", tn_shape(b->batch, 2 * K));
    tn_ref after = TN_NONE;
    tn_ref xz[2] = { TN_NONE, TN_NONE };
    tn_block_project(g, u, tn_param(g, "w_in", tn_shape(parts * 2 * K, d), tn_normal(0.02f)),
                     (const int64_t[]){ 2 * K, 2 * K }, (int)parts, "opt.batched_input", xz);
    const tn_ref x = tn_block_conv(g, xz[0], c->conv, b);
    const tn_ref ri = tn_linear(g, u, tn_param(g, "w_ri", tn_shape(2 * K, d), tn_normal(0.02f)),
                                .bias = tn_param(g, "b_ri", tn_shape(2 * K), tn_zeros), .act = TN_ACT_SIGMOID);
    const tn_ref nu = tn_param(g, "nu", tn_shape(K), ten_init_nu(c), .lr = c->spectrum_lr);
    const tn_ref states = tn_scan_gated(g, x, ri, nu, ten_phase(n, K, ten_init_omega()), .reset = tn_in(b, "reset"),
                                        .state = state, .final = b->cached ? &after : NULL);
    tn_decode_cache_store(g, b, state, after);
    ten_note_energy(n, states);
    if (ten_is_instrumented(n, b)) ten_put_instruments(n, 'D', ten_gated_decay(g, ri, nu), states);
    return ten_read_out(n, u,
                        &(ten_read){ .c = states,
                                     .x = x,
                                     .z = xz[parts - 1],
                                     .skip = c->skip ? tn_param(g, "skip", tn_shape(2 * K), tn_ones) : TN_NONE });
}
