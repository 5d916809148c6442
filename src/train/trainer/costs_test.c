/* Costs are what an equilibrium network's solves did: every batch of every epoch, samples and not padding, by phase; and a run
 * that is watched trains the bits of one that is not. */
#include "train/trainer/costs.h"

#include "train/run/session.h"
#include "train/run/training.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

enum { TRAIN = 70, TEST = 14, BATCH = 16, EPOCHS = 3, STEPS = 7 };
enum { TRAIN_BATCHES = (TRAIN + BATCH - 1) / BATCH, TEST_BATCHES = (TEST + BATCH - 1) / BATCH };

static void open_run(const char *grad, const char *stop, tn_session *s)
{
    const char *const list[] = { "task=parity",
                                 "task.bits=4",
                                 "task.size=70",
                                 "task.valid_frac=0",
                                 "task.test_frac=0.2",
                                 "dim=8",
                                 "iterations=7",
                                 "train.batch=16",
                                 "train.epochs=3",
                                 "train.eval_every=5",
                                 "train.warmup=0",
                                 "train.lr=1e-2",
                                 "threads=1",
                                 "log.level=info",
                                 grad,
                                 stop };
    const tn_session_options o = {
        .target = "tep", .overrides = list, .n = sizeof list / sizeof *list, .needs_data = true, .split = TN_TEST
    };
    assert_ok(tn_session_open_with(&o, s));
    assert_int_equal(tn_session_count(s, TN_TRAIN), TRAIN);
    assert_int_equal(tn_session_count(s, TN_TEST), TEST);
}

static tn_training training_of(tn_session *s)
{
    return (tn_training){
        .trainer = s->trainer, .settings = s->settings, .source = &s->source, .batch = s->batch, .length = s->length
    };
}

static void count(void *ctx, tn_trainer_event what, tn_bound *b, double seconds)
{
    (void)seconds;
    tn_costs_add(ctx, what, b);
}

static void run_watched(tn_session *s, tn_costs *c, tn_progress_report *last)
{
    const tn_training t = training_of(s);
    assert_ok(tn_costs_open(tn_trainer_model(s->trainer), s->settings, s->batch, c));
    tn_trainer_watch(s->trainer, (tn_watch){ .ctx = c, .ran = count });
    assert_ok(tn_training_run(&t, NULL, last));
}

typedef struct counts {
    int64_t calls, samples, eval_samples;
    double free, nudged, adjoint, backward, eval;
} counts;

static counts run(const char *grad, const char *stop)
{
    tn_session s = { 0 };
    tn_costs c;
    tn_progress_report last;
    open_run(grad, stop, &s);
    run_watched(&s, &c, &last);
    tn_session_close(&s);
    return (counts){ .calls = c.calls,
                     .samples = c.samples,
                     .eval_samples = c.eval_samples,
                     .free = tn_costs_sum(&c, "free"),
                     .nudged = tn_costs_sum(&c, "nudged"),
                     .adjoint = tn_costs_sum(&c, "adjoint"),
                     .backward = tn_costs_sum(&c, "backward"),
                     .eval = tn_costs_sum(&c, "eval") };
}

static void counts_of_ep(void **state)
{
    (void)state;
    const counts r = run("grad=ep", "rtol=1e-30");
    assert_int_equal(r.calls, EPOCHS * (2 * TRAIN_BATCHES + TEST_BATCHES));
    assert_int_equal(r.samples, EPOCHS * TRAIN);
    assert_int_equal(r.eval_samples, EPOCHS * TEST);
    assert_true(r.free == EPOCHS * TRAIN * STEPS && r.nudged == EPOCHS * TRAIN * STEPS);
    assert_true(r.backward == EPOCHS * TRAIN && r.adjoint == 0 && r.eval == EPOCHS * TEST * STEPS);
}

static void counts_of_bptt(void **state)
{
    (void)state;
    const counts r = run("grad=bptt", "rtol=1e-30");
    assert_int_equal(r.calls, EPOCHS * (TRAIN_BATCHES + TEST_BATCHES));
    assert_true(r.free == EPOCHS * TRAIN * STEPS && r.backward == r.free);
    assert_true(r.nudged == 0 && r.adjoint == 0 && r.eval == EPOCHS * TEST * STEPS);
}

static void counts_of_implicit(void **state)
{
    (void)state;
    const counts r = run("grad=implicit", "rtol=1e-30");
    assert_int_equal(r.calls, EPOCHS * (2 * TRAIN_BATCHES + TEST_BATCHES));
    assert_true(r.adjoint == EPOCHS * TRAIN * STEPS && r.nudged == 0 && r.backward == EPOCHS * TRAIN);
}

/* As many calls, fewer evaluations; at least one for each sample. */
static void counts_of_early_stop(void **state)
{
    (void)state;
    const counts r = run("grad=ep", "rtol=0.3");
    assert_int_equal(r.calls, EPOCHS * (2 * TRAIN_BATCHES + TEST_BATCHES));
    assert_true(r.free >= EPOCHS * TRAIN && r.free < EPOCHS * TRAIN * STEPS);
    assert_true(r.nudged >= EPOCHS * TRAIN && r.nudged < EPOCHS * TRAIN * STEPS);
    assert_true(r.eval >= EPOCHS * TEST && r.eval < EPOCHS * TEST * STEPS);
}

static void watching_changes_nothing(void **state)
{
    tn_session watched = { 0 }, alone = { 0 };
    tn_costs c;
    tn_progress_report seen, last;
    (void)state;
    open_run("grad=ep", "rtol=1e-2", &watched);
    open_run("grad=ep", "rtol=1e-2", &alone);
    run_watched(&watched, &c, &seen);
    const tn_training t = training_of(&alone);
    assert_ok(tn_training_run(&t, NULL, &last));
    assert_true(tn_scores_get(&seen.best, "accuracy") == tn_scores_get(&last.best, "accuracy"));
    assert_int_equal(seen.best_step, last.best_step);
    const tn_bucket *x = tn_store_bucket(tn_trainer_store(watched.trainer), 0),
                    *y = tn_store_bucket(tn_trainer_store(alone.trainer), 0);
    assert_int_equal(x->count, y->count);
    assert_memory_equal(x->param, y->param, sizeof *x->param * (size_t)x->count);
    tn_session_close(&watched);
    tn_session_close(&alone);
}

/* How much a solve does is not in its plan: nobody may take it for FLOPs that were done. */
static void flops_of_solves_are_not_known(void **state)
{
    tn_session s = { 0 };
    (void)state;
    open_run("grad=ep", "rtol=1e-2", &s);
    assert_true(isnan(tn_trainer_flops(s.trainer)));
    assert_true(tn_plan_flops(tn_trainer_plan(s.trainer, true)) > 0); /* the most there can be */
    tn_session_close(&s);
    const char *const list[] = { "vocab=16", "dim=16", "layers=1", "heads=2", "train.context=8", "train.batch=2" };
    assert_ok(tn_session_open("gpt", list, sizeof list / sizeof *list, false, &s));
    assert_true(tn_trainer_flops(s.trainer) == tn_plan_flops(tn_trainer_plan(s.trainer, true)) &&
                tn_trainer_flops(s.trainer) > 0);
    tn_session_close(&s);
}

void tn_tests_costs(tn_test_list *l)
{
    tn_test_add(l, counts_of_ep, NULL, "costs: counts of equilibrium propagation");
    tn_test_add(l, counts_of_bptt, NULL, "costs: counts of back-propagation through time");
    tn_test_add(l, counts_of_implicit, NULL, "costs: counts of the implicit gradient");
    tn_test_add(l, counts_of_early_stop, NULL, "costs: counts where samples stop early");
    tn_test_add(l, watching_changes_nothing, NULL, "costs: watching changes no bit");
    tn_test_add(l, flops_of_solves_are_not_known, NULL, "costs: FLOPs of solves are not known");
}
