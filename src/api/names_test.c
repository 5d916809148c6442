/* The public interface by name: the calls for tokens are the same calls, models that read something else learn from arrays, and a wrong
 * name, type, size or number is one line. */
#include "tempdir.h"

#include <math.h>
#include <tenon/tenon.h>

enum { V = 32, B = 2, T = 12 };

static const char *const tiny[] = { "dim=16",        "layers=2",         "heads=2",
                                    "vocab=32",      "train.context=24", "threads=1",
                                    "train.lr=1e-2", "train.warmup=0",   "train.schedule=constant" };
static const char *const models[] = { "ten", "gpt" };

#define assert_fine(call)                                                                                              \
    do {                                                                                                               \
        if ((call) != TENON_OK) fail_msg("%s: %s", #call, tenon_error());                                              \
    } while (0)

typedef struct batch {
    int32_t tokens[B * T], labels[B * T];
} batch;

static tenon_net *open_tiny(const char *model, batch *b)
{
    tenon_net *net = NULL;
    assert_fine(tenon_open(model, tiny, sizeof tiny / sizeof *tiny, &net));
    assert_fine(tenon_shape(net, B, T));
    for (int i = 0; b && i < B * T; i++) {
        b->tokens[i] = (i * 7 + i / 5) % V;
        b->labels[i] = i % 4 == 3 ? -1 : (i * 3 + 1) % V;
    }
    return net;
}

static tenon_tensor tensor(tenon_net *net, const char *name)
{
    tenon_tensor t = { .size = sizeof t };
    assert_fine(tenon_tensor_find(net, name, &t));
    return t;
}

static double loss(tenon_net *net, const batch *b)
{
    double x = 0;
    assert_fine(tenon_loss(net, b->tokens, b->labels, &x));
    return x;
}

static void fill_batch(tenon_net *net, const batch *b)
{
    assert_fine(tenon_fill(net, "tokens", TENON_I32, b->tokens, B * T));
    assert_fine(tenon_fill(net, "labels", TENON_I32, b->labels, B * T));
}

/* The calls for tokens are the same calls: the same bits. */
static void tokens_by_name(void **state)
{
    batch b;
    double x, y;
    static float logits[B * T * V], slopes[V * 16];
    tenon_net *net = open_tiny(*state, &b);
    const tenon_tensor e = tensor(net, "embed");
    tenon_tensor out = { .size = sizeof out };
    assert_fine(tenon_loss(net, b.tokens, b.labels, &x));
    fill_batch(net, &b);
    assert_fine(tenon_run(net, "eval", NULL, 0, &y));
    assert_true(x == y && tenon_outputs(net) >= 1);
    assert_fine(tenon_output_find(net, "loss", &out));
    assert_true(*(float *)out.data == (float)y && out.rank == 0 && !out.trainable);
    assert_fine(tenon_forward(net, b.tokens, logits));
    tenon_clear(net);
    assert_fine(tenon_fill(net, "tokens", TENON_I32, b.tokens, B * T)); /* labels: padding */
    assert_fine(tenon_run(net, "eval", (const char *const[]){ "logits" }, 1, NULL));
    assert_fine(tenon_output_find(net, "logits", &out));
    assert_true(out.rank == 3 && out.shape[0] == B && out.shape[1] == T && out.shape[2] == V && out.dtype == TENON_F32);
    assert_memory_equal(out.data, logits, sizeof logits);
    assert_fine(tenon_gradients(net, b.tokens, b.labels, &x));
    memcpy(slopes, e.gradient, sizeof slopes);
    tenon_zero_gradients(net);
    fill_batch(net, &b);
    assert_fine(tenon_run(net, "train", NULL, 0, &y));
    assert_true(x == y && tenon_outputs(net) == 0);
    assert_memory_equal(slopes, e.gradient, sizeof slopes);
    tenon_close(net);
}

/* Marks of documents take part where they are filled: what stands behind one does not know what stands before it. */
static void optional_inputs(void **state)
{
    batch b;
    int32_t reset[B * T] = { 0 };
    double plain, none, marked, other, again;
    tenon_net *net = open_tiny(*state, &b);
    tenon_input in = { .size = sizeof in };
    assert_fine(tenon_input_find(net, "reset", &in));
    assert_true(in.optional && !in.filled && in.dtype == TENON_I32 && in.rank == 2 && in.shape[0] == B &&
                in.shape[1] == T && in.batch && in.time);
    for (int i = 0; i < B * T; i++) b.labels[i] = i % T < T / 2 ? -1 : b.tokens[i];
    plain = loss(net, &b);
    fill_batch(net, &b);
    assert_fine(tenon_fill(net, "reset", TENON_I32, reset, B * T));
    assert_fine(tenon_run(net, "eval", NULL, 0, &none));
    assert_true(fabs(none - plain) < 1e-6);
    for (int r = 0; r < B; r++) reset[r * T + T / 2] = 1;
    assert_fine(tenon_fill(net, "reset", TENON_I32, reset, B * T));
    assert_fine(tenon_run(net, "eval", NULL, 0, &marked));
    for (int i = 0; i < B * T; i++)
        if (i % T < T / 2) b.tokens[i] = (b.tokens[i] + 1) % V;
    fill_batch(net, &b);
    assert_fine(tenon_run(net, "eval", NULL, 0, &other));
    if (strcmp(*state, "ten") == 0)
        assert_true(marked != plain && other == marked); /* gpt is told of documents by another */
    assert_true(loss(net, &b) != plain);                 /* and the calls for tokens do without */
    for (int i = 0; i < B * T; i++)
        if (i % T < T / 2) b.tokens[i] = (b.tokens[i] + V - 1) % V;
    again = loss(net, &b);
    assert_true(again == plain);
    tenon_close(net);
}

enum { SAMPLES = 12, FEATURES = 6, CLASSES = 3 };

static const char *const small_tep[] = {
    "inputs=6", "classes=3", "dim=8", "threads=1", "train.lr=3e-2", "train.warmup=0", "train.schedule=constant"
};

static tenon_net *open_tep(float features[SAMPLES * FEATURES], int32_t labels[SAMPLES])
{
    tenon_net *net = NULL;
    assert_fine(tenon_open("tep", small_tep, sizeof small_tep / sizeof *small_tep, &net));
    assert_int_equal(tenon_length(net), 1);
    assert_fine(tenon_shape(net, SAMPLES, 1));
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < FEATURES; k++)
            features[i * FEATURES + k] = (k % CLASSES == labels[i]) + 0.1f * (float)((i * 7 + k * 5) % 11 - 5);
    }
    return net;
}

/* A model that reads no tokens learns from arrays. */
static void samples_by_name(void **state)
{
    (void)state;
    float features[SAMPLES * FEATURES];
    int32_t labels[SAMPLES], five = 5;
    double first, last, padded, part;
    tenon_tensor out = { .size = sizeof out };
    tenon_input in = { .size = sizeof in };
    tenon_net *net = open_tep(features, labels);
    assert_int_equal(tenon_inputs(net), 6);
    assert_fine(tenon_input_at(net, 0, &in));
    assert_string_equal(in.name, "features");
    assert_true(in.dtype == TENON_F32 && in.rank == 3 && in.shape[0] == SAMPLES && in.shape[1] == 1 &&
                in.shape[2] == FEATURES && !in.optional);
    assert_fine(tenon_input_find(net, "labels", &in));
    assert_true(in.below == CLASSES && in.pad == -1 && in.rank == 2 && in.shape[1] == 1 && !in.time && !in.filled);
    assert_fine(tenon_fill(net, "features", TENON_F32, features, SAMPLES * FEATURES));
    assert_fine(tenon_fill(net, "labels", TENON_I32, labels, SAMPLES));
    assert_fine(tenon_run(net, "eval", NULL, 0, &first));
    for (int i = 0; i < 40; i++) { /* what is filled stays */
        assert_fine(tenon_run(net, "train", NULL, 0, NULL));
        assert_fine(tenon_step(net, NULL));
    }
    assert_fine(tenon_run(net, "eval", (const char *const[]){ "logits" }, 1, &last));
    assert_true(last < 0.5 * first && last < 0.3);
    assert_fine(tenon_output_find(net, "logits", &out));
    assert_true(out.rank == 3 && out.shape[0] == SAMPLES && out.shape[1] == 1 && out.shape[2] == CLASSES);
    const float *x = out.data;
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < CLASSES; k++) assert_true(x[i * CLASSES + labels[i]] >= x[i * CLASSES + k]);
    /* Five rows of the twelve are five samples. */
    assert_fine(tenon_fill(net, "count", TENON_I32, &five, 1));
    for (int i = five; i < SAMPLES; i++) labels[i] = -1;
    assert_fine(tenon_fill(net, "labels", TENON_I32, labels, SAMPLES));
    assert_fine(tenon_run(net, "eval", NULL, 0, &padded));
    assert_fine(tenon_shape(net, 5, 1));
    assert_fine(tenon_fill(net, "features", TENON_F32, features, (size_t)five * FEATURES));
    assert_fine(tenon_fill(net, "labels", TENON_I32, labels, (size_t)five));
    assert_fine(tenon_run(net, "eval", NULL, 0, &part));
    assert_true(fabs(padded - part) < 1e-6 && part > 0);
    tenon_close(net);
}

static void refused(tenon_status s, const char *part)
{
    assert_int_equal(s, TENON_USAGE);
    if (!strstr(tenon_error(), part) || strchr(tenon_error(), '\n'))
        fail_msg("\"%s\" does not say \"%s\" in one line", tenon_error(), part);
}

static void mistakes_by_name(void **state)
{
    (void)state;
    float features[SAMPLES * FEATURES];
    int32_t labels[SAMPLES], many = SAMPLES + 1;
    double x;
    tenon_input in = { 0 };
    tenon_tensor out = { .size = sizeof out };
    tenon_metric metric = { .size = sizeof metric };
    tenon_net *net = open_tep(features, labels);
    refused(tenon_metric_find(net, "loss", &metric), "no metrics are known yet: call tenon_measure");
    tenon_sample_options sampling;
    tenon_tokenizer *bytes = NULL;
    tenon_sample_init(&sampling);
    assert_fine(tenon_tokenizer_open("bytes", &bytes));
    refused(tenon_sample(net, bytes, &sampling), "model tep learns from samples and cannot generate text");
    refused(tenon_sample(net, NULL, &sampling), "tokenizer is NULL");
    tenon_tokenizer_close(bytes);
    refused(tenon_tensor_find(net, "w_inn", &out), "no tensor w_inn: tenon_tensor_at lists");
    refused(tenon_tensor_find(net, NULL, &out), "name is NULL");
    refused(tenon_input_find(net, "labels", NULL), "tenon_input is NULL");
    refused(tenon_set(net, NULL, "1"), "key is NULL");
    refused(tenon_set(net, "train.lr", NULL), "value is NULL");
    refused(tenon_run(net, "eval", NULL, 0, &x), "input features of model tep is missing: fill it");
    refused(tenon_run(net, "eval", (const char *const[]){ "logits" }, 1, NULL), "no input of model tep is filled");
    refused(tenon_fill(net, "surface", TENON_F32, features, 1),
            "model tep has no input surface: it has features, labels, count, sample, weights, targets");
    refused(tenon_fill(net, "features", TENON_I32, labels, SAMPLES), "input features is f32, and i32 is given");
    refused(tenon_fill(net, "features", TENON_F32, features, 7),
            "input features is (12,1,6), 72 numbers, and 7 are given");
    refused(tenon_fill(net, "features", TENON_F32, NULL, SAMPLES * FEATURES), "features is NULL");
    refused(tenon_fill(net, NULL, TENON_F32, features, 1), "name is NULL");
    labels[4] = CLASSES;
    refused(tenon_fill(net, "labels", TENON_I32, labels, SAMPLES), "labels[4] is 3, outside -1 to 2");
    refused(tenon_fill(net, "count", TENON_I32, &many, 1), "count[0] is 13, outside 0 to 12");
    assert_fine(tenon_fill(net, "features", TENON_F32, features, SAMPLES * FEATURES));
    refused(tenon_run(net, "train", NULL, 0, &x), "input labels of model tep is missing: fill it");
    refused(tenon_run(net, "generate", NULL, 0, &x), "model tep has no step generate: it has train, eval");
    refused(tenon_run(net, "eval", (const char *const[]){ "picture" }, 1, NULL), "has no output picture: it has");
    refused(tenon_run(net, "train", (const char *const[]){ "logits" }, 1, NULL), "step train has no outputs");
    refused(tenon_output_find(net, "loss", &out), "request it with tenon_run");
    refused(tenon_input_at(net, 0, &in), "tenon_input.size is 0");
    in.size = sizeof in;
    refused(tenon_input_at(net, 6, &in), "index 6 is out of range");
    refused(tenon_input_find(net, "reset", &in), "no input reset");
    refused(tenon_forward(net, labels, features), "model tep has no input tokens");
    refused(tenon_evaluate(net, labels, SAMPLES, &x, NULL), "model tep has no input tokens");
    refused(tenon_set(net, "labels", "0"), "a size is an integer");
    refused(tenon_set(net, "inputs", "7"), "cannot be changed");
    static const char *const nine[] = { "a", "b", "c", "d", "e", "f", "g", "h", "i" };
    refused(tenon_run(net, "eval", nine, 9, NULL), "at most 8 outputs can be asked for");
    refused(tenon_run(net, "eval", nine, 8, NULL), "has no output a");
    assert_fine(tenon_run(net, "eval", (const char *const[]){ "state", "logits" }, 2, NULL));
    assert_fine(tenon_set(net, "labels", "2")); /* of each sample; nothing is filled any more */
    assert_fine(tenon_input_find(net, "labels", &in));
    assert_true(in.shape[1] == 2 && !in.filled);
    assert_fine(tenon_set(net, "labels", "1"));
    labels[4] = 0;
    assert_fine(tenon_fill(net, "features", TENON_F32, features, SAMPLES * FEATURES));
    assert_fine(tenon_fill(net, "labels", TENON_I32, labels, SAMPLES));
    assert_fine(tenon_run(net, "eval", NULL, 0, &x)); /* none of it broke the handle */
    tenon_close(net);
}

void tn_tests_names(tn_test_list *l)
{
    for (int i = 0; i < 2; i++) {
        tn_test_add(l, tokens_by_name, models[i], "api: tokens by name, %s", models[i]);
        tn_test_add(l, optional_inputs, models[i], "api: optional inputs, %s", models[i]);
    }
    tn_test_add(l, samples_by_name, NULL, "api: samples by name");
    tn_test_add(l, mistakes_by_name, NULL, "api: mistakes by name");
}
