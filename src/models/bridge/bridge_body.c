/* What maps the surface of a premise to that of its hypothesis. Baselines that learn begin near the
 * identity, as the lattice does. */
#include "models/bridge/bridge.h"

#define SMALL 0.1f

/* Rows of the surface are tokens; c->hidden is their width inside. */
static tn_ref transformer(tn_graph *g, const bridge_config *c, tn_ref x, int64_t B)
{
    tn_ref y = bridge_dense(g, tn_reshape(g, x, tn_shape(B, c->height, c->width)), "in", c->hidden, 1, TN_ACT_NONE);
    const tn_ref places = tn_param(g, "position", tn_shape(c->height, c->hidden), tn_normal(0.02f), .no_decay = true);
    y = bridge_layers(g, c, tn_add(g, y, places), TN_NONE, c->layers);
    return tn_reshape(g, bridge_dense(g, y, "back", c->width, SMALL, TN_ACT_NONE), tn_shape(B, c->cells));
}

tn_status bridge_body_build(tn_graph *g, const tn_settings *st, const tn_batch *b, const bridge_config *c, tn_ref x,
                            tn_ref *out)
{
    const int64_t B = b->batch, S = c->cells;
    const tn_region r = tn_region_begin(g, "body");
    (void)st;
    switch (c->body) {
    case BRIDGE_IDENTITY: *out = x; break;
    case BRIDGE_MEAN:
        *out = tn_add(g, tn_fill(g, tn_shape(B, S), TN_F32, 0), tn_param(g, "mean", tn_shape(S), tn_normal(0.02f)));
        break;
    case BRIDGE_LINEAR: *out = tn_add(g, x, bridge_dense(g, x, "map", S, SMALL, TN_ACT_NONE)); break;
    case BRIDGE_MLP:
        *out = tn_add(g, x,
                      bridge_dense(g, bridge_dense(g, x, "map1", c->hidden, 1, TN_ACT_GELU_ERF), "map2", S, SMALL,
                                   TN_ACT_NONE));
        break;
    case BRIDGE_TRANSFORMER: *out = tn_add(g, x, transformer(g, c, x, B)); break;
    }
    tn_region_end(g, r);
    return tn_graph_status(g);
}
