/* gpt: the transformer everything is measured against, in two shapes.
 *   gpt2    layernorm, learned positions, gelu, biases
 *   llama   rmsnorm, rotary positions, swiglu, grouped-query heads, no biases (or those of qwen: qkv_bias)
 * Either with a short convolution on queries, keys and values (conv) and a gate on what attention reads (gate), as layers of
 * `ten` have them. Pre-norm, tied head or one of its own. Parameters are named layer<N>.attn.*, layer<N>.ffn.*; `tenon check
 * gpt` prints them. */
#include "models/blocks.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

typedef struct gpt_config {
    int64_t dim, layers, heads, kv_heads, ffn, vocab, context;
    int64_t conv;
    bool llama, qkv_bias, tied, interleaved, conv_silu, gate;
    double rope_base, rope_stretch, rope_stretch_context;
    float norm_eps, dropout, out_std;
} gpt_config;

static const tn_setting settings[] = {
    TN_SETTING_CHOICE("shape", "llama", "gpt2|llama", "which transformer"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the residual stream"),
    TN_SETTING_INT("layers", "4", TN_RANGE(1, 1024), "", "number of layers"),
    TN_SETTING_INT("heads", "4", TN_RANGE(1, 1024), "", "attention heads; dim is a multiple of it"),
    TN_SETTING_AUTO_INT("kv_heads", "auto", TN_RANGE(1, 1024), "", "key and value heads (auto: heads)"),
    TN_SETTING_AUTO_INT("ffn", "auto", TN_RANGE(1, 1e6), "", "inner width (auto: 4 dim, or 8/3 dim for llama)"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "",
                        "size of the vocabulary (auto: the data's, 50257 without data)"),
    TN_SETTING_BOOL("tied", "true", "tie the head to the embedding (false: a matrix of its own)"),
    TN_SETTING_BOOL("qkv_bias", "false", "biases on queries, keys and values (llama; gpt2 always has them)"),
    TN_SETTING_INT("conv", "0", TN_RANGE(0, 8), "tokens",
                   "taps of a causal convolution on queries, keys and values, channel by channel (0: none)"),
    TN_SETTING_CHOICE("conv_act", "none", "none|silu", "activation after that convolution"),
    TN_SETTING_CHOICE("gate", "none", "none|silu", "silu: attention's output is multiplied by silu(w_z u)"),
    TN_SETTING_FLOAT("norm_eps", "0", TN_RANGE_HI_OPEN(0, 1), "", "epsilon of norms (0: 1e-6, or 1e-5 for gpt2)"),
    TN_SETTING_FLOAT("rope_base", "10000", TN_RANGE_ABOVE(1), "", "base of the rotary frequencies (llama)"),
    TN_SETTING_CHOICE("rope_pairs", "half", "half|interleaved", "rotary pairs: j and j+D/2, or 2j and 2j+1 (llama)"),
    TN_SETTING_FLOAT("rope_stretch", "0", TN_RANGE_MIN(0), "", "RoPE scaling factor, as in Llama 3 (0: no scaling)"),
    TN_SETTING_FLOAT("rope_stretch_context", "8192", TN_RANGE_MIN(1), "tokens", "original context length"),
};

#define GPT2(d, l, h) "shape=gpt2", "dim=" #d, "layers=" #l, "heads=" #h, "vocab=50257", "train.context=1024"
#define LLAMA(d, l, h, kv, f, v)                                                                                       \
    "shape=llama", "dim=" #d, "layers=" #l, "heads=" #h, "kv_heads=" #kv, "ffn=" #f, "vocab=" #v
#define STORIES "norm_eps=1e-5", "rope_pairs=interleaved"
#define LLAMA3 "norm_eps=1e-5", "rope_base=500000", "rope_stretch_context=8192"
#define QWEN "norm_eps=1e-6", "rope_base=1000000", "qkv_bias=true", "train.context=32768"
#define VALUES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const tn_preset presets[] = {
    { "gpt2_124m", "GPT-2 with 124 M parameters", VALUES(GPT2(768, 12, 12)) },
    { "gpt2_355m", "GPT-2 with 355 M parameters", VALUES(GPT2(1024, 24, 16)) },
    { "gpt2_774m", "GPT-2 with 774 M parameters", VALUES(GPT2(1280, 36, 20)) },
    { "gpt2_1558m", "GPT-2 with 1558 M parameters", VALUES(GPT2(1600, 48, 25)) },
    { "gpt_tiny", "a llama-shaped network that trains in a minute on two cores",
      VALUES("shape=llama", "dim=64", "layers=2", "heads=4", "train.context=128", "train.steps=500",
             "train.warmup=20") },
    { "gpt_conv_gate", "the llama shape with a convolution of four tokens and a gate in attention",
      VALUES("shape=llama", "conv=4", "gate=silu") },
    { "llama_stories260k", "the llama2.c storyteller with 260 K parameters",
      VALUES(LLAMA(64, 5, 8, 4, 172, 512), STORIES, "train.context=512") },
    { "llama_stories15m", "the llama2.c storyteller with 15 M parameters",
      VALUES(LLAMA(288, 6, 6, 6, 768, 32000), STORIES, "train.context=256") },
    { "llama_stories42m", "the llama2.c storyteller with 42 M parameters",
      VALUES(LLAMA(512, 8, 8, 8, 1376, 32000), STORIES, "train.context=1024") },
    { "llama_stories110m", "the llama2.c storyteller with 110 M parameters",
      VALUES(LLAMA(768, 12, 12, 12, 2048, 32000), STORIES, "train.context=1024") },
    { "llama3_2_1b", "Llama 3.2 with 1.24 G parameters",
      VALUES(LLAMA(2048, 16, 32, 8, 8192, 128256), LLAMA3, "rope_stretch=32", "train.context=131072") },
    { "llama3_1_8b", "Llama 3.1 with 8.03 G parameters",
      VALUES(LLAMA(4096, 32, 32, 8, 14336, 128256), LLAMA3, "rope_stretch=8", "tied=false", "train.context=131072") },
    { "mistral_7b", "Mistral 7B v0.3 with 7.25 G parameters",
      VALUES(LLAMA(4096, 32, 32, 8, 14336, 32768), "norm_eps=1e-5", "rope_base=1000000", "tied=false",
             "train.context=32768") },
    { "qwen2_5_0_5b", "Qwen 2.5 with 0.49 G parameters", VALUES(LLAMA(896, 24, 14, 2, 4864, 151936), QWEN) },
    { "qwen2_5_7b", "Qwen 2.5 with 7.62 G parameters",
      VALUES(LLAMA(3584, 28, 28, 4, 18944, 152064), QWEN, "tied=false") },
};

static tn_status config_read(const tn_settings *st, const tn_batch *b, gpt_config *c)
{
    *c = (gpt_config){ .dim = tn_settings_int(st, "dim"),
                       .layers = tn_settings_int(st, "layers"),
                       .heads = tn_settings_int(st, "heads"),
                       .kv_heads = tn_settings_int(st, "kv_heads"),
                       .ffn = tn_settings_int(st, "ffn"),
                       .vocab = tn_settings_int(st, "vocab"),
                       .context = tn_settings_int(st, "train.context"),
                       .llama = strcmp(tn_settings_text(st, "shape"), "llama") == 0,
                       .qkv_bias = tn_settings_on(st, "qkv_bias"),
                       .tied = tn_settings_on(st, "tied"),
                       .conv = tn_settings_int(st, "conv"),
                       .conv_silu = tn_settings_choice(st, "conv_act") == 1,
                       .gate = tn_settings_choice(st, "gate") == 1,
                       .interleaved = strcmp(tn_settings_text(st, "rope_pairs"), "interleaved") == 0,
                       .rope_base = tn_settings_float(st, "rope_base"),
                       .rope_stretch = tn_settings_float(st, "rope_stretch"),
                       .rope_stretch_context = tn_settings_float(st, "rope_stretch_context"),
                       .norm_eps = (float)tn_settings_float(st, "norm_eps"),
                       .dropout = (float)tn_settings_float(st, "train.dropout") };
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->vocab) c->vocab = 50257;
    if (!c->ffn) c->ffn = c->llama ? (8 * c->dim / 3 + 7) / 8 * 8 : 4 * c->dim;
    c->out_std = 0.02f / sqrtf(2.f * (float)c->layers);
    if (c->dim % c->heads || (c->llama && c->dim / c->heads % 2))
        return tn_model_error("dim=%lld must be a multiple of heads=%lld%s", (long long)c->dim, (long long)c->heads,
                              c->llama ? ", and dim/heads even for rotary positions" : "");
    if (c->llama && c->dim / c->heads > 1024)
        return tn_model_error(
            "dim=%lld with heads=%lld makes heads of %lld, and rotary positions take at most 1024: use more heads",
            (long long)c->dim, (long long)c->heads, (long long)(c->dim / c->heads));
    if (c->heads % c->kv_heads)
        return tn_model_error("heads=%lld must be a multiple of kv_heads=%lld", (long long)c->heads,
                              (long long)c->kv_heads);
    if (!c->llama && c->kv_heads != c->heads) return tn_model_error("kv_heads is for shape=llama: leave it at auto");
    if (c->conv_silu && !c->conv)
        return tn_model_error("conv_act=silu is for a convolution: set conv=4, or conv_act=none");
    if (!c->llama && b->cached && b->capacity > c->context)
        return tn_model_error("a cache of %lld tokens is longer than the %lld positions of train.context",
                              (long long)b->capacity, (long long)c->context);
    if (b->length > c->context)
        return tn_model_error("a sequence of %lld tokens is longer than train.context=%lld", (long long)b->length,
                              (long long)c->context);
    return TN_OK;
}

static tn_ref attention(tn_graph *g, const gpt_config *c, tn_ref u, const tn_batch *b)
{
    const tn_block_heads h = { .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .qkv_bias = c->qkv_bias || !c->llama,
                               .out_bias = !c->llama,
                               .rotary = c->llama,
                               .interleaved = c->interleaved,
                               .base = c->rope_base,
                               .stretch = c->rope_stretch,
                               .stretch_context = c->rope_stretch_context,
                               .out_std = c->out_std,
                               .conv = c->conv,
                               .conv_silu = c->conv_silu,
                               .gate = c->gate };
    tn_region r = tn_region_begin(g, "attn");
    const tn_ref y = tn_block_attention(g, u, &h, b);
    tn_region_end(g, r);
    return y;
}

static tn_ref feed_forward(tn_graph *g, const gpt_config *c, tn_ref u)
{
    tn_region r = tn_region_begin(g, "ffn");
    const tn_ref y =
        c->llama ? tn_block_swiglu(g, u, c->ffn, c->out_std) : tn_block_mlp(g, u, c->ffn, TN_ACT_GELU, c->out_std);
    tn_region_end(g, r);
    return y;
}

static tn_ref norm(tn_graph *g, const gpt_config *c, tn_ref x, const char *name)
{
    return c->llama ? tn_block_rmsnorm(g, x, name, c->norm_eps) : tn_block_layernorm(g, x, name, c->norm_eps);
}

static tn_status gpt_forward(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out)
{
    gpt_config c;
    TN_RETURN_IF(config_read(st, b, &c));
    const tn_ref table = tn_matrix(g, "embed", tn_shape(c.vocab, c.dim), tn_normal(0.02f));
    tn_ref x = tn_block_embed(g, table, b);
    if (!c.llama) {
        const tn_ref p = tn_param(g, "position", tn_shape(c.context, c.dim), tn_normal(0.02f));
        x = tn_add(g, x, tn_block_positions(g, p, b));
    }
    x = tn_dropout(g, x, c.dropout);
    for (int l = 0; l < c.layers; l++) {
        tn_region r = tn_segment_begin(g, "layer%d", l);
        x = tn_add(g, x, tn_dropout(g, attention(g, &c, norm(g, &c, x, "norm1"), b), c.dropout));
        x = tn_add(g, x, tn_dropout(g, feed_forward(g, &c, norm(g, &c, x, "norm2")), c.dropout));
        tn_region_end(g, r);
    }
    out->head = c.tied ? table : tn_matrix(g, "head", tn_shape(c.vocab, c.dim), tn_normal(0.02f));
    out->hidden = norm(g, &c, x, "norm_f");
    out->extra = TN_NONE;
    return tn_graph_status(g);
}

static tn_status gpt_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_forward f;
    TN_RETURN_IF(gpt_forward(g, st, b, &f));
    tn_block_head(g, &f, b);
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
    .forward = gpt_forward,
    TN_LANGUAGE_ROWS,
};
