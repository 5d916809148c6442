/* Maps the tensors of a GGUF file to those of `gpt`. Sizes are bounded before they are multiplied; every tensor of the file
 * must have its place, because one that is left out would change what the model computes. */
#include "io/gguf_model.h"

#include "base/alloc.h"
#include "io/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 3, SETTINGS_BYTES = 1024, META = 3 };

/* What one tensor of ours is made of: tensors of the file, one after another. */
typedef struct parts {
    const tn_gguf_tensor *at[PARTS];
} parts;

struct tn_gguf_model {
    tn_gguf *file;
    tn_arena arena;
    tn_file_tensor *tensors; /* (n) */
    parts *from;             /* (n) */
    bool *used;              /* (tensors of the file) */
    size_t n;
    const struct architecture *arch;
    int64_t dim, ffn, layers, heads, kv_heads, vocab, context, head_dim;
    bool tied, bias;
    double eps, base;
    const char *scaling; /* as `gpt` calls it; NULL: none */
    double stretch, stretch_context, beta_fast, beta_slow, attention_factor;
    char settings[SETTINGS_BYTES];
    tn_text_pair meta[META];
};

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
static key_name full_key(const tn_gguf_model *m, const char *key)
{
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", m->arch->name, key);
    return k;
}

static bool has_key(const tn_gguf_model *m, const char *key) { return tn_gguf_key(m->file, full_key(m, key).text); }

static tn_status integer(const tn_gguf_model *m, const char *key, int64_t most, int64_t *out)
{
    const key_name k = full_key(m, key);
    int64_t x = 0;
    TN_RETURN_IF(tn_gguf_integer(m->file, k.text, &x));
    if (x < 1 || x > most) return REFUSE(m, "%s is %lld, outside 1 to %lld", k.text, (long long)x, (long long)most);
    *out = x;
    return TN_OK;
}

/* Where the key is absent, *out stays as it is. */
static tn_status optional_integer(const tn_gguf_model *m, const char *key, int64_t most, int64_t *out)
{
    return has_key(m, key) ? integer(m, key, most, out) : TN_OK;
}

static tn_status find_architecture(tn_gguf_model *m)
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

static tn_status check_fixed(const tn_gguf_model *m)
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
static tn_status read_heads(tn_gguf_model *m)
{
    static const char *const keys[] = { "attention.value_length", "rope.dimension_count" };
    m->head_dim = m->dim / m->heads;
    TN_RETURN_IF(optional_integer(m, "attention.key_length", 1024, &m->head_dim));
    if ((!has_key(m, "attention.key_length") && m->dim % m->heads) || m->head_dim < 1 || m->head_dim % 2 ||
        m->head_dim > 1024 || m->heads % m->kv_heads)
        return REFUSE(m, "%lld numbers cannot be %lld heads of %lld on %lld key heads", (long long)m->dim,
                      (long long)m->heads, (long long)m->head_dim, (long long)m->kv_heads);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t x = m->head_dim;
        TN_RETURN_IF(optional_integer(m, keys[i], INT64_MAX, &x));
        if (x != m->head_dim)
            return REFUSE(
                m,
                "%s is %lld, and heads are %lld wide: other widths of values or of rotary positions are not supported",
                full_key(m, keys[i]).text, (long long)x, (long long)m->head_dim);
    }
    return TN_OK;
}

/* Bounds are those of gpt's settings. */
static tn_status read_sizes(tn_gguf_model *m)
{
    TN_RETURN_IF(integer(m, "embedding_length", 65536, &m->dim));
    TN_RETURN_IF(integer(m, "block_count", 1024, &m->layers));
    TN_RETURN_IF(integer(m, "attention.head_count", 1024, &m->heads));
    TN_RETURN_IF(integer(m, "feed_forward_length", 1000000, &m->ffn));
    TN_RETURN_IF(integer(m, "context_length", 1000000000, &m->context));
    m->kv_heads = m->heads;
    TN_RETURN_IF(optional_integer(m, "attention.head_count_kv", m->heads, &m->kv_heads));
    int64_t window = m->context;
    TN_RETURN_IF(optional_integer(m, "attention.sliding_window", INT64_MAX, &window));
    if (window < m->context) m->context = window;
    TN_RETURN_IF(read_heads(m));
    const key_name eps = full_key(m, "attention.layer_norm_rms_epsilon"), base = full_key(m, "rope.freq_base");
    TN_RETURN_IF(tn_gguf_float(m->file, eps.text, &m->eps));
    if (!(m->eps > 0 && m->eps < 1)) return REFUSE(m, "%s is %g, outside 0 to 1", eps.text, m->eps);
    m->base = 10000;
    if (tn_gguf_key(m->file, base.text)) TN_RETURN_IF(tn_gguf_float(m->file, base.text, &m->base));
    if (!(m->base > 1 && m->base <= 1e30)) return REFUSE(m, "%s is %g, outside 1 to 1e30", base.text, m->base);
    return TN_OK;
}

/* --- tensors ----------------------------------------------------------------------------------------------------------- */

static tn_status find(tn_gguf_model *m, const char *name, tn_dims dims, const tn_gguf_tensor **out)
{
    char has[128], wants[128];
    const tn_gguf_tensor *t = tn_gguf_tensor_of(m->file, name);
    if (!t) return REFUSE(m, "it has no tensor \"%s\" among its %zu", name, tn_gguf_count(m->file));
    if (!tn_dims_equal(t->dims, dims))
        return REFUSE(m, "tensor \"%s\" is %s, and its keys say %s", name, tn_dims_text(t->dims, has, sizeof has),
                      tn_dims_text(dims, wants, sizeof wants));
    m->used[t - tn_gguf_at(m->file, 0)] = true;
    *out = t;
    return TN_OK;
}

/* One tensor of ours, (sum of rows[i], columns), or (sum of rows[i]) where columns is 0. names end with NULL. */
static tn_status give(tn_gguf_model *m, int64_t layer, const char *ours, const char *const names[PARTS],
                      const int64_t rows[PARTS], int64_t columns)
{
    char name[64];
    int64_t sum = 0;
    tn_file_tensor *t = &m->tensors[m->n];
    parts *p = &m->from[m->n];
    t->dtype = TN_DTYPES;
    for (int i = 0; i < PARTS && names[i]; i++, sum += rows[i - 1]) {
        if (layer < 0) snprintf(name, sizeof name, "%s", names[i]);
        else snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, names[i]);
        TN_RETURN_IF(find(m, name, columns ? tn_shape(rows[i], columns) : tn_shape(rows[i]), &p->at[i]));
        const tn_dtype type = p->at[i]->type->dtype;
        t->dtype = type == TN_DTYPES || (i && type != t->dtype) ? TN_F32 : type;
    }
    t->name = layer < 0 ? tn_arena_strdup(&m->arena, ours)
                        : tn_arena_printf(&m->arena, "layer%lld.%s", (long long)layer, ours);
    if (!t->name) return tn_error(TN_MEMORY, "out of memory");
    t->dims = columns ? tn_shape(sum, columns) : tn_shape(sum);
    t->bytes = (size_t)tn_dims_count(t->dims) * tn_dtype_bytes(t->dtype);
    m->n++;
    return TN_OK;
}

static tn_status give_layer(tn_gguf_model *m, int64_t l)
{
    const int64_t d = m->dim, f = m->ffn, D = m->head_dim, q = m->heads * D, kv = m->kv_heads * D;
    const struct {
        const char *name, *from[PARTS];
        int64_t rows[PARTS], columns;
        bool absent;
    } rows[] = {
        { "norm1.w", { "attn_norm.weight" }, { d }, 0, false },
        { "attn.b_qkv", { "attn_q.bias", "attn_k.bias", "attn_v.bias" }, { q, kv, kv }, 0, !m->bias },
        { "attn.w_qkv", { "attn_q.weight", "attn_k.weight", "attn_v.weight" }, { q, kv, kv }, d, false },
        { "attn.norm_q.w", { "attn_q_norm.weight" }, { D }, 0, !m->arch->qk_norm },
        { "attn.norm_k.w", { "attn_k_norm.weight" }, { D }, 0, !m->arch->qk_norm },
        { "attn.w_out", { "attn_output.weight" }, { d }, q, false },
        { "norm2.w", { "ffn_norm.weight" }, { d }, 0, false },
        { "ffn.w1", { "ffn_gate.weight", "ffn_up.weight" }, { f, f }, d, false },
        { "ffn.w2", { "ffn_down.weight" }, { d }, f, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].absent) TN_RETURN_IF(give(m, l, rows[i].name, rows[i].from, rows[i].rows, rows[i].columns));
    return TN_OK;
}

static tn_status give_one(tn_gguf_model *m, const char *ours, const char *name, int64_t rows, int64_t columns)
{
    return give(m, -1, ours, (const char *const[PARTS]){ name }, (const int64_t[PARTS]){ rows }, columns);
}

static tn_status give_all(tn_gguf_model *m)
{
    const tn_gguf_tensor *embed = tn_gguf_tensor_of(m->file, "token_embd.weight");
    m->tied = !tn_gguf_tensor_of(m->file, "output.weight");
    m->bias = tn_gguf_tensor_of(m->file, "blk.0.attn_q.bias");
    m->vocab = embed ? embed->dims.dim[0] : 2;
    if (m->vocab < 2 || m->vocab > 10000000)
        return REFUSE(m, "a vocabulary of %lld is outside 2 to 10000000", (long long)m->vocab);
    const size_t most = (size_t)m->layers * 9 + 3;
    m->tensors = tn_alloc(most * sizeof *m->tensors);
    m->from = tn_alloc(most * sizeof *m->from);
    m->used = tn_alloc(tn_gguf_count(m->file) + 1);
    if (!m->tensors || !m->from || !m->used) return TN_MEMORY;
    TN_RETURN_IF(give_one(m, "embed", "token_embd.weight", m->vocab, m->dim));
    for (int64_t l = 0; l < m->layers; l++) TN_RETURN_IF(give_layer(m, l));
    if (!m->tied) TN_RETURN_IF(give_one(m, "head", "output.weight", m->vocab, m->dim));
    return give_one(m, "norm_f.w", "output_norm.weight", m->dim, 0);
}

static tn_status check_used(const tn_gguf_model *m)
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
static tn_status read_stretch(tn_gguf_model *m)
{
    enum { MOST = 512 };
    float x[MOST]; /* (half) */
    const tn_gguf_tensor *t = NULL;
    const int64_t half = m->head_dim / 2;
    const double pi = 3.14159265358979323846;
    double stretch = 1, context = 8192;
    if (!tn_gguf_tensor_of(m->file, "rope_freqs.weight")) return TN_OK;
    TN_RETURN_IF(find(m, "rope_freqs.weight", tn_shape(half), &t));
    tn_gguf_decode(t->type, t->data, 0, half, x);
    for (int64_t j = 0; j < half; j++)
        if ((double)x[j] > stretch) stretch = (double)x[j];
    for (int64_t j = 0; j < half; j++) {
        const double wave = 2 * pi * pow(m->base, 2 * (double)j / (double)m->head_dim), f = (double)x[j];
        if (!(f > 1.001 && f < stretch / 1.001)) continue;
        context = round(wave * (1 + 3 * (1 / f - 1 / stretch) / (1 - 1 / stretch)));
        break;
    }
    for (int64_t j = 0; j < half; j++) {
        const double wave = 2 * pi * pow(m->base, 2 * (double)j / (double)m->head_dim);
        const double want = divisor(wave, stretch, context);
        if (!(fabs((double)x[j] - want) <= 1e-3 * want) || !(stretch <= 1e6 && context >= 1 && context <= 1e9))
            return REFUSE(m,
                          "rope_freqs.weight: divisor %lld is %g, and that of Llama 3 would be %g: only its scaling is "
                          "supported",
                          (long long)j, (double)x[j], want);
    }
    if (stretch > 1) {
        if (m->scaling)
            return REFUSE(m, "it scales positions twice, by %s and by rope_freqs.weight",
                          full_key(m, "rope.scaling.type").text);
        m->scaling = "llama3";
        m->stretch = stretch;
        m->stretch_context = context;
    }
    return TN_OK;
}

/* A key within bounds; where it is absent, *out stays as it is. */
static tn_status optional_float(const tn_gguf_model *m, const char *key, double least, double most, double *out)
{
    const key_name k = full_key(m, key);
    if (!tn_gguf_key(m->file, k.text)) return TN_OK;
    TN_RETURN_IF(tn_gguf_float(m->file, k.text, out));
    if (!(*out >= least && *out <= most)) return REFUSE(m, "%s is %g, outside %g to %g", k.text, *out, least, most);
    return TN_OK;
}

/* In these files a factor without a type is linear, a factor of 0 is none, and yarn's attention factor is one beside
 * 0.1 ln(factor) + 1, not in its place. */
static tn_status read_scaling(tn_gguf_model *m)
{
    const key_name k = full_key(m, "rope.scaling.type");
    tn_gguf_text type = { 0 };
    double factor = 0, attention = 1;
    int64_t context = m->context;
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
    m->beta_fast = 32, m->beta_slow = 1;
    TN_RETURN_IF(optional_float(m, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, &m->beta_fast));
    TN_RETURN_IF(optional_float(m, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, &m->beta_slow));
    if (factor <= 1 && (!yarn || attention == 1)) return TN_OK;
    m->scaling = yarn ? "yarn" : "linear";
    m->stretch = factor > 1 ? factor : 1;
    m->stretch_context = (double)context;
    m->attention_factor = attention == 1 ? 0 : attention * (0.1 * log(m->stretch) + 1);
    return TN_OK;
}

/* --- settings ---------------------------------------------------------------------------------------------------------- */

typedef struct number {
    char text[32];
} number;

/* The shortest text that is the same f32. */
static number shortest(double x)
{
    number r;
    if (x == floor(x) && fabs(x) < 1e9) {
        snprintf(r.text, sizeof r.text, "%.0f", x);
        return r;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(r.text, sizeof r.text, "%.*g", digits, x);
        if (strtof(r.text, NULL) == (float)x) break;
    }
    return r;
}

static void write_settings(tn_gguf_model *m)
{
    int n =
        snprintf(m->settings, sizeof m->settings,
                 "shape=llama dim=%lld layers=%lld heads=%lld kv_heads=%lld ffn=%lld vocab=%lld tied=%s qkv_bias=%s "
                 "norm_eps=%s rope_base=%s rope_pairs=%s train.context=%lld",
                 (long long)m->dim, (long long)m->layers, (long long)m->heads, (long long)m->kv_heads,
                 (long long)m->ffn, (long long)m->vocab, m->tied ? "true" : "false", m->bias ? "true" : "false",
                 shortest(m->eps).text, shortest(m->base).text, m->arch->interleaved ? "interleaved" : "half",
                 (long long)m->context);
    if (m->head_dim * m->heads != m->dim)
        n += snprintf(m->settings + n, sizeof m->settings - (size_t)n, " head_dim=%lld", (long long)m->head_dim);
    if (m->arch->qk_norm) n += snprintf(m->settings + n, sizeof m->settings - (size_t)n, " qk_norm=true");
    if (!m->scaling) return;
    if (strcmp(m->scaling, "llama3") != 0)
        n += snprintf(m->settings + n, sizeof m->settings - (size_t)n, " rope_scaling=%s", m->scaling);
    n += snprintf(m->settings + n, sizeof m->settings - (size_t)n, " rope_stretch=%s", shortest(m->stretch).text);
    if (strcmp(m->scaling, "linear") != 0)
        n +=
            snprintf(m->settings + n, sizeof m->settings - (size_t)n, " rope_stretch_context=%.0f", m->stretch_context);
    if (strcmp(m->scaling, "yarn") == 0)
        snprintf(m->settings + n, sizeof m->settings - (size_t)n,
                 " rope_beta_fast=%s rope_beta_slow=%s rope_attention_factor=%s", shortest(m->beta_fast).text,
                 shortest(m->beta_slow).text, shortest(m->attention_factor).text);
}

/* --- all of it --------------------------------------------------------------------------------------------------------- */

static tn_status read_all(tn_gguf_model *m)
{
    TN_RETURN_IF(find_architecture(m));
    TN_RETURN_IF(check_fixed(m));
    TN_RETURN_IF(read_sizes(m));
    TN_RETURN_IF(give_all(m));
    TN_RETURN_IF(read_scaling(m));
    TN_RETURN_IF(read_stretch(m));
    TN_RETURN_IF(check_used(m));
    write_settings(m);
    m->meta[0] = (tn_text_pair){ "format", "tenon-model 1" };
    m->meta[1] = (tn_text_pair){ "model", "gpt" };
    m->meta[2] = (tn_text_pair){ "settings", m->settings };
    return TN_OK;
}

static tn_status open_file(tn_gguf *file, tn_gguf_model **out)
{
    tn_gguf_model *m = tn_alloc(sizeof *m);
    if (!m) {
        tn_gguf_close(file);
        return TN_MEMORY;
    }
    m->file = file;
    const tn_status s = read_all(m);
    if (s == TN_OK) *out = m;
    else tn_gguf_model_close(m);
    return s;
}

tn_status tn_gguf_model_open(const char *path, tn_gguf_model **out)
{
    tn_gguf *f = NULL;
    TN_RETURN_IF(tn_gguf_open(path, &f));
    return open_file(f, out);
}

tn_status tn_gguf_model_open_memory(const void *data, size_t bytes, const char *name, tn_gguf_model **out)
{
    tn_gguf *f = NULL;
    TN_RETURN_IF(tn_gguf_open_memory(data, bytes, name, &f));
    return open_file(f, out);
}

void tn_gguf_model_close(tn_gguf_model *m)
{
    if (!m) return;
    tn_gguf_close(m->file);
    tn_free(m->tensors);
    tn_free(m->from);
    tn_free(m->used);
    tn_arena_free(&m->arena);
    tn_free(m);
}

const tn_file_tensor *tn_gguf_model_tensors(const tn_gguf_model *m, size_t *n)
{
    *n = m->n;
    return m->tensors;
}

const tn_text_pair *tn_gguf_model_meta(const tn_gguf_model *m, size_t *n)
{
    *n = META;
    return m->meta;
}

void tn_gguf_model_read(const tn_gguf_model *m, const tn_file_tensor *t, int64_t first, int64_t n, float *dst)
{
    const parts *p = &m->from[t - m->tensors];
    for (int i = 0; i < PARTS && p->at[i] && n > 0; i++) {
        const int64_t count = tn_dims_count(p->at[i]->dims);
        if (first >= count) {
            first -= count;
            continue;
        }
        const int64_t k = count - first < n ? count - first : n;
        tn_gguf_decode(p->at[i]->type, p->at[i]->data, first, k, dst);
        dst += k;
        n -= k;
        first = 0;
    }
}
