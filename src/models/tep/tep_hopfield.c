/* The Hopfield map: h = tanh(a + W h) with W symmetric, a = We x + be, solved for what goes into the tanh,
 *
 *     v = a + W tanh(v),   h = tanh(v),   W = (M + M^T)/2, scaled down to |W| <= kappa
 *
 * the state of rest of E(h) = sum_i int_0^h_i atanh - h.W h/2 - a.h. Its slope J = W D, D = diag(1 - tanh^2 v), is symmetric but for D,
 * so equilibrium propagation is exact here too, in the coordinates that belong to the energy: the nudge is by dC/dh, not dC/dv, and
 * the adjoint of v is D times how far v moved:
 *
 *     (I - J^T)^-1 D g = D (I - W D)^-1 g = D (v* - v_beta) / beta + O(beta)
 *
 * Unlike mode=energy, whose state is a map of slope 1 to 1/(1-kappa) of its injection, this one bends everything it is given. */
#include "models/tep/tep.h"

#include <math.h>

tep_map tep_hopfield(tep_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    const bool ep = c->grad == TEP_EP || c->grad == TEP_EP_CENTRED;
    tep_map m = { .build = ep ? tn_relax_hopfield_ep : tn_relax_hopfield,
                  .state = tn_shape(n->b->batch, c->dim),
                  .fused = true,
                  .kind = TN_RELAX_HOPFIELD };
    tep_map_add_sample(&m, tep_embed(n, x));
    tn_region r = tn_region_begin(g, "hopfield");
    const tn_ref w = tn_param(g, "w", tn_shape(c->dim, c->dim), tn_normal(0.5f / sqrtf((float)c->dim)));
    const tn_ref both = tn_scale(g, tn_add(g, w, tn_transpose(g, w, 1, 0)), 0.5f);
    const tn_ref factor = tn_minimum(g, tn_scale(g, tn_reciprocal(g, tep_sigma(n, both, "direction")), c->kappa),
                                     tn_fill(g, tn_shape(1), TN_F32, 1.f));
    tep_map_add(&m, tn_mul(g, both, factor));
    tn_region_end(g, r);
    return m;
}
