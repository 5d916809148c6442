/* When memory is not given: the batch is computed in twice as many parts, until it fits or has one row in each; a plan that is known not
 * to fit is refused instead, but for runs (ladder_test.c). */
#include "cli/view.h"
#include "testlib.h"

#include "base/alloc.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { T = 32 };

static tn_status open_batch(const char *batch, const char *more, tn_session *s)
{
    const char *const set[] = { "vocab=64",
                                "dim=32",
                                "layers=2",
                                "heads=2",
                                "train.context=32",
                                "threads=1",
                                "device=cpu",
                                batch,
                                more ? more : "train.accumulate=3" };
    *s = (tn_session){ 0 };
    return tn_session_open("gpt", set, sizeof set / sizeof *set, false, s);
}

/* The largest piece of memory that a batch of so many needs. */
static size_t arena_of(const char *batch)
{
    tn_session s;
    assert_ok(open_batch(batch, NULL, &s));
    const size_t bytes = tn_plan_memory(tn_trainer_plan(s.trainer, true)).arena;
    tn_session_close(&s);
    return bytes;
}

static tn_status open_below(size_t limit, const char *batch, const char *more, tn_session *s)
{
    tn_alloc_fail_above(limit);
    const tn_status st = open_batch(batch, more, s);
    tn_alloc_fail_above(0);
    return st;
}

static void halved(void **state)
{
    tn_session s;
    char text[512];
    const size_t quarter = arena_of("train.batch=4");
    (void)state;
    assert_true(quarter < arena_of("train.batch=8"));
    assert_ok(open_below(quarter + quarter / 4, "train.batch=16", NULL, &s));
    assert_true(s.batch == 16 && tn_trainer_microbatches(s.trainer) == 4 && tn_trainer_batches(s.trainer) == 12);
    assert_int_equal(tn_settings_int(s.settings, "plan.microbatches"), 4);
    assert_int_equal(tn_settings_int(s.settings, "train.accumulate"), 3);
    FILE *f = fmemopen(text, sizeof text, "w");
    assert_non_null(f);
    tn_session_describe_ladder(&s, 0, f);
    fclose(f);
    assert_string_equal(text, "memory  micro-batch 16 -> 4, accumulate 3 -> 12\n");
    tn_session_close(&s);
}

static void not_for_ever(void **state)
{
    tn_session s;
    (void)state;
    assert_fails(open_below(4096, "train.batch=6", NULL, &s), TN_MEMORY, "out of memory");
}

static void refused_instead(void **state)
{
    tn_session s;
    (void)state;
    assert_fails(open_batch("train.batch=900000000", NULL, &s), TN_MEMORY, "use a smaller train.batch");
}

static tn_status open_in(const char *batch, double mb, tn_session *s)
{
    char memory[40];
    snprintf(memory, sizeof memory, "plan.memory_gb=%.6f", mb * 1e-3);
    const char *const set[] = { "vocab=64",
                                "dim=32",
                                "layers=2",
                                "heads=2",
                                "train.context=32",
                                "threads=1",
                                "device=cpu",
                                "train.memory=refuse",
                                memory,
                                batch };
    *s = (tn_session){ 0 };
    return tn_session_open("gpt", set, sizeof set / sizeof *set, false, s);
}

/* An automatic batch is within a tenth of the largest that fits. */
static void largest(void **state)
{
    static const double mb[] = { 1.9, 2.3, 3, 4, 5, 6 };
    (void)state;
    for (size_t i = 0; i < sizeof mb / sizeof *mb; i++) {
        tn_session s;
        char more[40];
        assert_ok(open_in("train.batch=auto", mb[i], &s));
        snprintf(more, sizeof more, "train.batch=%lld", (long long)(s.batch + (s.batch + 9) / 10 + (s.batch < 10)));
        assert_true(s.batch < 128);
        tn_session_close(&s);
        assert_fails(open_in(more, mb[i], &s), TN_MEMORY, "plan.memory_gb");
    }
}

/* In the middle of a session, as after a first step that found no memory. */
static void halved_later(void **state)
{
    tn_session s;
    (void)state;
    assert_ok(open_batch("train.batch=6", NULL, &s));
    for (int64_t parts = 2; parts <= 6; parts *= 3) {
        assert_ok(tn_session_lower(&s));
        assert_true(s.batch == 6 && tn_trainer_microbatches(s.trainer) == parts);
        assert_int_equal(tn_trainer_feed(s.trainer).batch, 6 / parts);
    }
    assert_ok(tn_session_lower(&s));
    assert_string_equal(tn_settings_text(s.settings, "plan.recompute"), "layer");
    (void)tn_error(TN_MEMORY, "none left");
    assert_fails(tn_session_lower(&s), TN_MEMORY, "none left (tried: micro-batch 6 -> 1, accumulate 3 -> 18; plan.rec");
    assert_non_null(s.trainer);
    tn_session_close(&s);
}

/* The step is the same step: its loss and the norm of its gradient. */
static void same_step(void **state)
{
    tn_session s[2];
    tn_step_result x[2];
    (void)state;
    assert_ok(open_batch("train.batch=4", "train.accumulate=1", &s[0]));
    assert_ok(open_batch("train.batch=4", "train.accumulate=1", &s[1]));
    assert_ok(tn_session_lower(&s[1]));
    for (int k = 0; k < 2; k++) {
        const int64_t n = k + 1, each = 4 / n * T;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t at = 0; at < each; at++) {
                ((int32_t *)tn_trainer_input(s[k].trainer, "tokens"))[at] = (int32_t)((i * each + at) * 31 % 64);
                ((int32_t *)tn_trainer_input(s[k].trainer, "labels"))[at] = (int32_t)((i * each + at) * 17 % 64);
            }
            assert_ok(tn_trainer_queue_grad(s[k].trainer, i, 1, false));
        }
        assert_ok(tn_trainer_queue_apply(s[k].trainer, 0));
        assert_ok(tn_trainer_collect(s[k].trainer, &x[k]));
        tn_session_close(&s[k]);
    }
    assert_float_equal(x[0].loss, x[1].loss, 1e-5);
    assert_float_equal(x[0].update.grad_norm, x[1].update.grad_norm, 1e-4);
}

/* What metrics read is asked for: of a model that states no rows, those of language models; also where another step puts it out. */
static tn_status build_asked(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    TN_RETURN_IF(tn_model_named("gpt")->build(g, st, b));
    if (tn_wants(b, "extra_sum")) tn_output(g, "extra_sum", tn_sum_all(g, tn_graph_output(g, "loss")));
    return tn_graph_status(g);
}

static const tn_metric_row asked_rows[] = { { "loss", .how = TN_MEAN_BY_COUNT },
                                            { "again", .how = TN_MEAN_BY_COUNT, .sums = { "extra_sum" },
                                              .reads = "extra_sum", .runs = "twice" } };
static const tn_step_row asked_steps[] = { { "train", build_asked, true },
                                           { "eval", build_asked, false },
                                           { "twice", build_asked, false } };

static void asked(void **state)
{
    static const char *const set[] = { "task=mqar",        "task.pairs=2", "task.keys=4", "task.values=4",
                                       "train.context=16", "dim=16",       "layers=1",    "heads=1",
                                       "train.batch=4",    "threads=1",    "device=cpu" };
    const bool stated = *state != NULL;
    tn_session s;
    tn_settings *st;
    const tn_model *gpt;
    tn_evaluation e;
    assert_ok(tn_settings_resolve("gpt", set, sizeof set / sizeof *set, &st, &gpt));
    tn_model model = *gpt;
    model.metrics = stated ? asked_rows : NULL;
    model.n_metrics = stated ? 2 : 0;
    if (stated) model.steps = asked_steps, model.n_steps = 3;
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = &model, .needs_data = true, .evaluates = true }, &s));
    assert_ok(tn_evaluate(s.trainer, &s.source, 1, &e));
    if (stated) assert_float_equal(tn_scores_get(&e.scores, "again"), tn_scores_first(&e.scores), 1e-6);
    else assert_false(isnan(tn_scores_get(&e.scores, "accuracy")));
    tn_session_close(&s);
    tn_settings_free(st);
}

void tn_tests_session(tn_test_list *l)
{
    tn_test_add(l, halved, NULL, "session: memory not given, the batch is computed in parts");
    tn_test_add(l, not_for_ever, NULL, "session: a batch of which no row fits");
    tn_test_add(l, refused_instead, NULL, "session: a plan that does not fit is refused");
    tn_test_add(l, largest, NULL, "session: an automatic batch is the largest that fits");
    tn_test_add(l, halved_later, NULL, "session: further down when it is open");
    tn_test_add(l, same_step, NULL, "session: half the batch twice is the same step");
    tn_test_add(l, asked, NULL, "session: outputs that metrics read, of a model without rows");
    tn_test_add(l, asked, (void *)(uintptr_t)asked_rows, "session: outputs that metrics read of another step");
}
