/* llama2.c checkpoints: where every number goes, what is refused, and two real networks whose logits and loss must be
 * those that bench/peers/llama_twin.py computes from the same file in float64. */
#include "base/fs.h"
#include "io/llama2c.h"
#include "io/safetensors.h"
#include "models/decode_cache.h"
#include "tempdir.h"
#include "train/run/train_settings.h"
#include "world.h"

#include <math.h>

enum { D = 4, F = 3, L = 2, H = 2, KV = 1, V = 5, CONTEXT = 6, KVD = KV * (D / H), MOST = 400 };

/* A file whose numbers count up from 0; head: with a matrix of its own. Returns its bytes. */
static size_t craft(unsigned char *p, bool head)
{
    const int32_t header[7] = { D, F, L, H, KV, head ? -V : V, CONTEXT };
    const int n = V * D + 2 * L * D + 2 * L * D * D + 2 * L * KVD * D + 3 * L * F * D + D + CONTEXT * (D / H) +
                  (head ? V * D : 0);
    memcpy(p, header, sizeof header);
    assert_true(n <= MOST);
    for (int i = 0; i < n; i++) {
        const float x = (float)i;
        memcpy(p + sizeof header + 4 * (size_t)i, &x, 4);
    }
    return sizeof header + 4 * (size_t)n;
}

static const float *numbers(const tn_safetensors *f, const char *name, tn_dims dims)
{
    static float x[MOST];
    const tn_file_tensor *t;
    assert_ok(tn_safetensors_find(f, name, &t));
    assert_true(tn_dims_equal(t->dims, dims));
    assert_ok(tn_safetensors_copy_f32(t, x));
    return x;
}

static void every_number_in_its_place(void **state)
{
    (void)state;
    unsigned char bytes[4 * MOST];
    tn_tempdir dir;
    tn_tempdir_make(&dir);
    const char *from = tn_tempdir_file(&dir, "a.bin"), *to = tn_tempdir_file(&dir, "a.safetensors");
    tn_safetensors *f;
    assert_ok(tn_file_write_atomic(from, bytes, craft(bytes, true)));
    assert_ok(tn_llama2c_convert(from, to));
    assert_ok(tn_safetensors_open(to, &f));
    assert_string_equal(
        tn_safetensors_meta(f, "settings"),
        "shape=llama dim=4 layers=2 heads=2 kv_heads=1 ffn=3 vocab=5 tied=false norm_eps=1e-5 rope_base=10000 "
        "rope_pairs=interleaved train.context=6");
    assert_int_equal(tn_safetensors_count(f), 1 + 6 * L + 2);
    const int norm1 = V * D, q = norm1 + L * D, k = q + L * D * D, v = k + L * KVD * D, out = v + L * KVD * D;
    const int norm2 = out + L * D * D, w1 = norm2 + L * D, w2 = w1 + L * F * D, w3 = w2 + L * F * D,
              norm_f = w3 + L * F * D;
    assert_float_equal(numbers(f, "embed", tn_shape(V, D))[7], 7, 0);
    assert_float_equal(numbers(f, "layer1.norm1.w", tn_shape(D))[0], norm1 + D, 0);
    const float *qkv = numbers(f, "layer1.attn.w_qkv", tn_shape(D + 2 * KVD, D));
    assert_float_equal(qkv[0], q + D * D, 0);
    assert_float_equal(qkv[D * D], k + KVD * D, 0);
    assert_float_equal(qkv[(D + KVD) * D + 1], v + KVD * D + 1, 0);
    assert_float_equal(numbers(f, "layer0.attn.w_out", tn_shape(D, D))[2], out + 2, 0);
    assert_float_equal(numbers(f, "layer1.norm2.w", tn_shape(D))[1], norm2 + D + 1, 0);
    const float *up = numbers(f, "layer1.ffn.w1", tn_shape(2 * F, D));
    assert_float_equal(up[0], w1 + F * D, 0);
    assert_float_equal(up[F * D], w3 + F * D, 0);
    assert_float_equal(numbers(f, "layer1.ffn.w2", tn_shape(D, F))[F * D - 1], w3 - 1, 0);
    assert_float_equal(numbers(f, "norm_f.w", tn_shape(D))[0], norm_f, 0);
    assert_float_equal(numbers(f, "head", tn_shape(V, D))[0], norm_f + D + CONTEXT * (D / H), 0);
    tn_safetensors_close(f);
    assert_int_equal(tn_tempdir_entries(&dir, true), 2);
    rmdir(dir.path);
}

typedef struct attack {
    int field;
    int32_t value;
    const char *says;
} attack;

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const attack attacks[] = {
        { 0, 0, "dim is 0" },           { 0, -4, "dim is -4" },          { 0, 1 << 30, "dim is 1073741824" },
        { 0, 6, "cannot be" },          { 1, 4, "its header promises" }, { 2, 1 << 20, "layers is 1048576" },
        { 3, 3, "cannot be" },          { 4, 3, "key heads is 3" },      { 5, 0, "vocabulary is 0" },
        { 5, INT32_MIN, "vocabulary" }, { 6, -1, "context is -1" },      { 6, 7, "its header promises" },
    };
    unsigned char bytes[4 * MOST];
    tn_tempdir dir;
    tn_tempdir_make(&dir);
    const char *from = tn_tempdir_file(&dir, "a.bin"), *to = tn_tempdir_file(&dir, "a.safetensors");
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        const size_t n = craft(bytes, false);
        memcpy(bytes + 4 * attacks[i].field, &attacks[i].value, 4);
        assert_ok(tn_file_write_atomic(from, bytes, n));
        assert_fails(tn_llama2c_convert(from, to), TN_BAD_FILE, attacks[i].says);
    }
    const size_t n = craft(bytes, false), lengths[] = { 0, 27, 28, n - 1 };
    for (size_t i = 0; i < 4; i++) {
        assert_ok(tn_file_write_atomic(from, bytes, lengths[i]));
        assert_fails(tn_llama2c_convert(from, to), TN_BAD_FILE, lengths[i] < 28 ? "too short" : "it was cut short");
    }
    assert_int_equal(tn_tempdir_entries(&dir, true), 1); /* nothing was written */
    rmdir(dir.path);
}

/* --- real networks ------------------------------------------------------------------------------------------------ */

enum { T = 32 };

typedef struct real {
    const char *path, *preset;
    int32_t text[T + 1];
    double nats, last[4], twelfth[4]; /* logits of tokens 0, 7, 50, 100 after the last and the twelfth token */
} real;

static const real reals[] = {
    { "models/stories260K/stories260K.bin",
      "llama_stories260k",
      { 1,   403, 407, 261, 378, 432, 383, 286, 261, 262, 285, 417, 277, 419, 262, 379, 416,
        422, 328, 269, 284, 303, 422, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396 },
      1.141246166,
      { -1.01894719, -1.01897317, -1.01904601, -1.01867950 },
      { -8.71755173, -8.71759634, -8.71578817, -8.71591375 } },
    { "models/babyllama105/model5000.bin",
      NULL,
      { 1, 3, 34, 9, 22, 4, 3, 18, 20, 7, 9, 3, 9, 5, 6, 10, 14, 4, 3, 6, 8, 4, 3, 14, 10, 6, 6, 14, 4, 3, 21, 10, 13 },
      0.764795554,
      { -1.92093318, 1.48180053, -3.45487991, -5.65877838 },
      { -1.48974764, 3.55692192, -4.32844819, -10.36146563 } },
};

/* A gpt of the file's settings with its weights; the plan reads T tokens and puts out loss and logits. */
static tn_bound *load(tn_world *w, const char *file, const char *preset)
{
    tn_safetensors *f;
    tn_settings *st;
    const tn_model *model;
    const char *list[32];
    size_t n = 0;
    char words[512];
    assert_ok(tn_safetensors_open(file, &f));
    snprintf(words, sizeof words, "%s", tn_safetensors_meta(f, "settings"));
    for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest));) list[n++] = word;
    assert_ok(tn_settings_resolve(preset ? preset : "gpt", list, preset ? 0 : n, &st, &model));
    tn_graph *g = tn_world_graph(NULL);
    tn_batch b = { .size = sizeof b, .batch = 1, .length = T, .want = { "logits" }, .n_wants = 1 };
    tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(1, T), TN_I32));
    tn_batch_add(&b, "labels", tn_input(g, "labels", tn_shape(1, T), TN_I32));
    assert_ok(model->build(g, st, &b));
    tn_bound *bound = tn_world_add(w, g, NULL);
    assert_int_equal(tn_store_count(w->store), tn_safetensors_count(f));
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        const tn_file_tensor *t;
        assert_ok(tn_safetensors_find(f, e->name, &t));
        assert_true(tn_dims_equal(t->dims, e->dims));
        assert_ok(tn_safetensors_copy_f32(t, e->data));
    }
    tn_settings_free(st);
    tn_safetensors_close(f);
    return bound;
}

static void speaks_as_its_twin(void **state)
{
    static const int at[4] = { 0, 7, 50, 100 };
    const real *r = *state;
    const char *path = tn_test_data(r->path);
    if (!path) skip();
    tn_tempdir dir;
    tn_tempdir_make(&dir);
    const char *to = tn_tempdir_file(&dir, "model.safetensors");
    assert_ok(tn_llama2c_convert(path, to));
    tn_world w = tn_world_open(1, 2);
    tn_bound *b = load(&w, to, r->preset);
    memcpy(tn_world_data(b, "tokens"), r->text, sizeof(int32_t) * T);
    memcpy(tn_world_data(b, "labels"), r->text + 1, sizeof(int32_t) * T);
    assert_ok(tn_run(b));
    const float *logits = tn_world_data(b, "logits"); /* (T,V) */
    const int64_t vocab = r->preset ? 512 : 105;
    assert_true(fabs((double)*(const float *)tn_world_data(b, "loss") - r->nats) < 1e-5);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs((double)logits[(T - 1) * vocab + at[i]] - r->last[i]) < 1e-4);
        assert_true(fabs((double)logits[11 * vocab + at[i]] - r->twelfth[i]) < 1e-4);
    }
    tn_world_close(&w);
    tn_tempdir_entries(&dir, true);
    rmdir(dir.path);
}

void tn_tests_llama2c(tn_test_list *l)
{
    tn_test_add(l, every_number_in_its_place, NULL, "llama2c: every number in its place");
    tn_test_add(l, bad_files_are_refused, NULL, "llama2c: bad files are refused");
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        tn_test_add(l, speaks_as_its_twin, &reals[i], "llama2c: %s speaks as its twin", reals[i].path);
}
