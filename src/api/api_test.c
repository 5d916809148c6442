/* The public interface: what it computes agrees with itself (losses from logits, gradients from differences, files with
 * memory), tensors keep their places, and mistakes are errors. */
#include "tempdir.h"
#include "train/run/session.h"
#include "train/run/training.h"

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

static void logits_make_the_loss(void **state)
{
    batch b;
    static float logits[B * T * V];
    double sum = 0;
    int n = 0;
    tenon_net *net = open_tiny(*state, &b);
    assert_int_equal(tenon_vocab(net), V);
    assert_fine(tenon_forward(net, b.tokens, logits));
    for (int i = 0; i < B * T; i++) {
        double total = 0;
        if (b.labels[i] < 0) continue;
        for (int v = 0; v < V; v++) total += exp((double)logits[i * V + v]);
        sum += log(total) - (double)logits[i * V + b.labels[i]];
        n++;
    }
    assert_true(fabs(sum / n - loss(net, &b)) < 1e-5);
    tenon_close(net);
}

static void gradients_are_slopes(void **state)
{
    batch b;
    double x;
    tenon_net *net = open_tiny(*state, &b);
    const tenon_tensor e = tensor(net, "embed");
    float *w = e.data;
    assert_true(e.trainable && e.rank == 2 && e.shape[0] == V && e.shape[1] == 16 && e.dtype == TENON_F32);
    assert_fine(tenon_gradients(net, b.tokens, b.labels, &x));
    assert_true(fabs(x - loss(net, &b)) < 1e-6);
    const float slope = e.gradient[5], before = w[5], h = 1e-3f;
    assert_fine(tenon_gradients(net, b.tokens, b.labels, NULL)); /* they add up */
    assert_true(fabsf(e.gradient[5] - 2 * slope) <= 1e-6f * fabsf(slope) + 1e-9f);
    w[5] = before + h; /* what is written is what is computed with */
    const double up = loss(net, &b);
    w[5] = before - h;
    const double down = loss(net, &b);
    assert_true(fabs((up - down) / (2 * (double)h) - (double)slope) < 2e-2 * fabs((double)slope) + 1e-3);
    tenon_zero_gradients(net);
    assert_true(e.gradient[5] == 0);
    tenon_close(net);
}

/* By vectors in the place of tokens: their loss is that of the tokens they stand for, their gradient its slope, and weights get none. */
static void gradients_by_inputs(void **state)
{
    static const char *const outputs[] = { "d.embeddings", "logits" };
    enum { D = 16 };
    batch b;
    double base, x;
    (void)state;
    tenon_net *net = open_tiny("gpt", &b);
    const tenon_tensor e = tensor(net, "embed");
    const double want = loss(net, &b);
    float v[B * T * D], slope[B * T * D];
    for (int i = 0; i < B * T * D; i++) v[i] = ((float *)e.data)[b.tokens[i / D] * D + i % D];
    tenon_clear(net);
    assert_fine(tenon_fill(net, "labels", TENON_I32, b.labels, B * T));
    assert_fine(tenon_fill(net, "embeddings", TENON_F32, v, B * T * D));
    assert_fine(tenon_run(net, "eval", outputs, 2, &base));
    assert_true(base == want);
    tenon_tensor d = { .size = sizeof d };
    assert_fine(tenon_output_find(net, "d.embeddings", &d));
    assert_true(d.rank == 3 && d.shape[0] == B && d.shape[1] == T && d.shape[2] == D && d.dtype == TENON_F32);
    memcpy(slope, d.data, sizeof slope);
    for (int k = 0; k < 5; k++) {
        const int i = k * 77 + 3;
        double ends[2];
        for (int side = 0; side < 2; side++) {
            const float was = v[i];
            v[i] += side ? -1e-2f : 1e-2f;
            assert_fine(tenon_fill(net, "embeddings", TENON_F32, v, B * T * D));
            assert_fine(tenon_run(net, "eval", NULL, 0, &ends[side]));
            v[i] = was;
        }
        assert_true(fabs((ends[0] - ends[1]) / 2e-2 - (double)slope[i]) < 2e-2 * fabs((double)slope[i]) + 1e-4);
    }
    for (int i = 0; i < V * D; i++) assert_true(e.gradient[i] == 0);
    tenon_clear(net); /* tokens are integers, and these vectors are not filled now */
    assert_fine(tenon_fill(net, "tokens", TENON_I32, b.tokens, B * T));
    assert_int_equal(tenon_run(net, "eval", (const char *const[]){ "d.tokens" }, 1, &x), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "d.tokens: model gpt reads no floats as tokens"));
    assert_int_equal(tenon_run(net, "eval", outputs, 1, &x), TENON_USAGE);
    assert_true(loss(net, &b) == want);
    tenon_close(net);
}

/* Steps lower the loss, and a change of shape in between changes nothing: not the tensors' places, not the moments. */
static void steps_and_shapes(void **state)
{
    batch b;
    double first, sum[2];
    for (int changes = 0; changes < 2; changes++) {
        tenon_net *net = open_tiny(*state, &b);
        const tenon_tensor e = tensor(net, "embed");
        tenon_step_report r = { .size = sizeof r };
        first = loss(net, &b);
        for (int i = 0; i < 6; i++) {
            assert_fine(tenon_gradients(net, b.tokens, b.labels, NULL));
            assert_fine(tenon_step(net, &r));
            assert_true(r.applied && r.step == i + 1 && r.grad_norm > 0 && fabs(r.lr - 1e-2) < 1e-6);
            if (changes) assert_fine(tenon_shape(net, 1, 5));
            if (changes) assert_fine(tenon_shape(net, B, T));
        }
        assert_true(loss(net, &b) < first - 0.1);
        assert_ptr_equal(tensor(net, "embed").data, e.data);
        sum[changes] = 0;
        for (int i = 0; i < V * 16; i++) sum[changes] += (double)((float *)e.data)[i] * (i + 1);
        assert_fine(tenon_set(net, "train.lr", "1e-3"));
        assert_fine(tenon_gradients(net, b.tokens, b.labels, NULL));
        assert_fine(tenon_step(net, &r));
        assert_true(fabs(r.lr - 1e-3) < 1e-7);
        tenon_close(net);
    }
    assert_true(sum[0] == sum[1]);
}

/* Copies are the memory itself, both ways; on the CPU that memory is at hand to compare with. */
static void copies(void **state)
{
    batch b;
    float x[V * 16], g[V * 16];
    tenon_net *net = open_tiny(*state, &b);
    const tenon_tensor e = tensor(net, "embed");
    assert_string_equal(tenon_device(net), "cpu");
    assert_string_equal(tenon_note(net), "");
    assert_fine(tenon_gradients(net, b.tokens, b.labels, NULL));
    assert_fine(tenon_read(net, "embed", TENON_DATA, x, sizeof x));
    assert_fine(tenon_read(net, "embed", TENON_GRADIENT, g, sizeof g));
    assert_memory_equal(x, e.data, sizeof x);
    assert_memory_equal(g, e.gradient, sizeof g);
    const double before = loss(net, &b);
    for (int i = 0; i < V * 16; i++) x[i] -= 0.5f * g[i];
    assert_fine(tenon_write(net, "embed", TENON_DATA, x, sizeof x));
    assert_memory_equal(x, e.data, sizeof x);
    assert_true(loss(net, &b) < before);
    memset(g, 0, sizeof g);
    assert_fine(tenon_write(net, "embed", TENON_GRADIENT, g, sizeof g));
    assert_true(e.gradient[5] == 0);
    assert_int_equal(tenon_read(net, "embed", TENON_DATA, x, sizeof x - 4), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "embed has 2048 bytes, not 2044"));
    assert_int_equal(tenon_write(net, "nothing", TENON_DATA, x, sizeof x), TENON_USAGE);
    assert_int_equal(tenon_read(net, "embed", (tenon_part)7, x, sizeof x), TENON_USAGE);
    assert_int_equal(tenon_write(net, "embed", TENON_DATA, NULL, sizeof x), TENON_USAGE);
    tenon_close(net);
}

/* Where no GPU is to be had: device=cuda says what to do, device=auto takes the CPU. With one, tensors have no address. */
static void devices(void **state)
{
    (void)state;
    tenon_net *net = NULL;
    tenon_tensor t = { .size = sizeof t };
    const char *const words[] = { "dim=16", "layers=1", "heads=2", "vocab=32", "device=cpu", "device=cuda" };
    const bool gpu = tenon_open("gpt", words, 6, &net) == TENON_OK;
    if (!gpu) assert_non_null(strstr(tenon_error(), "use device=cpu"));
    else {
        assert_string_equal(tenon_device(net), "cuda");
        assert_fine(tenon_tensor_find(net, "embed", &t));
        assert_true(!t.data && !t.gradient && t.trainable);
    }
    tenon_close(net);
    const char *const automatic[] = { "dim=16", "layers=1", "heads=2", "vocab=32", "device=auto" };
    assert_fine(tenon_open("gpt", automatic, 5, &net));
    assert_string_equal(tenon_device(net), gpu ? "cuda" : "cpu");
    tenon_close(net);
}

static void files_keep_it(void **state)
{
    batch b;
    tn_tempdir d;
    tenon_net *net = open_tiny(*state, &b), *again = NULL;
    tn_tempdir_make_quick(&d);
    assert_fine(tenon_gradients(net, b.tokens, b.labels, NULL));
    assert_fine(tenon_step(net, NULL));
    const char *path = tn_tempdir_file(&d, "x.safetensors");
    assert_fine(tenon_save(net, path));
    assert_fine(tenon_open(path, NULL, 0, &again));
    assert_string_equal(tenon_setting(again, "dim"), "16");
    assert_string_equal(tenon_setting(again, "train.context"), "24");
    assert_int_equal(tenon_parameters(again), tenon_parameters(net));
    assert_int_equal(tenon_length(again), 24);
    assert_fine(tenon_shape(again, B, T));
    assert_true(loss(again, &b) == loss(net, &b));
    ((float *)tensor(net, "embed").data)[0] += 1;
    assert_fine(tenon_load(net, path));
    assert_true(loss(again, &b) == loss(net, &b));
    tenon_close(net);
    tenon_close(again);
    tn_tempdir_remove_all(&d);
}

/* A row longer than two batches of windows: the mean over all its tokens but the first. */
static void rows_of_tokens(void **state)
{
    enum { N = 3 * T + 5 };
    int32_t row[N];
    double nats, sum = 0, x;
    size_t counted;
    tenon_net *net = open_tiny(*state, NULL);
    for (int i = 0; i < N; i++) row[i] = (i * i + 3) % V;
    assert_fine(tenon_evaluate(net, row, N, &nats, &counted));
    assert_int_equal(counted, N - 1);
    for (int from = 0; from < N - 1; from += T) {
        const int n = N - 1 - from < T ? N - 1 - from : T;
        assert_fine(tenon_shape(net, 1, n));
        assert_fine(tenon_loss(net, row + from, row + from + 1, &x));
        sum += x * n;
    }
    assert_true(fabs(nats - sum / (N - 1)) < 1e-5);
    tenon_close(net);
}

typedef struct heard {
    char text[2][512];
    size_t n[2], tokens[2];
    char why[2][16];
} heard;

static int hear(void *user, int64_t sample, const char *text, size_t bytes)
{
    heard *h = user;
    memcpy(h->text[sample] + h->n[sample], text, bytes);
    h->n[sample] += bytes;
    return 0;
}

static int hear_end(void *user, int64_t sample, const int32_t *ids, size_t n, const char *why)
{
    heard *h = user;
    h->tokens[sample] = n;
    assert_true(n == 0 || ids[n - 1] >= 0);
    snprintf(h->why[sample], sizeof h->why[sample], "%s", why);
    return 0;
}

static int enough(void *user, int64_t sample, const char *text, size_t bytes)
{
    (void)user, (void)sample, (void)text, (void)bytes;
    return 1;
}

static void samples(void **state)
{
    heard one = { .n = { 0 } }, two = { .n = { 0 } };
    tenon_net *net = NULL;
    tenon_tokenizer *t = NULL;
    tenon_sample_options o;
    const char *const list[] = { "dim=16", "layers=1", "heads=2", "vocab=256", "train.context=24", "threads=2" };
    assert_fine(tenon_open(*state, list, 6, &net));
    assert_fine(tenon_tokenizer_of(net, &t));
    tenon_sample_init(&o);
    o.prompt = "ab";
    o.prompt_bytes = 2;
    o.max_tokens = 10;
    o.samples = 2;
    o.text = hear;
    o.done = hear_end;
    o.user = &one;
    assert_fine(tenon_sample(net, t, &o));
    o.user = &two;
    assert_fine(tenon_sample(net, t, &o));
    assert_memory_equal(&one, &two, sizeof one);
    assert_int_equal(one.tokens[0], 10);
    assert_string_equal(one.why[1], "length");
    o.samples = 1; /* other shapes of caches in the same store */
    o.text = enough;
    assert_int_equal(tenon_sample(net, t, &o), TENON_INTERRUPTED);
    o.size = 0;
    assert_int_equal(tenon_sample(net, t, &o), TENON_USAGE);
    ((float *)tensor(net, "embed").data)[0] = NAN;
    tenon_sample_init(&o);
    assert_int_equal(tenon_sample(net, t, &o), TENON_DIVERGED);
    tenon_tokenizer_close(t);
    tenon_close(net);
}

/* By name, what an evaluation of the same parameters on the same data finds. */
static void metrics(void **state)
{
    (void)state;
    tn_tempdir d;
    char data[TN_PATH_BYTES + 8];
    tn_session on = { 0 };
    tn_evaluation e;
    tenon_net *net = NULL, *bare = NULL;
    tenon_metric m = { .size = sizeof m }, half = { .size = offsetof(tenon_metric, unit) };
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "text");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 4000; i++) fprintf(f, "%d\n", i);
    assert_int_equal(fclose(f), 0);
    snprintf(data, sizeof data, "data=%s", path);
    const char *const list[] = { "dim=16",           "layers=1",  "heads=2",       "vocab=256",
                                 "train.context=24", "threads=1", "train.batch=4", data };
    assert_fine(tenon_open("gpt", list, 8, &net));
    assert_int_equal(tenon_metrics(net), 0); /* nothing is recorded of it */
    assert_int_equal(tenon_metric_at(net, 0, &m), TENON_USAGE);
    assert_fine(tenon_measure(net, "valid"));
    assert_ok(tn_session_open("gpt", list, 8, true, &on));
    assert_ok(tn_evaluate(on.trainer, &on.source, 0, &e));
    assert_true(tenon_metrics(net) == 2 && e.scores.n == 2);
    for (size_t i = 0; i < 2; i++) {
        assert_fine(tenon_metric_at(net, i, &m));
        assert_string_equal(m.name, e.scores.at[i].name);
        assert_true(m.value == e.scores.at[i].value && m.value > 1 && m.higher == 0);
    }
    assert_fine(tenon_metric_find(net, "loss", &m));
    assert_string_equal(m.unit, "nats");
    assert_fine(tenon_metric_find(net, "bits_per_byte", &half)); /* an older caller's struct */
    assert_string_equal(half.name, "bits_per_byte");
    assert_true(half.unit == NULL && half.value == 0);
    assert_int_equal(tenon_metric_find(net, "accuracy", &m), TENON_USAGE);
    m.size = 0;
    assert_int_equal(tenon_metric_at(net, 0, &m), TENON_USAGE);
    assert_int_equal(tenon_measure(net, "train"), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "the splits are valid and test"));
    assert_int_equal(tenon_measure(net, "test"), TENON_USAGE);
    assert_int_equal(tenon_metrics(net), 2); /* as they were */
    assert_fine(tenon_open("gpt", list, 7, &bare));
    assert_int_equal(tenon_measure(bare, "valid"), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "data is not set"));
    tenon_close(net);
    tenon_close(bare);
    tn_session_close(&on);
    tn_tempdir_remove_all(&d);
}

static void tokenizers(void **state)
{
    (void)state;
    tenon_tokenizer *t = NULL;
    int32_t ids[8];
    char text[8];
    size_t n = 0, bytes = 0;
    assert_fine(tenon_tokenizer_open("bytes", &t));
    assert_int_equal(tenon_tokenizer_vocab(t), 256);
    assert_int_equal(tenon_tokenizer_start(t), -1);
    assert_fine(tenon_encode(t, "h\xc3\xa9", 3, 0, NULL, 0, &n));
    assert_int_equal(n, 3);
    assert_fine(tenon_encode(t, "h\xc3\xa9", 3, 0, ids, 8, &n));
    assert_int_equal(ids[1], 0xc3);
    assert_fine(tenon_decode(t, ids, n, text, sizeof text, &bytes));
    assert_true(bytes == 3 && memcmp(text, "h\xc3\xa9", 3) == 0);
    assert_int_equal(tenon_encode(t, "four", 4, 0, ids, 3, &n), TENON_USAGE);
    assert_int_equal(tenon_decode(t, (const int32_t[]){ 300 }, 1, text, 8, &bytes), TENON_USAGE);
    tenon_tokenizer_close(t);
    assert_int_equal(tenon_tokenizer_open("nowhere.json", &t), TENON_BAD_FILE);
}

static void mistakes(void **state)
{
    (void)state;
    batch b;
    double x;
    tenon_net *net = NULL;
    tenon_tensor t = { .size = sizeof t };
    float logits[1];
    assert_int_equal(tenon_open("nonsense", NULL, 0, &net), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "nonsense"));
    assert_int_equal(tenon_open("gpt", (const char *const[]){ "dimm=3" }, 1, &net), TENON_USAGE);
    assert_int_equal(tenon_open("nothing.safetensors", NULL, 0, &net), TENON_BAD_FILE);
    assert_int_equal(tenon_open(NULL, NULL, 0, &net), TENON_USAGE);
    assert_null(net);
    net = open_tiny("gpt", &b);
    assert_int_equal(tenon_shape(net, 0, 4), TENON_USAGE);
    b.tokens[3] = V;
    assert_int_equal(tenon_loss(net, b.tokens, b.labels, &x), TENON_USAGE);
    assert_non_null(strstr(tenon_error(), "tokens[3] is 32"));
    assert_int_equal(tenon_forward(net, b.tokens, logits), TENON_USAGE);
    assert_int_equal(tenon_loss(net, b.tokens, NULL, &x), TENON_USAGE);
    assert_int_equal(tenon_tensor_find(net, "nothing", &t), TENON_USAGE);
    assert_int_equal(tenon_tensor_at(net, 1000, &t), TENON_USAGE);
    assert_int_equal(tenon_set(net, "dim", "3"), TENON_USAGE);
    assert_int_equal(tenon_set(net, "train.lr", "often"), TENON_USAGE);
    assert_int_equal(tenon_load(net, "nothing.safetensors"), TENON_BAD_FILE);
    assert_int_equal(tenon_save(net, "x.pt"), TENON_USAGE);
    assert_int_equal(tenon_evaluate(net, b.tokens, 1, &x, NULL), TENON_USAGE);
    assert_null(tenon_setting(net, "nothing"));
    assert_string_equal(tenon_setting_key(net, 0), "model");
    assert_null(tenon_setting_key(net, tenon_settings(net)));
    assert_fine(tenon_shape(net, 1, 25));
    assert_int_equal(tenon_loss(net, b.tokens, b.labels, &x), TENON_USAGE); /* longer than train.context */
    assert_fine(tenon_shape(net, B, T));
    b.tokens[3] = 0;
    assert_true(loss(net, &b) > 0); /* none of it broke the handle */
    assert_int_equal(tenon_api_version(), TENON_API_VERSION);
    assert_true(strlen(tenon_version()) > 0);
    tenon_close(net);
    tenon_close(NULL);
}

void tn_tests_api(tn_test_list *l)
{
    for (int i = 0; i < 2; i++) {
        tn_test_add(l, logits_make_the_loss, models[i], "api: logits make the loss, %s", models[i]);
        tn_test_add(l, gradients_are_slopes, models[i], "api: gradients are slopes, %s", models[i]);
        tn_test_add(l, steps_and_shapes, models[i], "api: steps, and shapes in between, %s", models[i]);
        tn_test_add(l, copies, models[i], "api: copies of tensors, %s", models[i]);
        tn_test_add(l, files_keep_it, models[i], "api: files keep a model, %s", models[i]);
        tn_test_add(l, rows_of_tokens, models[i], "api: rows of tokens, %s", models[i]);
        tn_test_add(l, samples, models[i], "api: samples, %s", models[i]);
    }
    tn_test_add(l, gradients_by_inputs, NULL, "api: gradients by inputs");
    tn_test_add(l, devices, NULL, "api: devices");
    tn_test_add(l, metrics, NULL, "api: metrics by name");
    tn_test_add(l, tokenizers, NULL, "api: tokenizers");
    tn_test_add(l, mistakes, NULL, "api: mistakes are errors");
}
