/* Claims that are unique among threads and processes; a dead worker's trial taken once; what samplers and pruners
 * see of trials. */
#include "lab_world.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

/* --- claims ------------------------------------------------------------------------------------------------------- */

static void end_it(tn_lab_world *w, const tn_claim *c, tn_trial_state state)
{
    bool lost;
    assert_ok(tn_lab_end(
        w->lab, c, NULL, 0,
        &(tn_ending){ .state = state, .y = (double[]){ 1, 2 }, .seconds = 1, .parameters = NAN, .seed = c->seed }, 2,
        &lost));
    assert_false(lost);
}

static double fake_s;
static double fake_clock(void) { return fake_s; }

static void stale(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_claim a, b, c;
    double x[2];
    bool lost;
    tn_lab_world_open(&w, tn_lab_world_text, 1);
    w.lab->heartbeats.clock_s = fake_clock;
    fake_s = 1000;
    assert_int_equal(tn_lab_world_claim(&w, &a, x), TN_CLAIM_GOT);
    assert_int_equal(tn_lab_world_claim(&w, &b, x), TN_CLAIM_GOT);
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT); /* both run */
    const int64_t dead = w.worker;
    assert_ok(tn_lab_join(w.lab, &w.worker));
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT);
    fake_s += TN_LAB_STALE_S - 1;
    assert_ok(tn_lab_beat(w.lab, w.worker)); /* its own heart does not stop */
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT);
    fake_s += 2;
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
    assert_true(c.trial == a.trial && c.attempt == 2);
    end_it(&w, &c, TN_TRIAL_DONE);
    assert_ok(tn_lab_beat(w.lab, dead)); /* it was only asleep: its other trial is its own again, this one is not */
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT);
    assert_ok(tn_lab_end(w.lab, &a, NULL, 0, &(tn_ending){ .state = TN_TRIAL_FAILED, .seed = 1 }, 2, &lost));
    assert_true(lost);
    assert_ok(tn_lab_report(w.lab, &a, NULL, 0, 5, &lost));
    assert_true(lost);
    assert_ok(tn_lab_leave(w.lab, dead));
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
    assert_int_equal(c.trial, b.trial);
    end_it(&w, &c, TN_TRIAL_WAITING); /* put back */
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
    assert_true(c.trial == b.trial && c.attempt == 3 && c.seconds == 1);
    end_it(&w, &c, TN_TRIAL_PRUNED);
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_OVER);
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial WHERE state = 2"), 1);
    tn_lab_world_close(&w);
}

/* The wall clock is set back or forth by an hour: whoever beats lives, whoever does not is dead a minute later. */
static void stepped_clock(void **state)
{
    static const char *const steps[] = { "UPDATE worker SET beat = beat + 3600",
                                         "UPDATE worker SET beat = beat - 3600" };
    (void)state;
    for (int way = 0; way < 2; way++) {
        tn_lab_world w;
        tn_claim a, c;
        double x[2];
        int64_t other;
        tn_lab_world_open(&w, tn_lab_world_text, 1);
        w.lab->heartbeats.clock_s = fake_clock;
        fake_s = 5;
        assert_int_equal(tn_lab_world_claim(&w, &a, x), TN_CLAIM_GOT);
        other = w.worker;
        assert_ok(tn_lab_join(w.lab, &w.worker));
        assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
        tn_lab_world_sql(&w, steps[way]); /* all that was written before is of another hour now */
        for (int i = 0; i < 30; i++) {
            assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT);
            fake_s += 5;
            if (i == 0 && way == 1)
                assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT); /* old, but just seen */
            assert_ok(tn_lab_beat(w.lab, other));
            assert_ok(tn_lab_beat(w.lab, w.worker));
            if (way == 0)
                tn_lab_world_sql(
                    &w, "UPDATE worker SET beat = beat + 3600 WHERE id = 1"); /* its clock is another machine's */
        }
        assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_WAIT);
        for (int i = 0; i < 13; i++) { /* the other one's heart has stopped */
            fake_s += 5;
            assert_ok(tn_lab_beat(w.lab, w.worker));
        }
        assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
        assert_true(c.trial == a.trial && c.attempt == 2);
        tn_lab_world_close(&w);
    }
}

/* A trial of a worker that the table does not know is nobody's; so is one of this machine before it was started
 * again. */
static void nobodys(void **state)
{
    static const char *const how[] = {
        "DELETE FROM worker WHERE id = 1",
        "UPDATE worker SET host = substr(host, 1, instr(host, ' ')) || 'another0 pid:[1]' WHERE id = 1"
    };
    (void)state;
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        tn_lab_world w;
        tn_claim a, c;
        double x[2];
        tn_lab_world_open(&w, tn_lab_world_text, 1);
        assert_int_equal(tn_lab_world_claim(&w, &a, x), TN_CLAIM_GOT);
        tn_lab_world_sql(&w, how[i]);
        assert_ok(tn_lab_join(w.lab, &w.worker));
        assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
        assert_true(c.trial == a.trial && c.attempt == 2);
        tn_lab_world_close(&w);
    }
}

/* One that has ended, and even one that nobody has waited for yet, is seen without waiting for its heart. */
static void dead_process(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_claim c;
    tn_claimed got;
    double x[2];
    tn_lab_world_open(&w, tn_lab_world_text, 1);
    tn_lab_close(w.lab);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tn_lab *lab = NULL;
        int64_t worker;
        if (tn_lab_open(w.path, true, &lab) != TN_OK || tn_lab_join(lab, &worker) != TN_OK) _exit(1);
        _exit(tn_lab_claim(lab, w.study, &w.plan, worker, &(tn_trial_filter){ 0 }, &c, x, &got) == TN_OK &&
                      got == TN_CLAIM_GOT
                  ? 0
                  : 1);
    }
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* a zombie now */
    assert_int_equal(info.si_status, 0);
    assert_ok(tn_lab_open(w.path, true, &w.lab));
    assert_ok(tn_lab_join(w.lab, &w.worker));
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
    assert_true(c.number == 0 && c.side == 0 && c.attempt == 2);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    tn_lab_world_close(&w);
}

/* With a pruner, no trial starts before those that it may be compared with have ended. */
static void waits_for_lag(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_claim c[8];
    double x[2];
    tn_lab_world_open(&w,
                      "study: s\nbase: xor_tep\ntrials: 40\nlag: 2\nsearch: {dim: 4..64, beta: 0.1..0.2}\nobjectives: "
                      "[accuracy, seconds]\n",
                      40);
    static const tn_pruner never = { .name = "never" };
    w.plan.pruner = &never;
    for (int i = 0; i < 3; i++) assert_int_equal(tn_lab_world_claim(&w, &c[i], x), TN_CLAIM_GOT);
    assert_int_equal(tn_lab_world_claim(&w, &c[3], x), TN_CLAIM_WAIT);
    end_it(&w, &c[1], TN_TRIAL_DONE);
    assert_int_equal(tn_lab_world_claim(&w, &c[3], x), TN_CLAIM_WAIT); /* 0 still runs */
    end_it(&w, &c[0], TN_TRIAL_FAILED);
    assert_int_equal(tn_lab_world_claim(&w, &c[3], x), TN_CLAIM_GOT);
    assert_int_equal(tn_lab_world_claim(&w, &c[4], x), TN_CLAIM_GOT);
    assert_int_equal(c[4].number, 4);
    assert_int_equal(tn_lab_world_claim(&w, &c[5], x), TN_CLAIM_WAIT);
    tn_lab_world_close(&w);
}

/* Of some sides alone: the others keep theirs, and it is over when these have none. */
static void some_sides(void **state)
{
    (void)state;
    enum { A = 1, B = 2, C = 4 };
    static const struct {
        tn_trial_filter of;
        struct {
            size_t side;
            int64_t number;
        } gets[7];
        size_t n; /* then nothing is left */
    } rows[] = {  /* one after the other, of three sides of 3 trials and 1 comparison of b */
                 { { .sides = B, .most = 2 }, { { 1, 0 }, { 1, 1 } }, 2 },
                 { { .sides = A | C, .most = 1 }, { { 0, 0 }, { 2, 0 } }, 2 },
                 { { .sides = A | C, .compare = true }, { { 0, 0 } }, 0 },
                 { { .sides = B | C, .compare = true }, { { 1, 0 } }, 1 },
                 { { .sides = B }, { { 1, 2 } }, 1 },
                 { { .sides = 0 }, { { 0, 1 }, { 2, 1 }, { 0, 2 }, { 2, 2 } }, 4 }
    };
    tn_lab_world w;
    double x[2] = { 4, 1e-3 };
    tn_lab_world_open(&w,
                      "study: s\nbase: xor_tep\ntrials: 3\nsearch: {dim: 4..64, train.lr: log 1e-4..1e-1}\nsides: {a: "
                      "{}, b: {}, c: {}}\nobjectives: [accuracy, seconds]\n",
                      3);
    assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, 1, TN_TRIAL_COMPARE, 1, 1000, x));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_claim c;
        tn_claimed got;
        for (size_t k = 0; k < rows[i].n; k++) {
            assert_ok(tn_lab_claim(w.lab, w.study, &w.plan, w.worker, &rows[i].of, &c, x, &got));
            assert_int_equal(got, TN_CLAIM_GOT);
            assert_true(c.side == rows[i].gets[k].side && c.number == rows[i].gets[k].number);
            end_it(&w, &c, TN_TRIAL_DONE);
        }
        assert_ok(tn_lab_claim(w.lab, w.study, &w.plan, w.worker, &rows[i].of, &c, x, &got));
        assert_int_equal(got, TN_CLAIM_OVER);
    }
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial WHERE state = 2"), 10);
    tn_lab_world_close(&w);
}

static void seen(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_claim c;
    double x[2];
    bool lost;
    tn_observed_store store = { 0 };
    tn_observed s;
    tn_lab_world_open(
        &w,
        "study: s\nbase: xor_tep\ntrials: 40\nsearch: {dim: 4..64, beta: 0.1..0.2}\nobjectives: [accuracy, seconds]\n",
        5);
    static const struct {
        tn_trial_state state;
        double y[2];
    } rows[] = { { TN_TRIAL_DONE, { 0.9, 3 } },
                 { TN_TRIAL_PRUNED, { 0.5, 1 } },
                 { TN_TRIAL_FAILED, { 0.9, 3 } },
                 { TN_TRIAL_DONE, { NAN, 3 } } };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
        assert_ok(tn_lab_point(w.lab, &c, (double[]){ i, NAN }, 2, &lost));
        assert_ok(tn_lab_report(w.lab, &c,
                                (tn_report[]){ { .rung = 3, .score = i == 2 ? NAN : -0.1 * i, .value = "{}" } }, 1,
                                100 * (i + 1), &lost));
        assert_ok(tn_lab_end(w.lab, &c, NULL, 0,
                             &(tn_ending){ .state = rows[i].state, .y = rows[i].y, .parameters = NAN, .seed = c.seed },
                             2, &lost));
        if (i == 1)
            assert_ok(tn_lab_observed(w.lab, w.study, &w.plan, 0, 2, &store, &s)); /* what is known is not read again */
    }
    assert_ok(tn_lab_observed(w.lab, w.study, &w.plan, 0, 4, &store, &s));
    assert_true(s.n == 4 && s.x[6] == 3 && isnan(s.x[7]) && s.y[0] == -0.9 && s.y[1] == 3 && s.y[2] == -0.5 &&
                s.pruned[1] && !s.pruned[0]);
    for (int i = 4; i < 8; i++) assert_true(isinf(s.y[i]) && s.y[i] > 0);
    tn_observed_free(&store);
    double *scores = NULL;
    size_t n;
    assert_ok(tn_lab_rung(w.lab, w.study, 0, 4, 3, 200, 0, &scores, &n));
    assert_true(n == 3 && scores[0] == 0 && scores[1] == 100 && scores[2] == -0.1 && scores[3] == 200 &&
                fabs(scores[4] + 0.3) < 1e-12);
    tn_free(scores);
    assert_ok(tn_lab_rung(w.lab, w.study, 0, 4, 3, 200, 1.9, &scores, &n)); /* 106 .. 380 parameters */
    assert_true(n == 1 && scores[0] == -0.1);
    tn_free(scores);
    assert_ok(tn_lab_rung(w.lab, w.study, 0, 1, 3, 200, 0, &scores, &n));
    assert_int_equal(n, 1);
    tn_free(scores);
    tn_tally t[1];
    assert_ok(tn_lab_tally(w.lab, w.study, &w.plan, false, 0, t));
    assert_true(t[0].count[TN_TRIAL_DONE] == 2 && t[0].count[TN_TRIAL_WAITING] == 1 && t[0].best == 0.9);
    tn_lab_world_close(&w);
}

/* A study of 100,000 trials loads, and has its next trial claimed, in little time; the processor's, which neighbours
 * do not disturb. */
static void large(void **state)
{
    (void)state;
    enum { TRIALS = 50000 };
    tn_lab_world w;
    tn_study *s = NULL;
    tn_claim c;
    double x[2];
    tn_lab_world_open(&w, tn_lab_world_text, TRIALS);
    tn_lab_world_sql(
        &w, "UPDATE trial SET state = 2, x = '[' || (4 + number % 60) || ',' || (0.0001 + number * 1.7e-6) || ']', "
            "y = '[' || (number * 1.1e-5) || ',' || (side + number * 0.1) || ']', started = 1e9, ended = 1e9 + number, "
            "seconds = 1 WHERE number < 49990");
    double from = tn_clock_cpu_s();
    assert_ok(tn_lab_load(w.lab, NULL, &s));
    const double load_s = tn_clock_cpu_s() - from;
    assert_int_equal(s->n, 2 * TRIALS);
    assert_true(s->trials[99].number == 49 && s->trials[99].side == 1 && s->trials[99].x[0] == 53);
    tn_study_free(s);
    from = tn_clock_cpu_s();
    for (int i = 0; i < 20; i++) assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
    const double claim_s = (tn_clock_cpu_s() - from) / 20;
    assert_int_equal(c.number, 49999);
    if (load_s > 5 || claim_s > 0.02) fail_msg("%.3f s to load, %.6f s to claim", load_s, claim_s);
    tn_lab_world_close(&w);
}

/* --- many at once ------------------------------------------------------------------------------------------------- */

enum { MANY = 120, WORKERS = 6 };

/* Claims until nothing is left, ending each trial with its worker's number; false: something failed. */
static bool work(const char *path, const tn_study_plan *plan, int64_t study, int *claims)
{
    tn_lab *lab = NULL;
    int64_t worker;
    bool fine = tn_lab_open(path, true, &lab) == TN_OK && tn_lab_join(lab, &worker) == TN_OK;
    for (*claims = 0; fine;) {
        tn_claim c;
        tn_claimed got;
        double x[2];
        bool lost = false;
        fine = tn_lab_claim(lab, study, plan, worker, &(tn_trial_filter){ 0 }, &c, x, &got) == TN_OK;
        if (!fine || got == TN_CLAIM_OVER) break;
        if (got == TN_CLAIM_WAIT) {
            usleep(200);
            continue;
        }
        ++*claims;
        fine = c.attempt == 1 &&
               tn_lab_end(lab, &c, NULL, 0,
                          &(tn_ending){ .state = TN_TRIAL_DONE,
                                        .y = (double[]){ (double)worker, 0 },
                                        .seconds = 0,
                                        .parameters = NAN,
                                        .seed = c.seed },
                          2, &lost) == TN_OK &&
               !lost;
    }
    tn_lab_close(lab);
    return fine;
}

typedef struct thread_work {
    tn_lab_world *w;
    int claims;
    bool fine;
} thread_work;

static void *thread_main(void *ctx)
{
    thread_work *t = ctx;
    t->fine = work(t->w->path, &t->w->plan, t->w->study, &t->claims);
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    tn_lab_world w;
    pthread_t id[WORKERS];
    thread_work t[WORKERS];
    int claims = 0;
    tn_lab_world_open(&w, tn_lab_world_text, MANY);
    for (int i = 0; i < WORKERS; i++) {
        t[i] = (thread_work){ .w = &w };
        assert_int_equal(pthread_create(&id[i], NULL, thread_main, &t[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(id[i], NULL);
        assert_true(t[i].fine);
        claims += t[i].claims;
    }
    assert_int_equal(claims, 2 * MANY);
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial WHERE state = 2 AND attempt = 1"), 2 * MANY);
    tn_lab_world_close(&w);
}

static void processes(void **state)
{
    (void)state;
    tn_lab_world w;
    pid_t pid[WORKERS];
    tn_lab_world_open(&w, tn_lab_world_text, MANY);
    tn_lab_close(w.lab); /* a handle must not cross a fork */
    for (int i = 0; i < WORKERS; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            int claims;
            _exit(work(w.path, &w.plan, w.study, &claims) ? 0 : 1);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        int rc = -1;
        assert_int_equal(waitpid(pid[i], &rc, 0), pid[i]);
        assert_int_equal(rc, 0);
    }
    assert_ok(tn_lab_open(w.path, true, &w.lab));
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial WHERE state = 2 AND attempt = 1"), 2 * MANY);
    char query[96]; /* the others may count as gone as well, where the machine was too busy for their heartbeats */
    snprintf(query, sizeof query, "SELECT count(*) FROM worker WHERE gone = 1 AND pid = %lld", (long long)pid[0]);
    assert_ok(tn_lab_mark_dead(w.lab, pid[0]));
    assert_int_equal(tn_lab_world_number(&w, query), 1);
    tn_lab_world_close(&w);
}

/* Those that run, the longest first, with how far they said they are. */
static void running(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_claim c[3];
    tn_running list[4];
    double x[4] = { 0 };
    size_t n;
    bool lost;
    tn_lab_world_open(&w, tn_lab_world_text, 6);
    assert_ok(tn_lab_running(w.lab, w.study, false, list, 4, &n));
    assert_int_equal(n, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(tn_lab_world_claim(&w, &c[i], x), TN_CLAIM_GOT);
    const tn_report r[] = { { .rung = 1, .step = 5, .epoch = 0.5, .value = "{}" },
                            { .rung = 2, .step = 20, .epoch = 2, .value = "{}" } };
    assert_ok(tn_lab_report(w.lab, &c[1], r, 2, 10, &lost));
    assert_ok(tn_lab_running(w.lab, w.study, false, list, 4, &n));
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(list[i].side == c[i].side && list[i].number == c[i].number && list[i].since == c[i].begun);
        assert_true(i == 1 ? list[i].epoch == 2 : isnan(list[i].epoch));
    }
    end_it(&w, &c[0], TN_TRIAL_DONE);
    assert_ok(tn_lab_running(w.lab, w.study, false, list, 1, &n));
    assert_true(n == 1 && list[0].number == c[1].number && list[0].side == c[1].side);
    assert_ok(tn_lab_running(w.lab, w.study, true, list, 4, &n));
    assert_int_equal(n, 0);
    tn_lab_world_close(&w);
}

void tn_tests_lab_claims(tn_test_list *l)
{
    tn_test_add(l, running, NULL, "lab/trials: which run now");
    tn_test_add(l, stale, NULL, "lab/trials: a dead worker's trial is taken once");
    tn_test_add(l, stepped_clock, NULL, "lab/trials: the wall clock is set back or forth by an hour");
    tn_test_add(l, nobodys, NULL, "lab/trials: of a worker that is not there, or of before a reboot");
    tn_test_add(l, dead_process, NULL, "lab/trials: a process that has ended is seen at once");
    tn_test_add(l, waits_for_lag, NULL, "lab/trials: none starts before what it is compared with has ended");
    tn_test_add(l, some_sides, NULL, "lab/trials: of some sides alone");
    tn_test_add(l, seen, NULL, "lab/trials: what samplers and pruners see");
    tn_test_add(l, large, NULL, "lab/trials: 100,000 of them");
    tn_test_add(l, threads, NULL, "lab/trials: claims of threads are unique");
    tn_test_add(l, processes, NULL, "lab/trials: claims of processes are unique");
}
