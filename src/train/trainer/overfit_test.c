/* Every model learns one sequence by heart: 32 tokens of 16 kinds, so that the next one depends on more than the last.
 * Forward, backward and optimizer must all be right for the loss to go below 0.01 nats. */
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <string.h>

enum { T = 32, KINDS = 16, MOST_STEPS = 400 };

typedef struct pupil {
    const char *model, *more[2];
} pupil;

static const pupil pupils[] = {
    { "ten", { "pattern=D", "plan.recompute=none" } },
    { "ten", { "pattern=O", "plan.recompute=none" } },
    { "ten", { "pattern=DO", "plan.recompute=layer" } },
    { "gpt", { "shape=gpt2", "plan.recompute=none" } },
    { "gpt", { "shape=llama", "plan.recompute=layer" } },
    { "ten", { "pattern=E", "plan.recompute=none" } },
    { "ten", { "pattern=W", "window=8" } },
    { "ten", { "preset=ten_a", "n_cells=2" } },
    { "ten", { "preset=ten_b", "plan.recompute=layer" } },
    { "ten", { "pattern=E", "xmem=true" } },
    { "gpt", { "qkv_bias=true", "tied=false" } },
    { "gpt", { "preset=gpt_conv_gate", "plan.recompute=layer" } },
};

static void learns_by_heart(void **state)
{
    const pupil *p = *state;
    const char *const settings[] = { "dim=32",
                                     "layers=2",
                                     "heads=2",
                                     "vocab=16",
                                     "train.lr=5e-3",
                                     "train.warmup=0",
                                     "train.schedule=constant",
                                     "train.decay=0",
                                     "train.dropout=0",
                                     p->more[0],
                                     p->more[1] };
    tn_settings *st;
    tn_trainer *t;
    tn_update_result a;
    float first = 0, loss = 0;
    int step = 0;
    tn_trainer_options o = { .batch = 1, .length = T, .threads = 2 };
    assert_ok(tn_settings_resolve(p->model, settings, sizeof settings / sizeof *settings, &st, &o.model));
    o.settings = st;
    assert_ok(tn_trainer_new(&o, &t));
    uint32_t x = 12345;
    for (int i = 0; i <= T; i++) {
        x = x * 1664525u + 1013904223u;
        if (i < T) ((int32_t *)tn_trainer_input(t, "tokens"))[i] = (int32_t)(x >> 24) % KINDS;
        if (i) ((int32_t *)tn_trainer_input(t, "labels"))[i - 1] = (int32_t)(x >> 24) % KINDS;
    }
    for (; step < MOST_STEPS; step++) {
        assert_ok(tn_trainer_grad(t, step, &loss));
        if (step == 0) first = loss;
        if (loss < 0.01f) break;
        assert_ok(tn_trainer_apply(t, step, 1, loss, &a));
    }
    print_message("           %s %s: %.2f -> %.4f nats in %d steps\n", p->model, p->more[0], (double)first,
                  (double)loss, step);
    assert_true(first > 2); /* ln 16 = 2.77: it did not know the sequence before */
    assert_true(loss < 0.01f);
    tn_trainer_free(t);
    tn_settings_free(st);
}

void tn_tests_overfit(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++)
        tn_test_add(l, learns_by_heart, &pupils[i], "overfit: %s %s %s", pupils[i].model, pupils[i].more[0],
                    pupils[i].more[1]);
}
