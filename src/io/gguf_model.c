/* Maps the tensors of a GGUF file to those of `gpt`. Sizes are bounded before they are multiplied; every tensor of the file
 * must have its place, because one that is left out would change what the model computes. */
#include "io/gguf_model.h"

#include "base/alloc.h"
#include "io/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    tn_gguf *file;
    bool *used; /* (tensors of the file) */
    const struct architecture *arch;
    tn_decoder_config c;
} reader;

static const struct architecture {
    const char *name;
    bool interleaved; /* rotary pairs */
    bool qk_norm;
} architectures[] = { { "llama", true, false }, { "qwen2", false, false }, { "qwen3", false, true } };
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

/* Other than these values are not expressed by `gpt`. */
static const struct fixed {
    const char *key;
    double value;
} fixed[] = {
    { "expert_count", 0 },
    { "logit_scale", 1 },
    { "residual_scale", 1 },
    { "embedding_scale", 1 },
    { "attention.clamp_kqv", 0 },
    { "use_parallel_residual", 0 },
    { "rope.scaling.yarn_ext_factor", 1 },
    { "rope.scaling.yarn_attn_factor", 1 },
    { "rope.scaling.yarn_log_multiplier", 0 },
};

#define REFUSE(m, fmt, ...) tn_error(TN_BAD_FILE, "%.300s: " fmt, tn_gguf_path((m)->file), __VA_ARGS__)

/* --- keys -------------------------------------------------------------------------------------------------------------- */

typedef struct key_name {
    char text[96];
} key_name;

/* "llama.block_count" */
static key_name full_key(const reader *m, const char *key)
{
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", m->arch->name, key);
    return k;
}

static bool has_key(const reader *m, const char *key) { return tn_gguf_key(m->file, full_key(m, key).text); }

static tn_status integer(const reader *m, const char *key, int64_t most, int64_t *out)
{
    const key_name k = full_key(m, key);
    int64_t x = 0;
    TN_RETURN_IF(tn_gguf_integer(m->file, k.text, &x));
    if (x < 1 || x > most) return REFUSE(m, "%s is %lld, outside 1 to %lld", k.text, (long long)x, (long long)most);
    *out = x;
    return TN_OK;
}

/* Where the key is absent, *out stays as it is. */
static tn_status optional_integer(const reader *m, const char *key, int64_t most, int64_t *out)
{
    return has_key(m, key) ? integer(m, key, most, out) : TN_OK;
}

static tn_status find_architecture(reader *m)
{
    tn_gguf_text name = { 0 };
    TN_RETURN_IF(tn_gguf_text_of(m->file, "general.architecture", &name));
    for (size_t i = 0; i < ARCHITECTURES; i++)
        if (tn_gguf_text_is(name, architectures[i].name)) m->arch = &architectures[i];
    if (!m->arch)
        return REFUSE(m, "its architecture is \"%s\", and only llama (also Mistral), qwen2 and qwen3 are supported",
                      tn_gguf_show(name).text);
    return TN_OK;
}

static tn_status check_fixed(const reader *m)
{
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const key_name k = full_key(m, fixed[i].key);
        const tn_gguf_value *v = tn_gguf_key(m->file, k.text);
        if (!v) continue;
        const double x = v->is_list || v->kind == TN_GGUF_TEXT ? (double)NAN : tn_gguf_number_at(v, 0);
        if (x != fixed[i].value) return REFUSE(m, "%s is %g, and only %g is supported", k.text, x, fixed[i].value);
    }
    const tn_gguf_value *split = tn_gguf_key(m->file, "split.count");
    if (split && !split->is_list && split->kind != TN_GGUF_TEXT && tn_gguf_number_at(split, 0) > 1)
        return REFUSE(m, "it is one of %g files that make a model: merge them first (llama-gguf-split --merge)",
                      tn_gguf_number_at(split, 0));
    return TN_OK;
}

/* Heads are key_length wide, where the file says so; values, and what is turned, must be of the same width. */
static tn_status read_heads(reader *m)
{
    static const char *const keys[] = { "attention.value_length", "rope.dimension_count" };
    m->c.head_dim = m->c.dim / m->c.heads;
    TN_RETURN_IF(optional_integer(m, "attention.key_length", 1024, &m->c.head_dim));
    if ((!has_key(m, "attention.key_length") && m->c.dim % m->c.heads) || m->c.head_dim < 1 || m->c.head_dim % 2 ||
        m->c.head_dim > 1024 || m->c.heads % m->c.kv_heads)
        return REFUSE(m, "%lld numbers cannot be %lld heads of %lld on %lld key heads", (long long)m->c.dim,
                      (long long)m->c.heads, (long long)m->c.head_dim, (long long)m->c.kv_heads);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t x = m->c.head_dim;
        TN_RETURN_IF(optional_integer(m, keys[i], INT64_MAX, &x));
        if (x != m->c.head_dim)
            return REFUSE(
                m,
                "%s is %lld, and heads are %lld wide: other widths of values or of rotary positions are not supported",
                full_key(m, keys[i]).text, (long long)x, (long long)m->c.head_dim);
    }
    return TN_OK;
}

/* Bounds are those of gpt's settings. */
static tn_status read_sizes(reader *m)
{
    TN_RETURN_IF(integer(m, "embedding_length", 65536, &m->c.dim));
    TN_RETURN_IF(integer(m, "block_count", 1024, &m->c.layers));
    TN_RETURN_IF(integer(m, "attention.head_count", 1024, &m->c.heads));
    TN_RETURN_IF(integer(m, "feed_forward_length", 1000000, &m->c.ffn));
    TN_RETURN_IF(integer(m, "context_length", 1000000000, &m->c.context));
    m->c.kv_heads = m->c.heads;
    TN_RETURN_IF(optional_integer(m, "attention.head_count_kv", m->c.heads, &m->c.kv_heads));
    int64_t window = m->c.context;
    TN_RETURN_IF(optional_integer(m, "attention.sliding_window", INT64_MAX, &window));
    if (window < m->c.context) m->c.context = window;
    TN_RETURN_IF(read_heads(m));
    m->c.interleaved = m->arch->interleaved;
    m->c.qk_norm = m->arch->qk_norm;
    const key_name eps = full_key(m, "attention.layer_norm_rms_epsilon"), base = full_key(m, "rope.freq_base");
    TN_RETURN_IF(tn_gguf_float(m->file, eps.text, &m->c.eps));
    if (!(m->c.eps > 0 && m->c.eps < 1)) return REFUSE(m, "%s is %g, outside 0 to 1", eps.text, m->c.eps);
    m->c.base = 10000;
    if (tn_gguf_key(m->file, base.text)) TN_RETURN_IF(tn_gguf_float(m->file, base.text, &m->c.base));
    if (!(m->c.base > 1 && m->c.base <= 1e30)) return REFUSE(m, "%s is %g, outside 1 to 1e30", base.text, m->c.base);
    return TN_OK;
}

/* --- tensors ----------------------------------------------------------------------------------------------------------- */

static tn_status find(void *ctx, const char *name, tn_dims dims, tn_file_piece *out)
{
    reader *m = ctx;
    char has[128], wants[128];
    const tn_gguf_tensor *t = tn_gguf_tensor_of(m->file, name);
    if (!t) return REFUSE(m, "it has no tensor \"%s\" among its %zu", name, tn_gguf_count(m->file));
    if (!tn_dims_equal(t->dims, dims))
        return REFUSE(m, "tensor \"%s\" is %s, and its keys say %s", name, tn_dims_text(t->dims, has, sizeof has),
                      tn_dims_text(dims, wants, sizeof wants));
    m->used[t - tn_gguf_at(m->file, 0)] = true;
    *out = (tn_file_piece){ t->type, t->data, tn_dims_count(dims) };
    return TN_OK;
}

/* What the keys do not say. */
static tn_status look_at_tensors(reader *m)
{
    const tn_gguf_tensor *embed = tn_gguf_tensor_of(m->file, "token_embd.weight");
    m->c.tied = !tn_gguf_tensor_of(m->file, "output.weight");
    m->c.bias = tn_gguf_tensor_of(m->file, "blk.0.attn_q.bias");
    m->c.vocab = embed ? embed->dims.dim[0] : 2;
    if (m->c.vocab < 2 || m->c.vocab > 10000000)
        return REFUSE(m, "a vocabulary of %lld is outside 2 to 10000000", (long long)m->c.vocab);
    m->used = tn_alloc(tn_gguf_count(m->file) + 1);
    return m->used ? TN_OK : TN_MEMORY;
}

static tn_status check_used(const reader *m)
{
    for (size_t i = 0; i < tn_gguf_count(m->file); i++)
        if (!m->used[i])
            return REFUSE(m, "tensor \"%s\" is none that %s has here: such a model is not supported",
                          tn_gguf_show(tn_gguf_at(m->file, i)->name).text, m->arch->name);
    return TN_OK;
}

/* --- rotary positions -------------------------------------------------------------------------------------------------- */

/* By what Llama 3 divides a frequency of this wavelength. */
static double divisor(double wave, double stretch, double context)
{
    if (wave < context / 4) return 1;
    if (wave > context) return stretch;
    const double s = (context / wave - 1) / 3;
    return 1 / ((1 - s) / stretch + s);
}

/* The stretch is the largest divisor; one between gives away the context; then all must agree (the tensor was computed in
 * f32). */
static tn_status read_stretch(reader *m)
{
    enum { MOST = 512 };
    float x[MOST]; /* (half) */
    tn_file_piece t = { 0 };
    const int64_t half = m->c.head_dim / 2;
    const double pi = 3.14159265358979323846;
    double stretch = 1, context = 8192;
    if (!tn_gguf_tensor_of(m->file, "rope_freqs.weight")) return TN_OK;
    TN_RETURN_IF(find(m, "rope_freqs.weight", tn_shape(half), &t));
    tn_gguf_decode(t.type, t.data, 0, half, x);
    for (int64_t j = 0; j < half; j++)
        if ((double)x[j] > stretch) stretch = (double)x[j];
    for (int64_t j = 0; j < half; j++) {
        const double wave = 2 * pi * pow(m->c.base, 2 * (double)j / (double)m->c.head_dim), f = (double)x[j];
        if (!(f > 1.001 && f < stretch / 1.001)) continue;
        context = round(wave * (1 + 3 * (1 / f - 1 / stretch) / (1 - 1 / stretch)));
        break;
    }
    for (int64_t j = 0; j < half; j++) {
        const double wave = 2 * pi * pow(m->c.base, 2 * (double)j / (double)m->c.head_dim);
        const double want = divisor(wave, stretch, context);
        if (!(fabs((double)x[j] - want) <= 1e-3 * want) || !(stretch <= 1e6 && context >= 1 && context <= 1e9))
            return REFUSE(m,
                          "rope_freqs.weight: divisor %lld is %g, and that of Llama 3 would be %g: only its scaling is "
                          "supported",
                          (long long)j, (double)x[j], want);
    }
    if (stretch > 1) {
        if (m->c.scaling != TN_SCALED_NONE)
            return REFUSE(m, "it scales positions twice, by %s and by rope_freqs.weight",
                          full_key(m, "rope.scaling.type").text);
        m->c.scaling = TN_SCALED_LLAMA3;
        m->c.stretch = stretch;
        m->c.stretch_context = context;
    }
    return TN_OK;
}

/* A key within bounds; where it is absent, *out stays as it is. */
static tn_status optional_float(const reader *m, const char *key, double least, double most, double *out)
{
    const key_name k = full_key(m, key);
    if (!tn_gguf_key(m->file, k.text)) return TN_OK;
    TN_RETURN_IF(tn_gguf_float(m->file, k.text, out));
    if (!(*out >= least && *out <= most)) return REFUSE(m, "%s is %g, outside %g to %g", k.text, *out, least, most);
    return TN_OK;
}

/* In these files a factor without a type is linear, a factor of 0 is none, and yarn's attention factor is one beside
 * 0.1 ln(factor) + 1, not in its place. */
static tn_status read_scaling(reader *m)
{
    const key_name k = full_key(m, "rope.scaling.type");
    tn_gguf_text type = { 0 };
    double factor = 0, attention = 1;
    int64_t context = m->c.context;
    if (tn_gguf_key(m->file, k.text)) TN_RETURN_IF(tn_gguf_text_of(m->file, k.text, &type));
    const bool linear = !type.bytes || tn_gguf_text_is(type, "linear"), yarn = tn_gguf_text_is(type, "yarn");
    if (tn_gguf_text_is(type, "none")) return TN_OK;
    if (!linear && !yarn)
        return REFUSE(m,
                      "%s is \"%s\", and only none, linear, yarn and that of Llama 3 (rope_freqs.weight) are supported",
                      k.text, tn_gguf_show(type).text);
    TN_RETURN_IF(optional_float(m, "rope.scale_linear", 0, 1e6, &factor));
    TN_RETURN_IF(optional_float(m, "rope.scaling.factor", 0, 1e6, &factor));
    if (factor != 0 && factor < 1)
        return REFUSE(m, "its positions are scaled by a factor of %g, and only 1 and more is supported", factor);
    TN_RETURN_IF(optional_integer(m, "rope.scaling.original_context_length", 1000000000, &context));
    TN_RETURN_IF(optional_float(m, "rope.scaling.attn_factor", 1e-3, 1e3, &attention));
    m->c.beta_fast = 32, m->c.beta_slow = 1;
    TN_RETURN_IF(optional_float(m, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &m->c.beta_fast));
    TN_RETURN_IF(optional_float(m, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &m->c.beta_slow));
    if (factor <= 1 && (!yarn || attention == 1)) return TN_OK;
    m->c.scaling = yarn ? TN_SCALED_YARN : TN_SCALED_LINEAR;
    m->c.stretch = factor > 1 ? factor : 1;
    m->c.stretch_context = (double)context;
    m->c.attention_factor = attention == 1 ? 0 : attention * (0.1 * log(m->c.stretch) + 1);
    return TN_OK;
}

/* --- all of it --------------------------------------------------------------------------------------------------------- */

static tn_status read_all(reader *m, tn_decoder_file *out)
{
    TN_RETURN_IF(find_architecture(m));
    TN_RETURN_IF(check_fixed(m));
    TN_RETURN_IF(read_sizes(m));
    TN_RETURN_IF(look_at_tensors(m));
    TN_RETURN_IF(read_scaling(m));
    TN_RETURN_IF(read_stretch(m));
    out->config = m->c;
    TN_RETURN_IF(tn_decoder_file_list(out, TN_NAMES_GGUF, find, m));
    return check_used(m);
}

static void close_file(void *file) { tn_gguf_close(file); }

static tn_status open_file(tn_gguf *file, tn_decoder_file **out)
{
    reader m = { .file = file };
    tn_decoder_file *d = tn_alloc(sizeof *d);
    if (!d) {
        tn_gguf_close(file);
        return TN_MEMORY;
    }
    d->close = close_file;
    d->ctx = file;
    const tn_status s = read_all(&m, d);
    tn_free(m.used);
    if (s == TN_OK) *out = d;
    else tn_decoder_file_close(d);
    return s;
}

tn_status tn_gguf_model_open(const char *path, tn_decoder_file **out)
{
    tn_gguf *f = NULL;
    TN_RETURN_IF(tn_gguf_open(path, &f));
    return open_file(f, out);
}

tn_status tn_gguf_model_open_memory(const void *data, size_t bytes, const char *name, tn_decoder_file **out)
{
    tn_gguf *f = NULL;
    TN_RETURN_IF(tn_gguf_open_memory(data, bytes, name, &f));
    return open_file(f, out);
}
