/* The encoder of the text bridge: a sentence to a surface, batched. Tokens behind a sentence reach nothing: attention does not see
 * them, the mean leaves them out. */
#include "models/bridge/bridge.h"

#include "models/blocks.h"
#include "models/encoder.h"

#include <math.h>
#include <stdio.h>

/* Row n: the first n + 1 numbers are 1. */
static void triangle(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                     const float *p)
{
    const int64_t n = dims.dim[0];
    (void)uniform, (void)ctx, (void)p;
    for (int64_t i = 0; i < n * n; i++) x[i] = i % n <= i / n ? 1.f : 0.f;
}

bridge_mask bridge_masks(tn_graph *g, const bridge_config *c, tn_ref lengths)
{
    const int64_t T = c->text;
    const tn_ref table =
        tn_frozen(g, "lengths", tn_shape(T + 1, T + 1), TN_F32, ((tn_init){ .kind = TN_INIT_CALL, .fill = triangle }));
    const tn_ref row = tn_embed(g, lengths, table); /* (B,T+1): column t is 1 where t <= n */
    const tn_ref first = tn_slice(g, row, 1, 1, 1); /* 0: there is no word */
    return (bridge_mask){ .words = tn_slice(g, row, 1, 1, T), .written = tn_mul(g, tn_slice(g, row, 1, 0, T), first) };
}

tn_ref bridge_layers(tn_graph *g, const bridge_config *c, tn_ref x, tn_ref lengths)
{
    const tn_encoder_shape shape = { c->heads, c->ffn, c->layers, c->dropout };
    return tn_encoder_layers(g, &shape, x, lengths);
}

tn_ref bridge_encode(tn_graph *g, const bridge_config *c, tn_ref tokens, tn_ref lengths, tn_ref words)
{
    const tn_region r = tn_region_begin(g, "encoder");
    const tn_ref table = tn_param(g, "embed", tn_shape(c->vocab, c->dim), tn_normal(0.02f));
    /* at the size of the token table: a token counts as much as its place */
    const tn_ref places =
        tn_param(g, "position", tn_shape(c->text, c->dim), tn_encoder_waves(0.02f * sqrtf(2), 0, 1), .no_decay = true);
    tn_ref x = tn_add(g, tn_embed(g, tokens, table), tn_slice(g, places, 0, 0, tn_ref_dim(g, tokens, 1)));
    x = bridge_layers(g, c, tn_dropout(g, x, c->dropout), lengths);
    x = words.id ? tn_masked_mean(g, x, words) : tn_mean(g, x, 1);
    x = tn_block_layernorm(g, tn_dense(g, x, "pool", c->dim, TN_ACT_GELU_ERF), "norm", 0);
    x = tn_dense(g, tn_dropout(g, x, c->dropout), "surface", c->cells, TN_ACT_TANH);
    tn_region_end(g, r);
    return tn_floats(g, x);
}
