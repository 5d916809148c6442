/* Models that are opened with weights: held as the file holds them until somebody trains or looks; then as if they had always been f32. */
#include "api/net.h"
#include "tempdir.h"
#include "train/run/checkpoint_convert.h"

enum { V = 32, B = 2, T = 12 };

static const char *const tiny[] = { "dim=16",           "layers=2",  "heads=2", "vocab=32",
                                    "train.context=24", "threads=1", "seed=3" };

#define assert_fine(call)                                                                                              \
    do {                                                                                                               \
        if ((call) != TENON_OK) fail_msg("%s: %s", #call, tenon_error());                                              \
    } while (0)

static int32_t tokens[B * T], labels[B * T];

static double loss(tenon_net *net)
{
    double x = 0;
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * 7 + i / 5) % V;
        labels[i] = (i * 3 + 1) % V;
    }
    assert_fine(tenon_shape(net, B, T));
    assert_fine(tenon_loss(net, tokens, labels, &x));
    return x;
}

/* A model of its first values as bf16. */
static void write_half(tn_tempdir *d, const char *model, char path[TN_PATH_BYTES])
{
    tenon_net *net = NULL;
    char unused[TN_CKPT_NOTE];
    tn_tempdir_make_quick(d);
    assert_fine(tenon_open(model, tiny, sizeof tiny / sizeof *tiny, &net));
    assert_fine(tenon_save(net, tn_tempdir_file(d, "whole.safetensors")));
    tenon_close(net);
    snprintf(path, TN_PATH_BYTES, "%s", tn_tempdir_file(d, "half.safetensors"));
    assert_ok(tn_ckpt_convert(NULL, tn_tempdir_file(d, "whole.safetensors"), path, TN_BF16, unused));
}

static int64_t bytes_of(const tn_store *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < tn_store_count(s); i++) {
        const tn_entry *e = tn_store_at(s, i);
        if (e->weight) n += tn_dims_count(e->dims) * (int64_t)tn_dtype_bytes(e->dtype);
    }
    return n;
}

static tenon_tensor about(const tenon_net *net, size_t i)
{
    tenon_tensor t = { .size = sizeof t };
    assert_fine(tenon_tensor_about(net, i, &t));
    return t;
}

static void held_as_in_the_file(void **state)
{
    tn_tempdir d;
    char path[TN_PATH_BYTES];
    tenon_net *net = NULL, *whole = NULL;
    float *w;
    write_half(&d, *state, path);
    assert_fine(tenon_open(tn_tempdir_file(&d, "whole.safetensors"), NULL, 0, &whole));
    assert_fine(tenon_open(path, NULL, 0, &net));
    const int64_t half = bytes_of(net->store), parameters = tenon_parameters(net);
    assert_int_equal(tn_store_buckets(net->store), 0); /* nothing has a gradient */
    assert_true(half < 3 * bytes_of(whole->store) / 4);
    assert_int_equal(bytes_of(whole->store), 4 * parameters);
    const double before = loss(net);
    assert_true(before != loss(whole));
    for (size_t i = 0; i < tenon_tensors(net); i++) {
        const tenon_tensor t = about(net, i);
        assert_true(!t.data && !t.gradient && (!t.trainable || t.dtype == TENON_F32));
    }
    assert_int_equal(bytes_of(net->store), half);
    assert_fine(tenon_save(net, tn_tempdir_file(&d, "again.safetensors"))); /* in the type that it has */
    assert_int_equal(bytes_of(net->store), half);

    tenon_tensor t = { .size = sizeof t };
    const char *name = about(net, 0).name; /* it outlives the store that it came from */
    assert_fine(tenon_tensor_find(net, name, &t));
    assert_true(t.trainable && t.data && t.gradient && t.dtype == TENON_F32);
    assert_string_equal(name, t.name);
    assert_int_equal(bytes_of(net->store), 4 * parameters);
    assert_int_equal(tenon_parameters(net), parameters);
    assert_true(loss(net) == before);
    w = t.data;
    assert_fine(tenon_gradients(net, tokens, labels, NULL));
    assert_fine(tenon_step(net, NULL));
    assert_true(loss(net) < before);
    assert_fine(tenon_tensor_find(net, name, &t));
    assert_ptr_equal(w, t.data);
    assert_fine(tenon_load(net, path));
    assert_true(loss(net) == before);
    tenon_close(net);
    tenon_close(whole);
    assert_fine(tenon_open(tn_tempdir_file(&d, "again.safetensors"), NULL, 0, &net));
    assert_true(loss(net) == before);
    tenon_close(net);
    tn_tempdir_remove_all(&d);
}

/* Outputs last until the next step, also where a tensor is asked for between. */
static void outputs_outlive_it(void **state)
{
    static const char *const names[] = { "logits" };
    tn_tempdir d;
    char path[TN_PATH_BYTES];
    tenon_net *net = NULL;
    tenon_tensor t = { .size = sizeof t }, out = { .size = sizeof out };
    float first;
    write_half(&d, *state, path);
    assert_fine(tenon_open(path, NULL, 0, &net));
    const double before = loss(net);
    assert_fine(tenon_run(net, "eval", names, 1, NULL));
    assert_fine(tenon_output_find(net, "logits", &out));
    first = ((const float *)out.data)[3];
    assert_fine(tenon_tensor_at(net, 0, &t));
    assert_fine(tenon_output_find(net, "logits", &out));
    assert_true(((const float *)out.data)[3] == first);
    assert_fine(tenon_run(net, "eval", names, 1, NULL)); /* inputs stay filled */
    assert_fine(tenon_output_find(net, "logits", &out));
    assert_true(((const float *)out.data)[3] == first);
    assert_true(loss(net) == before);
    tenon_close(net);
    assert_fine(tenon_open(path, NULL, 0, &net)); /* closed with what is kept */
    (void)loss(net);
    assert_fine(tenon_tensor_at(net, 0, &t));
    tenon_close(net);
    tn_tempdir_remove_all(&d);
}

static void slopes(tenon_net *net, float *to, double *x)
{
    static const char *const names[] = { "d.embeddings" };
    float v[B * T * 16];
    tenon_tensor out = { .size = sizeof out };
    for (int i = 0; i < B * T * 16; i++) v[i] = (float)(i % 13 - 6) / 8;
    (void)loss(net); /* fills labels */
    tenon_clear(net);
    assert_fine(tenon_fill(net, "embeddings", TENON_F32, v, B * T * 16));
    assert_fine(tenon_fill(net, "labels", TENON_I32, labels, B * T));
    assert_fine(tenon_run(net, "eval", names, 1, x));
    assert_fine(tenon_output_find(net, "d.embeddings", &out));
    memcpy(to, out.data, sizeof v);
}

/* Gradients by inputs leave weights as they are held; and are those of the same weights as floats. */
static void gradients_by_inputs_stay(void **state)
{
    tn_tempdir d;
    char path[TN_PATH_BYTES];
    tenon_net *net = NULL;
    tenon_tensor t = { .size = sizeof t };
    float half[B * T * 16], whole[B * T * 16];
    double held, thawed;
    (void)state;
    write_half(&d, "gpt", path);
    assert_fine(tenon_open(path, NULL, 0, &net));
    const int64_t bytes = bytes_of(net->store), parameters = tenon_parameters(net);
    slopes(net, half, &held);
    assert_true(net->frozen);
    assert_int_equal(tn_store_buckets(net->store), 0);
    assert_int_equal(bytes_of(net->store), bytes);
    assert_int_equal(tenon_parameters(net), parameters);
    assert_fine(tenon_tensor_at(net, 0, &t)); /* f32 from now on */
    assert_int_equal(bytes_of(net->store), 4 * parameters);
    slopes(net, whole, &thawed);
    assert_true(held == thawed && half[5] != 0);
    assert_memory_equal(half, whole, sizeof half);
    tenon_close(net);
    tn_tempdir_remove_all(&d);
}

void tn_tests_frozen_api(tn_test_list *l)
{
    static const char *const models[] = { "ten", "gpt" };
    tn_test_add(l, gradients_by_inputs_stay, NULL, "api: gradients by inputs leave weights as the file holds them");
    for (int i = 0; i < 2; i++) {
        tn_test_add(l, held_as_in_the_file, models[i], "api: weights are held as the file holds them, %s", models[i]);
        tn_test_add(l, outputs_outlive_it, models[i], "api: outputs outlive the weights they came from, %s", models[i]);
    }
}
