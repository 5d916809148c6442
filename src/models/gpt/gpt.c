/* gpt: the transformer everything is measured against, in two shapes.
 *   gpt2    layernorm, learned positions, gelu, biases
 *   llama   rmsnorm, rotary positions, swiglu, grouped-query heads, no biases (or those of qwen: qkv_bias; or its norms: qk_norm)
 * Either with a short convolution on queries, keys and values (conv) and a gate on what attention reads (gate), as layers of
 * `ten` have them. Pre-norm, tied head or one of its own. Here are its settings and presets; the network is models/decoder.c. */
#include "models/blocks.h"
#include "models/gpt/gpt.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

static const tn_setting settings[] = {
    TN_SETTING_CHOICE("shape", "llama", "gpt2|llama", "which transformer"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the residual stream"),
    TN_SETTING_INT("layers", "4", TN_RANGE(1, 1024), "", "number of layers"),
    TN_SETTING_INT("heads", "4", TN_RANGE(1, 1024), "", "attention heads; dim is a multiple of it, or head_dim is set"),
    TN_SETTING_AUTO_INT("kv_heads", "auto", TN_RANGE(1, 1024), "", "key and value heads (auto: heads)"),
    TN_SETTING_AUTO_INT("head_dim", "auto", TN_RANGE(1, 1024), "", "width of a head (auto: dim/heads)"),
    TN_SETTING_AUTO_INT("ffn", "auto", TN_RANGE(1, 1e6), "", "inner width (auto: 4 dim, or 8/3 dim for llama)"),
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(2, 1e7), "",
                        "size of the vocabulary (auto: the data's, 50257 without data)"),
    TN_SETTING_BOOL("tied", "true", "tie the head to the embedding (false: a matrix of its own)"),
    TN_SETTING_BOOL("qkv_bias", "false", "biases on queries, keys and values (llama; gpt2 always has them)"),
    TN_SETTING_BOOL("qk_norm", "false",
                    "rmsnorm of each head's queries and keys, before rotary positions (as in Qwen 3)"),
    TN_SETTING_INT("conv", "0", TN_RANGE(0, 8), "tokens",
                   "taps of a causal convolution on queries, keys and values, channel by channel (0: none)"),
    TN_SETTING_CHOICE("conv_act", "none", "none|silu", "activation after that convolution"),
    TN_SETTING_CHOICE("gate", "none", "none|silu", "silu: attention's output is multiplied by silu(w_z u)"),
    TN_SETTING_FLOAT("norm_eps", "0", TN_RANGE_HI_OPEN(0, 1), "", "epsilon of norms (0: 1e-6, or 1e-5 for gpt2)"),
    TN_SETTING_FLOAT("rope_base", "10000", TN_RANGE_ABOVE(1), "", "base of the rotary frequencies (llama)"),
    TN_SETTING_CHOICE("rope_pairs", "half", "half|interleaved", "rotary pairs: j and j+D/2, or 2j and 2j+1 (llama)"),
    TN_SETTING_CHOICE("rope_scaling", "llama3", "llama3|linear|yarn",
                      "RoPE scaling method; rope_stretch is its factor"),
    TN_SETTING_FLOAT("rope_stretch", "0", TN_RANGE_MIN(0), "", "RoPE scaling factor (0: no scaling)"),
    TN_SETTING_FLOAT("rope_stretch_context", "8192", TN_RANGE_MIN(1), "tokens",
                     "original context length (llama3, yarn)"),
    TN_SETTING_FLOAT("rope_beta_fast", "32", TN_RANGE_ABOVE(0), "",
                     "yarn keeps frequencies that turn more often in it"),
    TN_SETTING_FLOAT("rope_beta_slow", "1", TN_RANGE_ABOVE(0), "",
                     "yarn divides frequencies that turn less often in it"),
    TN_SETTING_FLOAT("rope_attention_factor", "0", TN_RANGE_MIN(0), "",
                     "yarn multiplies queries and keys by it (0: 0.1 ln(rope_stretch) + 1)"),
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
    { "qwen3_0_6b", "Qwen 3 with 0.60 G parameters",
      VALUES(LLAMA(1024, 28, 16, 8, 3072, 151936), "norm_eps=1e-6", "rope_base=1000000", "head_dim=128", "qk_norm=true",
             "train.context=40960") },
};

static tn_status check_heads(const tn_decoder_shape *c, bool set)
{
    if (!set && (c->dim % c->heads || (c->llama && c->head_dim % 2)))
        return tn_model_error("dim=%lld must be a multiple of heads=%lld%s", (long long)c->dim, (long long)c->heads,
                              c->llama ? ", and dim/heads even for rotary positions; or set head_dim" : "");
    if (c->llama && c->head_dim % 2)
        return tn_model_error("head_dim=%lld must be even for rotary positions", (long long)c->head_dim);
    if (c->llama && c->head_dim > 1024)
        return tn_model_error(
            "dim=%lld with heads=%lld makes heads of %lld, and rotary positions take at most 1024: use more heads",
            (long long)c->dim, (long long)c->heads, (long long)c->head_dim);
    if (c->heads % c->kv_heads)
        return tn_model_error("heads=%lld must be a multiple of kv_heads=%lld", (long long)c->heads,
                              (long long)c->kv_heads);
    if (!c->llama && c->kv_heads != c->heads) return tn_model_error("kv_heads is for shape=llama: leave it at auto");
    return TN_OK;
}

static tn_decoder_shape shape_of(const tn_settings *st)
{
    return (tn_decoder_shape){ .dim = tn_settings_int(st, "dim"),
                               .layers = tn_settings_int(st, "layers"),
                               .heads = tn_settings_int(st, "heads"),
                               .kv_heads = tn_settings_int(st, "kv_heads"),
                               .head_dim = tn_settings_int(st, "head_dim"),
                               .ffn = tn_settings_int(st, "ffn"),
                               .vocab = tn_settings_int(st, "vocab"),
                               .context = tn_settings_int(st, "train.context"),
                               .llama = strcmp(tn_settings_text(st, "shape"), "llama") == 0,
                               .qkv_bias = tn_settings_on(st, "qkv_bias"),
                               .qk_norm = tn_settings_on(st, "qk_norm"),
                               .tied = tn_settings_on(st, "tied"),
                               .conv = tn_settings_int(st, "conv"),
                               .conv_silu = tn_settings_choice(st, "conv_act") == 1,
                               .gate = tn_settings_choice(st, "gate") == 1,
                               .interleaved = strcmp(tn_settings_text(st, "rope_pairs"), "interleaved") == 0,
                               .rope_scaling = (tn_rope_scaling)tn_settings_choice(st, "rope_scaling"),
                               .rope_base = tn_settings_float(st, "rope_base"),
                               .rope_stretch = tn_settings_float(st, "rope_stretch"),
                               .rope_stretch_context = tn_settings_float(st, "rope_stretch_context"),
                               .rope_beta_fast = tn_settings_float(st, "rope_beta_fast"),
                               .rope_beta_slow = tn_settings_float(st, "rope_beta_slow"),
                               .rope_attention_factor = tn_settings_float(st, "rope_attention_factor"),
                               .norm_eps = (float)tn_settings_float(st, "norm_eps"),
                               .dropout = (float)tn_settings_float(st, "train.dropout") };
}

tn_status tn_gpt_shape(const tn_graph *g, const tn_settings *st, const tn_batch *b, tn_decoder_shape *c)
{
    *c = shape_of(st);
    const bool head_dim_set = c->head_dim;
    const int64_t length = b ? b->length + tn_decoder_before(g, b) : 0;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->head_dim) c->head_dim = c->dim / c->heads;
    if (!c->vocab) c->vocab = 50257;
    if (!c->ffn) c->ffn = c->llama ? (8 * c->dim / 3 + 7) / 8 * 8 : 4 * c->dim;
    TN_RETURN_IF(check_heads(c, head_dim_set));
    if (c->conv_silu && !c->conv)
        return tn_model_error("conv_act=silu is for a convolution: set conv=4, or conv_act=none");
    if (!c->llama && b && b->cached && b->capacity > c->context)
        return tn_model_error("a cache of %lld tokens is longer than the %lld positions of train.context",
                              (long long)b->capacity, (long long)c->context);
    if (length > c->context)
        return tn_model_error("a sequence of %lld tokens is longer than train.context=%lld", (long long)length,
                              (long long)c->context);
    return TN_OK;
}

/* hidden.0, hidden.1, ...: what goes into each layer, and then into the last norm. Those that the batch wants, or all for "hidden". */
static bool wants_state(const tn_batch *b, int64_t l, char name[32])
{
    snprintf(name, 32, "hidden.%lld", (long long)l);
    return tn_wants(b, "hidden") || tn_wants(b, name);
}

static tn_status gpt_forward(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out)
{
    enum { MOST_LAYERS = 1024 }; /* of the setting */
    tn_decoder_shape c;
    tn_ref states[MOST_LAYERS + 1];
    char name[32];
    TN_RETURN_IF(tn_gpt_shape(g, st, b, &c));
    TN_RETURN_IF(tn_decoder_forward(g, &c, b, states, out));
    for (int64_t l = 0; l <= c.layers; l++)
        if (wants_state(b, l, name))
            tn_output(g, name, tn_ref_dtype(g, states[l]) == TN_F32 ? states[l] : tn_cast(g, states[l], TN_F32));
    return tn_graph_status(g);
}

static tn_status gpt_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_forward f;
    TN_RETURN_IF(gpt_forward(g, st, b, &f));
    tn_block_head(g, &f, b);
    return tn_graph_status(g);
}

/* Those of every language model, and vectors in the place of tokens. */
static const tn_input_row inputs[] = {
    TN_LANGUAGE_INPUT_ROWS,
    { "embeddings", TN_F32, { TN_B, TN_T, "dim" }, .cut = true, .optional = true },
};

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
    TN_LANGUAGE_ROWS_BUT_INPUTS,
    TN_INPUTS(inputs),
};
