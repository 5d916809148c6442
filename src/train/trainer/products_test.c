/* How matrix products are computed is a setting: each choice reaches the plan and every product of a step, and gives the
 * numbers of the plain way as nearly as it promises. On a GPU (TENON_TEST_DEVICE=cuda) also what lies between the products. */
#include "backend/cpu/gemm_kernel.h"
#include "base/rng.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 24, B = 2, VOCAB = 70 };

/* Loss and gradients of one batch, and the kernel; *count gradients, to be freed. */
static float *gradients(const char *target, const char *choice, float *loss, int64_t *count, const char **kernel)
{
    const char *const set[] = { "dim=64",
                                "train.context=24",
                                "vocab=70",
                                "threads=2",
                                tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu",
                                choice };
    tn_settings *st;
    const tn_model *m;
    tn_trainer *t;
    assert_ok(tn_settings_resolve(target, set, sizeof set / sizeof *set, &st, &m));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = m, .settings = st, .batch = B, .length = T }, &t));
    for (uint64_t i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(t, "tokens"))[i] = (int32_t)tn_rng_below((tn_rng){ 3, 1 }, i, VOCAB);
        ((int32_t *)tn_trainer_input(t, "labels"))[i] = (int32_t)tn_rng_below((tn_rng){ 3, 2 }, i, VOCAB);
    }
    assert_ok(tn_trainer_grad(t, 0, loss));
    tn_trainer_unscale(t);
    const tn_bucket *b = tn_store_bucket(tn_trainer_store(t), 0);
    tn_host_copy host = { 0 };
    const size_t bytes = sizeof(float) * (size_t)b->count;
    float *copy = malloc(bytes);
    const float *from = tn_store_read(tn_trainer_store(t), b->grad, bytes, &host);
    assert_true(copy && from);
    memcpy(copy, from, bytes);
    tn_host_copy_free(&host);
    *count = b->count;
    *kernel = tn_plan_kernel(tn_trainer_plan(t, true));
    tn_trainer_free(t);
    tn_settings_free(st);
    return copy;
}

/* |a - b| / |b| */
static double apart(const float *a, const float *b, int64_t n)
{
    double d = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(d / size);
}

/* tf32 and f16 have the same digits, bf16 three fewer. */
static void choices_of_gpu(const char *target)
{
    enum { FULL, TF32, BF16, F16, WAYS };
    static const char *const choice[WAYS] = { "compute=f32", "compute=tf32", "compute=bf16", "compute=f16" };
    const char *unused;
    float loss[WAYS], *grad[WAYS];
    int64_t n;
    for (int i = 0; i < WAYS; i++) grad[i] = gradients(target, choice[i], &loss[i], &n, &unused);
    const double rounded = apart(grad[BF16], grad[FULL], n), half = apart(grad[F16], grad[FULL], n);
    print_message("           %s: tf32 %.1e, bf16 %.1e, f16 %.1e\n", target, apart(grad[TF32], grad[FULL], n), rounded,
                  half);
    assert_true(isfinite(loss[FULL]) && loss[FULL] > 1);
    for (int i = 1; i < WAYS; i++) assert_true(fabsf(loss[i] - loss[FULL]) <= 1e-2f * loss[FULL]);
    assert_true(rounded > 1e-4 && rounded < 0.1);
    assert_true(half > 1e-5 && half < rounded / 4);
    for (int i = 0; i < WAYS; i++) free(grad[i]);
}

static void choices(void **state)
{
    if (tn_test_device() != TN_CPU) {
        choices_of_gpu(*state);
        return;
    }
    const char *target = *state, *kernel[5];
    static const char *const choice[] = { "compute=f32", "opt.gemm_kernels=off", "compute=bf16x3", "compute=bf16",
                                          "compute=f16" };
    float loss[5], *grad[5];
    int64_t n;
    for (int i = 0; i < 5; i++) grad[i] = gradients(target, choice[i], &loss[i], &n, &kernel[i]);
    const tn_gemm_ukernel *best = tn__gemm_kernel_best(), *bf16 = tn__gemm_kernel_bf16();
    assert_string_equal(kernel[0], best->name);
    assert_string_equal(kernel[1], tn__gemm_portable.name);
    assert_string_equal(kernel[2], bf16 && bf16->split_pays ? bf16->name : best->name);
    assert_string_equal(kernel[3], bf16 ? bf16->name : best->name);
    assert_string_equal(kernel[4], best->name);
    assert_true(isfinite(loss[0]) && loss[0] > 1);
    for (int i = 1; i < 3; i++) { /* both are fp32, added in another order at most */
        assert_true(fabsf(loss[i] - loss[0]) <= 1e-6f * loss[0]);
        assert_true(apart(grad[i], grad[0], n) < 1e-5);
    }
    const double rounded = apart(grad[3], grad[0], n);
    assert_true(rounded > 1e-4 && rounded < 0.05); /* bf16 shows, so the comparison above can tell */
    const double half = apart(grad[4], grad[0], n);
    assert_true(half > 1e-5 && half < rounded / 4); /* three more digits in base two */
    for (int i = 0; i < 5; i++) free(grad[i]);
}

void tn_tests_products(tn_test_list *l)
{
    tn_test_add(l, choices, "gpt_tiny", "products: every choice of kernel (gpt)");
    tn_test_add(l, choices, "ten_tiny", "products: every choice of kernel (ten)");
}
