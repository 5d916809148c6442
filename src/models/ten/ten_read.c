/* The end of D and O layers: s = scale c + skip x, a norm over heads if there is one, a gate, the output matrix.
 *     gate=silu      w_out(s silu(z)), z a part of the layer's first projection
 *     gate=sigmoid   w_out(s) sigmoid(w_g u + b_g)
 *     gate=none      w_out(s) */
#include "models/ten/ten.h"

tn_ref ten_gate_output(ten_net *n, tn_ref u, tn_ref y)
{
    tn_graph *g = n->g;
    const int64_t d = n->c->dim;
    if (n->c->gate != TEN_GATE_SIGMOID) return y;
    return tn_mul_sigmoid(g, y,
                          tn_linear(g, u, tn_param(g, "w_g", tn_shape(d, d), tn_normal(0.02f)),
                                    .bias = tn_param(g, "b_g", tn_shape(d), tn_constant(-2))));
}

/* readout.h without its gate. */
static tn_ref ungated(tn_graph *g, const ten_read *r)
{
    const tn_dims dims = tn_ref_dims(g, r->c);
    tn_ref s = r->scale > 0 ? tn_scale(g, r->c, r->scale) : r->c;
    if (r->skip.id) s = tn_add(g, s, tn_mul(g, r->x, r->skip));
    if (!r->group) return s;
    const tn_dims heads = tn_shape(dims.dim[0], dims.dim[1], dims.dim[2] / r->group, r->group);
    const tn_ref norm = tn_reshape(g, tn_rmsnorm(g, tn_reshape(g, s, heads), TN_NONE, .eps = 1e-6f), dims);
    return tn_mul(g, norm, r->gain);
}

tn_ref ten_read_out(ten_net *n, tn_ref u, const ten_read *r)
{
    tn_graph *g = n->g;
    const int64_t d = n->c->dim, width = tn_ref_dim(g, r->c, -1);
    const tn_ref s = n->c->gate == TEN_GATE_SILU
                         ? tn_readout(g, r->c, r->z, .x = r->skip.id ? r->x : TN_NONE, .skip = r->skip, .gain = r->gain,
                                      .scale = r->scale, .group = r->group)
                         : ungated(g, r);
    const tn_ref w = tn_param(g, "w_out", tn_shape(d, width), tn_normal(n->c->out_std));
    return ten_gate_output(n, u, tn_block_product(g, s, w, "opt.batched_output"));
}
