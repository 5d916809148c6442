/* A worker with lanes: the table does not depend on how many there are or how often they are stopped; a trial that
 * goes wrong is that trial's alone, a database that goes wrong is everybody's. */
#include "study_world.h"

#include <stdatomic.h>

#define TASK "base: xor_tep\nset: {task.size: 64, task.valid_frac: 0.5, train.epochs: 4, train.batch: 16}\n"
#define STUDY                                                                                                          \
    "study: s\n" TASK "search: {dim: log int 4..8, train.lr: log 1e-4..1e-1, beta: log 0.01..0.5}\n"                   \
    "sides: {ep: {set: {grad: ep_centred}}, bp: {set: {grad: bptt}}}\n"                                                \
    "objectives: [accuracy max 0, parameters min 1e6, block_evals min 1e9]\nsampler: {name: nsga2, population: 4, "    \
    "seed: 3}\n"                                                                                                       \
    "pruner: {name: asha, min: 1, eta: 2, with: parameters, lag: 3}\nrules: [\"residual > 0.9 for 4 "                  \
    "steps\"]\ntrials: 10\n"

static void any_lanes(void **state)
{
    (void)state;
    static const int lanes[] = { 2, 4, 4 };
    bool shared = false;
    tn_study_world one, many;
    tn_study_world_begin(&one, STUDY, "one.db", NULL);
    tn_study_world_work(&one);
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        char name[32];
        int64_t ran;
        snprintf(name, sizeof name, "many%zu.db", i);
        tn_study_world_begin(&many, STUDY, name, &one);
        assert_ok(tn_worker_run(&(tn_worker_options){ .db = many.path, .lanes = lanes[i] }, &ran));
        assert_int_equal(ran, 20);
        tn_study_world_same(&one, &many);
        tn_study *s = tn_study_world_load(&many);
        int64_t low = INT64_MAX, high = 0;
        for (size_t k = 0; k < s->n; k++) {
            low = s->trials[k].worker < low ? s->trials[k].worker : low;
            high = s->trials[k].worker > high ? s->trials[k].worker : high;
        }
        assert_true(high - low < lanes[i]); /* each under its own number */
        shared |=
            high > low; /* on a busy machine one lane may be through before another has begun, but not every time */
        tn_study_free(s);
        tn_study_world_end(&many, false);
    }
    assert_true(shared);
    tn_study_world_end(&one, true);
}

/* Every stop ends all lanes with a checkpoint each; their trials are resumed. */
static void stopped_often(void **state)
{
    (void)state;
    tn_study_world calm, often;
    tn_study_world_begin(&calm, STUDY, "calm.db", NULL);
    tn_study_world_work(&calm);
    tn_study_world_begin(&often, STUDY, "often.db", &calm);
    assert_true(tn_study_world_work_stopped(&often, (tn_worker_options){ .lanes = 3 }, 23, 13) > 5);
    tn_study_world_same(&calm, &often);
    tn_study_world_end(&often, false);
    tn_study_world_end(&calm, true);
}

static void one_fails(void **state)
{
    (void)state;
    tn_study_world w;
    int64_t ran;
    tn_study_world_begin(&w,
                         "study: s\n" TASK "search: {dim: 4..8}\nobjectives: [accuracy]\ntrials: 6\n"
                         "sides: {good: {set: {grad: bptt}}, bad: {set: {grad: bptt, solver: anderson}}}\n",
                         "lab.db", NULL);
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = w.path, .lanes = 3 }, &ran));
    assert_int_equal(ran, 12);
    tn_study *s = tn_study_world_load(&w);
    for (size_t i = 0; i < s->n; i++) {
        const bool good = s->trials[i].side == 0;
        assert_int_equal(s->trials[i].state, good ? TN_TRIAL_DONE : TN_TRIAL_FAILED);
        assert_true(good == (s->trials[i].error[0] == 0)); /* each has its own words */
    }
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

typedef struct wrecker {
    atomic_int left;
    tn_lab *lab;
} wrecker;

/* After some questions the database loses a table; asked again where a lane was writing. */
static bool wreck(void *ctx)
{
    wrecker *w = ctx;
    if (atomic_fetch_sub(&w->left, 1) == 1 &&
        sqlite3_exec(w->lab->db, "ALTER TABLE report RENAME TO gone", NULL, NULL, NULL) != SQLITE_OK)
        atomic_store(&w->left, 1);
    return false;
}

static void database_ends_all(void **state)
{
    (void)state;
    tn_study_world w;
    int64_t ran;
    tn_study_world_begin(&w, "study: s\n" TASK "search: {dim: 4..8}\nobjectives: [accuracy]\ntrials: 40\n", "lab.db",
                         NULL);
    wrecker k = { .left = 60, .lab = w.lab };
    assert_fails(tn_worker_run(&(tn_worker_options){ .db = w.path, .lanes = 3, .ctx = &k, .interrupted = wreck }, &ran),
                 TN_BAD_FILE, "report");
    assert_true(ran < 40);
    assert_ok(tn__db_exec(w.lab, "ALTER TABLE gone RENAME TO report"));
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = w.path, .lanes = 3 }, &ran)); /* nothing is lost */
    tn_study *s = tn_study_world_load(&w);
    for (size_t i = 0; i < s->n; i++) assert_int_equal(s->trials[i].state, TN_TRIAL_DONE);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

/* Lanes that wait are as good as gone when there is nothing for them, and take over what a lane of a dead worker
 * had. */
static void more_lanes_than_trials(void **state)
{
    (void)state;
    tn_study_world w;
    int64_t ran, dead;
    tn_claim c;
    tn_claimed got;
    double x[8];
    tn_study_world_begin(&w, "study: s\n" TASK "search: {dim: 4..8}\nobjectives: [accuracy]\ntrials: 2\n", "lab.db",
                         NULL);
    assert_ok(tn_lab_join(w.lab, &dead));
    assert_ok(tn_lab_claim(w.lab, w.study, &w.plan, dead, &(tn_trial_filter){ 0 }, &c, x, &got));
    assert_ok(tn_lab_leave(w.lab, dead));
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = w.path, .lanes = 5 }, &ran));
    assert_int_equal(ran, 2);
    tn_study *s = tn_study_world_load(&w);
    assert_int_equal(s->trials[0].attempt, 2);
    assert_true(s->trials[0].state == TN_TRIAL_DONE && s->trials[1].state == TN_TRIAL_DONE);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

void tn_tests_lanes(tn_test_list *l)
{
    tn_test_add(l, any_lanes, NULL, "lab/lanes: 1, 2 or 4 of them, the same table");
    tn_test_add(l, stopped_often, NULL, "lab/lanes: stopped again and again, the same table");
    tn_test_add(l, one_fails, NULL, "lab/lanes: a trial that fails is nobody else's affair");
    tn_test_add(l, database_ends_all, NULL, "lab/lanes: the database ends all of them");
    tn_test_add(l, more_lanes_than_trials, NULL, "lab/lanes: more than there are trials");
}
