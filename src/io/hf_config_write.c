/* Writes config.json in the form that all versions of transformers read: rope_theta and rope_scaling. */
#include "io/hf_config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The first kind that has all that the model has. */
static const struct kind {
    const char *name, *class;
    bool bias, qk_norm, any_width; /* any_width: dim need not be a multiple of heads */
} kinds[] = {
    { "llama", "LlamaForCausalLM", false, false, false },
    { "mistral", "MistralForCausalLM", false, false, true },
    { "qwen2", "Qwen2ForCausalLM", true, false, true },
    { "qwen3", "Qwen3ForCausalLM", false, true, true },
};

static const struct kind *kind_of(const tn_decoder_config *c)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].bias == c->bias && kinds[i].qk_norm == c->qk_norm &&
            (kinds[i].any_width || c->dim % c->heads == 0))
            return &kinds[i];
    return NULL;
}

static json_t *scaling_of(const tn_decoder_config *c)
{
    switch (c->scaling) {
    case TN_SCALED_NONE: return json_null();
    case TN_SCALED_LINEAR: return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", c->stretch);
    case TN_SCALED_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->stretch, "low_freq_factor",
                         1.0, "high_freq_factor", 4.0, "original_max_position_embeddings",
                         (json_int_t)c->stretch_context);
    case TN_SCALED_YARN: break;
    }
    json_t *o =
        json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "yarn", "factor", c->stretch, "beta_fast", c->beta_fast,
                  "beta_slow", c->beta_slow, "original_max_position_embeddings", (json_int_t)c->stretch_context);
    if (o && c->attention_factor > 0 && json_object_set_new(o, "attention_factor", json_real(c->attention_factor))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *token(int32_t id) { return id < 0 ? json_null() : json_integer(id); }

static tn_status give_text(json_t *o, char **text)
{
    char *made = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    const size_t n = made ? strlen(made) : 0;
    char *own = made ? tn_alloc(n + 2) : NULL;
    json_decref(o);
    if (own) {
        memcpy(own, made, n);
        own[n] = '\n';
        *text = own;
    }
    free(made);
    return own ? TN_OK : tn_error(TN_MEMORY, "out of memory");
}

tn_status tn_hf_config_write(const tn_decoder_config *c, tn_dtype dtype, tn_hf_tokens tokens, char **text)
{
    const struct kind *k = kind_of(c);
    if (!k)
        return tn_error(TN_USAGE, "no architecture of transformers has both qkv_bias=true and qk_norm=true, or neither "
                                  "with this width: such a model cannot be a Hugging Face folder");
    json_t *o = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:b, s:s, s:b, s:b, s:b, s:n, s:o, s:o, "
        "s:s}",
        "architectures", k->class, "model_type", k->name, "hidden_size", (json_int_t)c->dim, "intermediate_size",
        (json_int_t)c->ffn, "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads,
        "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim, "vocab_size",
        (json_int_t)c->vocab, "max_position_embeddings", (json_int_t)c->context, "rms_norm_eps", c->eps, "rope_theta",
        c->base, "rope_scaling", scaling_of(c), "tie_word_embeddings", c->tied, "hidden_act", "silu", "attention_bias",
        false, "mlp_bias", false, "use_sliding_window", false, "sliding_window", "bos_token_id", token(tokens.bos),
        "eos_token_id", token(tokens.eos), "torch_dtype",
        dtype == TN_BF16  ? "bfloat16"
        : dtype == TN_F16 ? "float16"
                          : "float32");
    return give_text(o, text);
}

tn_status tn_hf_generation_write(tn_hf_tokens tokens, char **text)
{
    return give_text(json_pack("{s:o, s:o}", "bos_token_id", token(tokens.bos), "eos_token_id", token(tokens.eos)),
                     text);
}
