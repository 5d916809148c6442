/* Comparing with another implementation: a right file passes, a NaN anywhere does not, and sizes are checked before
 * anything is read. */
#include "io/safetensors.h"
#include "mlp.h"
#include "tempdir.h"
#include "testlib.h"
#include "train/check/check.h"
#include "train/run/train_settings.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { T = 4, VOCAB = 5, D = 3 };

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref w = tn_param(g, "w", tn_shape(VOCAB, D), tn_ones), x = tn_embed(g, tn_in(b, "tokens"), w);
    if (tn_wants(b, "logits")) tn_output(g, "logits", tn_linear(g, x, w));
    tn_output(g, "loss", tn_mean_all(g, x));
    return tn_graph_status(g);
}

/* A file for weights of 1 and tokens of 0: loss 1, gradient 1/D in row 0, logits D. */
static void write_file(const char *path, int64_t logits, float spoil)
{
    static const int32_t tokens[T];
    float w[VOCAB * D], grad[VOCAB * D] = { 0 }, out[T * VOCAB + 8];
    const float loss = 1;
    tn_safetensors_writer *f;
    for (int i = 0; i < VOCAB * D; i++) w[i] = 1;
    for (int i = 0; i < D; i++) grad[i] = 1.f / D;
    for (int i = 0; i < T * VOCAB + 8; i++) out[i] = D;
    grad[0] += spoil;
    const struct {
        const char *name;
        tn_dtype dtype;
        tn_dims dims;
        const void *data;
    } all[] = {
        { "input.tokens", TN_I32, tn_shape(1, T), tokens }, { "input.labels", TN_I32, tn_shape(1, T), tokens },
        { "param.w", TN_F32, tn_shape(VOCAB, D), w },       { "grad.w", TN_F32, tn_shape(VOCAB, D), grad },
        { "output.loss", TN_F32, tn_shape(1), &loss },      { "output.logits", TN_F32, tn_shape(logits), out }
    };
    const size_t n = sizeof all / sizeof *all;
    assert_ok(tn_safetensors_writer_begin(path, NULL, 0, &f));
    for (size_t i = 0; i < n; i++) assert_ok(tn_safetensors_writer_declare(f, all[i].name, all[i].dtype, all[i].dims));
    for (size_t i = 0; i < n; i++)
        assert_ok(tn_safetensors_writer_put(f, all[i].name, all[i].data, (size_t)tn_dims_count(all[i].dims) * 4));
    assert_ok(tn_safetensors_writer_finish(f));
}

static void ignore_row(void *ctx, const tn_check_row *r) { (void)ctx, (void)r; }

static void against(void **state)
{
    (void)state;
    static const tn_model model = { TN_MODEL_HEAD, .name = "toy", .build = build, TN_LANGUAGE_ROWS };
    static const char *const set[] = { "threads=1", "vocab=5" };
    const tn_model *unused;
    tn_settings *st;
    tn_tempdir dir;
    tn_tempdir_make(&dir);
    const char *path = tn_tempdir_file(&dir, "ref.safetensors");
    assert_ok(tn_settings_resolve("gpt_tiny", set, 2, &st, &unused));
    const tn_check c = { .model = &model, .settings = st, .row = ignore_row };
    write_file(path, T * VOCAB, 0);
    assert_ok(tn_check_against(&c, path));
    write_file(path, T * VOCAB, NAN); /* in the first number: later ones must not hide it */
    assert_fails(tn_check_against(&c, path), TN_DIVERGED, "1 of 3");
    write_file(path, T * VOCAB + 8, 0);
    assert_fails(tn_check_against(&c, path), TN_BAD_FILE, "output.logits");
    tn_settings_free(st);
    tn_tempdir_remove(&dir);
}

/* --- samples ----------------------------------------------------------------------------------------------------------- */

static tn_status build_samples(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const int64_t B = b->batch, n = b->length * tn_ref_dim(g, tn_in(b, "features"), 2);
    const tn_ref logits =
        tn_linear(g, tn_reshape(g, tn_in(b, "features"), tn_shape(B, n)), tn_param(g, "w", tn_shape(2, n), tn_ones));
    if (tn_wants(b, "logits")) tn_output(g, "logits", logits);
    tn_output(g, "loss", tn_xent(g, logits, tn_reshape(g, tn_in(b, "labels"), tn_shape(B))));
    return tn_graph_status(g);
}

/* Weights of 0: the loss is log 2, and the gradient of the one sample that counts is half of it in each row. */
static void write_samples(const char *path, int64_t inputs, bool labels)
{
    static const float x[2][4] = { { 1, -2, 3, 0.5f }, { 9, 9, 9, 9 } }, w[8];
    static const int32_t y[2] = { 1, -1 };
    const float loss = logf(2), logits[4] = { 0 };
    float grad[8];
    tn_safetensors_writer *f;
    for (int i = 0; i < 8; i++) grad[i] = (i < 4 ? 0.5f : -0.5f) * x[0][i % 4];
    const struct {
        const char *name;
        tn_dtype dtype;
        tn_dims dims;
        const void *data;
    } all[] = { { "input.features", TN_F32, tn_shape(1, 2, 4 / inputs, inputs), x },
                { "input.labels", TN_I32, tn_shape(1, 2, 1), y },
                { "param.w", TN_F32, tn_shape(2, 4), w },
                { "grad.w", TN_F32, tn_shape(2, 4), grad },
                { "output.loss", TN_F32, tn_shape(1), &loss },
                { "output.losses", TN_F32, tn_shape(1), &loss },
                { "output.logits", TN_F32, tn_shape(2, 2), logits } };
    assert_ok(tn_safetensors_writer_begin(path, NULL, 0, &f));
    for (size_t i = 0; i < 7; i++)
        if (i != 1 || labels) assert_ok(tn_safetensors_writer_declare(f, all[i].name, all[i].dtype, all[i].dims));
    for (size_t i = 0; i < 7; i++)
        if (i != 1 || labels)
            assert_ok(tn_safetensors_writer_put(f, all[i].name, all[i].data, (size_t)tn_dims_count(all[i].dims) * 4));
    assert_ok(tn_safetensors_writer_finish(f));
}

static void samples(void **state)
{
    (void)state;
    static const tn_model model = { TN_MODEL_HEAD, .name = "toy", .build = build_samples, TN_MLP_ROWS };
    static const char *const set[] = { "threads=1", "inputs=2", "tokens=2", "classes=2" };
    tn_settings *st = tn_mlp_settings(set, 4);
    tn_tempdir dir;
    tn_tempdir_make(&dir);
    const char *path = tn_tempdir_file(&dir, "ref.safetensors");
    const tn_check c = { .model = &model, .settings = st, .row = ignore_row };
    write_samples(path, 2, true);
    assert_ok(tn_check_against(&c, path));
    write_samples(path, 2, false);
    assert_fails(tn_check_against(&c, path), TN_BAD_FILE, "input.labels");
    write_samples(path, 4, true);
    assert_fails(tn_check_against(&c, path), TN_BAD_FILE, "input.features has size 4 where the model has inputs=2");
    tn_settings_free(st);
    tn_tempdir_remove(&dir);
}

void tn_tests_against(tn_test_list *l)
{
    tn_test_add(l, against, NULL, "against: NaN and sizes");
    tn_test_add(l, samples, NULL, "against: samples");
}
