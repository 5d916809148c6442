/* The encoder of the text bridge: a sentence to a surface, batched. Tokens behind a sentence reach nothing: attention does not see
 * them, the mean leaves them out. */
#include "models/bridge/bridge.h"

#include "models/blocks.h"

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

/* Sines and cosines as in "Attention is all you need", at the size of the token table: a token counts as much as its place. */
static void waves(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                  const float *p)
{
    const int64_t T = dims.dim[0], d = dims.dim[1];
    (void)uniform, (void)ctx;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < d; i++) {
            const double angle = (double)t / pow(1e4, (double)(i / 2 * 2) / (double)d);
            x[t * d + i] = p[0] * (float)(i % 2 ? cos(angle) : sin(angle));
        }
}

tn_ref bridge_dense(tn_graph *g, tn_ref x, const char *name, int64_t to, tn_act act)
{
    const int64_t from = tn_ref_dim(g, x, -1);
    const tn_region r = tn_region_begin(g, "%s", name);
    const tn_ref y = tn_linear(g, x, tn_param(g, "w", tn_shape(to, from), tn_normal(1 / sqrtf((float)from))),
                               .bias = tn_param(g, "b", tn_shape(to), tn_zeros), .act = act);
    tn_region_end(g, r);
    return y;
}

tn_ref bridge_floats(tn_graph *g, tn_ref x) { return tn_ref_dtype(g, x) == TN_F32 ? x : tn_cast(g, x, TN_F32); }

static tn_ref attend(tn_graph *g, const bridge_config *c, tn_ref x, tn_ref lengths)
{
    const int64_t B = tn_ref_dim(g, x, 0), T = tn_ref_dim(g, x, 1), d = tn_ref_dim(g, x, 2), H = c->heads;
    const tn_ref qkv = tn_reshape(g, bridge_dense(g, x, "qkv", 3 * d, TN_ACT_NONE), tn_shape(B, T, 3 * H, d / H));
    const tn_ref y = tn_attention(g, tn_slice(g, qkv, 2, 0, H), tn_slice(g, qkv, 2, H, H),
                                  tn_slice(g, qkv, 2, 2 * H, H), .lengths = lengths);
    return bridge_dense(g, tn_reshape(g, y, tn_shape(B, T, d)), "out", d, TN_ACT_NONE);
}

tn_ref bridge_layers(tn_graph *g, const bridge_config *c, tn_ref x, tn_ref lengths, int64_t layers)
{
    const int64_t d = tn_ref_dim(g, x, 2);
    for (int64_t l = 0; l < layers; l++) {
        const tn_region r = tn_segment_begin(g, "layer%d", (int)l);
        x = tn_block_layernorm(g, tn_add(g, x, tn_dropout(g, attend(g, c, x, lengths), c->dropout)), "norm1", 0);
        const tn_ref f = bridge_dense(g, bridge_dense(g, x, "ffn1", c->ffn, TN_ACT_GELU_ERF), "ffn2", d, TN_ACT_NONE);
        x = tn_block_layernorm(g, tn_add(g, x, tn_dropout(g, f, c->dropout)), "norm2", 0);
        tn_region_end(g, r);
    }
    return x;
}

tn_ref bridge_encode(tn_graph *g, const bridge_config *c, tn_ref tokens, tn_ref lengths, tn_ref words)
{
    const tn_region r = tn_region_begin(g, "encoder");
    const tn_ref table = tn_param(g, "embed", tn_shape(c->vocab, c->dim), tn_normal(0.02f));
    const tn_ref places =
        tn_param(g, "position", tn_shape(c->text, c->dim),
                 ((tn_init){ .kind = TN_INIT_CALL, .fill = waves, .p = { 0.02f * sqrtf(2) } }), .no_decay = true);
    tn_ref x = tn_add(g, tn_embed(g, tokens, table), tn_slice(g, places, 0, 0, tn_ref_dim(g, tokens, 1)));
    x = bridge_layers(g, c, tn_dropout(g, x, c->dropout), lengths, c->layers);
    x = words.id ? tn_masked_mean(g, x, words) : tn_mean(g, x, 1);
    x = tn_block_layernorm(g, bridge_dense(g, x, "pool", c->dim, TN_ACT_GELU_ERF), "norm", 0);
    x = bridge_dense(g, tn_dropout(g, x, c->dropout), "surface", c->cells, TN_ACT_TANH);
    tn_region_end(g, r);
    return bridge_floats(g, x);
}
