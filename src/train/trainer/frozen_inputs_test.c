/* Gradients by inputs of a model whose weights are frozen: in any type of its matrices, and with nothing kept for the weights. */
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/graph_setup.h"
#include "train/trainer/trainer.h"
#include "world.h"

static const char *const wants[] = { "d.embeddings", NULL };

static const char *on_device(void) { return tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu"; }

/* --- the same numbers ---------------------------------------------------------------------------------------------------- */

enum { B = 3, T = 10, D = 32, SCORED = 6 };

static const char *const tiny[] = { "dim=32",    "layers=3",         "heads=4",       "kv_heads=2", "vocab=70",
                                    "threads=2", "train.context=16", "qkv_bias=true", "seed=5" };
enum { WORDS = sizeof tiny / sizeof *tiny };

typedef struct side {
    tn_settings *settings;
    tn_trainer *trainer;
    float loss;
    const float *slope; /* (B,T,D) */
} side;

static void open_side(side *s, const char *device, tn_dtype weights, bool drawn)
{
    const char *words[WORDS + 1];
    const tn_model *model;
    tn_input_row rows[TN_INPUTS_MAX];
    memcpy(words, tiny, sizeof tiny);
    words[WORDS] = device;
    assert_ok(tn_settings_resolve("gpt", words, WORDS + 1, &s->settings, &model));
    const tn_input_spec spec = tn_input_spec_with(model, "embeddings", rows);
    const tn_trainer_options o = { .model = model,
                                   .settings = s->settings,
                                   .batch = B,
                                   .length = T,
                                   .input_spec = &spec,
                                   .wants = wants,
                                   .forward_only = true,
                                   .frozen = true,
                                   .drawn = drawn,
                                   .weights = weights };
    assert_ok(tn_trainer_new(&o, &s->trainer));
}

static void run_side(side *s)
{
    int64_t n;
    const tn_feed f = tn_trainer_feed(s->trainer);
    tn_feed_random(&f, (tn_rng){ .seed = 2, .stream = 3 });
    int32_t *labels = tn_feed_at(&f, "labels");
    for (int i = 0; i < B * T; i++)
        if (i % T < T - SCORED) labels[i] = -1;
    assert_ok(tn_trainer_eval(s->trainer, &s->loss));
    s->slope = tn_trainer_output(s->trainer, "d.embeddings", &n);
    assert_non_null(s->slope);
    assert_int_equal(n, B * T * D);
}

static void close_side(side *s)
{
    tn_trainer_free(s->trainer);
    tn_settings_free(s->settings);
}

/* The other's weights, which are halves, as floats. */
static void take_weights(tn_store *to, const tn_store *from)
{
    for (size_t i = 0; i < tn_store_count(to); i++) {
        const tn_entry *e = tn_store_at(to, i), *x = tn_store_find(from, e->name);
        tn_host_copy host = { 0 };
        const int64_t n = tn_dims_count(e->dims);
        const void *data = tn_store_read(from, x->data, (size_t)n * tn_dtype_bytes(x->dtype), &host);
        assert_non_null(data);
        assert_ok(tn_store_put(to, e, 0, n, data, x->dtype));
        tn_host_copy_free(&host);
    }
}

static bool any_half(const tn_store *s)
{
    for (size_t i = 0; i < tn_store_count(s); i++)
        if (tn_store_at(s, i)->dtype == TN_BF16) return true;
    return false;
}

/* On the CPU the same bits, on a GPU as near as activations of bf16 allow. */
static void halves_are_floats(void **state)
{
    side half = { 0 }, whole = { 0 };
    (void)state;
    const double bound = tn_test_device() == TN_CUDA ? 2e-2 : 0;
    open_side(&half, on_device(), TN_BF16, true);
    open_side(&whole, "device=cpu", TN_F32, false);
    assert_true(any_half(tn_trainer_store(half.trainer)) && !any_half(tn_trainer_store(whole.trainer)));
    assert_int_equal(tn_store_buckets(tn_trainer_store(half.trainer)), 0);
    take_weights(tn_trainer_store(whole.trainer), tn_trainer_store(half.trainer));
    run_side(&half);
    run_side(&whole);
    const double distance = tn_world_distance(half.slope, whole.slope, B * T * D);
    if (!(distance <= bound)) fail_msg("the gradients differ by %g", distance);
    assert_true(fabs((double)(half.loss - whole.loss)) <= bound * (double)whole.loss);
    close_side(&half);
    close_side(&whole);
}

/* In a store that trains, weights stay floats also where they take no part. */
static void trained_stay_floats(void **state)
{
    (void)state;
    static const char *const words[] = { "dim=32", "layers=1", "heads=4", "vocab=70", "train.context=16" };
    enum { N = sizeof words / sizeof *words };
    const char *all[N + 1];
    const tn_model *model;
    tn_settings *st;
    tn_trainer *trains, *by_inputs;
    tn_input_row rows[TN_INPUTS_MAX];
    float loss;
    memcpy(all, words, sizeof words);
    all[N] = on_device();
    assert_ok(tn_settings_resolve("gpt", all, N + 1, &st, &model));
    tn_trainer_options o = { .model = model, .settings = st, .batch = B, .length = T };
    assert_ok(tn_trainer_new(&o, &trains));
    const tn_input_spec spec = tn_input_spec_with(model, "embeddings", rows);
    o.input_spec = &spec;
    o.wants = wants;
    o.forward_only = true;
    o.store = tn_trainer_store(trains);
    assert_ok(tn_trainer_new(&o, &by_inputs));
    assert_true(!any_half(o.store));
    const tn_feed f = tn_trainer_feed(by_inputs);
    tn_feed_random(&f, (tn_rng){ .seed = 2, .stream = 3 });
    assert_ok(tn_trainer_eval(by_inputs, &loss));
    assert_true(isfinite(loss) && loss > 1);
    tn_trainer_free(by_inputs);
    tn_trainer_free(trains);
    tn_settings_free(st);
}

/* --- what is kept --------------------------------------------------------------------------------------------------------- */

typedef struct size {
    const char *preset;
    double most_gb; /* weights, activations and inputs: the workspaces of kernels come on top */
} size;

/* 16 rows of 512 tokens, as a GPU would hold them. No GPU is needed to plan. */
static void large_models_fit(void **state)
{
    const size *s = *state;
    static const char *const words[] = { "train.context=512", "train.batch=16" };
    const tn_device gpu = TN_CUDA;
    const tn_model *model;
    tn_settings *st;
    tn_graph_setup setup = { 0 };
    tn_input_row rows[TN_INPUTS_MAX];
    tn_graph *g;
    tn_plan *p;
    assert_ok(tn_settings_resolve(s->preset, words, 2, &st, &model));
    assert_ok(tn_graph_setup_read(st, &gpu, 1, &setup));
    setup.options.frozen = true;
    tn_graph_setup_freeze(&setup, TN_F32);
    const tn_input_spec spec = tn_input_spec_with(model, "embeddings", rows);
    const tn_graph_shape shape = { .batch = 16, .length = 512, .wants = wants, .input_spec = &spec };
    assert_ok(tn_graph_setup_build(&setup, model, st, &shape, &g));
    const tn_compile_options how = { .device = gpu, .loss = tn_graph_setup_loss(g, wants) };
    assert_ok(tn_graph_compile(g, &how, &p));
    const tn_memory m = tn_plan_memory(p);
    const double all = (double)(m.frozen + m.activations + m.inputs) / 1e9;
    assert_int_equal(m.gradients + m.parameters, 0);
    if (all > s->most_gb) fail_msg("%s needs %.2f GB, and %.2f would do", s->preset, all, s->most_gb);
    tn_plan_free(p);
    tn_settings_free(st);
}

void tn_tests_frozen_inputs(tn_test_list *l)
{
    static const size sizes[] = { { "qwen2_5_0_5b", 7.05 }, { "llama3_2_1b", 10.45 } };
    tn_test_add(l, halves_are_floats, NULL, "inputs: gradients through frozen halves are those through floats");
    tn_test_add(l, trained_stay_floats, NULL, "inputs: gradients of inputs leave weights that are trained as they are");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tn_test_add(l, large_models_fit, &sizes[i], "inputs: gradients of %s in the memory of its activations",
                    sizes[i].preset);
}
