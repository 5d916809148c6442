/* The body of a decoder-only transformer. */
#include "models/decoder.h"

#include "base/status.h"
#include "models/blocks.h"

#include <math.h>

int64_t tn_decoder_before(const tn_graph *g, const tn_batch *b)
{
    const tn_ref keys = tn_in(b, "prefix_keys");
    return keys.id && tn_graph_status(g) == TN_OK && tn_ref_dims(g, keys).rank == 4 ? tn_ref_dim(g, keys, 1) : 0;
}

static tn_status check_prefix(tn_graph *g, const tn_decoder_shape *c, const tn_batch *b)
{
    static const char *const names[] = { "prefix_keys", "prefix_values" };
    const tn_ref keys = tn_in(b, names[0]), values = tn_in(b, names[1]);
    char text[64];
    if (!keys.id && !values.id) return TN_OK;
    if (!keys.id || !values.id) return tn_model_error("%s needs %s", names[!keys.id], names[!!keys.id]);
    if (!b->cached && tn_in(b, "document").id)
        return tn_model_error("prefix_keys are for rows of one document: leave out the input \"document\"");
    for (int i = 0; i < 2 && tn_graph_status(g) == TN_OK; i++) {
        const tn_dims x = tn_ref_dims(g, i ? values : keys);
        if (!tn_dims_equal(x, tn_shape(b->batch, tn_decoder_before(g, b), c->layers * c->kv_heads, c->head_dim)))
            return tn_model_error("%s is %s: it must be (%lld,P,%lld,%lld), that is (B,P,layers*kv_heads,head_dim)",
                                  names[i], tn_dims_text(x, text, sizeof text), (long long)b->batch,
                                  (long long)(c->layers * c->kv_heads), (long long)c->head_dim);
    }
    return TN_OK;
}

static tn_ref of_layer(tn_graph *g, const tn_decoder_shape *c, tn_ref x, int l)
{
    return x.id ? tn_slice(g, x, 2, l * c->kv_heads, c->kv_heads) : TN_NONE;
}

static tn_ref attention(tn_graph *g, const tn_decoder_shape *c, int l, float out_std, tn_ref u, const tn_batch *b)
{
    const tn_block_heads h = { .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .qkv_bias = c->qkv_bias || !c->llama,
                               .out_bias = !c->llama,
                               .qk_norm = c->qk_norm,
                               .norm_eps = c->norm_eps,
                               .rotary = c->llama,
                               .interleaved = c->interleaved,
                               .base = c->rope_base,
                               .scaling = c->rope_scaling,
                               .stretch = c->rope_stretch,
                               .stretch_context = c->rope_stretch_context,
                               .beta_fast = c->rope_beta_fast,
                               .beta_slow = c->rope_beta_slow,
                               .attention_factor = c->rope_attention_factor,
                               .out_std = out_std,
                               .conv = c->conv,
                               .conv_silu = c->conv_silu,
                               .gate = c->gate,
                               .keys_before = of_layer(g, c, tn_in(b, "prefix_keys"), l),
                               .values_before = of_layer(g, c, tn_in(b, "prefix_values"), l) };
    tn_region r = tn_region_begin(g, "attn");
    const tn_ref y = tn_block_attention(g, u, &h, b);
    tn_region_end(g, r);
    return y;
}

static tn_ref feed_forward(tn_graph *g, const tn_decoder_shape *c, float out_std, tn_ref u)
{
    tn_region r = tn_region_begin(g, "ffn");
    const tn_ref y =
        c->llama ? tn_block_swiglu(g, u, c->ffn, out_std) : tn_block_mlp(g, u, c->ffn, TN_ACT_GELU, out_std);
    tn_region_end(g, r);
    return y;
}

static tn_ref norm(tn_graph *g, const tn_decoder_shape *c, tn_ref x, const char *name)
{
    return c->llama ? tn_block_rmsnorm(g, x, name, c->norm_eps) : tn_block_layernorm(g, x, name, c->norm_eps);
}

tn_status tn_decoder_forward(tn_graph *g, const tn_decoder_shape *c, const tn_batch *b, tn_ref *states, tn_forward *out)
{
    const float out_std = 0.02f / sqrtf(2.f * (float)c->layers);
    TN_RETURN_IF(check_prefix(g, c, b));
    const tn_ref table = tn_matrix(g, "embed", tn_shape(c->vocab, c->dim), tn_normal(0.02f));
    tn_ref x = tn_block_embed(g, table, b);
    if (!c->llama) {
        const tn_ref p = tn_param(g, "position", tn_shape(c->context, c->dim), tn_normal(0.02f));
        x = tn_add(g, x, tn_block_positions(g, p, tn_decoder_before(g, b), b));
    }
    x = tn_dropout(g, x, c->dropout);
    for (int l = 0; l < c->layers; l++) {
        tn_region r = tn_segment_begin(g, "layer%d", l);
        if (states) states[l] = x;
        x = tn_add(g, x, tn_dropout(g, attention(g, c, l, out_std, norm(g, c, x, "norm1"), b), c->dropout));
        x = tn_add(g, x, tn_dropout(g, feed_forward(g, c, out_std, norm(g, c, x, "norm2")), c->dropout));
        tn_region_end(g, r);
    }
    if (states) states[c->layers] = x;
    out->head = c->tied ? table : tn_matrix(g, "head", tn_shape(c->vocab, c->dim), tn_normal(0.02f));
    out->hidden = norm(g, c, x, "norm_f");
    out->extra = TN_NONE;
    return tn_graph_status(g);
}
