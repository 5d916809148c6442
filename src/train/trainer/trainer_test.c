/* What the trainer promises: gradients of several small batches add up to those of a large one, evaluation is without
 * dropout and disturbs nothing, and a model may leave out an input. */
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include "base/rng.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 16, VOCAB = 40 };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
} rig;

static rig open_rig(const char *target, const tn_model *model, int64_t batch, const char *extra)
{
    const char *const set[] = { "dim=32", "train.context=16", "vocab=40", "threads=1", "train.steps=1", extra };
    rig r = { 0 };
    const tn_model *found;
    assert_ok(tn_settings_resolve(target, set, extra ? 6 : 5, &r.settings, &found));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){ .model = model ? model : found, .settings = r.settings, .batch = batch, .length = T },
        &r.trainer));
    return r;
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* Sequences [first, first+n) of one endless supply. */
static void give(rig *r, int64_t first, int64_t n)
{
    int32_t *tokens = tn_trainer_input(r->trainer, "tokens"), *labels = tn_trainer_input(r->trainer, "labels");
    for (int64_t i = 0; i < n * T; i++) {
        const uint64_t at = (uint64_t)(first * T + i);
        tokens[i] = (int32_t)tn_rng_below((tn_rng){ 3, 1 }, at, VOCAB);
        if (labels) labels[i] = (int32_t)tn_rng_below((tn_rng){ 3, 2 }, at, VOCAB);
    }
}

static void accumulation(void **state)
{
    const char *target = *state;
    rig small = open_rig(target, NULL, 2, NULL), large = open_rig(target, NULL, 8, NULL);
    float loss, sum = 0;
    for (int i = 0; i < 4; i++) {
        give(&small, 2 * i, 2);
        assert_ok(tn_trainer_grad(small.trainer, i, &loss));
        sum += loss / 4;
    }
    give(&large, 0, 8);
    assert_ok(tn_trainer_grad(large.trainer, 0, &loss));
    assert_true(fabsf(loss - sum) < 1e-5f * loss);
    const tn_bucket *a = tn_store_bucket(tn_trainer_store(small.trainer), 0),
                    *b = tn_store_bucket(tn_trainer_store(large.trainer), 0);
    double apart = 0, size = 0;
    assert_true(a->count == b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const double d = fabs((double)a->grad[i] / 4 - (double)b->grad[i]);
        if (isnan(d) || d > apart) apart = d; /* a NaN stays */
        size += (double)b->grad[i] * (double)b->grad[i];
    }
    assert_true(size > 0 && apart < 1e-5 * sqrt(size));
    tn_update_result x, y; /* and the step taken is the same */
    assert_ok(tn_trainer_apply(small.trainer, 0, 4, sum, &x));
    assert_ok(tn_trainer_apply(large.trainer, 0, 1, loss, &y));
    assert_true(x.ok && y.ok && fabsf(x.grad_norm - y.grad_norm) < 1e-5f * y.grad_norm);
    close_rig(&small);
    close_rig(&large);
}

/* Weights packed once per step: the same bits as without, step after step and in evaluations between. */
static void packed_weights(void **state)
{
    const char *target = *state;
    rig r[2] = { { 0 } };
    float loss[2];
    for (int i = 0; i < 2; i++) {
        const char *const set[] = { "dim=64",
                                    "train.context=16",
                                    "vocab=80",
                                    "threads=2",
                                    "train.steps=9",
                                    "train.warmup=1",
                                    "train.accumulate=4",
                                    i ? "opt.pack_weights=off" : "opt.pack_weights=on" };
        const tn_model *found;
        assert_ok(tn_settings_resolve(target, set, 8, &r[i].settings, &found));
        assert_ok(
            tn_trainer_new(&(tn_trainer_options){ .model = found, .settings = r[i].settings, .batch = 2, .length = T },
                           &r[i].trainer));
        tn_trainer_steady(r[i].trainer, true);
    }
    assert_true(tn_plan_steps(tn_trainer_plan(r[0].trainer, true)) >
                tn_plan_steps(tn_trainer_plan(r[1].trainer, true)));
    assert_true(tn_trainer_memory(r[0].trainer).total > tn_trainer_memory(r[1].trainer).total);
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < 2; i++) {
            tn_update_result a;
            for (int k = 0; k < 4; k++) {
                give(&r[i], 8 * step + 2 * k, 2);
                assert_ok(tn_trainer_grad(r[i].trainer, 4 * step + k, &loss[i]));
                if (k == 1) assert_ok(tn_trainer_eval(r[i].trainer, &loss[i]));
            }
            assert_ok(tn_trainer_apply(r[i].trainer, step, 4, loss[i], &a));
            for (int k = 0; k < 2; k++) assert_ok(tn_trainer_eval(r[i].trainer, &loss[i]));
            if (i) assert_true(loss[0] == loss[1]);
        }
    const tn_bucket *a = tn_store_bucket(tn_trainer_store(r[0].trainer), 0),
                    *b = tn_store_bucket(tn_trainer_store(r[1].trainer), 0);
    assert_memory_equal(a->param, b->param, sizeof(float) * (size_t)a->count);
    for (int i = 0; i < 2; i++) close_rig(&r[i]);
}

static void evaluation(void **state)
{
    (void)state;
    rig dropping = open_rig("ten_tiny", NULL, 2, "train.dropout=0.5"), plain = open_rig("ten_tiny", NULL, 2, NULL);
    float first, again, other, trained;
    give(&dropping, 0, 2);
    give(&plain, 0, 2);
    assert_ok(tn_trainer_eval(dropping.trainer, &first));
    assert_ok(tn_trainer_eval(plain.trainer, &other));
    assert_true(first == other);
    const tn_bucket *b = tn_store_bucket(tn_trainer_store(dropping.trainer), 0);
    const size_t bytes = sizeof(float) * (size_t)b->count;
    float *grad = malloc(bytes);
    assert_ok(tn_trainer_grad(dropping.trainer, 5, &trained));
    assert_true(trained != first);
    memcpy(grad, b->grad, bytes);
    assert_ok(tn_trainer_eval(dropping.trainer, &again));
    assert_true(again == first);
    assert_memory_equal(grad, b->grad, bytes);
    tn_store_zero_grad(tn_trainer_store(dropping.trainer));
    assert_ok(tn_trainer_grad(dropping.trainer, 5, &again)); /* the same step drops the same */
    assert_true(again == trained);
    assert_memory_equal(grad, b->grad, bytes);
    free(grad);
    close_rig(&dropping);
    close_rig(&plain);
}

static tn_status build_unlabelled(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref x = tn_embed(g, tn_in(b, "tokens"), tn_param(g, "embed", tn_shape(VOCAB, 4), tn_ones));
    tn_output(g, "loss", tn_mean_all(g, tn_square(g, x)));
    return tn_graph_status(g);
}

static void no_labels(void **state)
{
    (void)state;
    static const tn_model model = { TN_MODEL_HEAD, .name = "unlabelled", .build = build_unlabelled, TN_LANGUAGE_ROWS };
    rig r = open_rig("gpt_tiny", &model, 2, NULL);
    float loss;
    assert_null(tn_trainer_input(r.trainer, "labels")); /* which its graph has no use for */
    give(&r, 0, 2);
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    assert_true(loss == 1);
    assert_ok(tn_trainer_eval(r.trainer, &loss));
    assert_true(loss == 1);
    close_rig(&r);
}

void tn_tests_trainer(tn_test_list *l)
{
    tn_test_add(l, accumulation, "gpt_tiny", "trainer: four batches of 2 are one of 8 (gpt)");
    tn_test_add(l, accumulation, "ten_tiny", "trainer: four batches of 2 are one of 8 (ten)");
    tn_test_add(l, packed_weights, "gpt_tiny", "trainer: packed weights give the same bits (gpt)");
    tn_test_add(l, packed_weights, "ten_tiny", "trainer: packed weights give the same bits (ten)");
    tn_test_add(l, evaluation, NULL, "trainer: evaluation");
    tn_test_add(l, no_labels, NULL, "trainer: a model without labels");
}
