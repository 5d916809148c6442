/* net: small networks of known kinds, which models of surfaces are measured against. This file has head and loss. */
#include "models/net/net.h"

#include "base/status.h"

#include <math.h>

net_affine net_affine_make(tn_graph *g, const char *scope, int64_t n, int64_t k, float gain)
{
    tn_region r = tn_region_begin(g, "%s", scope);
    const net_affine p = { tn_param(g, "w", tn_shape(n, k), tn_normal(gain / sqrtf((float)k))),
                           tn_param(g, "b", tn_shape(n), tn_zeros) };
    tn_region_end(g, r);
    return p;
}

static tn_ref as_floats(tn_graph *g, tn_ref x) { return tn_ref_dtype(g, x) == TN_F32 ? x : tn_cast(g, x, TN_F32); }

static tn_ref live(const net *n, tn_ref x, const tn_batch *b)
{
    return tn_in(b, "count").id ? tn_live(n->g, x, tn_in(b, "count")) : x;
}

static tn_ref squares(const net *n, tn_ref x, tn_ref target, const tn_batch *b)
{
    return tn_sum_all(n->g, tn_square(n->g, live(n, tn_sub(n->g, x, target), b)));
}

/* Sums of psnr and, of who does nothing, psnr_identity. */
static void put_sums(const net *n, tn_ref y, tn_ref x, tn_ref target, const tn_batch *b)
{
    tn_graph *g = n->g;
    const tn_ref ones = tn_fill(g, tn_shape(n->batch, n->c->cells), TN_F32, 1.f);
    tn_output(g, "squares", squares(n, y, target, b));
    tn_output(g, "squares_identity", squares(n, x, target, b));
    tn_output(g, "cells", tn_sum_all(g, live(n, ones, b)));
}

/* Without a target (checks, benchmarks) the surface itself is wanted. */
static void put_surface(const net *n, tn_ref y, tn_ref x, const tn_batch *b)
{
    tn_graph *g = n->g;
    const tn_ref given = tn_in(b, "target"), target = given.id ? given : x, surface = as_floats(g, y);
    tn_output(g, "loss", tn_mse(g, live(n, surface, b), target));
    if (tn_graph_get_options(g)->training) return;
    tn_output(g, "surface", surface);
    if (given.id) put_sums(n, surface, x, target, b);
}

/* Without labels the first class is wanted. */
static void put_classes(const net *n, tn_ref y, const tn_batch *b)
{
    tn_graph *g = n->g;
    const tn_ref given = tn_in(b, "labels"), labels = given.id ? tn_reshape(g, given, tn_shape(n->batch))
                                                               : tn_fill(g, tn_shape(n->batch), TN_I32, 0);
    const net_affine head = net_affine_make(g, "head", n->c->classes, tn_ref_dim(g, y, -1), 1);
    tn_region r = tn_region_begin(g, "head");
    if (tn_wants(b, "logits") || !given.id) {
        const tn_ref logits = as_floats(g, tn_linear(g, y, head.w, .bias = head.b));
        tn_output(g, "logits", tn_reshape(g, logits, tn_shape(n->batch, 1, n->c->classes)));
    }
    tn_output(g, "loss", tn_linear_xent(g, y, head.w, labels, .bias = head.b));
    tn_region_end(g, r);
}

tn_status net_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    net_config c;
    TN_RETURN_IF(net_config_read(st, g, b, &c));
    const net n = { .g = g, .c = &c, .batch = b->batch };
    const tn_ref x = tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, c.cells));
    const tn_ref y = net_kind_forward(&n, x);
    if (c.classes) put_classes(&n, y, b);
    else put_surface(&n, y, x, b);
    return tn_graph_status(g);
}
