/* The energy map: h = a + s W1^T tanh(W1 h + b1), the state of rest of
 *
 *     E(h) = |h|^2/2 - a.h - s sum_m log cosh(w_m.h + b_m),   a = We x + be,   s = kappa / sigma(W1)^2
 *
 * Its slope s W1^T diag(1 - tanh^2) W1 is symmetric and at most kappa < 1: there is one equilibrium, iterations come nearer by
 * kappa each, and a nudge by beta moves it along the exact adjoint (the theorem of equilibrium propagation). s follows W1 without
 * a gradient (through_sigma: with it). */
#include "models/tep/tep.h"

#include <math.h>

/* Constants: a (B,d), W1 (m,d), b1 (m), s (1). */
static void descend(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref *c = io->consts;
    const tn_ref t = tn_linear(g, io->state[0], c[1], .bias = c[2], .act = TN_ACT_TANH);
    io->next[0] = tn_add(g, c[0], tn_mul(g, tn_matmul(g, t, c[1]), c[3]));
}

tep_map tep_energy(tep_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    tep_map m = {
        .build = descend, .state = tn_shape(n->b->batch, c->dim), .fused = !c->through_sigma, .kind = TN_RELAX_ENERGY
    };
    tep_map_add_sample(&m, tep_embed(n, x));
    tn_region r = tn_region_begin(g, "energy");
    const tep_affine p = tep_affine_make(g, "w1", "b1", c->ff, c->dim, 0, 1.f / sqrtf((float)c->dim));
    tep_map_add(&m, p.w);
    tep_map_add(&m, p.b);
    tep_map_add(&m, tn_scale(g, tn_reciprocal(g, tn_square(g, tep_sigma(n, p.w, "direction"))), c->kappa));
    tn_region_end(g, r);
    return m;
}
