/* Reads config.json. Numbers are bounded here, so that their products cannot overflow later; the bounds are those of gpt's
 * settings. */
#include "io/hf_config.h"

#include "io/json_read.h"
#include "io/safetensors_parts.h"

#include <math.h>
#include <string.h>

typedef struct reader {
    const char *name;
    const json_t *root;
    const struct kind *kind;
    tn_decoder_config c;
} reader;

/* What transformers takes where a key is absent. */
static const struct kind {
    const char *name;
    bool bias;        /* of q, k and v, always */
    bool norms;       /* of queries and keys */
    bool switches;    /* use_sliding_window says whether there is a window */
    int64_t kv_heads; /* 0: as many as heads */
    int64_t head_dim; /* 0: dim / heads */
    int64_t context;
    int64_t window; /* 0: none */
} kinds[] = {
    { .name = "llama", .context = 2048 },
    { .name = "mistral", .kv_heads = 8, .context = 131072, .window = 4096 },
    { .name = "qwen2", .bias = true, .switches = true, .kv_heads = 32, .context = 32768, .window = 4096 },
    { .name = "qwen3",
      .norms = true,
      .switches = true,
      .kv_heads = 32,
      .head_dim = 128,
      .context = 32768,
      .window = 4096 },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Keys of this and of related models whose other values change what is computed. They may be absent or null. */
static const struct fixed {
    const char *key;
    char is; /* '0' a number, 'f' false, 't' true, 'n' absent or null */
    double value;
} fixed[] = {
    { "mlp_bias", 'f', 0 },
    { "is_encoder_decoder", 'f', 0 },
    { "add_cross_attention", 'f', 0 },
    { "use_bidirectional_attention", 'f', 0 },
    { "is_causal", 't', 0 },
    { "quantization_config", 'n', 0 },
    { "clip_qkv", 'n', 0 },
    { "final_logit_softcapping", 'n', 0 },
    { "attn_logit_softcapping", 'n', 0 },
    { "num_local_experts", 'n', 0 },
    { "num_experts", 'n', 0 },
    { "n_routed_experts", 'n', 0 },
    { "partial_rotary_factor", '0', 1 },
    { "logit_scale", '0', 1 },
    { "logits_scaling", '0', 1 },
    { "embedding_multiplier", '0', 1 },
    { "residual_multiplier", '0', 1 },
};

#define REFUSE(r, fmt, ...) tn_error(TN_BAD_FILE, "%.300s: " fmt, (r)->name, __VA_ARGS__)

/* --- values ------------------------------------------------------------------------------------------------------------ */

typedef struct shown {
    char text[112];
} shown;

static shown show(const json_t *v)
{
    shown s;
    if (json_is_string(v)) snprintf(s.text, sizeof s.text, "\"%s\"", tn__shown(json_string_value(v)).text);
    else if (json_is_integer(v)) snprintf(s.text, sizeof s.text, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v)) snprintf(s.text, sizeof s.text, "%g", json_real_value(v));
    else
        snprintf(s.text, sizeof s.text, "%s",
                 json_is_true(v)     ? "true"
                 : json_is_false(v)  ? "false"
                 : json_is_array(v)  ? "a list"
                 : json_is_object(v) ? "an object"
                                     : "null");
    return s;
}

/* NULL where the key is absent, or null. */
static const json_t *value_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

/* otherwise 0: the key must be there. */
static tn_status integer(const reader *r, const json_t *o, const char *key, int64_t most, int64_t otherwise,
                         int64_t *out)
{
    const json_t *v = value_of(o, key);
    if (!v && otherwise > 0) {
        *out = otherwise;
        return TN_OK;
    }
    if (!v) return REFUSE(r, "it has no \"%s\"", key);
    if (!json_is_integer(v)) return REFUSE(r, "\"%s\" is %s, not an integer", key, show(v).text);
    const int64_t x = json_integer_value(v);
    if (x < 1 || x > most) return REFUSE(r, "\"%s\" is %lld, outside 1 to %lld", key, (long long)x, (long long)most);
    *out = x;
    return TN_OK;
}

static tn_status number(const reader *r, const json_t *o, const char *key, double least, double most, double otherwise,
                        double *out)
{
    const json_t *v = value_of(o, key);
    const double x = v ? json_number_value(v) : otherwise;
    if (v && !json_is_number(v)) return REFUSE(r, "\"%s\" is %s, not a number", key, show(v).text);
    if (!(x >= least && x <= most)) return REFUSE(r, "\"%s\" is %g, outside %g to %g", key, x, least, most);
    *out = x;
    return TN_OK;
}

static tn_status flag(const reader *r, const char *key, bool otherwise, bool *out)
{
    const json_t *v = value_of(r->root, key);
    if (v && !json_is_boolean(v)) return REFUSE(r, "\"%s\" is %s, not true or false", key, show(v).text);
    *out = v ? json_is_true(v) : otherwise;
    return TN_OK;
}

/* --- what kind of model ------------------------------------------------------------------------------------------------ */

static tn_status find_kind(reader *r)
{
    const json_t *v = value_of(r->root, "model_type");
    if (!json_is_string(v))
        return REFUSE(r, "it has no \"model_type\": is it a folder of transformers? It has %zu keys",
                      json_object_size(r->root));
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(json_string_value(v), kinds[i].name) == 0) r->kind = &kinds[i];
    if (!r->kind)
        return REFUSE(r, "\"model_type\" is %s, and only llama, mistral, qwen2 and qwen3 are supported", show(v).text);
    return TN_OK;
}

static bool is_fixed(const struct fixed *f, const json_t *v)
{
    if (!v) return true;
    if (f->is == 'f') return json_is_false(v);
    if (f->is == 't') return json_is_true(v);
    return f->is == '0' && json_is_number(v) && json_number_value(v) == f->value;
}

static tn_status check_fixed(const reader *r)
{
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const json_t *v = value_of(r->root, fixed[i].key);
        if (!is_fixed(&fixed[i], v))
            return REFUSE(r, "\"%s\" is %s: that is not supported", fixed[i].key, show(v).text);
    }
    const json_t *act = value_of(r->root, "hidden_act");
    if (act && !(json_is_string(act) && strcmp(json_string_value(act), "silu") == 0))
        return REFUSE(r, "\"hidden_act\" is %s, and only \"silu\" is supported", show(act).text);
    const json_t *bias = value_of(r->root, "attention_bias");
    if (bias && !json_is_false(bias) && !r->kind->bias)
        return REFUSE(r, "\"attention_bias\" is %s: biases on the output of attention are not supported",
                      show(bias).text);
    const json_t *first = json_array_get(value_of(r->root, "architectures"), 0);
    if (json_is_string(first) && !strstr(json_string_value(first), "ForCausalLM"))
        return REFUSE(r, "\"architectures\" is %s: only models that continue text (ForCausalLM) are supported",
                      show(first).text);
    return TN_OK;
}

/* A window bounds the context: within it nothing differs. */
static tn_status read_window(reader *r)
{
    bool on = true;
    int64_t window = 0;
    const json_t *types = value_of(r->root, "layer_types"), *t;
    size_t i;
    json_array_foreach(
        types, i,
        t) if (!json_is_string(t) ||
               (strcmp(json_string_value(t), "full_attention") != 0 &&
                strcmp(json_string_value(t), "sliding_attention") !=
                    0)) return REFUSE(r, "\"layer_types\" has %s, and only full and sliding attention are supported",
                                      show(t).text);
    if (types && !json_is_array(types)) return REFUSE(r, "\"layer_types\" is %s, not a list", show(types).text);
    if (r->kind->switches) TN_RETURN_IF(flag(r, "use_sliding_window", false, &on));
    if (!on || (!r->kind->window && !value_of(r->root, "sliding_window"))) return TN_OK;
    if (json_is_null(json_object_get(r->root, "sliding_window"))) return TN_OK;
    TN_RETURN_IF(integer(r, r->root, "sliding_window", 1000000000, r->kind->window, &window));
    if (window < r->c.context) r->c.context = window;
    return TN_OK;
}

static tn_status read_sizes(reader *r)
{
    tn_decoder_config *c = &r->c;
    const json_t *o = r->root;
    TN_RETURN_IF(integer(r, o, "hidden_size", 65536, 0, &c->dim));
    TN_RETURN_IF(integer(r, o, "num_hidden_layers", 1024, 0, &c->layers));
    TN_RETURN_IF(integer(r, o, "num_attention_heads", 1024, 0, &c->heads));
    TN_RETURN_IF(integer(r, o, "intermediate_size", 1000000, 0, &c->ffn));
    TN_RETURN_IF(integer(r, o, "vocab_size", 10000000, 0, &c->vocab));
    TN_RETURN_IF(integer(r, o, "max_position_embeddings", 1000000000, r->kind->context, &c->context));
    const bool none = json_is_null(json_object_get(o, "num_key_value_heads"));
    const int64_t kv = none || !r->kind->kv_heads ? c->heads : r->kind->kv_heads;
    TN_RETURN_IF(integer(r, o, "num_key_value_heads", 1024, kv, &c->kv_heads));
    c->head_dim =
        r->kind->head_dim && !json_is_null(json_object_get(o, "head_dim")) ? r->kind->head_dim : c->dim / c->heads;
    if (value_of(o, "head_dim")) TN_RETURN_IF(integer(r, o, "head_dim", 1024, 0, &c->head_dim));
    else if (!r->kind->head_dim && c->dim % c->heads)
        return REFUSE(r, "\"hidden_size\" %lld is no multiple of \"num_attention_heads\" %lld", (long long)c->dim,
                      (long long)c->heads);
    if (c->head_dim < 2 || c->head_dim % 2 || c->head_dim > 1024)
        return REFUSE(r, "heads of %lld numbers: an even number of at most 1024 is supported", (long long)c->head_dim);
    if (c->kv_heads > c->heads || c->heads % c->kv_heads)
        return REFUSE(r, "\"num_attention_heads\" %lld is no multiple of \"num_key_value_heads\" %lld",
                      (long long)c->heads, (long long)c->kv_heads);
    if (c->vocab < 2) return REFUSE(r, "\"vocab_size\" is %lld, outside 2 to 10000000", (long long)c->vocab);
    TN_RETURN_IF(number(r, o, "rms_norm_eps", 1e-30, 0.5, 1e-6, &c->eps));
    TN_RETURN_IF(flag(r, "tie_word_embeddings", false, &c->tied));
    c->bias = r->kind->bias;
    c->qk_norm = r->kind->norms;
    return read_window(r);
}

/* --- rotary positions -------------------------------------------------------------------------------------------------- */

static const struct scaling {
    const char *name;
    tn_decoder_scaling kind;
} scalings[] = { { "default", TN_SCALED_NONE },
                 { "linear", TN_SCALED_LINEAR },
                 { "yarn", TN_SCALED_YARN },
                 { "llama3", TN_SCALED_LLAMA3 } };

/* Those that are read below, or say nothing. Any other may belong to a formula that is not here. */
static tn_status check_rope_keys(const reader *r, const json_t *o)
{
    static const char *const known[] = { "rope_type",
                                         "type",
                                         "rope_theta",
                                         "factor",
                                         "original_max_position_embeddings",
                                         "low_freq_factor",
                                         "high_freq_factor",
                                         "beta_fast",
                                         "beta_slow",
                                         "attention_factor",
                                         "mscale",
                                         "mscale_all_dim",
                                         "truncate",
                                         "partial_rotary_factor",
                                         "finetuned" };
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        bool found = json_is_null(v);
        for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++) found = strcmp(key, known[i]) == 0;
        if (!found)
            return REFUSE(r, "the scaling of positions has a key \"%s\" that is not supported", tn__shown(key).text);
    }
    const json_t *part = value_of(o, "partial_rotary_factor"), *cut = value_of(o, "truncate");
    if (part && !(json_is_number(part) && json_number_value(part) == 1))
        return REFUSE(r, "\"partial_rotary_factor\" is %s, and only 1 is supported", show(part).text);
    if (cut && !json_is_true(cut)) return REFUSE(r, "\"truncate\" is %s, and only true is supported", show(cut).text);
    return TN_OK;
}

static tn_status read_scaling_kind(reader *r, const json_t *o)
{
    const json_t *type = value_of(o, "rope_type"), *old = value_of(o, "type");
    if (!type) type = old;
    if (!type) return TN_OK;
    for (size_t i = 0; json_is_string(type) && i < sizeof scalings / sizeof *scalings; i++)
        if (strcmp(json_string_value(type), scalings[i].name) == 0) {
            r->c.scaling = scalings[i].kind;
            return TN_OK;
        }
    return REFUSE(r, "\"rope_type\" is %s, and only default, linear, yarn and llama3 are supported", show(type).text);
}

static double yarn_scale(double factor, double times) { return factor <= 1 ? 1 : 0.1 * times * log(factor) + 1; }

static tn_status read_yarn(reader *r, const json_t *o)
{
    tn_decoder_config *c = &r->c;
    double scale = 0, all = 0;
    TN_RETURN_IF(number(r, o, "beta_fast", 0, 1e6, 0, &c->beta_fast));
    TN_RETURN_IF(number(r, o, "beta_slow", 0, 1e6, 0, &c->beta_slow));
    TN_RETURN_IF(number(r, o, "mscale", 0, 1e6, 0, &scale));
    TN_RETURN_IF(number(r, o, "mscale_all_dim", 0, 1e6, 0, &all));
    if (c->beta_fast == 0) c->beta_fast = 32; /* as transformers takes it */
    if (c->beta_slow == 0) c->beta_slow = 1;
    if (scale > 0 && all > 0) c->attention_factor = yarn_scale(c->stretch, scale) / yarn_scale(c->stretch, all);
    if (value_of(o, "attention_factor"))
        TN_RETURN_IF(number(r, o, "attention_factor", 1e-6, 1e6, 0, &c->attention_factor));
    return TN_OK;
}

static tn_status read_llama3(const reader *r, const json_t *o)
{
    static const struct {
        const char *key;
        double value;
    } factors[] = { { "low_freq_factor", 1 }, { "high_freq_factor", 4 } };
    for (int i = 0; i < 2; i++) {
        double x;
        if (!value_of(o, factors[i].key)) return REFUSE(r, "it has no \"%s\"", factors[i].key);
        TN_RETURN_IF(number(r, o, factors[i].key, 0, 1e6, 0, &x));
        if (x != factors[i].value)
            return REFUSE(r, "\"%s\" is %g, and only %g is supported", factors[i].key, x, factors[i].value);
    }
    return TN_OK;
}

static tn_status read_scaling(reader *r, const json_t *o, int64_t longest)
{
    tn_decoder_config *c = &r->c;
    TN_RETURN_IF(check_rope_keys(r, o));
    TN_RETURN_IF(read_scaling_kind(r, o));
    if (c->scaling == TN_SCALED_NONE) return TN_OK;
    const json_t *outside = value_of(r->root, "original_max_position_embeddings");
    int64_t original = longest;
    TN_RETURN_IF(integer(r, outside ? r->root : o, "original_max_position_embeddings", 1000000000, longest, &original));
    c->stretch_context = (double)original;
    if (!value_of(o, "factor") && c->scaling != TN_SCALED_YARN) return REFUSE(r, "it has no \"%s\"", "factor");
    TN_RETURN_IF(number(r, o, "factor", 1, 1e6, (double)longest / (double)original, &c->stretch));
    if (c->scaling == TN_SCALED_LLAMA3) TN_RETURN_IF(read_llama3(r, o));
    if (c->scaling == TN_SCALED_YARN) TN_RETURN_IF(read_yarn(r, o));
    if (c->stretch == 1 && c->attention_factor == 0) c->scaling = TN_SCALED_NONE;
    return TN_OK;
}

static tn_status read_positions(reader *r, int64_t longest)
{
    const json_t *o = value_of(r->root, "rope_parameters"), *old = value_of(r->root, "rope_scaling");
    if (o && old) return REFUSE(r, "it has both \"%s\" and \"rope_parameters\": which is meant?", "rope_scaling");
    if (!o) o = old;
    if (o && !json_is_object(o))
        return REFUSE(r, "\"%s\" is %s, not an object", old ? "rope_scaling" : "rope_parameters", show(o).text);
    const bool inside = o && value_of(o, "rope_theta");
    TN_RETURN_IF(number(r, inside ? o : r->root, "rope_theta", 1.000001, 1e30, 10000, &r->c.base));
    return o ? read_scaling(r, o, longest) : TN_OK;
}

/* --- all of it --------------------------------------------------------------------------------------------------------- */

static tn_status read_all(reader *r)
{
    int64_t longest = 0;
    TN_RETURN_IF(find_kind(r));
    TN_RETURN_IF(check_fixed(r));
    TN_RETURN_IF(integer(r, r->root, "max_position_embeddings", 1000000000, r->kind->context, &longest));
    TN_RETURN_IF(read_sizes(r));
    return read_positions(r, longest);
}

tn_status tn_hf_config_read(const char *text, size_t bytes, const char *name, tn_decoder_config *config)
{
    json_error_t err;
    reader r = { .name = name };
    json_t *root = tn_json_tree(text, bytes, JSON_REJECT_DUPLICATES, &err);
    if (!root)
        return tn_error(TN_BAD_FILE, "%.300s: not JSON: line %d: %.120s", name, err.line, tn__shown(err.text).text);
    r.root = root;
    const tn_status s = json_is_object(root) ? read_all(&r) : REFUSE(&r, "it is %s, not an object", show(root).text);
    if (s == TN_OK) *config = r.c;
    json_decref(root);
    return s;
}
