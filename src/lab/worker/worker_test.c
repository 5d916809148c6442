/* Trials and workers: a trial is the training that its settings describe, the table does not depend on how many
 * workers there are or how often they are stopped, and whatever ends a trial is recorded as what it was. */
#include "lab/worker/worker.h"

#include "lab/db/db.h"
#include "lab/db/trials.h"
#include "lab/worker/trial_run.h"
#include "study_world.h"
#include "train/run/session.h"
#include "train/run/training.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define TASK "base: xor_tep\nset: {task.size: 64, task.valid_frac: 0.5, train.epochs: 6, train.batch: 16}\n"
#define SPACE "search: {dim: log int 4..12, train.lr: log 1e-4..1e-1, beta: log 0.01..0.5}\n"

/* --- one trial ---------------------------------------------------------------------------------------------------- */

/* Against the same training without a laboratory. */
static void is_the_training(void **state)
{
    (void)state;
    tn_study_world w;
    tn_study_world_begin(&w,
                         "study: s\n" TASK SPACE
                         "objectives: [accuracy, loss, parameters, seconds, epochs_to_90, block_evals, "
                         "residual min]\ntrials: 2\nseed: 7\n",
                         "lab.db", NULL);
    tn_study_world_work(&w);
    tn_study *s = tn_study_world_load(&w);
    for (size_t i = 0; i < 2; i++) {
        const tn_trial *t = &s->trials[i];
        char dim[64], lr[64], beta[64], seed[32];
        assert_int_equal(t->state, TN_TRIAL_DONE);
        snprintf(dim, sizeof dim, "dim=%.0f", t->x[0]);
        snprintf(lr, sizeof lr, "train.lr=%.17g", t->x[1]);
        snprintf(beta, sizeof beta, "beta=%.17g", t->x[2]);
        snprintf(seed, sizeof seed, "seed=%zu", 7 + i);
        const char *const set[] = { "task.size=64",
                                    "task.valid_frac=0.5",
                                    "train.epochs=6",
                                    "train.batch=16",
                                    "train.eval_every=4",
                                    "threads=1",
                                    "log.level=info",
                                    dim,
                                    lr,
                                    beta,
                                    seed };
        tn_session on = { 0 };
        tn_progress_report last;
        assert_ok(tn_session_open("xor_tep", set, sizeof set / sizeof *set, true, &on));
        const tn_training job = {
            .trainer = on.trainer, .settings = on.settings, .source = &on.source, .batch = on.batch, .length = on.length
        };
        assert_ok(tn_training_run(&job, NULL, &last));
        assert_true(t->y[0] == tn_scores_get(&last.best, "accuracy"));
        assert_true(t->y[1] <= tn_scores_get(&last.last, "loss"));
        assert_true(t->y[2] == (double)tn_trainer_parameters(on.trainer));
        assert_true(t->y[3] > 0 && t->y[3] <= t->ended - t->started + 0.05);
        assert_true(t->y[4] >= 1 && t->y[4] <= 6 && t->y[4] == floor(t->y[4]));
        assert_true(t->y[5] > 6 * 64 * 3 && t->y[5] == floor(t->y[5]));
        assert_true(t->y[6] > 0 && t->y[6] < 1);
        tn_session_close(&on);
        tn_arena a = { 0 };
        tn_trial_curve c;
        assert_ok(tn_lab_curve(w.lab, t->id, &a, &c));
        assert_int_equal(c.n, 6);
        double best = 0, first = 0;
        for (size_t k = 0; k < c.metrics; k++)
            for (size_t e = 0; strcmp(c.name[k], "accuracy") == 0 && e < 6; e++)
                best = fmax(best, c.value[e * c.metrics + k]);
        for (size_t k = 0; k < c.metrics; k++)
            for (size_t e = 6; strcmp(c.name[k], "accuracy") == 0 && e-- > 0;)
                if (c.value[e * c.metrics + k] >= 0.9 * best) first = c.epoch[e];
        assert_true(best == t->y[0] && first == t->y[4]);
        tn_arena_free(&a);
    }
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

typedef struct ending {
    const char *name, *text;
    tn_trial_state state;
    const char *error;
} ending;

#define ONE "objectives: [accuracy]\ntrials: 1\nsearch: {dim: 4..5}\n"

static const ending endings[] = {
    { "a rule over every step", "study: s\n" TASK ONE "rules: [\"loss > 0\"]\n", TN_TRIAL_PRUNED, "rule: loss > 0" },
    { "a rule over instruments", "study: s\n" TASK ONE "rules: [\"steps > 0 for 5 steps\"]\n", TN_TRIAL_PRUNED,
      "rule: steps > 0 for 5 steps" },
    { "a rule over epochs", "study: s\n" TASK ONE "rules: [\"accuracy < 2 after 3 epochs\"]\n", TN_TRIAL_PRUNED,
      "rule: accuracy < 2 after 3 epochs" },
    { "a rule at its cap",
      "study: s\nbase: xor_tep\nset: {task.size: 64, train.epochs: 6, iterations: 2, rtol: 1e-9}\n" ONE
      "rules: [\"solver_iters at cap\"]\n",
      TN_TRIAL_PRUNED, "rule: solver_iters at cap" },
    { "its time", "study: s\nbase: xor_tep\nset: {train.epochs: 100000}\n" ONE "trial_seconds: 0.2\n", TN_TRIAL_TIMEOUT,
      "trial_seconds: 0.2" },
    { "settings that contradict each other", "study: s\nbase: xor_tep\nset: {grad: bptt, solver: anderson}\n" ONE,
      TN_TRIAL_FAILED, "use solver=picard" },
    { "an objective that nothing reports",
      "study: s\n" TASK "objectives: [beauty max]\ntrials: 1\nsearch: {dim: 4..5}\n", TN_TRIAL_FAILED,
      "the model does not report beauty" },
    { "divergence",
      "study: s\nbase: xor_tep\nset: {task.size: 64, train.epochs: 1000, grad: bptt, jacobian: 1e6, train.optimizer: "
      "sgd, train.clip: 0, train.momentum: 0.999}\nobjectives: [accuracy]\ntrials: 1\n"
      "search: {train.lr: 0.999..1}\n",
      TN_TRIAL_FAILED, "is not finite" },
};

static void ends_as(void **state)
{
    const ending *e = *state;
    tn_study_world w;
    tn_study_world_begin(&w, e->text, "lab.db", NULL);
    tn_study_world_work(&w);
    tn_study *s = tn_study_world_load(&w);
    if (s->trials[0].state != e->state)
        fail_msg("%s instead of %s: %s", tn_trial_state_name(s->trials[0].state), tn_trial_state_name(e->state),
                 s->trials[0].error);
    if (!strstr(s->trials[0].error, e->error)) fail_msg("\"%s\" does not say \"%s\"", s->trials[0].error, e->error);
    assert_true(s->trials[0].ended > 0);
    assert_int_equal(access(tn_tempdir_file(&w.dir, "lab"), F_OK), -1); /* no directory stays */
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

static void retries(void **state)
{
    (void)state;
    tn_study_world w;
    tn_study_world_begin(
        &w,
        "study: s\nbase: xor_tep\nset: {grad: bptt, solver: anderson}\nobjectives: [accuracy]\ntrials: 1\nretries: "
        "2\nseed: 10\nsearch: {dim: 4..5}\n",
        "lab.db", NULL);
    tn_study_world_work(&w);
    tn_study *s = tn_study_world_load(&w);
    assert_true(s->trials[0].state == TN_TRIAL_FAILED && s->trials[0].seed == 12 && s->trials[0].attempt == 1);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

static void environment(void **state)
{
    (void)state;
    tn_study_world w;
    tn_study_world_begin(
        &w,
        "study: s\nbase: cartpole_tep\nset: {train.steps: 60}\nobjectives: [reward max 0, parameters min 1e6, "
        "epochs_to_90 min 100]\ntrials: 1\nsearch: {dim: 8..9}\n",
        "lab.db", NULL);
    tn_study_world_work(&w);
    tn_study *s = tn_study_world_load(&w);
    tn_arena a = { 0 };
    tn_trial_curve c;
    assert_int_equal(s->trials[0].state, TN_TRIAL_DONE);
    assert_true(s->trials[0].y[0] >= 8 && s->trials[0].y[0] <= 500);
    assert_ok(tn_lab_curve(w.lab, s->trials[0].id, &a, &c));
    assert_true(c.n == 30 && c.step[0] == 2 && c.step[29] == 60);
    tn_arena_free(&a);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

/* --- many workers, and workers that are stopped ------------------------------------------------------------------- */

#define STUDY                                                                                                          \
    "study: s\n" TASK SPACE "sides: {ep: {set: {grad: ep_centred}}, bp: {set: {grad: bptt}}}\n"                        \
    "objectives: [accuracy max 0, parameters min 1e6, block_evals min 1e9]\nsampler: {name: nsga2, population: 6, "    \
    "seed: 3}\n"                                                                                                       \
    "pruner: {name: asha, min: 1, eta: 2, with: parameters, lag: 3}\nrules: [\"residual > 0.9 for 4 "                  \
    "steps\"]\ntrials: 14\n"

static void *thread_main(void *ctx)
{
    int64_t ran;
    const tn_status s = tn_worker_run(&(tn_worker_options){ .db = ((tn_study_world *)ctx)->path }, &ran);
    return s == TN_OK ? NULL : ctx;
}

static void any_workers(void **state)
{
    (void)state;
    tn_study_world one, many;
    pthread_t t[3];
    tn_study_world_begin(&one, STUDY, "one.db", NULL);
    tn_study_world_work(&one);
    tn_study_world_begin(&many, STUDY, "many.db", &one);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, thread_main, &many), 0);
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
    tn_study_world_same(&one, &many);
    char *a = tn_study_world_table(&one);
    assert_non_null(strstr(a, " 3 ")); /* something was pruned */
    free(a);
    tn_study_world_end(&many, false);
    tn_study_world_end(&one, true);
}

/* Sides one after the other, stopped and in lanes too: the same table as all at once. */
static void side_by_side(void **state)
{
    (void)state;
    tn_study_world all, some;
    int64_t ran;
    tn_tally t[2];
    tn_study_world_begin(&all, STUDY, "all.db", NULL);
    tn_study_world_work(&all);
    tn_study_world_begin(&some, STUDY, "some.db", &all);
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = some.path, .sides = 2, .trials = 5 }, &ran));
    assert_int_equal(ran, 5);
    assert_true(tn_study_world_work_stopped(&some, (tn_worker_options){ .sides = 2 }, 5, 13) > 5);
    assert_ok(tn_lab_tally(some.lab, some.study, &some.plan, false, 0, t));
    assert_true(t[0].count[TN_TRIAL_WAITING] == 14 && t[1].count[TN_TRIAL_WAITING] == 0);
    assert_int_equal(access(tn_tempdir_file(&all.dir, "some/s/ep-0"), F_OK), -1);
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = some.path, .sides = 1, .lanes = 3 }, &ran));
    assert_int_equal(ran, 14);
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = some.path }, &ran));
    assert_int_equal(ran, 0);
    tn_study_world_same(&all, &some);
    tn_study_world_end(&some, false);
    tn_study_world_end(&all, true);
}

/* Stopped every few steps, with a checkpoint each time: the same table. */
static void stopped_often(void **state)
{
    (void)state;
    tn_study_world calm, often;
    tn_study_world_begin(&calm, STUDY, "calm.db", NULL);
    tn_study_world_work(&calm);
    tn_study_world_begin(&often, STUDY, "often.db", &calm);
    assert_true(tn_study_world_work_stopped(&often, (tn_worker_options){ 0 }, 5, 13) > 20);
    tn_study_world_same(&calm, &often);
    assert_int_equal(access(tn_tempdir_file(&calm.dir, "often/s/ep-0"), F_OK), -1);
    tn_study_world_end(&often, false);
    tn_study_world_end(&calm, true);
}

/* A checkpoint that is damaged, and one of other settings, are of no use: the trial begins again, and ends as it
 * would have. */
static void bad_checkpoint(void **state)
{
    (void)state;
    tn_study_world calm, hurt;
    char command[2048];
    tn_study_world_begin(&calm, STUDY, "calm.db", NULL);
    tn_study_world_work(&calm);
    tn_study_world_begin(&hurt, STUDY, "hurt.db", &calm);
    for (int round = 0; round < 3; round++) {
        tn_patience p = { 12 };
        int64_t ran;
        assert_int_equal(tn_worker_run(&(tn_worker_options){ .db = hurt.path, .ctx = &p, .interrupted = tn_impatient },
                                       &ran),
                         TN_INTERRUPTED);
        snprintf(command, sizeof command,
                 "cd %s/hurt/s && for f in */step-*/%s; do printf X | dd of=$f bs=1 seek=200 conv=notrunc 2>/dev/null; "
                 "done; ls */step-*/%s > /dev/null",
                 calm.dir.path, round == 1 ? "state.json" : "model.safetensors", "model.safetensors");
        assert_int_equal(system(command), 0);
    }
    tn_study_world_work(&hurt);
    tn_study_world_same(&calm, &hurt);
    tn_study_world_end(&hurt, false);
    tn_study_world_end(&calm, true);
}

/* --- comparisons and transfer ------------------------------------------------------------------------------------- */

static void compares(void **state)
{
    (void)state;
    tn_study_world w;
    int64_t ran;
    tn_study_world_begin(&w, "study: s\n" TASK SPACE "objectives: [accuracy, loss, seconds]\ntrials: 1\n", "lab.db",
                         NULL);
    tn_study_world_work(&w);
    tn_study *s = tn_study_world_load(&w);
    for (uint64_t seed = 100; seed < 103; seed++)
        assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, 0, TN_TRIAL_COMPARE, s->trials[0].id, seed, s->trials[0].x));
    tn_study_free(s);
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = w.path, .compare = true }, &ran));
    assert_int_equal(ran, 3);
    s = tn_study_world_load(&w);
    assert_int_equal(s->n, 4);
    for (size_t i = 1; i < 4; i++) {
        const tn_trial *t = &s->trials[i];
        assert_true(t->kind == TN_TRIAL_COMPARE && t->state == TN_TRIAL_DONE && t->seed == 99 + i &&
                    t->config == s->trials[0].id && t->y[0] >= 0 && t->y[0] <= 1 && t->y[1] > 0);
    }
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

static void transfers(void **state)
{
    (void)state;
    tn_study_world from, to;
    char text[1024];
    tn_study_world_begin(&from,
                         "study: first\n" TASK "search: {dim: int 4..40, train.lr: log 1e-4..1e-1, mode: [block, "
                         "energy]}\nobjectives: [parameters min]\ntrials: 6\n",
                         "from.db", NULL);
    tn_study_world_work(&from);
    snprintf(text, sizeof text,
             "study: second\n" TASK
             "search: {dim: int 4..64, beta: 0.1..0.2, mode: [energy, hopfield, block]}\nobjectives: [parameters "
             "min]\ntrials: 4\ntransfer: {from: %s/first, best: 2}\n",
             from.path);
    tn_study_world_begin(&to, text, "to.db", &from);
    tn_study *a = tn_study_world_load(&from), *b = tn_study_world_load(&to);
    double best = INFINITY, second = INFINITY;
    const tn_trial *winner = NULL;
    for (size_t i = 0; i < a->n; i++) {
        if (a->trials[i].y[0] < best) second = best, best = a->trials[i].y[0], winner = &a->trials[i];
        else if (a->trials[i].y[0] < second) second = a->trials[i].y[0];
    }
    assert_int_equal(b->n, 4);
    assert_true(b->trials[0].kind == TN_TRIAL_ENQUEUED && b->trials[1].kind == TN_TRIAL_ENQUEUED &&
                b->trials[2].kind == TN_TRIAL_SEARCH);
    assert_true(b->trials[0].x[0] == winner->x[0] && b->trials[0].x[1] >= 0.1 && b->trials[0].x[1] <= 0.2);
    assert_string_equal(b->sides[0].space.dims[2].choices[(int)b->trials[0].x[2]],
                        a->sides[0].space.dims[2].choices[(int)winner->x[2]]);
    tn_study_free(b);
    tn_study_world_work(&to);
    b = tn_study_world_load(&to);
    assert_true(b->trials[0].y[0] == best && b->trials[1].y[0] == second); /* what it had there */
    tn_study_free(a);
    tn_study_free(b);
    tn_study_world_end(&to, false);
    tn_study_world_end(&from, true);
}

/* A trial whose process dies every time is given up. */
static void gives_up(void **state)
{
    (void)state;
    tn_study_world w;
    tn_study_world_begin(&w, "study: s\n" TASK ONE, "lab.db", NULL);
    assert_ok(tn__db_exec(w.lab, "UPDATE trial SET attempt = 50"));
    tn_study_world_work(&w);
    tn_study *s = tn_study_world_load(&w);
    assert_int_equal(s->trials[0].state, TN_TRIAL_FAILED);
    assert_non_null(strstr(s->trials[0].error, "the worker died 50 times"));
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

void tn_tests_worker(tn_test_list *l)
{
    tn_test_add(l, is_the_training, NULL, "lab/worker: a trial is the training that it says");
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        tn_test_add(l, ends_as, &endings[i], "lab/worker: ended by %s", endings[i].name);
    tn_test_add(l, retries, NULL, "lab/worker: retries with the next seed");
    tn_test_add(l, environment, NULL, "lab/worker: an environment's reward");
    tn_test_add(l, any_workers, NULL, "lab/worker: one worker or three, the same table");
    tn_test_add(l, side_by_side, NULL, "lab/worker: sides one after the other, the same table");
    tn_test_add(l, stopped_often, NULL, "lab/worker: stopped again and again, the same table");
    tn_test_add(l, bad_checkpoint, NULL, "lab/worker: a damaged checkpoint is left aside");
    tn_test_add(l, compares, NULL, "lab/worker: comparisons on the test part");
    tn_test_add(l, transfers, NULL, "lab/worker: the best points of another study");
    tn_test_add(l, gives_up, NULL, "lab/worker: a trial that ends its process is given up");
}
