/* Steps queued ahead: the same steps in the same order as one by one, some steps later; a bad one is told of at the same place
 * whenever it is collected. The CPU stands for a device that answers late: its numbers wait until they are collected. */
#include "base/rng.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <string.h>

enum { T = 8, B = 2, VOCAB = 20, STEPS = 9 };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
} rig;

static rig open_rig(int queue_depth, const char *extra)
{
    const char *const set[] = { "vocab=20",           "dim=16",    "layers=1",       "heads=2",
                                "train.context=8",    "threads=1", "train.warmup=2", "train.steps=20",
                                "train.accumulate=2", extra };
    rig r = { 0 };
    const tn_model *model;
    assert_ok(tn_settings_resolve("gpt", set, extra ? 10 : 9, &r.settings, &model));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){
            .model = model, .settings = r.settings, .batch = B, .length = T, .queue_depth = queue_depth },
        &r.trainer));
    return r;
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static void give(rig *r, int64_t batch)
{
    for (int64_t i = 0; i < B * T; i++) {
        const uint64_t at = (uint64_t)(batch * B * T + i);
        ((int32_t *)tn_trainer_input(r->trainer, "tokens"))[i] = (int32_t)tn_rng_below((tn_rng){ 3, 1 }, at, VOCAB);
        ((int32_t *)tn_trainer_input(r->trainer, "labels"))[i] = (int32_t)tn_rng_below((tn_rng){ 3, 2 }, at, VOCAB);
    }
}

static tn_status queue(rig *r, int64_t step)
{
    for (int64_t i = 0; i < 2; i++) {
        give(r, 2 * step + i);
        TN_RETURN_IF(tn_trainer_queue_grad(r->trainer, 2 * step + i, i ? 0.5f : 1, false));
    }
    return tn_trainer_queue_apply(r->trainer, step);
}

static void train(rig *r, tn_step_result *found)
{
    int64_t collected = 0;
    for (int64_t i = 0; i < STEPS; i++) {
        assert_ok(queue(r, i));
        if (tn_trainer_queued(r->trainer) == tn_trainer_queue_depth(r->trainer))
            assert_ok(tn_trainer_collect(r->trainer, &found[collected++]));
    }
    while (tn_trainer_queued(r->trainer)) assert_ok(tn_trainer_collect(r->trainer, &found[collected++]));
    assert_int_equal(collected, STEPS);
}

static void the_same_steps(void **state)
{
    tn_step_result now[STEPS], late[STEPS];
    rig one = open_rig(0, NULL), four = open_rig(TN_TRAINER_QUEUE_MAX, NULL), plain = open_rig(0, NULL);
    (void)state;
    assert_int_equal(tn_trainer_queue_depth(one.trainer), 1);
    assert_int_equal(tn_trainer_queue_depth(four.trainer), TN_TRAINER_QUEUE_MAX);
    train(&one, now);
    train(&four, late);
    for (int i = 0; i < STEPS; i++) {
        float x[2];
        tn_update_result a;
        for (int k = 0; k < 2; k++) {
            give(&plain, 2 * i + k);
            tn_trainer_weigh(plain.trainer, k ? 0.5f : 1);
            assert_ok(tn_trainer_grad(plain.trainer, 2 * i + k, &x[k]));
        }
        const double loss = ((double)x[0] + 0.5 * (double)x[1]) / 1.5;
        assert_ok(tn_trainer_apply(plain.trainer, i, 1.5f, (float)loss, &a));
        assert_true(now[i].loss == loss && late[i].loss == loss);
        assert_true(now[i].update.grad_norm == a.grad_norm && late[i].update.grad_norm == a.grad_norm);
        assert_true(now[i].update.lr == a.lr && late[i].update.lr == a.lr && late[i].update.ok);
    }
    assert_int_equal(tn_guard_applied(tn_trainer_guard(four.trainer)), STEPS);
    close_rig(&one);
    close_rig(&four);
    close_rig(&plain);
}

static void a_full_ring(void **state)
{
    rig r = open_rig(2, NULL);
    tn_step_result x;
    (void)state;
    assert_fails(tn_trainer_collect(r.trainer, &x), TN_INTERNAL, "no step");
    assert_ok(queue(&r, 0));
    assert_ok(queue(&r, 1));
    assert_fails(queue(&r, 2), TN_INTERNAL, "collect the oldest");
    assert_ok(tn_trainer_collect(r.trainer, &x));
    assert_ok(queue(&r, 2));
    close_rig(&r);
}

/* The step that went wrong is named, and nothing it found is lost, although others were queued behind it. */
static void a_bad_step(void **state)
{
    rig r = open_rig(3, NULL);
    tn_step_result x;
    const tn_entry *e = tn_store_at(tn_trainer_store(r.trainer), 0);
    (void)state;
    assert_ok(queue(&r, 0));
    const float kept = ((float *)e->data)[0];
    ((float *)e->data)[0] = NAN;
    assert_ok(queue(&r, 1));
    ((float *)e->data)[0] = kept;
    assert_ok(queue(&r, 2));
    assert_ok(tn_trainer_collect(r.trainer, &x));
    assert_true(isfinite(x.loss));
    assert_fails(tn_trainer_collect(r.trainer, &x), TN_DIVERGED, "step 2:");
    assert_true(isnan(x.loss) && !x.update.ok);
    close_rig(&r);
}

/* What a step finds out decides about the next one: nothing is queued ahead. */
static void one_by_one(void **state)
{
    static const char *const extra[] = { "train.nonfinite=skip", "train.nonfinite=rollback", "optim.loss_scale=8" };
    (void)state;
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++) {
        rig r = open_rig(TN_TRAINER_QUEUE_MAX, extra[i]);
        assert_int_equal(tn_trainer_queue_depth(r.trainer), 1);
        close_rig(&r);
    }
}

void tn_tests_ring(tn_test_list *l)
{
    tn_test_add(l, the_same_steps, NULL, "ring: queued ahead, the same steps");
    tn_test_add(l, a_full_ring, NULL, "ring: a full one is refused");
    tn_test_add(l, a_bad_step, NULL, "ring: a bad step is named although others follow");
    tn_test_add(l, one_by_one, NULL, "ring: one by one where a step decides about the next");
}
