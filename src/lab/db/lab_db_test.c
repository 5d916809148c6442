/* The database: foreign, newer, damaged, locked, read-only and full ones; studies found again. */
#include "lab_world.h"

#include "lab/db/db.h"

#include <math.h>
#include <sys/wait.h>

/* --- files -------------------------------------------------------------------------------------------------------- */

static void makes_and_reads(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_study *s = NULL;
    tn_claim c;
    double x[2];
    bool lost;
    tn_arena a = { 0 };
    const char *const *names;
    size_t n;
    tn_trial_curve curve;
    tn_lab_world_open(&w, tn_lab_world_text, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
        assert_int_equal(c.number, i / 2); /* sides take turns */
        assert_int_equal(c.side, i % 2);
        assert_int_equal(c.seed, 42 + i / 2);
        assert_ok(tn_lab_point(w.lab, &c, (double[]){ 5 + i, 0.1 / 3 }, 2, &lost));
        const tn_report reports[] = {
            { .rung = 1, .step = 10, .epoch = 1, .seconds = 0.5, .score = -0.25, .value = "{\"accuracy\":0.25}" },
            { .rung = 2,
              .step = 20,
              .epoch = 2,
              .seconds = 1,
              .score = NAN,
              .value = "{\"accuracy\":0.5,\"loss\":null,\"rho\":1.5}" }
        };
        const tn_ending e = { .state = i == 2 ? TN_TRIAL_FAILED : TN_TRIAL_DONE,
                              .y = (double[]){ 0.1 + 0.2, i == 1 ? NAN : INFINITY },
                              .seconds = 1.25,
                              .parameters = 99,
                              .seed = c.seed,
                              .error = i == 2 ? "it \"broke\"" : NULL };
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
    assert_true(t->number == 0 && t->side == 1 && t->state == TN_TRIAL_DONE && t->attempt == 1 &&
                t->worker == w.worker);
    assert_true(t->x[0] == 6 && t->x[1] == 0.1 / 3 && t->y[0] == 0.1 + 0.2 && isnan(t->y[1]) && t->seconds == 1.25);
    assert_true(isinf(s->trials[0].y[1]));
    assert_true(t->ended >= t->started && t->started >= s->created);
    assert_string_equal(s->trials[2].error, "it \"broke\"");
    assert_true(s->trials[3].state == TN_TRIAL_WAITING && s->trials[3].x == NULL && isnan(s->trials[3].y[0]));
    assert_ok(tn_lab_curve(w.lab, t->id, &a, &curve));
    assert_true(curve.n == 2 && curve.metrics == 3 && curve.step[1] == 20 && curve.epoch[0] == 1 &&
                curve.seconds[0] == 0.5);
    assert_string_equal(curve.name[0], "accuracy");
    assert_true(curve.value[0] == 0.25 && isnan(curve.value[1]) && curve.value[3] == 0.5 && isnan(curve.value[4]) &&
                curve.value[5] == 1.5);
    assert_ok(tn_lab_curve(w.lab, s->trials[3].id, &a, &curve));
    assert_int_equal(curve.n, 0);
    assert_fails(tn_lab_load(w.lab, "t", &s), TN_USAGE, "has no study t: it has s");
    tn_study_free(s);
    tn_arena_free(&a);
    tn_lab_world_close(&w);
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
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "no database");
    assert_fails(tn_lab_open(d.path, true, &lab), TN_USAGE, "is a folder");

    write_file(path, "this is no database, but it is long enough to be looked at", 58);
    assert_fails(tn_lab_open(path, true, &lab), TN_BAD_FILE, "is not a tenon lab database");
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "is not a tenon lab database");

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
    assert_fails(tn_lab_open(path, true, &lab), TN_BAD_FILE, "was written by a newer tenon (schema version 99");

    assert_int_equal(remove(path), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "VACUUM", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_fails(tn_lab_open(path, false, &lab), TN_BAD_FILE, "is empty");
    assert_true(tn__is_network(0x6969) && tn__is_network(0xff534d42) && !tn__is_network(0xef53) &&
                !tn__is_network(0x01021994));
    tn_tempdir_remove_all(&d);
}

/* Bytes in the middle of the file: an error that says so, wherever they are. */
static void damaged(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_lab_world_open(&w, tn_lab_world_text, 500);
    tn_lab_world_sql(&w, "PRAGMA wal_checkpoint(TRUNCATE)");
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
    tn_lab_world_close(&w);
}

static void locked(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_lab *other = NULL;
    tn_claim c;
    tn_claimed got;
    double x[2];
    tn_lab_world_open(&w, tn_lab_world_text, 3);
    assert_ok(tn_lab_open(w.path, true, &other));
    assert_ok(tn__db_begin(other));
    w.lab->busy_ms = 50;
    sqlite3_busy_timeout(w.lab->db, 50);
    assert_fails(tn_lab_claim(w.lab, w.study, &w.plan, w.worker, &(tn_trial_filter){ 0 }, &c, x, &got), TN_DISK,
                 "is locked: another process has held the write lock");
    assert_ok(tn__db_end(other, TN_OK));
    assert_int_equal(tn_lab_world_claim(&w, &c, x), TN_CLAIM_GOT);
    tn_lab_close(other);
    tn_lab_world_close(&w);
}

/* SQLite's own limit on pages stands for a disk that is full. */
static void full(void **state)
{
    (void)state;
    tn_lab_world w;
    tn_lab_world_open(&w, tn_lab_world_text, 3);
    tn_lab_world_sql(&w, "PRAGMA max_page_count = 20");
    assert_fails(tn_lab_fill(w.lab, w.study, &w.plan, 100000), TN_DISK, "the disk is full; what was recorded is safe");
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial"), 6);
    tn_lab_world_sql(&w, "PRAGMA max_page_count = 100000");
    assert_ok(tn_lab_fill(w.lab, w.study, &w.plan, 1000));
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial"), 2000);
    tn_lab_world_close(&w);
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
    tn_lab_world w;
    int rc = -1;
    tn_lab_world_open(&w, tn_lab_world_text, 3);
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
    tn_lab_world_close(&w);
}

/* --- studies ------------------------------------------------------------------------------------------------------ */

static void begun_again(void **state)
{
    (void)state;
    tn_lab_world w;
    int64_t id = 0;
    bool found = false;
    static const char *const set[] = { "beta=0.2" };
    tn_study_plan other;
    tn_lab_world_open(&w, tn_lab_world_text, 3);
    assert_ok(tn_lab_begin(w.lab, &w.plan, tn_lab_world_text, NULL, 0, &id, &found));
    assert_true(found && id == w.study);
    assert_ok(tn_study_parse(tn_lab_world_text, strlen(tn_lab_world_text), "s.yaml", set, 1, &w.arena, &other));
    assert_fails(tn_lab_begin(w.lab, &other, tn_lab_world_text, set, 1, &id, &found), TN_USAGE,
                 "was started with other settings");
    assert_ok(tn_lab_fill(w.lab, w.study, &w.plan, 5));
    assert_ok(tn_lab_fill(w.lab, w.study, &w.plan, 4)); /* none is taken away */
    assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial"), 10);
    assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, 1, TN_TRIAL_COMPARE, 3, 7, (double[]){ 4, NAN }));
    assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, 1, TN_TRIAL_COMPARE, 3, 8, (double[]){ 4, NAN }));
    assert_int_equal(tn_lab_world_number(&w, "SELECT max(number) FROM trial WHERE kind = 2"), 1);
    tn_claim c;
    tn_claimed got;
    double x[2] = { 0, 0 };
    assert_ok(tn_lab_claim(w.lab, w.study, &w.plan, w.worker, &(tn_trial_filter){ .compare = true }, &c, x, &got));
    assert_true(got == TN_CLAIM_GOT && c.kind == TN_TRIAL_COMPARE && c.config == 3 && c.has_x && x[0] == 4 &&
                isnan(x[1]) && c.seed == 7);
    double spent = 0;
    assert_ok(tn_lab_spend(w.lab, w.study, 1.5, &spent));
    assert_ok(tn_lab_spend(w.lab, w.study, 2, &spent));
    assert_true(spent == 3.5);
    tn_lab_world_close(&w);
}

static void no_memory(void **state)
{
    (void)state;
    tn_lab_world w;
    uint64_t n = 0;
    tn_lab_world_open(&w, tn_lab_world_text, 3);
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_study *study = NULL;
        tn_alloc_fail_at(++n);
        s = tn_lab_load(w.lab, NULL, &study);
        tn_alloc_fail_at(0);
        if (s != TN_OK && s != TN_MEMORY) fail_msg("allocation %d: status %d, %s", (int)n, (int)s, tn_error_text());
        tn_study_free(study);
    }
    assert_true(n > 2);
    tn_lab_world_close(&w);
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
}
