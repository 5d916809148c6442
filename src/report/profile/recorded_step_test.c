/* A recorded step: every op of the plan once on the main track, in order, none over another; then the optimizer. */
#include "report/profile/recorded_step.h"

#include "testlib.h"

#include <string.h>

static void one_step(void **state)
{
    (void)state;
    static const char *const set[] = { "vocab=64",      "dim=16",    "layers=1",          "train.context=16",
                                       "train.batch=2", "threads=2", "train.accumulate=2" };
    tn_session s = { 0 };
    tn_step_record r;
    size_t count[TN_DOINGS] = { 0 };
    double last = 0;
    tn_doing before = TN_DOING_FORWARD;
    assert_ok(tn_session_open("gpt_tiny", set, sizeof set / sizeof *set, false, &s));
    assert_ok(tn_record_step(&s, &r));
    assert_true(r.n > 0 && r.ms > 0 && r.tracks >= 2);
    assert_string_equal(r.track[0], "main");
    for (size_t i = 0; i < r.n; i++) {
        const tn_step_span *x = &r.span[i];
        assert_true(x->begin_ms >= 0 && x->end_ms >= x->begin_ms && x->end_ms <= r.ms && x->name);
        if (x->track != 0 || x->doing == TN_DOING_WAIT) continue; /* waits lie within ops */
        assert_true(x->begin_ms >= last);
        assert_true(before != TN_DOING_OPTIMIZER || x->doing == TN_DOING_OPTIMIZER);
        last = x->end_ms, before = x->doing;
        count[x->doing]++;
    }
    assert_true(count[TN_DOING_BACKWARD] > count[TN_DOING_FORWARD] / 2 && count[TN_DOING_OPTIMIZER] > 0);
    const size_t ops = tn_plan_steps(tn_trainer_plan(s.trainer, true));
    assert_in_range(count[TN_DOING_FORWARD] + count[TN_DOING_BACKWARD], ops, 2 * ops); /* weights are packed once */
    tn_step_record_free(&r);
    tn_session_close(&s);
}

/* A step of more spans than a track has room for: the thread that prepares its batches has its own. */
static void many_spans(void **state)
{
    (void)state;
    static const char *const set[] = { "task=tokens_copy", "task.lengths=8",  "train.context=8", "dim=4",
                                       "heads=1",          "layers=1",        "train.batch=1",   "train.accumulate=800",
                                       "threads=1",        "loader.workers=1" };
    tn_session s = { 0 };
    tn_step_record r;
    size_t main_spans = 0, prepared = 0;
    assert_ok(tn_session_open("gpt_tiny", set, sizeof set / sizeof *set, true, &s));
    assert_ok(tn_record_step(&s, &r));
    for (size_t i = 0; i < r.n; i++) main_spans += r.span[i].track == 0, prepared += r.span[i].doing == TN_DOING_BATCH;
    assert_int_equal(main_spans, 20000);
    assert_true(prepared > 0);
    tn_step_record_free(&r);
    tn_session_close(&s);
}

/* Made-up records of a device: steps of two ops and an update, 100 us each, of which the second of three is kept. */
static void device_step(void **state)
{
    (void)state;
    static const char *const set[] = { "vocab=64", "dim=16", "layers=1", "train.context=16", "train.batch=2" };
    enum { STEPS = 4, OF_STEP = 4 };
    tn_span spans[STEPS * OF_STEP];
    tn_session s = { 0 };
    tn_step_record r;
    tn_node_time x;
    bool update;
    assert_ok(tn_session_open("gpt_tiny", set, sizeof set / sizeof *set, false, &s));
    const uint64_t ops = tn_plan_steps(tn_trainer_plan(s.trainer, true)), grad = TN_TRAINER_MARK(0),
                   apply = TN_TRAINER_MARK(TN_TRAINER_UPDATE);
    for (uint64_t k = 0; k < STEPS; k++) {
        const uint64_t at = 1000000 * (k + 1);
        spans[OF_STEP * k] = (tn_span){ .begin = at, .end = at + 100000, .mark = grad, .stream = 7 };
        spans[OF_STEP * k + 1] = (tn_span){ .begin = at + 50000, .end = at + 60000 }; /* nobody's */
        spans[OF_STEP * k + 2] =
            (tn_span){ .begin = at + 200000, .end = at + 300000, .mark = grad + ops - 1, .stream = 9 };
        spans[OF_STEP * k + 3] = (tn_span){ .begin = at + 400000, .end = at + 500000, .mark = apply, .stream = 7 };
    }
    assert_ok(tn_record_spans(s.trainer, spans, STEPS * OF_STEP, &r));
    assert_true(r.n == 3 && r.tracks == 2 && r.ms == 1);
    assert_string_equal(r.track[1], "stream 9");
    static const tn_doing doing[] = { TN_DOING_FORWARD, TN_DOING_BACKWARD, TN_DOING_OPTIMIZER };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.span[i].doing, doing[i]);
        assert_int_equal(r.span[i].track, i == 1);
        assert_float_equal(r.span[i].begin_ms, 0.2 * i, 1e-12);
        assert_float_equal(r.span[i].end_ms, 0.2 * i + 0.1, 1e-12);
    }
    assert_true(tn_trainer_marked(s.trainer, grad, &x, &update) && !update);
    assert_string_equal(r.span[0].name, x.op);
    assert_false(tn_trainer_marked(s.trainer, grad + ops, &x, &update));
    assert_false(tn_trainer_marked(s.trainer, 5, &x, &update));
    tn_step_record_free(&r);
    assert_ok(tn_record_spans(s.trainer, spans, 2 * OF_STEP, &r)); /* one begins behind an update: no second */
    assert_int_equal(r.n, 0);
    tn_session_close(&s);
}

/* Kernels of one stream that run beside each other are drawn beside each other. */
static void overlapping(void **state)
{
    (void)state;
    static const char *const set[] = { "vocab=64", "dim=16", "layers=1", "train.context=16", "train.batch=2" };
    enum { STEPS = 3, OF_STEP = 4 };
    tn_span spans[STEPS * OF_STEP];
    tn_session s = { 0 };
    tn_step_record r;
    assert_ok(tn_session_open("gpt_tiny", set, sizeof set / sizeof *set, false, &s));
    for (uint64_t k = 0; k < STEPS; k++)
        for (uint64_t i = 0; i < OF_STEP; i++) { /* the second begins within the first, the third behind both */
            const uint64_t at = 1000000 * (k + 1) + (i == 1 ? 50000 : 200000 * i);
            spans[OF_STEP * k + i] = (tn_span){
                .begin = at, .end = at + 100000, .mark = TN_TRAINER_MARK(i == 3 ? TN_TRAINER_UPDATE : 0), .stream = 7
            };
        }
    assert_ok(tn_record_spans(s.trainer, spans, STEPS * OF_STEP, &r));
    assert_true(r.n == OF_STEP && r.tracks == 2);
    assert_string_equal(r.track[0], "stream 7");
    assert_string_equal(r.track[1], "stream 7 (2)");
    for (size_t i = 0; i < r.n; i++) assert_int_equal(r.span[i].track, i == 1);
    tn_step_record_free(&r);
    tn_session_close(&s);
}

void tn_tests_recorded_step(tn_test_list *l)
{
    tn_test_add(l, one_step, NULL, "recorded: a step as it was");
    tn_test_add(l, many_spans, NULL, "recorded: a step of very many spans");
    tn_test_add(l, overlapping, NULL, "recorded: kernels beside each other");
    tn_test_add(l, device_step, NULL, "recorded: a replayed step");
}
