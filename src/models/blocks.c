/* Blocks that several models share. They name their parameters in the open scope. */
#include "models/blocks.h"

#include "models/decode_cache.h"

#include <math.h>
#include <stdio.h>

/* --- first values -------------------------------------------------------------------------------------------------- */

float tn_block_normal(float (*uniform)(const void *ctx, uint64_t i), const void *ctx, uint64_t i)
{
    const double u = 1 - (double)uniform(ctx, 2 * i), v = (double)uniform(ctx, 2 * i + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* Normal numbers, each row made orthogonal to those above it in its block (twice: once leaves the rounding of nearly parallel
 * rows). */
static void fill_orthogonal(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                            const float *p)
{
    const int64_t n = dims.dim[0], k = dims.dim[1], rows = (int64_t)p[1];
    for (int64_t i = 0; i < n * k; i++) x[i] = tn_block_normal(uniform, ctx, (uint64_t)i);
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i - i % rows, before = i - first;
        float *row = x + i * k;
        double length = 0;
        for (int64_t above = 0; above < 2 * before; above++) {
            const float *other = x + (first + above % before) * k;
            double dot = 0;
            for (int64_t j = 0; j < k; j++) dot += (double)row[j] * (double)other[j];
            for (int64_t j = 0; j < k; j++) row[j] -= (float)dot * other[j];
        }
        for (int64_t j = 0; j < k; j++) length += (double)row[j] * (double)row[j];
        for (int64_t j = 0; j < k; j++) row[j] = (float)((double)row[j] / sqrt(length));
    }
    for (int64_t i = 0; i < n * k; i++) x[i] *= p[0];
}

tn_init tn_block_orthogonal(float length, int64_t rows)
{
    return (tn_init){ .kind = TN_INIT_CALL, .fill = fill_orthogonal, .p = { length, (float)rows } };
}

/* --- norms and networks -------------------------------------------------------------------------------------------- */

static tn_ref named(tn_graph *g, const char *name, const char *part, tn_dims dims, tn_init init)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return tn_param(g, full, dims, init);
}

tn_ref tn_block_rmsnorm(tn_graph *g, tn_ref x, const char *name, float eps)
{
    return tn_rmsnorm(g, x, named(g, name, "w", tn_shape(tn_ref_dim(g, x, -1)), tn_ones), .eps = eps);
}

tn_ref tn_block_layernorm(tn_graph *g, tn_ref x, const char *name, float eps)
{
    const int64_t d = tn_ref_dim(g, x, -1);
    const tn_ref w = named(g, name, "w", tn_shape(d), tn_ones);
    return tn_layernorm(g, x, w, named(g, name, "b", tn_shape(d), tn_zeros), .eps = eps);
}

tn_ref tn_block_swiglu(tn_graph *g, tn_ref u, int64_t ffn, float out_std)
{
    const int64_t d = tn_ref_dim(g, u, -1);
    tn_ref ab[2];
    tn_block_project(g, u, tn_matrix(g, "w1", tn_shape(2 * ffn, d), tn_normal(0.02f)), (const int64_t[]){ ffn, ffn }, 2,
                     NULL, ab);
    const tn_ref h = tn_swiglu(g, ab[0], ab[1]);
    return tn_linear(g, h, tn_matrix(g, "w2", tn_shape(d, ffn), tn_normal(out_std)));
}

tn_ref tn_block_mlp(tn_graph *g, tn_ref u, int64_t ffn, tn_act act, float out_std)
{
    const int64_t d = tn_ref_dim(g, u, -1);
    const tn_ref h = tn_linear(g, u, tn_matrix(g, "w1", tn_shape(ffn, d), tn_normal(0.02f)),
                               .bias = tn_param(g, "b1", tn_shape(ffn), tn_zeros), .act = act);
    return tn_linear(g, h, tn_matrix(g, "w2", tn_shape(d, ffn), tn_normal(out_std)),
                     .bias = tn_param(g, "b2", tn_shape(d), tn_zeros));
}

/* --- short convolution -------------------------------------------------------------------------------------------- */

static tn_ref conv_weight(tn_graph *g, int64_t taps, int64_t channels)
{
    return tn_param(g, "conv", tn_shape(taps, channels), tn_uniform(-0.5f, 0.5f), .no_decay = true);
}

void tn_block_convs(tn_graph *g, tn_ref *x, int n, int64_t taps, const tn_batch *b)
{
    int64_t channels = 0;
    if (!taps) return;
    for (int i = 0; i < n; i++) channels += tn_ref_dim(g, x[i], -1);
    const tn_ref w = conv_weight(g, taps, channels);
    for (int64_t i = 0, at = 0; i < n; i++) {
        const int64_t C = tn_ref_dim(g, x[i], -1);
        x[i] = tn_conv_causal(g, x[i], tn_slice(g, w, 1, at, C), .reset = tn_in(b, "reset"));
        at += C;
    }
}

tn_ref tn_block_conv(tn_graph *g, tn_ref x, int64_t taps, const tn_batch *b)
{
    if (!taps) return x;
    const int64_t C = tn_ref_dim(g, x, -1);
    const tn_ref tail = tn_decode_cache_state(g, b, "conv_state", tn_shape(b->batch, taps - 1, C));
    const tn_ref w = conv_weight(g, taps, C);
    tn_ref after = TN_NONE;
    const tn_ref y =
        tn_conv_causal(g, x, w, .reset = tn_in(b, "reset"), .state = tail, .final = b->cached ? &after : NULL);
    tn_decode_cache_store(g, b, tail, after);
    return y;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

/* Norm and rotary turn of queries or keys (B,T,heads,D). */
static tn_ref turn(tn_graph *g, tn_ref x, const char *norm, const tn_block_heads *h, tn_ref position)
{
    if (h->qk_norm) x = tn_block_rmsnorm(g, x, norm, h->norm_eps);
    if (!h->rotary) return x;
    return tn_rope(g, x, .base = h->base, .interleaved = h->interleaved, .scaling = h->scaling, .stretch = h->stretch,
                   .stretch_context = h->stretch_context, .beta_fast = h->beta_fast, .beta_slow = h->beta_slow,
                   .attention_factor = h->attention_factor, .position = position);
}

/* x (B,T,KV,D) behind what stands before it and, of a cached batch, in its cache, which has all positions or (brief) the last of
 * them; returns all there is, as (B,S,KV,D). In memory a cache is (B,KV,S,D): what one head looks at for every token is then one
 * stretch, not pieces of D numbers a token apart. */
static tn_ref remember(tn_graph *g, tn_ref x, tn_ref before, const char *name, const tn_block_heads *h, bool brief,
                       const tn_batch *b)
{
    if (!b->cached) return before.id ? tn_concat(g, ((const tn_ref[]){ before, x }), 2, 1) : x;
    const int64_t rows = brief ? tn_decode_window_rows(h->window) : b->capacity;
    const tn_dims dims = tn_shape(b->batch, tn_ref_dim(g, x, 2), rows, tn_ref_dim(g, x, 3));
    if (brief)
        return tn_cache_write(g, tn_transpose(g, tn_decode_cache_short(g, b, name, dims, h->window), 0, 2, 1, 3), x,
                              tn_in(b, "slot"));
    tn_ref cache = tn_transpose(g, tn_decode_cache_kv(g, b, name, dims), 0, 2, 1, 3);
    if (before.id) cache = tn_cache_write(g, cache, before, tn_fill(g, tn_shape(1), TN_I32, 0));
    return tn_cache_write(g, cache, x, tn_in(b, "position"));
}

/* Queries, keys and values, each (B,T,its heads,D), and all of them beside each other (B,T,H+2KV,D) where one product made them. */
typedef struct projected {
    tn_ref q, k, v, all;
} projected;

static projected project_apart(tn_graph *g, tn_ref u, const tn_block_heads *h, int64_t D, const tn_batch *b, tn_ref w,
                               tn_ref bias)
{
    const int64_t rows[] = { h->heads * D, h->kv_heads * D, h->kv_heads * D };
    tn_ref x[3];
    for (int64_t i = 0, at = 0; i < 3; at += rows[i++])
        x[i] = tn_linear(g, u, tn_slice(g, w, 0, at, rows[i]),
                         .bias = bias.id ? tn_slice(g, bias, 0, at, rows[i]) : TN_NONE);
    tn_block_convs(g, x, 3, h->conv, b);
    for (int i = 0; i < 3; i++) {
        if (h->conv && h->conv_silu) x[i] = tn_silu(g, x[i]);
        x[i] = tn_reshape(g, x[i], tn_shape(b->batch, b->length, rows[i] / D, D));
    }
    return (projected){ .q = x[0], .k = x[1], .v = x[2] };
}

static projected project(tn_graph *g, tn_ref u, const tn_block_heads *h, int64_t D, const tn_batch *b)
{
    const int64_t d = tn_ref_dim(g, u, -1), H = h->heads, KV = h->kv_heads, rows = (H + 2 * KV) * D;
    const tn_ref bias = h->qkv_bias ? tn_param(g, "b_qkv", tn_shape(rows), tn_zeros) : TN_NONE;
    const tn_ref w = tn_matrix(g, "w_qkv", tn_shape(rows, d), tn_normal(0.02f));
    if (!b->cached && tn_block_projects_apart(g)) return project_apart(g, u, h, D, b, w, bias);
    const tn_ref conv = tn_block_conv(g, tn_linear(g, u, w, .bias = bias), h->conv, b);
    const tn_ref qkv = h->conv && h->conv_silu ? tn_silu(g, conv) : conv,
                 all = tn_reshape(g, qkv, tn_shape(b->batch, b->length, H + 2 * KV, D));
    return (projected){ .q = tn_slice(g, all, 2, 0, H),
                        .k = tn_slice(g, all, 2, H, KV),
                        .v = tn_slice(g, all, 2, H + KV, KV),
                        .all = all };
}

/* Where the first token stands: what the batch says, or behind what stands before. */
static tn_ref start_of(tn_graph *g, const tn_block_heads *h, const tn_batch *b)
{
    if (b->cached || !h->keys_before.id) return tn_in(b, "position");
    return tn_fill(g, tn_shape(1), TN_I32, (float)tn_ref_dim(g, h->keys_before, 1));
}

tn_ref tn_block_attention(tn_graph *g, tn_ref u, const tn_block_heads *h, const tn_batch *b)
{
    const int64_t d = tn_ref_dim(g, u, -1), H = h->heads, KV = h->kv_heads, B = b->batch, T = b->length,
                  D = h->head_dim ? h->head_dim : d / H;
    const projected p = project(g, u, h, D, b);
    const tn_ref at = start_of(g, h, b);
    const bool once =
        b->cached && !h->qk_norm; /* queries and keys are turned together; a backward pass would have to join them */
    const tn_ref both = once ? turn(g, tn_slice(g, p.all, 2, 0, H + KV), "", h, at) : TN_NONE;
    const tn_ref q = once ? tn_slice(g, both, 2, 0, H) : turn(g, p.q, "norm_q", h, at);
    const tn_ref own = once ? tn_slice(g, both, 2, H, KV) : turn(g, p.k, "norm_k", h, at);
    /* keys that stand before the others are in rows of their own, which must not move */
    const bool brief = b->cached && !h->keys_before.id && tn_decode_cache_is_short(g, b, h->window);
    const tn_ref k = remember(g, own, h->keys_before, "keys", h, brief, b);
    const tn_ref v = remember(g, p.v, h->values_before, "values", h, brief, b);
    const tn_ref heads = tn_attention(g, q, k, v, .causal = !h->both_ways, .window = h->window,
                                      .kv_length = tn_in(b, brief ? "slot_keys" : "keys"),
                                      .document = b->cached ? TN_NONE : tn_in(b, "document"));
    tn_ref y = tn_reshape(g, heads, tn_shape(B, T, H * D));
    if (h->gate) y = tn_mul_silu(g, y, tn_linear(g, u, tn_matrix(g, "w_z", tn_shape(H * D, d), tn_normal(0.02f))));
    return tn_linear(g, y, tn_matrix(g, "w_out", tn_shape(d, H * D), tn_normal(h->out_std)),
                     .bias = h->out_bias ? tn_param(g, "b_out", tn_shape(d), tn_zeros) : TN_NONE);
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

tn_ref tn_block_embed(tn_graph *g, tn_ref table, const tn_batch *b)
{
    const tn_ref prefix = tn_in(b, "prefix"), tokens = tn_in(b, "tokens"), vectors = tn_in(b, "embeddings");
    if (vectors.id) return vectors;
    if (prefix.id && !tokens.id) return prefix;
    const tn_ref x = tn_embed(g, tokens, table);
    return prefix.id ? tn_concat(g, ((const tn_ref[]){ prefix, x }), 2, 1) : x;
}

tn_ref tn_block_positions(tn_graph *g, tn_ref table, int64_t first, const tn_batch *b)
{
    return tn_in(b, "positions").id ? tn_embed(g, tn_in(b, "positions"), table)
                                    : tn_slice(g, table, 0, first, b->length);
}

void tn_block_head(tn_graph *g, const tn_forward *f, const tn_batch *b)
{
    const tn_ref x = f->hidden, head = f->head, extra = f->extra;
    tn_region r = tn_region_begin(g, "head");
    if (tn_wants(b, "logits")) {
        const tn_ref logits = tn_linear(g, x, head);
        tn_output(g, "logits", tn_ref_dtype(g, logits) == TN_F32 ? logits : tn_cast(g, logits, TN_F32));
    }
    if (tn_in(b, "labels").id) {
        const tn_ref xent = tn_linear_xent(g, x, head, tn_in(b, "labels"));
        if (extra.id) tn_output(g, "xent", xent);
        if (extra.id) tn_output(g, "extra", extra);
        tn_output(g, "loss", extra.id ? tn_add(g, xent, extra) : xent);
    }
    tn_region_end(g, r);
}
