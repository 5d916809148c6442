/* Pieces that several models share. */
#include "models/blocks.h"

#include <stdio.h>

static tn_ref named(tn_graph *g, const char *name, const char *part, tn_dims dims, tn_init init)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return tn_param(g, full, dims, init);
}

tn_ref tn_block_rmsnorm(tn_graph *g, tn_ref x, const char *name)
{
    return tn_rmsnorm(g, x, named(g, name, "w", tn_shape(tn_ref_dim(g, x, -1)), tn_ones));
}

tn_ref tn_block_layernorm(tn_graph *g, tn_ref x, const char *name)
{
    const int64_t d = tn_ref_dim(g, x, -1);
    const tn_ref w = named(g, name, "w", tn_shape(d), tn_ones);
    return tn_layernorm(g, x, w, named(g, name, "b", tn_shape(d), tn_zeros));
}

tn_ref tn_block_swiglu(tn_graph *g, tn_ref u, int64_t ffn, float out_std)
{
    const int64_t d = tn_ref_dim(g, u, -1);
    const tn_ref ab = tn_linear(g, u, tn_param(g, "w1", tn_shape(2 * ffn, d), tn_normal(0.02f)));
    const tn_ref h = tn_swiglu(g, tn_part(g, ab, 0, 2), tn_part(g, ab, 1, 2));
    return tn_linear(g, h, tn_param(g, "w2", tn_shape(d, ffn), tn_normal(out_std)));
}

tn_ref tn_block_gelu(tn_graph *g, tn_ref u, int64_t ffn, float out_std)
{
    const int64_t d = tn_ref_dim(g, u, -1);
    const tn_ref h = tn_linear(g, u, tn_param(g, "w1", tn_shape(ffn, d), tn_normal(0.02f)),
                               .bias = tn_param(g, "b1", tn_shape(ffn), tn_zeros), .act = TN_ACT_GELU);
    return tn_linear(g, h, tn_param(g, "w2", tn_shape(d, ffn), tn_normal(out_std)),
                     .bias = tn_param(g, "b2", tn_shape(d), tn_zeros));
}

void tn_block_head(tn_graph *g, tn_ref x, tn_ref head, const tn_batch *b)
{
    tn_region r = tn_region_begin(g, "head");
    if (b->logits) tn_output(g, "logits", tn_linear(g, x, head));
    if (b->labels.id) tn_output(g, "loss", tn_linear_xent(g, x, head, b->labels));
    tn_region_end(g, r);
}
