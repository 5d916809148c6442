/* E layer: eigenstates with their own eigenvalues, c_t = lambda c_{t-1} + gamma beta_t, in all forms that the settings
 * of the second group offer; the historical networks are presets of it. K counts the states of all cells (n_cells
 * averaged cells are one cell with as many states and 1/n_cells of the output). The gradient flows through the whole
 * sequence; tbptt truncates it. */
#include "models/ten/ten.h"

#include <math.h>

typedef struct spectrum {
    tn_ref rho, omega, gamma; /* (K), or (B,T,K) where they depend on the token; gamma may be none */
    tn_ref gates, nu;         /* select=rg: (B,T,2K) and (K) */
} spectrum;

/* --- input -------------------------------------------------------------------------------------------------------- */

/* States of the layer before, through a matrix that starts as the identity and a gate that starts nearly shut. */
static tn_ref add_memory(ten_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const int64_t K2 = tn_ref_dim(g, n->memory, -1);
    const tn_ref w = tn_param(g, "w_mem", tn_shape(K2, K2), ten_init_identity());
    const tn_ref m = tn_linear(g, n->memory, ten_resonate(n, w, n->memory_resonance, true));
    return tn_add(g, x, tn_mul(g, m, tn_sigmoid(g, tn_param(g, "mu", tn_shape(1), tn_constant(-3)))));
}

/* beta (B,T,2K), [real | imaginary]. */
static tn_ref drive(ten_net *n, tn_ref u, const tn_batch *b, int64_t K)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t rows = c->beta_complex ? 2 * K : K;
    const tn_ref w = tn_param(g, "w_in", tn_shape(rows, c->dim), tn_normal(0.02f));
    tn_ref x = tn_block_conv(g, tn_block_product(g, u, w, "opt.batched_input"), c->conv, b);
    if (!c->beta_complex) {
        const tn_ref parts[] = { x, tn_fill(g, tn_shape(b->batch, b->length, K), TN_F32, 0) };
        x = tn_concat(g, parts, 2, -1);
    }
    return c->xmem && n->memory.id ? add_memory(n, x) : x;
}

/* --- eigenvalues -------------------------------------------------------------------------------------------------- */

/* sqrt(1 - rho^2) e^g: rho near 1 would otherwise make states, and the sums behind them, large. Free: e^g with the same first
 * value, and rho leaves it alone from there on. */
static tn_ref input_scale(ten_net *n, tn_ref log_rho, int64_t K)
{
    tn_graph *g = n->g;
    if (n->c->gamma == TEN_GAMMA_FREE) return tn_exp(g, tn_param(g, "log_gamma", tn_shape(K), ten_init_gamma(n->c)));
    const tn_ref one_less = tn_clamp_min(g, tn_neg(g, tn_expm1(g, tn_scale(g, log_rho, 2))), 1e-6f);
    const tn_ref factor = tn_param(g, "log_gamma", tn_shape(K), tn_zeros, .lr = n->c->spectrum_lr);
    return tn_mul(g, tn_sqrt(g, one_less), tn_exp(g, factor));
}

tn_ref ten_phase(ten_net *n, int64_t K, tn_init first)
{
    tn_graph *g = n->g;
    if (n->c->omega == TEN_OMEGA_ZERO) return tn_fill(g, tn_shape(K), TN_F32, 0);
    if (n->c->omega == TEN_OMEGA_FIXED) return tn_frozen(g, "omega", tn_shape(K), TN_F32, first);
    return tn_param(g, "omega", tn_shape(K), first, .lr = n->c->spectrum_lr);
}

static spectrum gated(ten_net *n, tn_ref u, int64_t K)
{
    tn_graph *g = n->g;
    const float lr = n->c->spectrum_lr;
    return (spectrum){ .omega = ten_phase(n, K, ten_init_phase(n->c)),
                       .nu = tn_param(g, "nu", tn_shape(K), ten_init_nu(n->c), .lr = lr),
                       .gates =
                           tn_linear(g, u, tn_param(g, "w_ri", tn_shape(2 * K, n->c->dim), tn_normal(0.02f)),
                                     .bias = tn_param(g, "b_ri", tn_shape(2 * K), tn_zeros), .act = TN_ACT_SIGMOID) };
}

static spectrum eigenvalues(ten_net *n, tn_ref u, int64_t K)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    if (c->select == TEN_SELECT_RG) return gated(n, u, K);
    tn_ref a = tn_param(g, c->expexp ? "nu" : "alpha", tn_shape(K), ten_init_radius(c), .lr = c->spectrum_lr);
    spectrum s = { .omega = ten_phase(n, K, ten_init_phase(c)) };
    if (c->select == TEN_SELECT_BOUNDED) { /* [p;q]: alpha + 0.1 tanh p, omega + 0.05 tanh q; both zero at first */
        const tn_ref pq = tn_linear(g, u, tn_param(g, "w_sel", tn_shape(2 * K, c->dim), tn_zeros),
                                    .bias = tn_param(g, "b_sel", tn_shape(2 * K), tn_zeros), .act = TN_ACT_TANH);
        a = tn_add(g, tn_scale(g, tn_part(g, pq, 0, 2), 0.1f), a);
        s.omega = tn_add(g, tn_scale(g, tn_part(g, pq, 1, 2), 0.05f), s.omega);
    }
    const tn_ref minus_exp = c->expexp ? tn_neg(g, tn_exp(g, a)) : TN_NONE;
    s.rho = c->expexp ? tn_exp(g, minus_exp) : tn_affine(g, tn_sigmoid(g, a), c->rho_max - c->rho_min, c->rho_min);
    if (c->gamma) s.gamma = input_scale(n, c->expexp ? minus_exp : tn_log(g, s.rho), K);
    return s;
}

/* --- recurrence --------------------------------------------------------------------------------------------------- */

/* Per-token tensors in pieces of C tokens: (B,T,...) -> (B T/C, C, ...). Others stay. */
static tn_ref in_pieces(tn_graph *g, tn_ref x, int64_t B, int64_t T, int64_t C)
{
    if (!x.id || tn_ref_dims(g, x).rank < 2) return x;
    return tn_reshape(g, x,
                      tn_ref_dims(g, x).rank == 2 ? tn_shape(B * T / C, C)
                                                  : tn_shape(B * T / C, C, tn_ref_dim(g, x, 2)));
}

/* The same states with gradients cut every C tokens: each piece starts from the state that the whole pass found there,
 * taken as a constant. */
static tn_ref cut_scan(ten_net *n, tn_ref x, const spectrum *s, tn_ref c, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t C = n->c->tbptt, B = b->batch, T = b->length, K2 = tn_ref_dim(g, x, -1), pieces = T / C;
    const tn_ref whole = tn_reshape(g, tn_stop_gradient(g, c), tn_shape(B, pieces, C, K2));
    const tn_ref ends = tn_slice(g, tn_slice(g, whole, 2, C - 1, 1), 1, 0, pieces - 1);
    const tn_ref starts[] = { tn_fill(g, tn_shape(B, 1, K2), TN_F32, 0),
                              tn_reshape(g, ends, tn_shape(B, pieces - 1, K2)) };
    const tn_ref state = tn_reshape(g, tn_concat(g, starts, 2, 1), tn_shape(B * pieces, K2));
    const tn_ref px = in_pieces(g, x, B, T, C), reset = in_pieces(g, tn_in(b, "reset"), B, T, C);
    const tn_ref y = s->gates.id ? tn_scan_gated(g, px, in_pieces(g, s->gates, B, T, C), s->nu, s->omega,
                                                 .state = state, .reset = reset)
                                 : tn_scan(g, px, in_pieces(g, s->rho, B, T, C), in_pieces(g, s->omega, B, T, C),
                                           .gamma = in_pieces(g, s->gamma, B, T, C), .state = state, .reset = reset);
    return tn_reshape(g, y, tn_shape(B, T, K2));
}

static tn_ref states(ten_net *n, tn_ref x, const spectrum *s, const tn_batch *b, int64_t K)
{
    tn_graph *g = n->g;
    if (!s->gates.id && ten_steps_apart(n, s->rho, b)) return ten_steps(n, x, s->rho, s->omega, s->gamma, b);
    const tn_ref state = tn_decode_cache_state(g, b, "state", tn_shape(b->batch, 2 * K));
    tn_ref after = TN_NONE, *last = b->cached ? &after : NULL;
    const tn_ref c = s->gates.id ? tn_scan_gated(g, x, s->gates, s->nu, s->omega, .state = state,
                                                 .reset = tn_in(b, "reset"), .final = last)
                                 : tn_scan(g, x, s->rho, s->omega, .gamma = s->gamma, .state = state,
                                           .reset = tn_in(b, "reset"), .final = last);
    tn_decode_cache_store(g, b, state, after);
    const bool cut = n->c->tbptt && tn_graph_get_options(g)->training && b->length > n->c->tbptt;
    return cut ? cut_scan(n, x, s, c, b) : c;
}

/* --- readout ------------------------------------------------------------------------------------------------------ */

/* y = g * w_out R s, or w_out (R s * silu(w_z u)); s (B,T,K) or (B,T,2K). */
static tn_ref read_out(ten_net *n, tn_ref u, tn_ref s, tn_ref resonance, const tn_batch *b)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t d = c->dim, width = tn_ref_dim(g, s, -1), tokens = b->batch * b->length;
    tn_ref w = tn_param(g, "w_out", tn_shape(d, width), tn_normal(c->out_std));
    if (c->cells > 1) w = tn_scale(g, w, 1.f / (float)c->cells);
    if (c->gate == TEN_GATE_SILU) {
        const tn_ref z = tn_linear(g, u, tn_param(g, "w_z", tn_shape(width, d), tn_normal(0.02f)));
        if (resonance.id) s = ten_resonate(n, tn_reshape(g, s, tn_shape(tokens, width)), resonance, false);
        s = tn_mul_silu(g, tn_reshape(g, s, tn_shape(b->batch, b->length, width)), z);
        return tn_block_product(g, s, w, "opt.batched_output");
    }
    const bool fold = tn_graph_switch(g, "opt.fold_resonance");
    if (resonance.id && !fold) {
        const tn_ref rows = ten_resonate(n, tn_reshape(g, s, tn_shape(tokens, width)), resonance, false);
        s = tn_reshape(g, rows, tn_shape(b->batch, b->length, width));
    }
    const tn_ref folded = fold ? ten_resonate(n, w, resonance, true) : w;
    return ten_gate_output(n, u, tn_block_product(g, s, folded, "opt.batched_output"));
}

tn_ref ten_e_layer(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t K = n->c->cells * n->c->k;
    const tn_ref x = drive(n, u, b, K);
    const spectrum s = eigenvalues(n, u, K);
    const tn_ref c = states(n, x, &s, b, K);
    const tn_ref resonance = ten_resonance_param(n);
    ten_note_energy(n, c);
    if (ten_is_instrumented(n, b))
        ten_put_instruments(n, 'E', s.gates.id ? ten_gated_decay(g, s.gates, s.nu) : ten_time_mean(g, tn_log(g, s.rho)),
                            c);
    n->memory = c;
    n->memory_resonance = resonance;
    tn_ref y = n->c->skip ? tn_add(g, c, tn_mul(g, x, tn_param(g, "skip", tn_shape(2 * K), tn_ones))) : c;
    if (!n->c->readout_im) y = tn_slice(g, y, -1, 0, K);
    return read_out(n, u, y, resonance, b);
}
