/* Models in GGUF files: where every number goes, what the settings say, what is refused by name. */
#include "base/fs.h"
#include "gguf_file.h"
#include "io/gguf_model.h"
#include "tempdir.h"
#include "train/run/checkpoint_convert.h"

#include <math.h>
#include <stdlib.h>

enum { D = 8, F = 3, L = 2, H = 2, KV = 1, V = 5, KVD = KV * (D / H), MOST = 64, ALSO = 6 };

/* A tensor of the file: its first number is 1000 times its place in the list, the others count up from there. */
typedef struct listed {
    char name[64];
    uint64_t dims[2]; /* innermost first; 0: one dimension */
} listed;

/* A key more, after the architecture's name, and its value: an f32 where `real`, or a text. */
typedef struct extra {
    const char *key;
    double value;
    bool real;
    const char *text;
} extra;

typedef struct plan {
    const char *arch;
    bool head, bias, norms;
    uint64_t head_dim;  /* 0: D / H */
    const float *freqs; /* (D/H/2), or NULL */
    const char *skip;   /* a tensor that is not there, */
    const char *more;   /* one that is, */
    const char *wrong;  /* one of another shape */
    const char *key;    /* one more, as in `extra`, or instead of one that is there */
    double value;
    bool real;
    const char *text;
    extra also[ALSO];
} plan;

static size_t list_tensors(const plan *p, listed *t)
{
    const uint64_t W = p->head_dim ? p->head_dim : D / H, Q = H * W, K = KV * W;
    const struct {
        const char *name;
        uint64_t dims[2];
        bool absent;
    } layer[] = { { "attn_norm.weight", { D }, false },       { "attn_q.weight", { D, Q }, false },
                  { "attn_k.weight", { D, K }, false },       { "attn_v.weight", { D, K }, false },
                  { "attn_output.weight", { Q, D }, false },  { "ffn_norm.weight", { D }, false },
                  { "ffn_gate.weight", { D, F }, false },     { "ffn_up.weight", { D, F }, false },
                  { "ffn_down.weight", { F, D }, false },     { "attn_q.bias", { Q }, !p->bias },
                  { "attn_k.bias", { K }, !p->bias },         { "attn_v.bias", { K }, !p->bias },
                  { "attn_q_norm.weight", { W }, !p->norms }, { "attn_k_norm.weight", { W }, !p->norms } };
    size_t n = 0;
    t[n++] = (listed){ "token_embd.weight", { D, V } };
    for (int l = 0; l < L; l++)
        for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
            if (layer[i].absent) continue;
            snprintf(t[n].name, sizeof t[n].name, "blk.%d.%s", l, layer[i].name);
            memcpy(t[n++].dims, layer[i].dims, sizeof layer[i].dims);
        }
    t[n++] = (listed){ "output_norm.weight", { D } };
    if (p->head) t[n++] = (listed){ "output.weight", { D, V } };
    if (p->freqs) t[n++] = (listed){ "rope_freqs.weight", { D / H / 2 } };
    if (p->more) {
        snprintf(t[n].name, sizeof t[n].name, "%s", p->more);
        memcpy(t[n++].dims, (uint64_t[]){ 1, 0 }, sizeof t->dims);
    }
    return n;
}

static const char *key_of(const plan *p, const char *key)
{
    static char text[96];
    snprintf(text, sizeof text, "%s.%s", p->arch, key);
    return text;
}

static void make_keys(tn_made *m, const plan *p)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = { { "embedding_length", D },         { "block_count", L },         { "attention.head_count", H },
                 { "attention.head_count_kv", KV }, { "feed_forward_length", F }, { "context_length", 100 } };
    made_key_text(m, "general.architecture", p->arch);
    for (size_t i = 0; i < 6; i++) {
        const bool other = p->key && strcmp(p->key, keys[i].key) == 0;
        made_key_u32(m, key_of(p, keys[i].key), other ? (uint32_t)p->value : keys[i].value);
    }
    const bool eps = p->key && strcmp(p->key, "attention.layer_norm_rms_epsilon") == 0;
    made_key_f32(m, key_of(p, "attention.layer_norm_rms_epsilon"), eps ? (float)p->value : 1e-5f);
    const bool base = p->key && strcmp(p->key, "rope.freq_base") == 0;
    made_key_f32(m, key_of(p, "rope.freq_base"), base ? (float)p->value : 500000.f);
}

static bool is_standard(const char *key)
{
    return strstr("embedding_length block_count attention.head_count attention.head_count_kv feed_forward_length "
                  "context_length attention.layer_norm_rms_epsilon rope.freq_base",
                  key);
}

static void make_extra(tn_made *m, const plan *p, extra e)
{
    if (e.text) made_key_text(m, key_of(p, e.key), e.text);
    else if (e.real) made_key_f32(m, key_of(p, e.key), (float)e.value);
    else made_key_u32(m, key_of(p, e.key), (uint32_t)e.value);
}

static void make_model(tn_made *m, const plan *p)
{
    static listed t[MOST];
    const size_t n = list_tensors(p, t);
    const bool more = p->key && !is_standard(p->key);
    uint64_t at = 0;
    size_t also = 0;
    while (also < ALSO && p->also[also].key) also++;
    made_head(m, n - (p->skip ? 1 : 0), 9 + more + also);
    make_keys(m, p);
    if (more) make_extra(m, p, (extra){ p->key, p->value, p->real, p->text });
    for (size_t i = 0; i < also; i++) make_extra(m, p, p->also[i]);
    for (size_t i = 0; i < n; i++) {
        if (p->skip && strcmp(p->skip, t[i].name) == 0) continue;
        if (p->wrong && strcmp(p->wrong, t[i].name) == 0) t[i].dims[0]--;
        made_tensor_at(m, t[i].name, t[i].dims[1] ? 2 : 1, t[i].dims, 0, at);
        at += (4 * t[i].dims[0] * (t[i].dims[1] ? t[i].dims[1] : 1) + 31) / 32 * 32;
    }
    for (size_t i = 0; i < n; i++) {
        if (p->skip && strcmp(p->skip, t[i].name) == 0) continue;
        made_pad(m, 32);
        for (uint64_t k = 0; k < t[i].dims[0] * (t[i].dims[1] ? t[i].dims[1] : 1); k++) {
            const float x =
                p->freqs && strcmp(t[i].name, "rope_freqs.weight") == 0 ? p->freqs[k] : (float)(1000 * i + k);
            made_bytes(m, &x, 4);
        }
    }
}

static const float *numbers(const tn_decoder_file *m, const char *name, tn_dims dims)
{
    static float x[1024];
    const tn_file_tensor *t = m->tensor;
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(t[i].name, name) == 0) {
            assert_true(tn_dims_equal(t[i].dims, dims) && t[i].dtype == TN_F32);
            tn_decoder_file_read(m, &t[i], 0, tn_dims_count(dims), x);
            return x;
        }
    fail_msg("no tensor %s", name);
    return NULL;
}

static const char *settings_of(const tn_decoder_file *m)
{
    const tn_text_pair *meta = m->meta;
    assert_string_equal(meta[0].value, "tenon-model 1");
    assert_string_equal(meta[1].value, "gpt");
    return meta[2].value;
}

static void every_number_in_its_place(void **state)
{
    (void)state;
    tn_made *m = calloc(1, sizeof *m);
    tn_decoder_file *g;
    float part[12];
    make_model(m, &(plan){ .arch = "qwen2", .head = true, .bias = true });
    assert_ok(tn_gguf_model_open_memory(m->data, m->n, "good", &g));
    assert_string_equal(settings_of(g),
                        "shape=llama dim=8 layers=2 heads=2 kv_heads=1 ffn=3 vocab=5 tied=false qkv_bias=true "
                        "norm_eps=1e-05 rope_base=500000 rope_pairs=half train.context=100");
    const tn_file_tensor *list = g->tensor;
    assert_int_equal(g->n, 1 + 7 * L + 2);
    assert_float_equal(numbers(g, "embed", tn_shape(V, D))[D], D, 0);
    /* The second layer's begin at place 13 of the list. */
    assert_float_equal(numbers(g, "layer1.norm1.w", tn_shape(D))[1], 13001, 0);
    const float *qkv = numbers(g, "layer1.attn.w_qkv", tn_shape(D + 2 * KVD, D));
    assert_float_equal(qkv[9], 14009, 0);
    assert_float_equal(qkv[D * D], 15000, 0);
    assert_float_equal(qkv[(D + KVD) * D + 1], 16001, 0);
    assert_float_equal(numbers(g, "layer1.attn.w_out", tn_shape(D, D))[3], 17003, 0);
    assert_float_equal(numbers(g, "layer1.norm2.w", tn_shape(D))[0], 18000, 0);
    const float *up = numbers(g, "layer1.ffn.w1", tn_shape(2 * F, D));
    assert_float_equal(up[0], 19000, 0);
    assert_float_equal(up[F * D], 20000, 0);
    assert_float_equal(numbers(g, "layer1.ffn.w2", tn_shape(D, F))[F], 21000 + F, 0);
    const float *bias = numbers(g, "layer1.attn.b_qkv", tn_shape(D + 2 * KVD));
    assert_float_equal(bias[D - 1], 22000 + D - 1, 0);
    assert_float_equal(bias[D], 23000, 0);
    assert_float_equal(bias[D + KVD], 24000, 0);
    assert_float_equal(numbers(g, "norm_f.w", tn_shape(D))[0], 25000, 0);
    assert_float_equal(numbers(g, "head", tn_shape(V, D))[1], 26001, 0);
    for (size_t i = 0; i < g->n; i++)
        if (strcmp(list[i].name, "layer1.attn.b_qkv") == 0) { /* pieces across parts */
            tn_decoder_file_read(g, &list[i], D - 1, 6, part);
            assert_true(part[0] == 22000 + D - 1 && part[1] == 23000 && part[4] == 23003 && part[5] == 24000);
        }
    tn_decoder_file_close(g);
    free(m);
}

#define FACTOR(x)                                                                                                      \
    {                                                                                                                  \
        "rope.scaling.factor", (x), true, NULL                                                                         \
    }

/* With heads of 4 and this base there are two frequencies, of wavelengths 6.3 and 4443. */
static void settings_say_what_is_computed(void **state)
{
    (void)state;
    static const float none[2] = { 1, 1 }, far[2] = { 1, 8 };
    const struct {
        plan p;
        const char *says;
    } rows[] = {
        { { .arch = "llama" },
          "tied=true qkv_bias=false norm_eps=1e-05 rope_base=500000 rope_pairs=interleaved "
          "train.context=100" },
        { { .arch = "llama", .head = true, .bias = true }, "tied=false qkv_bias=true" },
        { { .arch = "llama", .key = "attention.sliding_window", .value = 40 }, "train.context=40" },
        { { .arch = "llama", .key = "rope.freq_base", .value = 1e6 }, "rope_base=1000000" },
        { { .arch = "llama", .key = "rope.dimension_count", .value = D / H }, "rope_pairs=interleaved" },
        { { .arch = "llama", .freqs = none }, "rope_pairs=interleaved train.context=100" },
        { { .arch = "llama", .head_dim = 6, .key = "attention.key_length", .value = 6 },
          "train.context=100 head_dim=6" },
        { { .arch = "qwen3", .norms = true }, "rope_pairs=half train.context=100 qk_norm=true" },
        { { .arch = "qwen3",
            .norms = true,
            .head_dim = 10,
            .also = { { "attention.key_length", 10, false, NULL }, { "attention.value_length", 10, false, NULL } } },
          "train.context=100 head_dim=10 qk_norm=true" },
        { { .arch = "llama", .key = "rope.scaling.type", .text = "none" }, "train.context=100" },
        { { .arch = "llama", .key = "rope.scale_linear", .value = 4, .real = true },
          "train.context=100 rope_scaling=linear rope_stretch=4" },
        { { .arch = "llama", .key = "rope.scaling.type", .text = "linear", .also = { FACTOR(2.5) } },
          "rope_scaling=linear rope_stretch=2.5" },
        { { .arch = "llama", .key = "rope.scaling.type", .text = "yarn", .also = { FACTOR(4) } },
          "rope_scaling=yarn rope_stretch=4 rope_stretch_context=100 rope_beta_fast=32 rope_beta_slow=1 "
          "rope_attention_factor=0" },
        { { .arch = "llama",
            .key = "rope.scaling.type",
            .text = "yarn",
            .also = { FACTOR(4),
                      { "rope.scaling.original_context_length", 32, false, NULL },
                      { "rope.scaling.yarn_beta_fast", 24, true, NULL },
                      { "rope.scaling.yarn_beta_slow", 2, true, NULL },
                      { "rope.scaling.attn_factor", 1.5, true, NULL } } }, /* 1.5 (0.1 ln 4 + 1) */
          "rope_stretch=4 rope_stretch_context=32 rope_beta_fast=24 rope_beta_slow=2 "
          "rope_attention_factor=1.7079442" },
    };
    tn_made *m = calloc(1, sizeof *m);
    tn_decoder_file *g;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_model(m, &rows[i].p);
        assert_ok(tn_gguf_model_open_memory(m->data, m->n, "good", &g));
        if (!strstr(settings_of(g), rows[i].says)) fail_msg("%zu: %s", i, settings_of(g));
        tn_decoder_file_close(g);
    }
    make_model(m, &(plan){ .arch = "llama", .freqs = far }); /* 4443 is not beyond 8192 */
    assert_fails(tn_gguf_model_open_memory(m->data, m->n, "bad", &g), TN_BAD_FILE, "rope_freqs.weight: divisor 1 is 8");
    free(m);
}

/* --- Llama 3's scaling ------------------------------------------------------------------------------------------------- */

/* A model of one head of 64, so that some wavelengths lie between. */
static void stretch_is_found(void **state)
{
    (void)state;
    enum { DIM = 64, HALF = 32 };
    const struct {
        double stretch, context, spoil;
        const char *says;
    } rows[] = { { 32, 8192, 1, "rope_stretch=32 rope_stretch_context=8192" },
                 { 8, 8192, 1, "rope_stretch=8 rope_stretch_context=8192" },
                 { 4, 2048, 1, "rope_stretch=4 rope_stretch_context=2048" },
                 { 8, 8192, 1.05, NULL } };
    tn_made *m = calloc(1, sizeof *m);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        static const struct {
            const char *name;
            uint64_t dims[2];
        } t[] = { { "token_embd.weight", { DIM, 2 } },     { "blk.0.attn_norm.weight", { DIM } },
                  { "blk.0.attn_q.weight", { DIM, DIM } }, { "blk.0.attn_k.weight", { DIM, DIM } },
                  { "blk.0.attn_v.weight", { DIM, DIM } }, { "blk.0.attn_output.weight", { DIM, DIM } },
                  { "blk.0.ffn_norm.weight", { DIM } },    { "blk.0.ffn_gate.weight", { DIM, 1 } },
                  { "blk.0.ffn_up.weight", { DIM, 1 } },   { "blk.0.ffn_down.weight", { 32, DIM } },
                  { "output_norm.weight", { DIM } },       { "rope_freqs.weight", { HALF } } };
        enum { N = sizeof t / sizeof *t };
        uint64_t at = 0;
        made_head(m, N, 8);
        made_key_text(m, "general.architecture", "llama");
        made_key_u32(m, "llama.embedding_length", DIM);
        made_key_u32(m, "llama.block_count", 1);
        made_key_u32(m, "llama.attention.head_count", 1);
        made_key_u32(m, "llama.feed_forward_length", 32);
        made_key_u32(m, "llama.context_length", 131072);
        made_key_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
        made_key_f32(m, "llama.rope.freq_base", 500000.f);
        for (size_t i = 0; i < N; i++) {
            uint64_t dims[2] = { t[i].dims[0], t[i].dims[1] };
            if (dims[1] == 1) dims[1] = 32;
            const bool plain = i == N - 1 || dims[0] % 32; /* matrices as Q4_0: the file stays small */
            made_tensor_at(m, t[i].name, dims[1] ? 2 : 1, dims, plain ? 0 : 2, at);
            const uint64_t count = dims[0] * (dims[1] ? dims[1] : 1);
            at += ((plain ? 4 * count : count / 32 * 18) + 31) / 32 * 32;
        }
        made_pad(m, 32);
        m->n += at - 128; /* zeros but for the divisors, the last */
        for (int j = 0; j < HALF; j++) {
            const double wave = 2 * 3.14159265358979323846 * pow(500000, 2. * j / DIM), c = rows[r].context;
            const double s = (c / wave - 1) / 3;
            double f = wave < c / 4 ? 1 : wave > c ? rows[r].stretch : 1 / ((1 - s) / rows[r].stretch + s);
            if (j == HALF / 2 + 1) f *= rows[r].spoil;
            made_bytes(m, &(float){ (float)f }, 4);
        }
        tn_decoder_file *g;
        if (rows[r].says) {
            assert_ok(tn_gguf_model_open_memory(m->data, m->n, "llama3", &g));
            if (!strstr(settings_of(g), rows[r].says)) fail_msg("%s", settings_of(g));
            tn_decoder_file_close(g);
        } else assert_fails(tn_gguf_model_open_memory(m->data, m->n, "llama3", &g), TN_BAD_FILE, "rope_freqs.weight");
        memset(m, 0, sizeof *m);
    }
    free(m);
}

/* --- refusals ---------------------------------------------------------------------------------------------------------- */

typedef struct refusal {
    plan p;
    const char *says;
} refusal;

static const refusal refusals[] = {
    { { .arch = "gemma3" }, "its architecture is \"gemma3\"" },
    { { .arch = "llama", .skip = "blk.1.ffn_up.weight" }, "no tensor \"blk.1.ffn_up.weight\" among its 19" },
    { { .arch = "llama", .skip = "token_embd.weight" }, "no tensor \"token_embd.weight\"" },
    { { .arch = "qwen2", .bias = true, .skip = "blk.1.attn_v.bias" }, "no tensor \"blk.1.attn_v.bias\"" },
    { { .arch = "llama", .more = "blk.0.attn_q_norm.weight" },
      "tensor \"blk.0.attn_q_norm.weight\" is none that llama" },
    { { .arch = "llama", .wrong = "blk.1.attn_k.weight" },
      "tensor \"blk.1.attn_k.weight\" is (4,7), and its keys say (4,8)" },
    { { .arch = "llama", .key = "embedding_length", .value = 0 }, "llama.embedding_length is 0" },
    { { .arch = "llama", .key = "embedding_length", .value = 9 }, "9 numbers cannot be 2 heads" },
    { { .arch = "llama", .key = "embedding_length", .value = 16 }, "token_embd.weight" },
    { { .arch = "llama", .key = "block_count", .value = 1e9 }, "block_count is 1000000000, outside 1 to 1024" },
    { { .arch = "llama", .key = "block_count", .value = 1 }, "is none that llama" },
    { { .arch = "llama", .key = "attention.head_count", .value = 0 }, "head_count is 0" },
    { { .arch = "llama", .key = "attention.head_count_kv", .value = 3 }, "head_count_kv is 3, outside 1 to 2" },
    { { .arch = "llama", .key = "attention.key_length", .value = 8 },
      "\"blk.0.attn_q.weight\" is (8,8), and its keys" },
    { { .arch = "llama", .key = "attention.key_length", .value = 5 }, "8 numbers cannot be 2 heads of 5" },
    { { .arch = "llama", .key = "attention.key_length", .value = 0 }, "llama.attention.key_length is 0, outside 1" },
    { { .arch = "llama", .key = "attention.key_length", .value = 4e9 }, "key_length is 4000000000, outside 1 to 1024" },
    { { .arch = "llama", .key = "attention.key_length", .text = "4" }, "llama.attention.key_length" },
    { { .arch = "llama", .key = "attention.value_length", .value = 8 }, "llama.attention.value_length is 8" },
    { { .arch = "qwen3" }, "no tensor \"blk.0.attn_q_norm.weight\"" },
    { { .arch = "qwen3", .norms = true, .skip = "blk.1.attn_k_norm.weight" },
      "no tensor \"blk.1.attn_k_norm.weight\"" },
    { { .arch = "qwen3", .norms = true, .wrong = "blk.0.attn_k_norm.weight" }, "is (3), and its keys say (4)" },
    { { .arch = "qwen2", .bias = true, .norms = true }, "attn_q_norm.weight\" is none that qwen2" },
    { { .arch = "llama", .key = "rope.dimension_count", .value = 2 }, "llama.rope.dimension_count is 2" },
    { { .arch = "llama", .key = "rope.scaling.type", .text = "longrope" }, "llama.rope.scaling.type is \"longrope\"" },
    { { .arch = "llama", .key = "rope.scaling.type", .value = 1 }, "llama.rope.scaling.type" },
    { { .arch = "llama", .key = "rope.scale_linear", .value = 0.5, .real = true }, "a factor of 0.5" },
    { { .arch = "llama", .key = "rope.scale_linear", .value = -2, .real = true }, "rope.scale_linear is -2, outside" },
    { { .arch = "llama", .key = "rope.scaling.factor", .value = (double)NAN, .real = true }, "scaling.factor is" },
    { { .arch = "llama", .key = "rope.scaling.factor", .value = 1e30, .real = true }, "scaling.factor is 1e+30" },
    { { .arch = "llama", .key = "rope.scaling.factor", .text = "4" }, "rope.scaling.factor" },
    { { .arch = "llama",
        .key = "rope.scaling.type",
        .text = "yarn",
        .also = { FACTOR(4), { "rope.scaling.original_context_length", 0, false, NULL } } },
      "original_context_length is 0, outside" },
    { { .arch = "llama",
        .key = "rope.scaling.type",
        .text = "yarn",
        .also = { FACTOR(4), { "rope.scaling.yarn_beta_fast", -1, true, NULL } } },
      "yarn_beta_fast is -1, outside" },
    { { .arch = "llama",
        .key = "rope.scaling.type",
        .text = "yarn",
        .also = { FACTOR(4), { "rope.scaling.attn_factor", 0, true, NULL } } },
      "attn_factor is 0, outside" },
    { { .arch = "llama",
        .key = "rope.scaling.type",
        .text = "yarn",
        .also = { FACTOR(4), { "rope.scaling.yarn_ext_factor", 0.5, true, NULL } } },
      "yarn_ext_factor is 0.5, and only 1" },
    { { .arch = "llama", .key = "rope.scaling.yarn_log_multiplier", .value = 0.1, .real = true },
      "yarn_log_multiplier is 0.1, and only 0" },
    { { .arch = "llama", .key = "expert_count", .value = 8 }, "llama.expert_count is 8" },
    { { .arch = "llama", .key = "attention.layer_norm_rms_epsilon", .value = 0 }, "epsilon is 0" },
    { { .arch = "llama", .key = "rope.freq_base", .value = (double)NAN }, "rope.freq_base is" },
};

static void refused_by_name(void **state)
{
    const refusal *r = *state;
    tn_made *m = calloc(1, sizeof *m);
    tn_decoder_file *g;
    make_model(m, &r->p);
    assert_fails(tn_gguf_model_open_memory(m->data, m->n, "bad", &g), TN_BAD_FILE, r->says);
    free(m);
}

/* --- converted --------------------------------------------------------------------------------------------------------- */

static void converts(void **state)
{
    (void)state;
    tn_made *m = calloc(1, sizeof *m);
    tn_tempdir dir;
    char note[TN_CKPT_NOTE];
    tn_safetensors *f;
    const tn_file_tensor *t;
    float x[1024];
    tn_tempdir_make(&dir);
    const char *from = tn_tempdir_file(&dir, "a.gguf"), *to = tn_tempdir_file(&dir, "a.safetensors");
    make_model(m, &(plan){ .arch = "llama" });
    assert_ok(tn_file_write_atomic(from, m->data, m->n));
    for (int half = 0; half < 2; half++) {
        assert_ok(tn_ckpt_convert(&(tn_user_args){ 0 }, from, to, half ? TN_BF16 : TN_DTYPES, note));
        assert_ok(tn_safetensors_open(to, &f));
        assert_int_equal(tn_safetensors_count(f), 1 + 6 * L + 1);
        assert_true(strstr(tn_safetensors_meta(f, "settings"), "rope_pairs=interleaved"));
        assert_ok(tn_safetensors_find(f, "layer0.attn.w_qkv", &t));
        assert_int_equal(t->dtype, half ? TN_BF16 : TN_F32);
        assert_ok(tn_safetensors_copy_f32(t, x));
        assert_true(x[D * D] == (half ? tn_bf16_to_f32(tn_f32_to_bf16(3000)) : 3000));
        tn_safetensors_close(f);
    }
    assert_int_equal(tn_tempdir_entries(&dir, true), 2);
    rmdir(dir.path);
    free(m);
}

void tn_tests_gguf_model(tn_test_list *l)
{
    tn_test_add(l, every_number_in_its_place, NULL, "gguf_model: every number in its place");
    tn_test_add(l, settings_say_what_is_computed, NULL, "gguf_model: settings say what is computed");
    tn_test_add(l, stretch_is_found, NULL, "gguf_model: Llama 3's stretch is found");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        tn_test_add(l, refused_by_name, &refusals[i], "gguf_model: refused, %s", refusals[i].says);
    tn_test_add(l, converts, NULL, "gguf_model: converts to safetensors");
}
