/* The database: foreign, newer, damaged, locked, read-only and full ones; studies found again; claims that are unique among threads and
 * processes; a dead worker's trial taken once; results recorded once. */
#include "lab/trials.h"

#include "base/clock.h"
#include "lab/db.h"
#include "tempdir.h"
#include "testlib.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

static const char text[] = "study: s\nbase: xor_tep\ntrials: 40\nsearch: {dim: 4..64, train.lr: log 1e-4..1e-1}\n"
                           "sides: {a: {}, b: {}}\nobjectives: [accuracy max 0, seconds min 10]\n";

typedef struct world {
    tn_tempdir dir;
    tn_arena arena;
    tn_study_plan plan;
    tn_lab *lab;
    int64_t study, worker;
    char path[400];
} world;

static void open_plan(world *w, const char *study)
{
    assert_ok(tn_study_parse(study, strlen(study), "s.yaml", NULL, 0, &w->arena, &w->plan));
    assert_ok(tn_study_check(&w->plan));
}

static void open_world(world *w, const char *study, int64_t trials)
{
    bool found = true;
    *w = (world){ .worker = 0 };
    tn_tempdir_make_quick(&w->dir);
    snprintf(w->path, sizeof w->path, "%s/lab.db", w->dir.path);
    open_plan(w, study);
    assert_ok(tn_lab_open(w->path, true, &w->lab));
    assert_ok(tn_lab_begin(w->lab, &w->plan, study, NULL, 0, &w->study, &found));
    assert_false(found);
    assert_ok(tn_lab_fill(w->lab, w->study, &w->plan, trials));
    assert_ok(tn_lab_join(w->lab, &w->worker));
}

static void close_world(world *w)
{
    tn_lab_close(w->lab);
    tn_arena_free(&w->arena);
    tn_tempdir_remove_all(&w->dir);
}

static void sql(world *w, const char *statement) { assert_ok(tn__db_exec(w->lab, statement)); }

static int64_t number(world *w, const char *query)
{
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_prepare_v2(w->lab->db, query, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    const int64_t n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return n;
}

static tn_claimed claim(world *w, tn_claim *c, double *x)
{
    tn_claimed got;
    assert_ok(tn_lab_claim(w->lab, w->study, &w->plan, w->worker, false, 0, c, x, &got));
    return got;
}

/* --- files ------------------------------------------------------------------------------------------------------------ */

static void makes_and_reads(void **state)
{
    (void)state;
    world w;
    tn_study *s = NULL;
    tn_claim c;
    double x[2];
    bool lost;
    tn_arena a = { 0 };
    const char *const *names;
    size_t n;
    tn_trial_curve curve;
    open_world(&w, text, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
        assert_int_equal(c.number, i / 2); /* sides take turns */
        assert_int_equal(c.side, i % 2);
        assert_int_equal(c.seed, 42 + i / 2);
        assert_ok(tn_lab_point(w.lab, &c, (double[]){ 5 + i, 0.1 / 3 }, 2, &lost));
        const tn_report reports[] = { { .rung = 1, .step = 10, .epoch = 1, .seconds = 0.5, .score = -0.25, .value = "{\"accuracy\":0.25}" },
                                      { .rung = 2, .step = 20, .epoch = 2, .seconds = 1, .score = NAN, .value = "{\"accuracy\":0.5,\"loss\":null,\"rho\":1.5}" } };
        const tn_ending e = { .state = i == 2 ? TN_TRIAL_FAILED : TN_TRIAL_DONE, .y = (double[]){ 0.1 + 0.2, i == 1 ? NAN : INFINITY }, .seconds = 1.25,
                              .parameters = 99, .seed = c.seed, .error = i == 2 ? "it \"broke\"" : NULL };
        assert_ok(tn_lab_end(w.lab, &c, reports, 2, &e, 2, &lost));
        assert_false(lost);
        assert_ok(tn_lab_end(w.lab, &c, reports, 2, &e, 2, &lost)); /* recorded once */
        assert_true(lost);
    }
    tn_lab_close(w.lab);
    assert_ok(tn_lab_open(w.path, false, &w.lab));
    assert_ok(tn_lab_studies(w.lab, &a, &names, &n));
    assert_int_equal(n, 1);
    assert_string_equal(names[0], "s");
    assert_ok(tn_lab_load(w.lab, NULL, &s));
    assert_int_equal(s->n, 6);
    assert_string_equal(s->sides[1].name, "b");
    assert_int_equal(s->sides[0].space.dims[0].kind, TN_DIM_INT);
    assert_int_equal(s->planned, 40);
    const tn_trial *t = &s->trials[1];
    assert_true(t->number == 0 && t->side == 1 && t->state == TN_TRIAL_DONE && t->attempt == 1 && t->worker == w.worker);
    assert_true(t->x[0] == 6 && t->x[1] == 0.1 / 3 && t->y[0] == 0.1 + 0.2 && isnan(t->y[1]) && t->seconds == 1.25);
    assert_true(isinf(s->trials[0].y[1]));
    assert_true(t->ended >= t->started && t->started >= s->created);
    assert_string_equal(s->trials[2].error, "it \"broke\"");
    assert_true(s->trials[3].state == TN_TRIAL_WAITING && s->trials[3].x == NULL && isnan(s->trials[3].y[0]));
    assert_ok(tn_lab_curve(w.lab, t->id, &a, &curve));
    assert_true(curve.n == 2 && curve.metrics == 3 && curve.step[1] == 20 && curve.epoch[0] == 1 && curve.seconds[0] == 0.5);
    assert_string_equal(curve.name[0], "accuracy");
    assert_true(curve.value[0] == 0.25 && isnan(curve.value[1]) && curve.value[3] == 0.5 && isnan(curve.value[4]) && curve.value[5] == 1.5);
    assert_ok(tn_lab_curve(w.lab, s->trials[3].id, &a, &curve));
    assert_int_equal(curve.n, 0);
    assert_fails(tn_lab_load(w.lab, "t", &s), TN_USAGE, "has no study t: it has s");
    tn_study_free(s);
    tn_arena_free(&a);
    close_world(&w);
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static void refuses_files(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_lab *lab = NULL;
    sqlite3 *db = NULL;
    char path[400];
    tn_tempdir_make_quick(&d);
    snprintf(path, sizeof path, "%s/x.db", d.path);
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "there is no database");
    assert_fails(tn_lab_open(d.path, true, &lab), TN_USAGE, "is a folder");

    write_file(path, "this is no database, but it is long enough to be looked at", 58);
    assert_fails(tn_lab_open(path, true, &lab), TN_BAD_FILE, "is not a database of a laboratory");
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "is not a database of a laboratory");

    assert_int_equal(remove(path), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE song(name TEXT)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_fails(tn_lab_open(path, true, &lab), TN_BAD_FILE, "is another program's database");
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "is another program's database");

    assert_int_equal(remove(path), 0);
    assert_ok(tn_lab_open(path, true, &lab));
    assert_ok(tn__db_exec(lab, "PRAGMA user_version = 99"));
    tn_lab_close(lab);
    assert_fails(tn_lab_open(path, true, &lab), TN_BAD_FILE, "was written by a newer tenon (version 99 of its tables");

    assert_int_equal(remove(path), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "VACUUM", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "is empty");
    assert_true(tn__is_network(0x6969) && tn__is_network(0xff534d42) && !tn__is_network(0xef53) && !tn__is_network(0x01021994));
    tn_tempdir_remove_all(&d);
}

/* Bytes in the middle of the file: an error that says so, wherever they are. */
static void damaged(void **state)
{
    (void)state;
    world w;
    open_world(&w, text, 500);
    sql(&w, "PRAGMA wal_checkpoint(TRUNCATE)");
    tn_lab_close(w.lab);
    w.lab = NULL;
    FILE *f = fopen(w.path, "r+b");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const long bytes = ftell(f);
    for (long at = 4096; at < bytes; at += 512) {
        fseek(f, at, SEEK_SET);
        fputs("\xff\xfe garbage \x00\x01", f);
    }
    fclose(f);
    tn_study *s = NULL;
    tn_status st = tn_lab_open(w.path, false, &w.lab);
    if (st == TN_OK) st = tn_lab_load(w.lab, NULL, &s);
    assert_int_equal(st, TN_BAD_FILE);
    close_world(&w);
}

static void locked(void **state)
{
    (void)state;
    world w;
    tn_lab *other = NULL;
    tn_claim c;
    tn_claimed got;
    double x[2];
    open_world(&w, text, 3);
    assert_ok(tn_lab_open(w.path, true, &other));
    assert_ok(tn__db_begin(other));
    w.lab->busy_ms = 50;
    sqlite3_busy_timeout(w.lab->db, 50);
    assert_fails(tn_lab_claim(w.lab, w.study, &w.plan, w.worker, false, 0, &c, x, &got), TN_DISK, "is locked: another process has been writing");
    assert_ok(tn__db_end(other, TN_OK));
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
    tn_lab_close(other);
    close_world(&w);
}

/* SQLite's own limit on pages stands for a disk that is full. */
static void full(void **state)
{
    (void)state;
    world w;
    open_world(&w, text, 3);
    sql(&w, "PRAGMA max_page_count = 20");
    assert_fails(tn_lab_fill(w.lab, w.study, &w.plan, 100000), TN_DISK, "the disk is full; what was recorded is safe");
    assert_int_equal(number(&w, "SELECT count(*) FROM trial"), 6);
    sql(&w, "PRAGMA max_page_count = 100000");
    assert_ok(tn_lab_fill(w.lab, w.study, &w.plan, 1000));
    assert_int_equal(number(&w, "SELECT count(*) FROM trial"), 2000);
    close_world(&w);
}

/* As another user where root may write everywhere; the exit code says what went otherwise. */
static int try_read_only(const char *path)
{
    tn_lab *lab = NULL;
    tn_study *s = NULL;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 1;
    if (tn_lab_open(path, true, &lab) != TN_DISK || !strstr(tn_error_text(), "it is read-only")) return 2;
    if (tn_lab_open(path, false, &lab) != TN_OK) return 3;
    if (tn_lab_load(lab, "s", &s) != TN_OK || s->n != 6) return 4;
    tn_study_free(s);
    tn_lab_close(lab);
    return 0;
}

static void read_only(void **state)
{
    (void)state;
    world w;
    int rc = -1;
    open_world(&w, text, 3);
    tn_lab_close(w.lab);
    w.lab = NULL;
    assert_int_equal(chmod(w.path, 0444), 0);
    assert_int_equal(chmod(w.dir.path, 0555), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(try_read_only(w.path));
    assert_int_equal(waitpid(pid, &rc, 0), pid);
    assert_int_equal(WEXITSTATUS(rc), 0);
    assert_int_equal(chmod(w.dir.path, 0777), 0);
    close_world(&w);
}

/* --- studies ---------------------------------------------------------------------------------------------------------- */

static void begun_again(void **state)
{
    (void)state;
    world w;
    int64_t id = 0;
    bool found = false;
    static const char *const set[] = { "beta=0.2" };
    tn_study_plan other;
    open_world(&w, text, 3);
    assert_ok(tn_lab_begin(w.lab, &w.plan, text, NULL, 0, &id, &found));
    assert_true(found && id == w.study);
    assert_ok(tn_study_parse(text, strlen(text), "s.yaml", set, 1, &w.arena, &other));
    assert_fails(tn_lab_begin(w.lab, &other, text, set, 1, &id, &found), TN_USAGE, "was begun with other words");
    assert_ok(tn_lab_fill(w.lab, w.study, &w.plan, 5));
    assert_ok(tn_lab_fill(w.lab, w.study, &w.plan, 4)); /* none is taken away */
    assert_int_equal(number(&w, "SELECT count(*) FROM trial"), 10);
    assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, 1, TN_TRIAL_COMPARE, 3, 7, (double[]){ 4, NAN }));
    assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, 1, TN_TRIAL_COMPARE, 3, 8, (double[]){ 4, NAN }));
    assert_int_equal(number(&w, "SELECT max(number) FROM trial WHERE kind = 2"), 1);
    tn_claim c;
    tn_claimed got;
    double x[2] = { 0, 0 };
    assert_ok(tn_lab_claim(w.lab, w.study, &w.plan, w.worker, true, 0, &c, x, &got));
    assert_true(got == TN_CLAIM_GOT && c.kind == TN_TRIAL_COMPARE && c.config == 3 && c.has_x && x[0] == 4 && isnan(x[1]) && c.seed == 7);
    double spent = 0;
    assert_ok(tn_lab_spend(w.lab, w.study, 1.5, &spent));
    assert_ok(tn_lab_spend(w.lab, w.study, 2, &spent));
    assert_true(spent == 3.5);
    close_world(&w);
}

/* --- claims ----------------------------------------------------------------------------------------------------------- */

static void end_it(world *w, const tn_claim *c, tn_trial_state state)
{
    bool lost;
    assert_ok(tn_lab_end(w->lab, c, NULL, 0, &(tn_ending){ .state = state, .y = (double[]){ 1, 2 }, .seconds = 1, .parameters = NAN, .seed = c->seed }, 2, &lost));
    assert_false(lost);
}

static void stale(void **state)
{
    (void)state;
    world w;
    tn_claim a, b, c;
    double x[2];
    bool lost;
    open_world(&w, text, 1);
    assert_int_equal(claim(&w, &a, x), TN_CLAIM_GOT);
    assert_int_equal(claim(&w, &b, x), TN_CLAIM_GOT);
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_WAIT); /* both run */
    const int64_t dead = w.worker;
    assert_ok(tn_lab_join(w.lab, &w.worker));
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_WAIT);
    sql(&w, "UPDATE worker SET beat = beat - 1000 WHERE id = 1"); /* its heart stops */
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
    assert_true(c.trial == a.trial && c.attempt == 2);
    end_it(&w, &c, TN_TRIAL_DONE);
    assert_ok(tn_lab_beat(w.lab, dead)); /* it was only asleep: its other trial is its own again, this one is not */
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_WAIT);
    assert_ok(tn_lab_end(w.lab, &a, NULL, 0, &(tn_ending){ .state = TN_TRIAL_FAILED, .seed = 1 }, 2, &lost));
    assert_true(lost);
    assert_ok(tn_lab_report(w.lab, &a, NULL, 0, 5, &lost));
    assert_true(lost);
    assert_ok(tn_lab_leave(w.lab, dead));
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
    assert_int_equal(c.trial, b.trial);
    end_it(&w, &c, TN_TRIAL_WAITING); /* put back */
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
    assert_true(c.trial == b.trial && c.attempt == 3 && c.seconds == 1);
    end_it(&w, &c, TN_TRIAL_PRUNED);
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_OVER);
    assert_int_equal(number(&w, "SELECT count(*) FROM trial WHERE state = 2"), 1);
    close_world(&w);
}

/* One that has ended, and even one that nobody has waited for yet, is seen without waiting for its heart. */
static void dead_process(void **state)
{
    (void)state;
    world w;
    tn_claim c;
    tn_claimed got;
    double x[2];
    open_world(&w, text, 1);
    tn_lab_close(w.lab);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tn_lab *lab = NULL;
        int64_t worker;
        if (tn_lab_open(w.path, true, &lab) != TN_OK || tn_lab_join(lab, &worker) != TN_OK) _exit(1);
        _exit(tn_lab_claim(lab, w.study, &w.plan, worker, false, 0, &c, x, &got) == TN_OK && got == TN_CLAIM_GOT ? 0 : 1);
    }
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* a zombie now */
    assert_int_equal(info.si_status, 0);
    assert_ok(tn_lab_open(w.path, true, &w.lab));
    assert_ok(tn_lab_join(w.lab, &w.worker));
    assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
    assert_true(c.number == 0 && c.side == 0 && c.attempt == 2);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close_world(&w);
}

/* With a pruner, no trial starts before those that it may be compared with have ended. */
static void waits_for_lag(void **state)
{
    (void)state;
    world w;
    tn_claim c[8];
    double x[2];
    open_world(&w, "study: s\nbase: xor_tep\ntrials: 40\nlag: 2\nsearch: {dim: 4..64, beta: 0.1..0.2}\nobjectives: [accuracy, seconds]\n", 40);
    static const tn_pruner never = { .name = "never" };
    w.plan.pruner = &never;
    for (int i = 0; i < 3; i++) assert_int_equal(claim(&w, &c[i], x), TN_CLAIM_GOT);
    assert_int_equal(claim(&w, &c[3], x), TN_CLAIM_WAIT);
    end_it(&w, &c[1], TN_TRIAL_DONE);
    assert_int_equal(claim(&w, &c[3], x), TN_CLAIM_WAIT); /* 0 still runs */
    end_it(&w, &c[0], TN_TRIAL_FAILED);
    assert_int_equal(claim(&w, &c[3], x), TN_CLAIM_GOT);
    assert_int_equal(claim(&w, &c[4], x), TN_CLAIM_GOT);
    assert_int_equal(c[4].number, 4);
    assert_int_equal(claim(&w, &c[5], x), TN_CLAIM_WAIT);
    close_world(&w);
}

static void seen(void **state)
{
    (void)state;
    world w;
    tn_claim c;
    double x[2];
    bool lost;
    tn_seen_store store = { 0 };
    tn_seen s;
    open_world(&w, "study: s\nbase: xor_tep\ntrials: 40\nsearch: {dim: 4..64, beta: 0.1..0.2}\nobjectives: [accuracy, seconds]\n", 5);
    static const struct { tn_trial_state state; double y[2]; } rows[] = {
        { TN_TRIAL_DONE, { 0.9, 3 } }, { TN_TRIAL_PRUNED, { 0.5, 1 } }, { TN_TRIAL_FAILED, { 0.9, 3 } }, { TN_TRIAL_DONE, { NAN, 3 } } };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
        assert_ok(tn_lab_point(w.lab, &c, (double[]){ i, NAN }, 2, &lost));
        assert_ok(tn_lab_report(w.lab, &c, (tn_report[]){ { .rung = 3, .score = i == 2 ? NAN : -0.1 * i, .value = "{}" } }, 1, 100 * (i + 1), &lost));
        assert_ok(tn_lab_end(w.lab, &c, NULL, 0, &(tn_ending){ .state = rows[i].state, .y = rows[i].y, .parameters = NAN, .seed = c.seed }, 2, &lost));
        if (i == 1) assert_ok(tn_lab_seen(w.lab, w.study, &w.plan, 0, 2, &store, &s)); /* what is known is not read again */
    }
    assert_ok(tn_lab_seen(w.lab, w.study, &w.plan, 0, 4, &store, &s));
    assert_true(s.n == 4 && s.x[6] == 3 && isnan(s.x[7]) && s.y[0] == -0.9 && s.y[1] == 3 && s.y[2] == -0.5 && s.pruned[1] && !s.pruned[0]);
    for (int i = 4; i < 8; i++) assert_true(isinf(s.y[i]) && s.y[i] > 0);
    tn_seen_free(&store);
    double *scores = NULL;
    size_t n;
    assert_ok(tn_lab_rung(w.lab, w.study, 0, 4, 3, 200, 0, &scores, &n));
    assert_true(n == 3 && scores[0] == 0 && scores[1] == 100 && scores[2] == -0.1 && scores[3] == 200 && fabs(scores[4] + 0.3) < 1e-12);
    tn_free(scores);
    assert_ok(tn_lab_rung(w.lab, w.study, 0, 4, 3, 200, 1.9, &scores, &n)); /* 106 .. 380 parameters */
    assert_true(n == 1 && scores[0] == -0.1);
    tn_free(scores);
    assert_ok(tn_lab_rung(w.lab, w.study, 0, 1, 3, 200, 0, &scores, &n));
    assert_int_equal(n, 1);
    tn_free(scores);
    tn_tally t[1];
    assert_ok(tn_lab_tally(w.lab, w.study, &w.plan, 0, t));
    assert_true(t[0].count[TN_TRIAL_DONE] == 2 && t[0].count[TN_TRIAL_WAITING] == 1 && t[0].best == 0.9);
    close_world(&w);
}

static void no_memory(void **state)
{
    (void)state;
    world w;
    uint64_t n = 0;
    open_world(&w, text, 3);
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_study *study = NULL;
        tn_alloc_fail_at(++n);
        s = tn_lab_load(w.lab, NULL, &study);
        tn_alloc_fail_at(0);
        if (s != TN_OK && s != TN_MEMORY) fail_msg("allocation %d: status %d, %s", (int)n, (int)s, tn_error_text());
        tn_study_free(study);
    }
    assert_true(n > 2);
    close_world(&w);
}

/* A study of 100,000 trials loads, and has its next trial claimed, in little time; the processor's, which neighbours do not disturb. */
static void large(void **state)
{
    (void)state;
    enum { TRIALS = 50000 };
    world w;
    tn_study *s = NULL;
    tn_claim c;
    double x[2];
    open_world(&w, text, TRIALS);
    sql(&w, "UPDATE trial SET state = 2, x = '[' || (4 + number % 60) || ',' || (0.0001 + number * 1.7e-6) || ']', "
            "y = '[' || (number * 1.1e-5) || ',' || (side + number * 0.1) || ']', started = 1e9, ended = 1e9 + number, seconds = 1 WHERE number < 49990");
    double from = tn_clock_cpu_s();
    assert_ok(tn_lab_load(w.lab, NULL, &s));
    const double load_s = tn_clock_cpu_s() - from;
    assert_int_equal(s->n, 2 * TRIALS);
    assert_true(s->trials[99].number == 49 && s->trials[99].side == 1 && s->trials[99].x[0] == 53);
    tn_study_free(s);
    from = tn_clock_cpu_s();
    for (int i = 0; i < 20; i++) assert_int_equal(claim(&w, &c, x), TN_CLAIM_GOT);
    const double claim_s = (tn_clock_cpu_s() - from) / 20;
    assert_int_equal(c.number, 49999);
    if (load_s > 1.5 || claim_s > 0.005) fail_msg("%.3f s to load, %.6f s to claim", load_s, claim_s);
    close_world(&w);
}

/* --- many at once ----------------------------------------------------------------------------------------------------- */

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
        fine = tn_lab_claim(lab, study, plan, worker, false, 0, &c, x, &got) == TN_OK;
        if (!fine || got == TN_CLAIM_OVER) break;
        if (got == TN_CLAIM_WAIT) {
            usleep(200);
            continue;
        }
        ++*claims;
        fine = c.attempt == 1 && tn_lab_end(lab, &c, NULL, 0, &(tn_ending){ .state = TN_TRIAL_DONE, .y = (double[]){ (double)worker, 0 }, .seconds = 0, .parameters = NAN, .seed = c.seed }, 2, &lost) == TN_OK && !lost;
    }
    tn_lab_close(lab);
    return fine;
}

typedef struct thread_work {
    world *w;
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
    world w;
    pthread_t id[WORKERS];
    thread_work t[WORKERS];
    int claims = 0;
    open_world(&w, text, MANY);
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
    assert_int_equal(number(&w, "SELECT count(*) FROM trial WHERE state = 2 AND attempt = 1"), 2 * MANY);
    close_world(&w);
}

static void processes(void **state)
{
    (void)state;
    world w;
    pid_t pid[WORKERS];
    open_world(&w, text, MANY);
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
    assert_int_equal(number(&w, "SELECT count(*) FROM trial WHERE state = 2 AND attempt = 1"), 2 * MANY);
    assert_ok(tn_lab_bury(w.lab, pid[0]));
    assert_int_equal(number(&w, "SELECT count(*) FROM worker WHERE gone = 1"), 1);
    close_world(&w);
}

void tn_tests_lab_db(tn_test_list *l)
{
    tn_test_add(l, makes_and_reads, NULL, "lab/db: what is written is read");
    tn_test_add(l, refuses_files, NULL, "lab/db: foreign, newer, missing and empty files");
    tn_test_add(l, damaged, NULL, "lab/db: a damaged file");
    tn_test_add(l, locked, NULL, "lab/db: locked");
    tn_test_add(l, full, NULL, "lab/db: full disk");
    tn_test_add(l, read_only, NULL, "lab/db: read-only");
    tn_test_add(l, begun_again, NULL, "lab/db: a study begun again");
    tn_test_add(l, no_memory, NULL, "lab/db: no memory");
    tn_test_add(l, stale, NULL, "lab/trials: a dead worker's trial is taken once");
    tn_test_add(l, dead_process, NULL, "lab/trials: a process that has ended is seen at once");
    tn_test_add(l, waits_for_lag, NULL, "lab/trials: none starts before what it is compared with has ended");
    tn_test_add(l, seen, NULL, "lab/trials: what samplers and pruners see");
    tn_test_add(l, large, NULL, "lab/trials: 100,000 of them");
    tn_test_add(l, threads, NULL, "lab/trials: claims of threads are unique");
    tn_test_add(l, processes, NULL, "lab/trials: claims of processes are unique");
}
