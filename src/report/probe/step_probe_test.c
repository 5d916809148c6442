/* Probes: the steps of training, settings that leave the losses alone, plans that do not fit, and giving up. */
#include "report/probe/probe.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const tiny[] = { "threads=1",        "vocab=64",      "dim=16",         "layers=2",
                                    "train.context=32", "train.batch=4", "train.warmup=2", "train.steps=30" };

static tn_settings *resolve(const char *target, const tn_model **model)
{
    tn_settings *st = NULL;
    assert_ok(tn_settings_resolve(target, tiny, sizeof tiny / sizeof *tiny, &st, model));
    return st;
}

static tn_step_probe *open_probe(const tn_settings *st, const tn_model *m, const char *word)
{
    tn_step_probe *p = NULL;
    assert_ok(
        tn_step_probe_open(&(tn_step_probe_options){ .settings = st, .model = m, .word = &word, .n = word != NULL },
                           &p));
    return p;
}

/* The losses are those of the first steps, the same again, with recomputation bit by bit. */
static void losses(void **state)
{
    static const char *const words[] = { NULL, "threads=2", "plan.recompute=layer" };
    const tn_model *m;
    (void)state;
    tn_settings *st = resolve("ten", &m);
    tn_step_losses first = { .n = 0 };
    for (size_t i = 0; i < 3; i++) {
        double ms;
        int n;
        tn_step_probe *p = open_probe(st, m, words[i]);
        assert_ok(tn_step_probe_warm(p, 0, &ms));
        assert_ok(tn_step_probe_run(p, TN_STEP_PROBE_LOSSES + 3, 0, &ms));
        const tn_step_losses *x = tn_step_probe_losses(p);
        assert_true(ms > 0 && isfinite(ms) && tn_step_probe_bytes(p) > 0);
        assert_int_equal(x->n, TN_STEP_PROBE_LOSSES);
        assert_true(x->loss[0] > x->loss[x->n - 1]); /* it trains */
        if (!words[i]) first = *x;
        assert_true(tn_step_losses_differ(&first, x, &n) == 0 && n == TN_STEP_PROBE_LOSSES);
        tn_step_probe_close(p);
    }
    tn_settings_free(st);
}

/* Gradients between two steps: they are there, and the step that they are of goes on from them. */
static void gradients(void **state)
{
    const tn_model *m;
    double ms;
    int n;
    (void)state;
    tn_settings *st = resolve("ten", &m);
    tn_step_probe *p = open_probe(st, m, "train.accumulate=2"), *q = open_probe(st, m, "train.accumulate=2");
    assert_ok(tn_step_probe_run(q, 5, 0, &ms));
    assert_ok(tn_step_probe_run(p, 2, 0, &ms));
    assert_ok(tn_step_probe_gradients(p));
    assert_ok(tn_step_probe_gradients(p)); /* of the same step */
    const tn_store *store = tn_trainer_store(tn_step_probe_session(p)->trainer);
    const tn_entry *e = tn_store_find(store, "embed");
    const size_t count = (size_t)tn_dims_count(e->dims);
    tn_host_copy copy = { 0 };
    const float *grad = tn_store_read(store, e->grad, sizeof *grad * count, &copy);
    bool some = false;
    assert_non_null(grad);
    for (size_t k = 0; k < count; k++) some |= grad[k] != 0;
    assert_true(some);
    tn_host_copy_free(&copy);
    assert_ok(tn_step_probe_run(p, 3, 0, &ms));
    assert_true(tn_step_losses_differ(tn_step_probe_losses(p), tn_step_probe_losses(q), &n) == 0 && n == 5);
    tn_step_probe_close(p);
    tn_step_probe_close(q);
    tn_settings_free(st);
}

static void differences(void **state)
{
    int n;
    (void)state;
    const tn_step_losses a = { { 2, 4, NAN }, 3 }, b = { { 2, 4.4, NAN }, 3 }, c = { { 2, NAN }, 2 }, none = { .n = 0 };
    assert_true(fabs(tn_step_losses_differ(&a, &b, &n) - 0.1) < 1e-12 && n == 3);
    assert_true(isinf(tn_step_losses_differ(&a, &c, &n)) && n == 2);
    assert_true(tn_step_losses_differ(&a, &none, &n) == 0 && n == 0);
}

/* What does not fit is refused, also where a run would go down the ladder; an allowance is no more than the settings'. */
static void does_not_fit(void **state)
{
    const tn_model *m;
    tn_step_probe *p = NULL;
    (void)state;
    tn_settings *st = resolve("gpt", &m);
    tn_step_probe_options o = { .settings = st, .model = m, .most_bytes = 1e5 };
    assert_int_equal(tn_step_probe_open(&o, &p), TN_MEMORY);
    assert_null(p);
    o.most_bytes = 1e12;
    assert_ok(tn_settings_set(st, "plan.memory_gb", "1e-4", "test"));
    assert_int_equal(tn_step_probe_open(&o, &p), TN_MEMORY);
    assert_ok(tn_settings_set(st, "plan.memory_gb", "0", "test"));
    assert_ok(tn_step_probe_open(&o, &p));
    tn_step_probe_close(p);
    p = NULL;
    const char *word = "plan.recompute=chunk"; /* which attention does not allow */
    o.word = (const char *const[]){ word, "plan.chunk=8" };
    o.n = 2;
    assert_int_equal(tn_step_probe_open(&o, &p), TN_USAGE);
    assert_null(p);
    tn_settings_free(st);
}

/* A step of 200 batches against one of one: given up after a few of them. */
static void gives_up(void **state)
{
    const tn_model *m;
    double ms, ratio[4];
    int n = 4;
    (void)state;
    tn_settings *st = resolve("gpt", &m);
    tn_step_probe *a = open_probe(st, m, NULL), *b = open_probe(st, m, "train.accumulate=200");
    assert_ok(tn_step_probe_warm(a, 0, &ms));
    assert_ok(tn_step_probe_pairs(a, b, &(tn_step_pairs){ .steps = 1, .most = 3 }, &n, ratio));
    assert_true(n == 1 && ratio[0] == 0);
    tn_step_probe_close(b);
    b = open_probe(st, m, "train.accumulate=3");
    assert_ok(tn_step_probe_warm(b, 0, &ms));
    n = 4;
    assert_ok(tn_step_probe_pairs(a, b, &(tn_step_pairs){ .steps = 2 }, &n, ratio));
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++) assert_true(ratio[i] > 0 && isfinite(ratio[i]));
    assert_ok(tn_step_probe_pairs(a, b, &(tn_step_pairs){ .steps = 1, .seconds = 1e-9 }, &n, ratio));
    assert_int_equal(n, 1);
    tn_step_probe_close(a);
    tn_step_probe_close(b);
    tn_settings_free(st);
}

void tn_tests_step_probe(tn_test_list *l)
{
    tn_test_add(l, losses, NULL, "step probe: losses of the first steps");
    tn_test_add(l, gradients, NULL, "step probe: gradients between steps");
    tn_test_add(l, differences, NULL, "step probe: differences of losses");
    tn_test_add(l, does_not_fit, NULL, "step probe: what does not fit is refused");
    tn_test_add(l, gives_up, NULL, "step probe: gives up on what is too slow");
}
