/* Small Hugging Face folders against what transformers computes from them in float64 (tests/golden/make_folders.py): logits with frozen weights in the
 * folder's own type, as verbs open them; logits and the gradient at the embeddings with weights in f32, as programs do. */
#include "io/safetensors.h"
#include "testlib.h"
#include "train/run/saved_model.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <string.h>
#include <tenon/tenon.h>

enum { T = 40, V = 24, D = 16 };

typedef struct golden {
    const char *folder;
    tn_dtype type;
} golden;

static const golden goldens[] = {
    { "tests/golden/hf/llama", TN_F32 },    /* three shards, head of its own, scaling llama3 */
    { "tests/golden/hf/mistral", TN_BF16 }, /* heads wider than dim/heads, tied */
    { "tests/golden/hf/qwen2", TN_F16 },    /* biases, yarn, tied */
    { "tests/golden/hf/qwen3", TN_F32 },    /* norms of queries and keys, linear scaling, head of its own */
};

typedef struct expected {
    int32_t tokens[T], labels[T];
    float logits[T * V], gradient[T * D];
} expected;

static void read_one(const tn_safetensors *f, const char *name, tn_dtype type, void *out, size_t bytes)
{
    const tn_file_tensor *t;
    assert_ok(tn_safetensors_find(f, name, &t));
    assert_true(t->dtype == type && t->bytes == bytes);
    memcpy(out, t->data, bytes);
}

static void read_expected(const char *folder, expected *e)
{
    char path[256];
    tn_safetensors *f;
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    assert_ok(tn_safetensors_open(path, &f));
    read_one(f, "tokens", TN_I32, e->tokens, sizeof e->tokens);
    read_one(f, "labels", TN_I32, e->labels, sizeof e->labels);
    read_one(f, "logits", TN_F32, e->logits, sizeof e->logits);
    read_one(f, "gradient", TN_F32, e->gradient, sizeof e->gradient);
    tn_safetensors_close(f);
}

/* Within 2e-5 of the largest. */
static void assert_near(const char *what, const float *got, const float *want, int n)
{
    double largest = 0, away = 0;
    for (int i = 0; i < n; i++) {
        assert_true(isfinite(got[i]));
        largest = fmax(largest, fabs((double)want[i]));
        away = fmax(away, fabs((double)got[i] - (double)want[i]));
    }
    if (!(away <= 2e-5 * largest)) fail_msg("%s: %.1e of the largest away", what, away / largest);
}

static void frozen_logits(void **state)
{
    static expected e;
    const golden *g = *state;
    tn_saved_model m = { 0 };
    tn_trainer *t;
    int64_t n = 0;
    float loss;
    read_expected(g->folder, &e);
    assert_ok(tn_saved_model_find(NULL, g->folder, (const char *[]){ "threads=2", "device=cpu" }, 2, "best", &m));
    assert_int_equal(m.matrices.type, g->type);
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = m.model,
                                                    .settings = m.settings,
                                                    .batch = 1,
                                                    .length = T,
                                                    .logits = true,
                                                    .forward_only = true,
                                                    .frozen = true,
                                                    .weights = m.matrices.type },
                             &t));
    assert_ok(tn_saved_model_load(&m, tn_trainer_store(t)));
    memcpy(tn_trainer_input(t, "tokens"), e.tokens, sizeof e.tokens);
    memcpy(tn_trainer_input(t, "labels"), e.labels, sizeof e.labels);
    assert_ok(tn_trainer_eval(t, &loss));
    const float *logits = tn_trainer_output(t, "logits", &n);
    assert_true(logits && n == T * V);
    assert_near("logits", logits, e.logits, T * V);
    tn_trainer_free(t);
    tn_saved_model_free(&m);
}

static void fine(int code)
{
    if (code != TENON_OK) fail_msg("%s", tenon_error());
}

static const float *output(tenon_net *net, const char *name, int64_t last)
{
    tenon_tensor t = { .size = sizeof t };
    fine(tenon_output_find(net, name, &t));
    assert_true(t.rank == 3 && t.shape[0] == 1 && t.shape[1] == T && t.shape[2] == last && t.dtype == TENON_F32);
    return t.data;
}

static void input_gradient(void **state)
{
    static const char *const outputs[] = { "d.embeddings", "logits" }, *const words[] = { "threads=2" };
    static expected e;
    static float x[T * D];
    const golden *g = *state;
    tenon_net *net = NULL;
    tenon_tensor table = { .size = sizeof table };
    double loss;
    read_expected(g->folder, &e);
    fine(tenon_open(g->folder, words, 1, &net));
    fine(tenon_shape(net, 1, T));
    fine(tenon_tensor_find(net, "embed", &table));
    for (int i = 0; i < T * D; i++) x[i] = ((const float *)table.data)[e.tokens[i / D] * D + i % D];
    fine(tenon_fill(net, "embeddings", TENON_F32, x, T * D));
    fine(tenon_fill(net, "labels", TENON_I32, e.labels, T));
    fine(tenon_run(net, "eval", outputs, 2, &loss));
    assert_near("logits", output(net, "logits", V), e.logits, T * V);
    assert_near("gradient", output(net, "d.embeddings", D), e.gradient, T * D);
    tenon_close(net);
}

void tn_tests_golden_folders(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        tn_test_add(l, frozen_logits, &goldens[i], "%s: logits", goldens[i].folder);
        tn_test_add(l, input_gradient, &goldens[i], "%s: gradient at the embeddings", goldens[i].folder);
    }
}
