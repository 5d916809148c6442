/* Half precision in training: the loss scale changes no digit of what is finite, grows, is halved by an overflow without
 * the guard's counting it, and small models learn with it what they learn in f32. The weights stay f32. On the device of
 * TENON_TEST_DEVICE: a GPU's steps are replayed from the third on, and must see the scale that they are given. */
#include "base/rng.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 16, B = 2, VOCAB = 40 };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
} rig;

static rig open_rig(const char *target, const char *compute, const char *clip, const char *more)
{
    const char *const set[] = { "dim=32",
                                "train.context=16",
                                "vocab=40",
                                "threads=1",
                                "train.steps=60",
                                "train.warmup=0",
                                "train.lr=3e-3",
                                "train.schedule=constant",
                                tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu",
                                compute,
                                clip,
                                more };
    rig r = { 0 };
    const tn_model *model;
    assert_ok(tn_settings_resolve(target, set, sizeof set / sizeof *set, &r.settings, &model));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = model, .settings = r.settings, .batch = B, .length = T },
                             &r.trainer));
    return r;
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static void give(rig *r, uint64_t which)
{
    for (uint64_t i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(r->trainer, "tokens"))[i] =
            (int32_t)tn_rng_below((tn_rng){ 3, 1 }, which * 100 + i, VOCAB);
        ((int32_t *)tn_trainer_input(r->trainer, "labels"))[i] =
            (int32_t)tn_rng_below((tn_rng){ 3, 2 }, which * 100 + i, VOCAB);
    }
}

static const tn_bucket *bucket(const rig *r) { return tn_store_bucket(tn_trainer_store(r->trainer), 0); }

/* The numbers of a bucket's array, to be freed. */
static float *numbers(const rig *r, const float *array)
{
    tn_host_copy host = { 0 };
    const size_t bytes = sizeof *array * (size_t)bucket(r)->count;
    float *copy = malloc(bytes);
    const float *x = tn_store_read(tn_trainer_store(r->trainer), array, bytes, &host);
    assert_true(copy && x);
    memcpy(copy, x, bytes);
    tn_host_copy_free(&host);
    return copy;
}

static float number(const rig *r, const float *array, int64_t i)
{
    float *all = numbers(r, array), x = all[i];
    free(all);
    return x;
}

static void put_number(const rig *r, float *array, float x)
{
    assert_ok(tn_store_write(tn_trainer_store(r->trainer), array, &x, sizeof x));
}

/* One step over `batches` batches, from number `first` of the supply on; the mean loss. */
static float step(rig *r, int64_t number, uint64_t first, int batches, tn_update_result *a)
{
    float loss, sum = 0;
    for (int i = 0; i < batches; i++) {
        give(r, first + (uint64_t)i);
        assert_ok(tn_trainer_grad(r->trainer, number, &loss));
        sum += loss / (float)batches;
    }
    assert_ok(tn_trainer_apply(r->trainer, number, batches, sum, a));
    return sum;
}

/* In f32 a power of two passes through every sum: gradients accumulated under a scale, clipped and applied, leave the
 * weights of a run without one, bit for bit. So does asking for the gradients in between. */
static void changes_no_digit(void **state)
{
    static const char *const ways[] = { "optim.loss_scale=auto", "optim.loss_scale=off", "optim.loss_scale=1024",
                                        "optim.loss_scale=1500" };
    rig plain = open_rig(*state, "compute=f32", "train.clip=0.1", "optim.loss_scale=auto");
    tn_update_result a;
    for (int i = 0; i < 3; i++) step(&plain, i, (uint64_t)(3 * i), 3, &a);
    assert_true(isnan(a.loss_scale) && tn_trainer_loss_scale(plain.trainer).scale == 1);
    float *want = numbers(&plain, bucket(&plain)->param);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        rig r = open_rig(*state, "compute=f32", "train.clip=0.1", ways[w]);
        for (int i = 0; i < 3; i++) {
            float loss;
            give(&r, (uint64_t)(3 * i));
            assert_ok(tn_trainer_grad(r.trainer, i, &loss));
            if (i == 1) tn_trainer_unscale(r.trainer);
            for (int k = 1; k < 3; k++) {
                give(&r, (uint64_t)(3 * i + k));
                assert_ok(tn_trainer_grad(r.trainer, i, &loss));
            }
            if (i == 2) tn_trainer_unscale(r.trainer);
            assert_ok(tn_trainer_apply(r.trainer, i, 3, loss, &a));
        }
        if (w >= 2) assert_true(a.loss_scale == 1024);
        float *got = numbers(&r, bucket(&r)->param);
        assert_memory_equal(want, got, sizeof *got * (size_t)bucket(&r)->count);
        free(got);
        close_rig(&r);
    }
    free(want);
    close_rig(&plain);
}

/* Half precision off the scale, and f32: one batch by heart. f16 has 11 digits in base two, so the losses of a short run stay
 * within 1 % of each other; the weights hold digits that f16 could not. */
static void learns(void **state)
{
    static const char *const ways[] = { "compute=f32", "compute=f16" };
    float first[2], last[2];
    for (int w = 0; w < 2; w++) {
        rig r = open_rig(*state, ways[w], "train.clip=1", "optim.loss_scale=auto");
        tn_update_result a;
        int64_t fine = 0;
        for (int i = 0; i < 40; i++) {
            last[w] = step(&r, i, 0, 1, &a);
            assert_true(a.ok);
            if (i == 0) first[w] = last[w];
        }
        float *x = numbers(&r, bucket(&r)->param);
        for (int64_t i = 0; i < bucket(&r)->count; i++) fine += tn_f16_to_f32(tn_f32_to_f16(x[i])) != x[i];
        free(x);
        assert_true(fine > bucket(&r)->count / 2);
        close_rig(&r);
    }
    print_message("           %s: %.4f -> %.4f in f32, %.4f in f16\n", (const char *)*state, (double)first[0],
                  (double)last[0], (double)last[1]);
    assert_true(last[0] < 0.8f * first[0]);
    assert_true(last[0] != last[1] && fabsf(last[1] - last[0]) < 0.01f * first[0]);
}

/* From 2^40 on: every step overflows and is left out until the scale fits, whatever train.nonfinite says; then it learns. */
static void recovers(void **state)
{
    rig r = open_rig(*state, "compute=f16", "train.clip=1", "optim.loss_scale=1099511627776");
    tn_update_result a = { 0 };
    float first = 0, last = 0;
    int left_out = 0;
    for (; left_out < 60; left_out++) {
        const float before = number(&r, bucket(&r)->param, 7);
        first = step(&r, left_out, 0, 2, &a);
        assert_true(a.loss_scale == ldexpf(1, 40 - left_out));
        if (a.ok) break;
        assert_true(a.action == TN_GUARD_RESCALED && number(&r, bucket(&r)->param, 7) == before);
        assert_true(number(&r, bucket(&r)->grad, 7) == 0);
    }
    assert_true(left_out > 15 && left_out < 40); /* about where the largest one fits below 65504 */
    assert_true(tn_guard_applied(tn_trainer_guard(r.trainer)) == 1);
    for (int i = 0; i < 25; i++) last = step(&r, left_out + 1 + i, 0, 2, &a);
    assert_true(last < 0.95f * first);
    close_rig(&r);
}

static void grows(void **state)
{
    rig r = open_rig(*state, "compute=f16", "train.clip=1", "optim.loss_scale_growth=3");
    tn_update_result a;
    for (int i = 0; i < 7; i++) {
        step(&r, i, 0, 1, &a);
        assert_true(a.ok && a.loss_scale == 65536.f * (float)(1 << i / 3));
    }
    const tn_loss_scale_state s = tn_trainer_loss_scale(r.trainer), other = { 512, 2 };
    assert_true(s.scale == 4 * 65536 && s.good == 1);
    tn_trainer_resume_loss_scale(r.trainer, &other);
    step(&r, 7, 0, 1, &a);
    assert_true(a.loss_scale == 512 && tn_trainer_loss_scale(r.trainer).scale == 1024);
    close_rig(&r);
}

/* A loss that is not finite is the model's own doing: the scale stays, and the guard decides. */
static void not_for_the_scale(void **state)
{
    rig r = open_rig(*state, "compute=f16", "train.clip=1", "train.nonfinite=stop");
    tn_update_result a;
    float loss;
    put_number(&r, bucket(&r)->param, NAN);
    give(&r, 0);
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    assert_fails(tn_trainer_apply(r.trainer, 0, 1, NAN, &a), TN_DIVERGED, "not finite");
    assert_true(tn_trainer_loss_scale(r.trainer).scale == 65536);
    close_rig(&r);
    rig low = open_rig(*state, "compute=f32", "train.clip=1", "optim.loss_scale=1"); /* no smaller one is left */
    give(&low, 0);
    assert_ok(tn_trainer_grad(low.trainer, 0, &loss));
    put_number(&low, bucket(&low)->grad, INFINITY);
    assert_fails(tn_trainer_apply(low.trainer, 0, 1, loss, &a), TN_DIVERGED, "not finite");
    close_rig(&low);
}

void tn_tests_half(tn_test_list *l)
{
    static const char *const models[] = { "gpt_tiny", "ten_tiny" };
    for (int i = 0; i < 2; i++) {
        void *m = (void *)(uintptr_t)models[i];
        tn_test_add(l, changes_no_digit, m, "half: a loss scale changes no digit of f32 (%s)", models[i]);
        tn_test_add(l, learns, m, "half: learns what f32 learns (%s)", models[i]);
        tn_test_add(l, recovers, m, "half: recovers from a scale of 2^40 (%s)", models[i]);
    }
    tn_test_add(l, grows, "gpt_tiny", "half: the scale grows, and goes on from where it was");
    tn_test_add(l, not_for_the_scale, "gpt_tiny", "half: what no scale can cure is the guard's");
}
