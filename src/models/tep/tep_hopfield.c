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

/* Constants: a (B,d), W (d,d). */
static tn_ref drive(tn_graph *g, const tn_body_io *io) { return tn_linear(g, tn_tanh(g, io->carry[0]), io->consts[1], .residual = io->consts[0]); }

static void settle(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = drive(g, io);
}

/* xs: what the map made, and v. */
static void times_slope(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    (void)n, (void)user;
    dx[0] = tn_mul(g, dy, tn_affine(g, tn_square(g, tn_tanh(g, xs[1])), -1.f, 1.f));
}

/* The same for equilibrium propagation, which pulls back how far v moved and nothing else: D comes in on the way. */
static void settle_ep(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref xs[] = { drive(g, io), io->carry[0] };
    io->next[0] = tn_custom_gradient(g, xs[0], xs, 2, times_slope, NULL);
}

static void pass(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    (void)g, (void)xs, (void)n, (void)user;
    dx[0] = dy;
}

tn_ref tep_hopfield_read(tn_graph *g, tn_ref v, bool nudges)
{
    const tn_ref h = tn_tanh(g, v);
    return nudges ? tn_custom_gradient(g, h, &v, 1, pass, NULL) : h;
}

tep_map tep_hopfield(tep_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    const bool ep = c->grad == TEP_EP || c->grad == TEP_EP_CENTRED;
    tep_map m = { .build = ep ? settle_ep : settle, .state = tn_shape(n->b->batch, c->dim), .fused = true, .kind = TN_RELAX_HOPFIELD };
    tep_map_add_sample(&m, tep_embed(n, x));
    tn_region r = tn_region_begin(g, "hopfield");
    const tn_ref w = tn_param(g, "w", tn_shape(c->dim, c->dim), tn_normal(0.5f / sqrtf((float)c->dim)));
    const tn_ref both = tn_scale(g, tn_add(g, w, tn_transpose(g, w, 1, 0)), 0.5f);
    const tn_ref factor = tn_minimum(g, tn_scale(g, tn_reciprocal(g, tep_sigma(n, both, "direction")), c->kappa), tn_fill(g, tn_shape(1), TN_F32, 1.f));
    tep_map_add(&m, tn_mul(g, both, factor));
    tn_region_end(g, r);
    return m;
}
