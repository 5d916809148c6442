/* gpt: the transformer everything is measured against, in two shapes.
 *   gpt2    layernorm, learned positions, gelu, biases
 *   llama   rmsnorm, rotary positions, swiglu, grouped-query heads, no biases
 * Pre-norm, tied head. Parameters are named layer<N>.attn.*, layer<N>.ffn.*; `tenon check gpt` prints them. */
#include "models/blocks.h"

#include <math.h>
#include <string.h>

typedef struct gpt_config {
    int64_t dim, layers, heads, kv_heads, ffn, vocab, context;
    bool llama;
    float rope_base, dropout, out_std;
} gpt_config;

static const tn_setting settings[] = {
    TN_SETTING_CHOICE("shape", "llama", "gpt2|llama", "which transformer"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the residual stream"),
    TN_SETTING_INT("layers", "4", TN_RANGE(1, 1024), "", "number of layers"),
    TN_SETTING_INT("heads", "4", TN_RANGE(1, 1024), "", "attention heads; dim is a multiple of it"),
    TN_SETTING_AUTO_INT("kv_heads", "auto", TN_RANGE(1, 1024), "", "key and value heads (auto: heads)"),
    TN_SETTING_AUTO_INT("ffn", "auto", TN_RANGE(1, 1e6), "", "inner width (auto: 4 dim, or 8/3 dim for llama)"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "", "tokens of the vocabulary (auto: the data's, 50257 without data)"),
    TN_SETTING_FLOAT("rope_base", "10000", TN_RANGE_ABOVE(1), "", "slowest rotation (llama)"),
};

static const char *const gpt2_124m[] = { "shape=gpt2", "dim=768", "layers=12", "heads=12", "vocab=50257",
                                         "train.context=1024", NULL };
static const char *const tiny[] = { "shape=llama", "dim=64", "layers=2", "heads=4", "train.context=128", NULL };
static const tn_preset presets[] = {
    { "gpt2_124m", "GPT-2 with 124 M parameters", gpt2_124m },
    { "gpt_tiny", "a llama-shaped network that trains in a minute on two cores", tiny },
};

static tn_status config_read(const tn_settings *st, const tn_batch *b, gpt_config *c)
{
    *c = (gpt_config){ .dim = tn_settings_int(st, "dim"), .layers = tn_settings_int(st, "layers"),
                       .heads = tn_settings_int(st, "heads"), .kv_heads = tn_settings_int(st, "kv_heads"),
                       .ffn = tn_settings_int(st, "ffn"), .vocab = tn_settings_int(st, "vocab"),
                       .context = tn_settings_int(st, "train.context"),
                       .llama = strcmp(tn_settings_text(st, "shape"), "llama") == 0,
                       .rope_base = (float)tn_settings_float(st, "rope_base"),
                       .dropout = (float)tn_settings_float(st, "train.dropout") };
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->vocab) c->vocab = 50257;
    if (!c->ffn) c->ffn = c->llama ? (8 * c->dim / 3 + 7) / 8 * 8 : 4 * c->dim;
    c->out_std = 0.02f / sqrtf(2.f * (float)c->layers);
    if (c->dim % c->heads || (c->llama && c->dim / c->heads % 2))
        return tn_model_error("dim=%lld must be a multiple of heads=%lld%s", (long long)c->dim, (long long)c->heads,
                              c->llama ? ", and dim/heads even for rotary positions" : "");
    if (c->llama && c->dim / c->heads > 1024)
        return tn_model_error("dim=%lld with heads=%lld makes heads of %lld, rotary positions take 1024: use more heads",
                              (long long)c->dim, (long long)c->heads, (long long)(c->dim / c->heads));
    if (c->heads % c->kv_heads)
        return tn_model_error("heads=%lld must be a multiple of kv_heads=%lld", (long long)c->heads, (long long)c->kv_heads);
    if (!c->llama && c->kv_heads != c->heads) return tn_model_error("kv_heads is for shape=llama: leave it at auto");
    if (b->length > c->context)
        return tn_model_error("a sequence of %lld tokens is longer than train.context=%lld", (long long)b->length,
                              (long long)c->context);
    return TN_OK;
}

/* Causal attention over u (B,T,d); returns (B,T,d). */
static tn_ref attention(tn_graph *g, const gpt_config *c, tn_ref u, const tn_batch *b)
{
    const int64_t d = c->dim, hd = d / c->heads, q_rows = c->heads * hd, kv_rows = c->kv_heads * hd;
    const int64_t B = b->batch, T = b->length;
    tn_region r = tn_region_begin(g, "attn");
    const tn_ref bias = c->llama ? TN_NONE : tn_param(g, "b_qkv", tn_shape(q_rows + 2 * kv_rows), tn_zeros);
    tn_ref qkv = tn_linear(g, u, tn_param(g, "w_qkv", tn_shape(q_rows + 2 * kv_rows, d), tn_normal(0.02f)), .bias = bias);
    qkv = tn_reshape(g, qkv, tn_shape(B, T, c->heads + 2 * c->kv_heads, hd));
    tn_ref q = tn_slice(g, qkv, 2, 0, c->heads), k = tn_slice(g, qkv, 2, c->heads, c->kv_heads);
    const tn_ref v = tn_slice(g, qkv, 2, c->heads + c->kv_heads, c->kv_heads);
    if (c->llama) {
        q = tn_rope(g, q, .base = c->rope_base);
        k = tn_rope(g, k, .base = c->rope_base);
    }
    const tn_ref y = tn_reshape(g, tn_attention(g, q, k, v, .causal = true), tn_shape(B, T, d));
    const tn_ref o = tn_linear(g, y, tn_param(g, "w_out", tn_shape(d, d), tn_normal(c->out_std)),
                               .bias = c->llama ? TN_NONE : tn_param(g, "b_out", tn_shape(d), tn_zeros));
    tn_region_end(g, r);
    return o;
}

static tn_ref feed_forward(tn_graph *g, const gpt_config *c, tn_ref u)
{
    tn_region r = tn_region_begin(g, "ffn");
    const tn_ref y = c->llama ? tn_block_swiglu(g, u, c->ffn, c->out_std) : tn_block_gelu(g, u, c->ffn, c->out_std);
    tn_region_end(g, r);
    return y;
}

static tn_ref norm(tn_graph *g, const gpt_config *c, tn_ref x, const char *name)
{
    return c->llama ? tn_block_rmsnorm(g, x, name) : tn_block_layernorm(g, x, name);
}

static tn_status gpt_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    gpt_config c;
    const tn_status s = config_read(st, b, &c);
    if (s != TN_OK) return s;
    const tn_ref table = tn_param(g, "embed", tn_shape(c.vocab, c.dim), tn_normal(0.02f));
    tn_ref x = tn_embed(g, b->tokens, table);
    if (!c.llama) {
        const tn_ref p = tn_param(g, "position", tn_shape(c.context, c.dim), tn_normal(0.02f));
        x = tn_add(g, x, tn_slice(g, p, 0, 0, b->length));
    }
    x = tn_dropout(g, x, c.dropout);
    for (int l = 0; l < c.layers; l++) {
        tn_region r = tn_region_begin(g, "layer%d", l);
        x = tn_add(g, x, tn_dropout(g, attention(g, &c, norm(g, &c, x, "norm1"), b), c.dropout));
        x = tn_add(g, x, tn_dropout(g, feed_forward(g, &c, norm(g, &c, x, "norm2")), c.dropout));
        tn_region_end(g, r);
    }
    tn_block_head(g, norm(g, &c, x, "norm_f"), table, b);
    return tn_graph_status(g);
}

const tn_model tn_model_gpt = {
    TN_MODEL_HEAD,
    .name = "gpt",
    .summary = "the transformer baseline, GPT-2 or Llama shaped",
    .settings = settings,
    .n_settings = sizeof settings / sizeof *settings,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .build = gpt_build,
};
