/* A transformer encoder, and what models around it share. */
#include "models/encoder.h"

#include "models/blocks.h"

#include <math.h>

tn_ref tn_dense(tn_graph *g, tn_ref x, const char *name, int64_t to, tn_act act)
{
    const int64_t from = tn_ref_dim(g, x, -1);
    const tn_region r = tn_region_begin(g, "%s", name);
    const tn_ref y = tn_linear(g, x, tn_param(g, "w", tn_shape(to, from), tn_normal(1 / sqrtf((float)from))),
                               .bias = tn_param(g, "b", tn_shape(to), tn_zeros), .act = act);
    tn_region_end(g, r);
    return y;
}

tn_ref tn_floats(tn_graph *g, tn_ref x) { return tn_ref_dtype(g, x) == TN_F32 ? x : tn_cast(g, x, TN_F32); }

/* As in "Attention is all you need". */
static void waves(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                  const float *p)
{
    const int64_t T = dims.dim[0], d = dims.dim[1];
    (void)uniform, (void)ctx;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < d; i++) {
            const double angle = (p[1] + (double)p[2] * (double)t) / pow(1e4, (double)(i / 2 * 2) / (double)d);
            x[t * d + i] = p[0] * (float)(i % 2 ? cos(angle) : sin(angle));
        }
}

tn_init tn_encoder_waves(float size, float first, float stride)
{
    return (tn_init){ .kind = TN_INIT_CALL, .fill = waves, .p = { size, first, stride } };
}

/* The first d rows of a matrix of d columns are p[0] times the identity, others normal of deviation p[1]. */
static void identity(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                     const float *p)
{
    const int64_t n = dims.dim[0], d = dims.dim[1];
    for (int64_t i = 0; i < n * d; i++)
        x[i] = i / d >= d ? p[1] * tn_block_normal(uniform, ctx, (uint64_t)i) : i / d == i % d ? p[0] : 0;
}

static tn_ref map(tn_graph *g, tn_ref x, const char *name, int64_t to, float size)
{
    const int64_t d = tn_ref_dim(g, x, -1);
    const tn_region r = tn_region_begin(g, "%s", name);
    const tn_init init = { .kind = TN_INIT_CALL, .fill = identity, .p = { size, 1 / sqrtf((float)d) } };
    const tn_ref y =
        tn_linear(g, x, tn_param(g, "w", tn_shape(to, d), init), .bias = tn_param(g, "b", tn_shape(to), tn_zeros));
    tn_region_end(g, r);
    return y;
}

static tn_ref attend(tn_graph *g, int64_t H, tn_ref x, tn_ref lengths)
{
    const int64_t B = tn_ref_dim(g, x, 0), T = tn_ref_dim(g, x, 1), d = tn_ref_dim(g, x, 2);
    const tn_ref qkv = tn_reshape(g, tn_dense(g, x, "qkv", 3 * d, TN_ACT_NONE), tn_shape(B, T, 3 * H, d / H));
    const tn_ref y = tn_attention(g, tn_slice(g, qkv, 2, 0, H), tn_slice(g, qkv, 2, H, H),
                                  tn_slice(g, qkv, 2, 2 * H, H), .lengths = lengths);
    return tn_dense(g, tn_reshape(g, y, tn_shape(B, T, d)), "out", d, TN_ACT_NONE);
}

tn_ref tn_encoder_look(tn_graph *g, int64_t H, float focus, tn_ref queries, tn_ref x, tn_ref lengths)
{
    const int64_t B = tn_ref_dim(g, x, 0), T = tn_ref_dim(g, x, 1), S = tn_ref_dim(g, queries, 1);
    const int64_t d = tn_ref_dim(g, queries, 2);
    const tn_ref q = tn_reshape(g, map(g, queries, "q", d, focus), tn_shape(B, S, H, d / H));
    const tn_ref kv = tn_reshape(g, map(g, x, "kv", 2 * d, 1), tn_shape(B, T, 2 * H, d / H));
    const tn_ref y = tn_attention(g, q, tn_slice(g, kv, 2, 0, H), tn_slice(g, kv, 2, H, H), .lengths = lengths);
    return tn_dense(g, tn_reshape(g, y, tn_shape(B, S, d)), "out", d, TN_ACT_NONE);
}

tn_ref tn_encoder_layers(tn_graph *g, const tn_encoder_shape *c, tn_ref x, tn_ref lengths)
{
    const int64_t d = tn_ref_dim(g, x, 2);
    for (int64_t l = 0; l < c->layers; l++) {
        const tn_region r = tn_segment_begin(g, "layer%d", (int)l);
        x = tn_block_layernorm(g, tn_add(g, x, tn_dropout(g, attend(g, c->heads, x, lengths), c->dropout)), "norm1", 0);
        const tn_ref f = tn_dense(g, tn_dense(g, x, "ffn1", c->ffn, TN_ACT_GELU_ERF), "ffn2", d, TN_ACT_NONE);
        x = tn_block_layernorm(g, tn_add(g, x, tn_dropout(g, f, c->dropout)), "norm2", 0);
        tn_region_end(g, r);
    }
    return x;
}
