/* Hugging Face folders: where every number goes, what the settings say, what is refused by name. */
#include "base/fs.h"
#include "io/hf_model.h"
#include "tempdir.h"

#include <stdlib.h>

enum { D = 8, F = 3, L = 2, H = 2, KV = 1, V = 5, KVD = KV * (D / H), MOST = 64, PAIRS = 3 };

typedef struct listed {
    char name[64];
    tn_dims dims;
} listed;

/* A folder that opens, but for what the fields say. */
typedef struct plan {
    const char *kind;          /* "llama" where NULL */
    const char *set[PAIRS][2]; /* keys of config.json; value NULL: the key is not there */
    bool head;
    const char *skip;  /* a tensor that is not there, */
    const char *more;  /* one that is, */
    const char *wrong; /* one of another shape */
    tn_dtype dtype;
    int shards;              /* 0: one file; else tensor i is in file i % shards, and the index says so, but for: */
    const char *index;       /* all of the index, */
    const char *moved;       /* a tensor that the index has in another file, */
    const char *twice;       /* or that is in two */
    const char *file, *text; /* a file that has this text instead */
} plan;

static const char *const base[][2] = { { "hidden_size", "8" },
                                       { "num_hidden_layers", "2" },
                                       { "num_attention_heads", "2" },
                                       { "num_key_value_heads", "1" },
                                       { "intermediate_size", "3" },
                                       { "vocab_size", "5" },
                                       { "max_position_embeddings", "100" },
                                       { "rms_norm_eps", "1e-05" },
                                       { "rope_theta", "500000.0" },
                                       { "head_dim", "4" } };
enum { BASE = sizeof base / sizeof *base };

static bool is(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static void write_text(tn_tempdir *d, const char *name, const char *text)
{
    assert_ok(tn_file_write_atomic(tn_tempdir_file(d, name), text, strlen(text)));
}

static void make_config(tn_tempdir *d, const plan *p)
{
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"model_type\": \"%s\"", p->kind ? p->kind : "llama");
    for (size_t i = 0; i < BASE; i++) {
        bool other = is(p->kind, "mistral") && is(base[i][0], "head_dim");
        for (int k = 0; k < PAIRS; k++) other |= is(p->set[k][0], base[i][0]);
        if (!other) n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %s", base[i][0], base[i][1]);
    }
    if (!p->head) n += (size_t)snprintf(text + n, sizeof text - n, ", \"tie_word_embeddings\": true");
    for (int k = 0; k < PAIRS; k++)
        if (p->set[k][1]) n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %s", p->set[k][0], p->set[k][1]);
    snprintf(text + n, sizeof text - n, "}");
    write_text(d, "config.json", text);
}

static size_t list_tensors(const plan *p, listed *t)
{
    const struct {
        const char *name;
        tn_dims dims;
        const char *kind; /* NULL: all */
    } layer[] = {
        { "input_layernorm.weight", tn_shape(D), NULL },
        { "self_attn.q_proj.weight", tn_shape(D, D), NULL },
        { "self_attn.k_proj.weight", tn_shape(KVD, D), NULL },
        { "self_attn.v_proj.weight", tn_shape(KVD, D), NULL },
        { "self_attn.o_proj.weight", tn_shape(D, D), NULL },
        { "post_attention_layernorm.weight", tn_shape(D), NULL },
        { "mlp.gate_proj.weight", tn_shape(F, D), NULL },
        { "mlp.up_proj.weight", tn_shape(F, D), NULL },
        { "mlp.down_proj.weight", tn_shape(D, F), NULL },
        { "self_attn.q_proj.bias", tn_shape(D), "qwen2" },
        { "self_attn.k_proj.bias", tn_shape(KVD), "qwen2" },
        { "self_attn.v_proj.bias", tn_shape(KVD), "qwen2" },
        { "self_attn.q_norm.weight", tn_shape(D / H), "qwen3" },
        { "self_attn.k_norm.weight", tn_shape(D / H), "qwen3" },
    };
    size_t n = 0;
    t[n++] = (listed){ "model.embed_tokens.weight", tn_shape(V, D) };
    for (int l = 0; l < L; l++)
        for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
            if (layer[i].kind && !is(p->kind, layer[i].kind)) continue;
            snprintf(t[n].name, sizeof t[n].name, "model.layers.%d.%s", l, layer[i].name);
            t[n++].dims = layer[i].dims;
        }
    t[n++] = (listed){ "model.norm.weight", tn_shape(D) };
    if (p->head) t[n++] = (listed){ "lm_head.weight", tn_shape(V, D) };
    if (p->more) {
        snprintf(t[n].name, sizeof t[n].name, "%s", p->more);
        t[n++].dims = is(p->more, "lm_head.weight") ? tn_shape(V, D) : tn_shape(2);
    }
    return n;
}

static bool lies_in(const plan *p, const listed *t, size_t i, int shard)
{
    if (is(p->skip, t->name)) return false;
    return !p->shards || (int)i % p->shards == shard || is(p->twice, t->name);
}

/* Its first number is 1000 times its place in the list, the others count up from there. */
static void make_file(tn_tempdir *d, const char *name, const plan *p, const listed *t, size_t n, int shard)
{
    tn_safetensors_writer *w;
    assert_ok(tn_safetensors_writer_begin(tn_tempdir_file(d, name), NULL, 0, &w));
    for (int put = 0; put < 2; put++)
        for (size_t i = 0; i < n; i++) {
            tn_dims dims = t[i].dims;
            float x[1024];
            unsigned char made[8192];
            if (!lies_in(p, &t[i], i, shard)) continue;
            if (is(p->wrong, t[i].name)) dims.dim[0]++;
            const int64_t count = tn_dims_count(dims);
            const size_t first = is(p->more, "lm_head.weight") && is(t[i].name, p->more) ? 0 : i;
            for (int64_t k = 0; k < count; k++) x[k] = (float)(1000 * first) + (float)k;
            tn_convert(made, p->dtype, x, TN_F32, count);
            if (!put) assert_ok(tn_safetensors_writer_declare(w, t[i].name, p->dtype, dims));
            else assert_ok(tn_safetensors_writer_put(w, t[i].name, made, (size_t)count * tn_dtype_bytes(p->dtype)));
        }
    assert_ok(tn_safetensors_writer_finish(w));
}

static void make_index(tn_tempdir *d, const plan *p, const listed *t, size_t n)
{
    char text[8192];
    size_t at = (size_t)snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (size_t i = 0, some = 0; i < n; i++) {
        if (is(p->skip, t[i].name)) continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\": \"model-%d.safetensors\"", some++ ? ", " : "",
                               t[i].name, ((int)i + is(p->moved, t[i].name)) % p->shards);
    }
    snprintf(text + at, sizeof text - at, "}}");
    write_text(d, TN_HF_INDEX, p->index ? p->index : text);
}

static void make_folder(tn_tempdir *d, const plan *p)
{
    static listed t[MOST];
    const size_t n = list_tensors(p, t);
    char name[64];
    tn_tempdir_make_quick(d);
    make_config(d, p);
    if (!p->shards) make_file(d, TN_HF_WEIGHTS, p, t, n, 0);
    for (int s = 0; s < p->shards; s++) {
        snprintf(name, sizeof name, "model-%d.safetensors", s);
        make_file(d, name, p, t, n, s);
    }
    if (p->shards) make_index(d, p, t, n);
    if (p->file && !p->text) assert_int_equal(remove(tn_tempdir_file(d, p->file)), 0);
    else if (p->file) write_text(d, p->file, p->text);
}

static const float *numbers(const tn_decoder_file *m, const char *name, tn_dims dims, tn_dtype dtype)
{
    static float x[1024];
    const tn_file_tensor *t = tn_decoder_file_find(m, name);
    assert_non_null(t);
    assert_true(tn_dims_equal(t->dims, dims) && t->dtype == dtype);
    tn_decoder_file_read(m, t, 0, tn_dims_count(dims), x);
    return x;
}

/* In one file and in three, in each type: numbers up to 2048 are exact in f16, so those are looked at. */
static void every_number_in_its_place(void **state)
{
    (void)state;
    static const tn_dtype types[] = { TN_F32, TN_F16, TN_BF16 };
    for (int i = 0; i < 6; i++) {
        tn_tempdir d;
        tn_decoder_file *m;
        const tn_dtype type = types[i % 3];
        make_folder(&d, &(plan){ .kind = "qwen2", .head = true, .shards = i < 3 ? 0 : 3, .dtype = type });
        assert_ok(tn_hf_model_open(d.path, &m));
        assert_string_equal(m->settings,
                            "shape=llama dim=8 layers=2 heads=2 kv_heads=1 ffn=3 vocab=5 tied=false qkv_bias=true "
                            "norm_eps=1e-05 rope_base=500000 rope_pairs=half train.context=100");
        assert_int_equal(m->n, 1 + 7 * L + 2);
        assert_float_equal(numbers(m, "embed", tn_shape(V, D), type)[D], D, 0);
        assert_float_equal(numbers(m, "layer0.norm1.w", tn_shape(D), type)[0], 1000, 0);
        if (type == TN_F32) {
            const float *qkv = numbers(m, "layer1.attn.w_qkv", tn_shape(D + 2 * KVD, D), type);
            assert_true(qkv[9] == 14009 && qkv[D * D] == 15000 && qkv[(D + KVD) * D + 1] == 16001);
            const float *bias = numbers(m, "layer1.attn.b_qkv", tn_shape(D + 2 * KVD), type);
            assert_true(bias[D - 1] == 22007 && bias[D] == 23000 && bias[D + KVD] == 24000);
            const float *up = numbers(m, "layer1.ffn.w1", tn_shape(2 * F, D), type);
            assert_true(up[0] == 19000 && up[F * D] == 20000);
            assert_float_equal(numbers(m, "layer1.ffn.w2", tn_shape(D, F), type)[F], 21000 + F, 0);
            assert_float_equal(numbers(m, "layer1.attn.w_out", tn_shape(D, D), type)[3], 17003, 0);
            assert_float_equal(numbers(m, "norm_f.w", tn_shape(D), type)[0], 25000, 0);
            assert_float_equal(numbers(m, "head", tn_shape(V, D), type)[1], 26001, 0);
        }
        tn_decoder_file_close(m);
        tn_tempdir_remove(&d);
    }
}

/* --- settings ---------------------------------------------------------------------------------------------------------- */

static const struct said {
    plan p;
    const char *says;
} said[] = {
    { { .kind = NULL }, "tied=true qkv_bias=false norm_eps=1e-05 rope_base=500000 rope_pairs=half train.context=100" },
    { { .head = true }, "tied=false qkv_bias=false" },
    { { .kind = "qwen3", .head = true }, "train.context=100 qk_norm=true" },
    { { .kind = "mistral" }, "train.context=100" },
    { { .kind = "mistral", .set = { { "sliding_window", "40" } } }, "train.context=40" },
    { { .kind = "mistral", .set = { { "sliding_window", "null" } } }, "train.context=100" },
    { { .kind = "mistral", .set = { { "max_position_embeddings", "9000" } } }, "train.context=4096" },
    { { .kind = "qwen2", .set = { { "sliding_window", "40" } } }, "train.context=100" },
    { { .kind = "qwen2", .set = { { "sliding_window", "40" }, { "use_sliding_window", "true" } } },
      "train.context=40" },
    { { .set = { { "max_position_embeddings" } } }, "train.context=2048" },
    { { .set = { { "rope_theta" } } }, "rope_base=10000 " },
    { { .set = { { "rms_norm_eps" } } }, "norm_eps=1e-06 " },
    { { .set = { { "rope_theta" }, { "rope_parameters", "{\"rope_theta\": 7, \"rope_type\": \"default\"}" } } },
      "rope_base=7 rope_pairs=half train.context=100" },
    { { .set = { { "rope_scaling", "{\"type\": \"linear\", \"factor\": 4.0}" } } },
      "rope_base=500000 rope_pairs=half train.context=100 rope_scaling=linear rope_stretch=4" },
    { { .set = { { "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                                   "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}" } } },
      "train.context=100 rope_stretch=8 rope_stretch_context=64" },
    { { .set = { { "rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"rope_theta\": 100, "
                                      "\"original_max_position_embeddings\": 25}" } } },
      "rope_base=100 rope_pairs=half train.context=100 rope_scaling=yarn rope_stretch=4 rope_stretch_context=25" },
    { { .set = { { "rope_scaling", "{\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 16, \"beta_slow\": 2, "
                                   "\"attention_factor\": 1.5}" } } },
      "rope_stretch=2 rope_stretch_context=100 rope_beta_fast=16 rope_beta_slow=2 rope_attention_factor=1.5" },
    { { .set = { { "rope_scaling", "{\"type\": \"linear\", \"factor\": 1}" } } }, "rope_pairs=half train.context=100" },
    { { .more = "model.layers.0.self_attn.rotary_emb.inv_freq" }, "tied=true" },
    { { .more = "lm_head.weight" }, "tied=true" }, /* the embedding's copy */
    { { .set = { { "architectures", "[\"LlamaForCausalLM\"]" },
                 { "attention_bias", "false" },
                 { "mlp_bias", "false" } } },
      "dim=8" },
    { { .set = { { "quantization_config", "null" }, { "head_dim", "null" }, { "partial_rotary_factor", "1.0" } } },
      "dim=8" },
};

static void settings_say_what_is_computed(void **state)
{
    const struct said *r = *state;
    tn_tempdir d;
    tn_decoder_file *m;
    make_folder(&d, &r->p);
    assert_ok(tn_hf_model_open(d.path, &m));
    if (!strstr(m->settings, r->says)) fail_msg("%s", m->settings);
    tn_decoder_file_close(m);
    tn_tempdir_remove(&d);
}

/* --- refusals ---------------------------------------------------------------------------------------------------------- */

#define SET(key, value) .set = { { key, value } }
#define SCALED(text) SET("rope_scaling", "{" text "}")
#define INDEX(map) .shards = 2, .index = "{\"weight_map\": " map "}"

static const struct refusal {
    plan p;
    const char *says;
} refusals[] = {
    { { .kind = "gemma3" }, "\"model_type\" is \"gemma3\", and only llama, mistral, qwen2 and qwen3" },
    { { .kind = "bad\\n\\u001b[2J" }, "\"model_type\" is \"bad??[2J\"" },
    { { .file = "config.json", .text = "{" }, "config.json: not JSON: line 1" },
    { { .file = "config.json", .text = "" }, "not JSON" },
    { { .file = "config.json", .text = "[]" }, "it is a list, not an object" },
    { { .file = "config.json", .text = "{}" }, "it has no \"model_type\"" },
    { { SET("model_type", "\"llama\"") }, "not JSON" }, /* twice */
    { { SET("hidden_size", NULL) }, "it has no \"hidden_size\"" },
    { { SET("hidden_size", "0") }, "\"hidden_size\" is 0, outside 1 to 65536" },
    { { SET("hidden_size", "\"8\"") }, "\"hidden_size\" is \"8\", not an integer" },
    { { SET("hidden_size", "8.5") }, "\"hidden_size\" is 8.5, not an integer" },
    { { SET("hidden_size", "9223372036854775807") }, "\"hidden_size\" is 9223372036854775807, outside" },
    { { SET("hidden_size", "99999999999999999999") }, "not JSON" },
    { { SET("hidden_size", "65536") }, "and config.json says (5,65536)" },
    { { SET("num_hidden_layers", "1e9") }, "\"num_hidden_layers\" is 1e+09, not an integer" },
    { { SET("num_hidden_layers", "1025") }, "\"num_hidden_layers\" is 1025, outside 1 to 1024" },
    { { SET("num_hidden_layers", "3") }, "has no tensor \"model.layers.2.input_layernorm.weight\"" },
    { { SET("num_hidden_layers", "1") }, "\"model.layers.1.input_layernorm.weight\" is none that such a model has" },
    { { SET("num_attention_heads", "3") }, "says (12,8)" },
    { { SET("num_key_value_heads", "3") }, "\"num_attention_heads\" 2 is no multiple of \"num_key_value_heads\" 3" },
    { { .kind = "mistral", SET("num_attention_heads", "3") }, "\"hidden_size\" 8 is no multiple" },
    { { SET("head_dim", "5") }, "heads of 5 numbers" },
    { { SET("head_dim", "2000") }, "\"head_dim\" is 2000, outside 1 to 1024" },
    { { SET("head_dim", "-4") }, "\"head_dim\" is -4" },
    { { SET("vocab_size", "1") }, "\"vocab_size\" is 1, outside 2" },
    { { SET("vocab_size", "6") }, "\"model.embed_tokens.weight\" is (5,8), and config.json says (6,8)" },
    { { SET("intermediate_size", "true") }, "\"intermediate_size\" is true, not an integer" },
    { { SET("rms_norm_eps", "0") }, "\"rms_norm_eps\" is 0" },
    { { SET("rope_theta", "-1") }, "\"rope_theta\" is -1" },
    { { SET("tie_word_embeddings2", "1"), .set[1] = { "use_bidirectional_attention", "true" } },
      "\"use_bidirectional_attention\" is true: that is not supported" },
    { { SET("hidden_act", "\"gelu\"") }, "\"hidden_act\" is \"gelu\", and only \"silu\"" },
    { { SET("mlp_bias", "true") }, "\"mlp_bias\" is true" },
    { { SET("attention_bias", "true") }, "\"attention_bias\" is true: biases on the output of attention" },
    { { SET("quantization_config", "{\"quant_method\": \"gptq\"}") }, "\"quantization_config\" is an object" },
    { { SET("num_local_experts", "8") }, "\"num_local_experts\" is 8" },
    { { SET("partial_rotary_factor", "0.5") }, "\"partial_rotary_factor\" is 0.5" },
    { { SET("logits_scaling", "8") }, "\"logits_scaling\" is 8" },
    { { SET("architectures", "[\"LlamaForSequenceClassification\"]") }, "\"LlamaForSequenceClassification\"" },
    { { .kind = "qwen2", SET("layer_types", "[\"chunked_attention\"]") }, "\"layer_types\" has \"chunked_attention\"" },
    { { .kind = "mistral", SET("sliding_window", "-1") }, "\"sliding_window\" is -1" },
    { { SCALED("\"type\": \"dynamic\", \"factor\": 2") }, "\"rope_type\" is \"dynamic\"" },
    { { SCALED("\"rope_type\": \"longrope\", \"factor\": 2") }, "\"rope_type\" is \"longrope\"" },
    { { SCALED("\"type\": \"yarn\", \"factor\": 2, \"short_factor\": [1]") }, "has a key \"short_factor\"" },
    { { SCALED("\"type\": \"linear\"") }, "it has no \"factor\"" },
    { { SCALED("\"type\": \"linear\", \"factor\": 0.5") }, "\"factor\" is 0.5, outside 1 to" },
    { { SCALED("\"type\": \"linear\", \"factor\": 1e308") }, "\"factor\" is 1e+308" },
    { { SCALED("\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 2, \"high_freq_factor\": 4") },
      "\"low_freq_factor\" is 2, and only 1 is supported" },
    { { SCALED("\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1") },
      "it has no \"high_freq_factor\"" },
    { { SCALED("\"type\": \"yarn\", \"factor\": 2, \"truncate\": false") }, "\"truncate\" is false" },
    { { SCALED("\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0") },
      "\"original_max_position_embeddings\" is 0" },
    { { SET("rope_scaling", "7") }, "\"rope_scaling\" is 7, not an object" },
    { { .set = { { "rope_scaling", "{\"type\": \"linear\", \"factor\": 2}" }, { "rope_parameters", "{}" } } },
      "it has both \"rope_scaling\" and \"rope_parameters\"" },
    /* tensors */
    { { .skip = "model.layers.1.mlp.up_proj.weight" }, "no tensor \"model.layers.1.mlp.up_proj.weight\" among its 19" },
    { { .more = "model.layers.0.self_attn.o_proj.bias" }, "\"model.layers.0.self_attn.o_proj.bias\" is none" },
    { { .more = "score.weight" }, "tensor \"score.weight\" is none that such a model has here" },
    { { .wrong = "model.layers.1.self_attn.k_proj.weight" },
      "\"model.layers.1.self_attn.k_proj.weight\" is (5,8), and config.json says (4,8)" },
    { { .dtype = TN_F64 }, "is f64, and only f32, bf16 and f16 are supported" },
    { { .kind = "qwen2", .skip = "model.layers.1.self_attn.v_proj.bias" }, "self_attn.v_proj.bias" },
    { { SET("tie_word_embeddings2", "1"), .head = true, .skip = "lm_head.weight" }, "no tensor \"lm_head.weight\"" },
    /* files */
    { { .file = TN_HF_WEIGHTS }, "has neither model.safetensors nor model.safetensors.index.json" },
    { { .file = TN_HF_WEIGHTS, .text = "short" }, TN_HF_WEIGHTS },
    { { .shards = 3, .file = "model-1.safetensors" }, "model-1.safetensors" },
    { { .shards = 3, .moved = "model.norm.weight" }, "no tensor \"model.norm.weight\"" },
    { { .shards = 3, .twice = "model.norm.weight" }, "tensor \"model.norm.weight\" is in model-" },
    { { .shards = 2, .skip = "model.norm.weight" }, "index.json lists no tensor \"model.norm.weight\"" },
    { { .shards = 2, .index = "{" }, "index.json: not JSON" },
    { { .shards = 2, .index = "[]" }, "it is not an object" },
    { { .shards = 2, .index = "{}" }, "it lists no tensor" },
    { { INDEX("[]") }, "\"weight_map\" is not an object" },
    { { INDEX("{}, \"weight_map\": {}") }, "\"weight_map\" comes twice" },
    { { INDEX("{\"a\": 7}") }, "the file of tensor \"a\" is not a text" },
    { { INDEX("{\"a\": \"model-0.safetensors\", \"a\": \"model-1.safetensors\"}") }, "tensor \"a\" comes twice" },
    { { INDEX("{\"a\": \"../model-0.safetensors\"}") }, "is said to be in \"../model-0.safetensors\"" },
    { { INDEX("{\"a\": \"/etc/x.safetensors\"}") }, "is said to be in \"/etc/x.safetensors\"" },
    { { INDEX("{\"a\": \".safetensors\"}") }, "is said to be in \".safetensors\"" },
    { { INDEX("{\"a\": \"config.json\"}") }, "only the name of a .safetensors file beside it" },
    { { INDEX("{\"a\": \"model-7.safetensors\"}") }, "model-7.safetensors" },
    { { INDEX("{\"a\": \"model-0.safetensors\"}") }, "has no tensor \"a\"" },
    { { INDEX("{\"a\": \"model-0.safetensors\\u0000/x.safetensors\"}") }, "index.json" },
};

static void refused_by_name(void **state)
{
    const struct refusal *r = *state;
    tn_tempdir d;
    tn_decoder_file *m;
    make_folder(&d, &r->p);
    assert_fails(tn_hf_model_open(d.path, &m), TN_BAD_FILE, r->says);
    tn_tempdir_remove(&d);
}

/* The head that a folder has besides a tied embedding is another matrix. */
static void two_heads(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_decoder_file *m;
    make_folder(&d, &(plan){ .head = true, .set = { { "tie_word_embeddings", "true" } } });
    assert_fails(tn_hf_model_open(d.path, &m), TN_BAD_FILE, "\"lm_head.weight\" is another matrix than the embedding");
    tn_tempdir_remove(&d);
}

void tn_tests_hf_model(tn_test_list *l)
{
    tn_test_add(l, every_number_in_its_place, NULL, "hf_model: every number in its place");
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        tn_test_add(l, settings_say_what_is_computed, &said[i], "hf_model: says, %s (%zu)", said[i].says, i);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        tn_test_add(l, refused_by_name, &refusals[i], "hf_model: refused, %s (%zu)", refusals[i].says, i);
    tn_test_add(l, two_heads, NULL, "hf_model: refused, two heads");
}
