/* A damaged database: whatever byte has changed and wherever the file ends, a study reads as it was or is refused
 * with one line. */
#include "lab/view/view.h"
#include "lab/db/schema.h"
#include "lab_world.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Trials of both sides that are done, failed, running and waiting, comparisons among them; in one file without a log
 * beside it. */
static void open_world(tn_lab_world *w)
{
    tn_claim c;
    double x[2];
    bool lost;
    tn_lab_world_open(w, tn_lab_world_text, 12);
    for (int i = 0; i < 20; i++) {
        char value[96], error[64];
        assert_int_equal(tn_lab_world_claim(w, &c, x), TN_CLAIM_GOT);
        if (!c.has_x) assert_ok(tn_lab_point(w->lab, &c, (double[]){ 4 + i, 0.001 * (i + 1) }, 2, &lost));
        if (i == 19) break; /* this one runs */
        snprintf(value, sizeof value, "{\"accuracy\":%.17g,\"loss\":%.17g}", 0.5 + 0.0123 * i, 1.0 / (i + 1));
        snprintf(error, sizeof error, "loss is not finite at step %d", 10 * i);
        const tn_report r[] = { { 1, 10, 1, 0.5, -0.0, value },
                                { 2, 20, 2, 1, -1, value } }; /* -0: a metric to maximise that is 0 */
        const tn_ending e = { .state = i % 7 == 6 ? TN_TRIAL_FAILED : TN_TRIAL_DONE,
                              .y = (double[]){ 0.5 + 0.0123 * i, 1.25 + i },
                              .seconds = 1.25 + i,
                              .parameters = 100 + i,
                              .seed = c.seed,
                              .error = i % 7 == 6 ? error : "" };
        assert_ok(tn_lab_end(w->lab, &c, r, 2, &e, 2, &lost));
    }
    assert_ok(tn_lab_enqueue(w->lab, w->study, &w->plan, 0, TN_TRIAL_COMPARE, 1, 1000, (double[]){ 5, 0.01 }));
    tn_lab_world_sql(w, "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
    tn_lab_close(w->lab);
    w->lab = NULL;
}

/* All that others see of it. */
static tn_status read_all(const char *path, char **text, size_t *bytes)
{
    tn_lab *lab = NULL;
    tn_study *s = NULL;
    FILE *f = open_memstream(text, bytes);
    tn_status st = tn_lab_open(path, false, &lab);
    if (st == TN_OK) st = tn_lab_verify(lab);
    if (st == TN_OK) st = tn_lab_load(lab, NULL, &s);
    if (st == TN_OK) st = tn_export_csv(s, f);
    if (st == TN_OK) st = tn_export_jsonl(s, f);
    if (st == TN_OK) st = tn_export_optuna(s, lab, f);
    for (size_t i = 0; st == TN_OK && i < s->n; i++) {
        tn_trial_curve c = { 0 };
        st = tn_lab_curve(lab, s->trials[i].id, &s->arena, &c);
        for (size_t k = 0; k < c.n * c.metrics; k++)
            fprintf(f, "%s %lld %.17g\n", c.name[k % c.metrics], (long long)c.step[k / c.metrics], c.value[k]);
    }
    if (st == TN_OK)
        fprintf(f, "%s %s %lld %.17g %.17g\n%s", s->name, s->path, (long long)s->planned, s->created, s->spent,
                s->text);
    tn_study_free(s);
    tn_lab_close(lab);
    fclose(f);
    return st;
}

static char *bytes_of(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *all = malloc(*n);
    assert_int_equal(fread(all, 1, *n, f), *n);
    fclose(f);
    return all;
}

static void put_bytes(const char *path, const char *all, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(all, 1, n, f), n);
    fclose(f);
}

typedef struct tally {
    int refused, same;
} tally;

/* What was done to the file is in `all` (n). */
static void must_hold(const tn_lab_world *w, const char *all, size_t n, const char *want, size_t at, int how, tally *t)
{
    char *got = NULL, wal[420];
    size_t bytes = 0;
    put_bytes(w->path, all, n);
    snprintf(wal, sizeof wal, "%s-journal", w->path);
    unlink(wal);
    const tn_status st = read_all(w->path, &got, &bytes);
    if (st == TN_OK && strcmp(got, want) != 0) fail_msg("byte %zu, way %d: read with other contents", at, how);
    if (st != TN_OK && st != TN_BAD_FILE)
        fail_msg("byte %zu, way %d: status %d: %s", at, how, (int)st, tn_error_text());
    if (st != TN_OK && strchr(tn_error_text(), '\n'))
        fail_msg("byte %zu, way %d: several lines: %s", at, how, tn_error_text());
    t->refused += st != TN_OK;
    t->same += st == TN_OK;
    free(got);
}

static void every_byte(void **state)
{
    (void)state;
    tn_lab_world w;
    char *want, *got;
    size_t bytes, n;
    tally t = { 0 };
    open_world(&w);
    assert_ok(read_all(w.path, &want, &bytes));
    char *all = bytes_of(w.path, &n);
    const size_t stride = getenv("TENON_LONG") ? 17 : 211;
    for (size_t at = 0; at < n; at += stride)
        for (int how = 0; how < 3; how++) {
            const char was = all[at];
            const unsigned char b = (unsigned char)was;
            all[at] = (char)(how == 0 ? b ^ 1 : how == 1 ? b ^ 0x80 : b == 0xff ? 0 : 0xff);
            must_hold(&w, all, n, want, at, how, &t);
            all[at] = was;
        }
    assert_true(t.refused > t.same / 20);     /* most of a small file is empty */
    for (size_t bits = 0; bits < 9; bits++) { /* a run of noise */
        const size_t at = n * (bits + 1) / 11;
        char was[64];
        memcpy(was, all + at, sizeof was);
        memset(all + at, 0x5a, sizeof was);
        must_hold(&w, all, n, want, at, 3, &t);
        memcpy(all + at, was, sizeof was);
    }
    t = (tally){ 0 };
    for (size_t length = 1; length < n; length += 509) must_hold(&w, all, length, want, length, 4, &t);
    assert_int_equal(t.same, 0); /* cut off: always seen */
    put_bytes(w.path, all, n);
    assert_ok(read_all(w.path, &got, &bytes));
    assert_string_equal(got, want);
    free(got);
    free(want);
    free(all);
    tn_lab_world_close(&w);
}

/* What SQLite finds nothing wrong with. */
static void what_it_means(void **state)
{
    static const struct {
        const char *sql, *says;
    } wrong[] = {
        { "UPDATE trial SET y = '[0.99,1]' WHERE id = 3", "trial 3 has changed since it was written" },
        { "UPDATE report SET value = '{\"accuracy\":1}' WHERE trial = 2 AND rung = 2",
          "a report of trial 2 has changed" },
        { "UPDATE study SET text = replace(text, '4..64', '4..65')", "study 1 has changed" },
        { "PRAGMA foreign_keys = OFF; DELETE FROM trial WHERE id = 4", "has no parent row" },
        { "PRAGMA foreign_keys = OFF; DELETE FROM report WHERE trial = 4; DELETE FROM trial WHERE id = 4",
          "trials of study 1 are missing" },
        { "UPDATE trial SET config = 4711, sum = NULL WHERE kind = 2", "repeats a trial that does not exist" },
        { "UPDATE trial SET x = '[1]', sum = NULL WHERE id = 3", "does not have the values that its study needs" },
        { "UPDATE trial SET y = '[1,2', sum = NULL WHERE id = 3", "does not have the values that its study needs" },
        { "UPDATE trial SET side = 7, sum = NULL WHERE id = 24", "are missing" },
        { "UPDATE report SET value = 'nothing', sum = NULL WHERE trial = 2",
          "a report of trial 2 is not a JSON object" },
        { "DROP INDEX trial_open", "its tables do not match the schema" },
        { "CREATE TRIGGER t AFTER UPDATE ON trial BEGIN DELETE FROM report; END", "has a trigger (t)" },
        { "PRAGMA user_version = 0", "schema version 0" },
    };
    (void)state;
    tn_lab_world w;
    size_t n, bytes;
    open_world(&w);
    char *all = bytes_of(w.path, &n), *text = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_bytes(w.path, all, n);
        sqlite3 *db;
        assert_int_equal(sqlite3_open(w.path, &db), SQLITE_OK);
        if (sqlite3_exec(db, wrong[i].sql, NULL, NULL, NULL) != SQLITE_OK)
            fail_msg("%s: %s", wrong[i].sql, sqlite3_errmsg(db));
        sqlite3_close(db);
        const tn_status st = read_all(w.path, &text, &bytes);
        if (st != TN_BAD_FILE || !strstr(tn_error_text(), wrong[i].says))
            fail_msg("%s: %d, %s", wrong[i].sql, (int)st, st == TN_OK ? "read" : tn_error_text());
        free(text);
    }
    free(all);
    tn_lab_world_close(&w);
}

/* Tables of version 1 have no sums: they are read as they are, and get them where they are written. */
static void older_tables(void **state)
{
    (void)state;
    tn_lab_world w;
    char *want, *got;
    size_t bytes;
    sqlite3 *db;
    open_world(&w);
    assert_ok(read_all(w.path, &want, &bytes));
    assert_int_equal(sqlite3_open(w.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "ALTER TABLE study DROP COLUMN sum; ALTER TABLE trial DROP COLUMN sum; ALTER TABLE "
                                  "report DROP COLUMN sum; PRAGMA user_version = 1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_ok(read_all(w.path, &got, &bytes));
    assert_string_equal(got, want);
    free(got);
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_lab_open(w.path, true, &w.lab));
        assert_ok(tn_lab_verify(w.lab));
        assert_int_equal(tn_lab_world_number(&w, "PRAGMA user_version"), TN_LAB_VERSION);
        assert_int_equal(tn_lab_world_number(&w, "SELECT count(*) FROM trial WHERE sum IS NULL"), 0);
        assert_int_equal(tn_lab_world_number(&w, "SELECT (SELECT count(*) FROM report WHERE sum IS NULL) + (SELECT "
                                                 "count(*) FROM study WHERE sum IS NULL)"),
                         0);
        tn_lab_close(w.lab);
        w.lab = NULL;
    }
    assert_ok(read_all(w.path, &got, &bytes));
    assert_string_equal(got, want);
    free(got);
    free(want);
    tn_lab_world_close(&w);
}

void tn_tests_lab_verify(tn_test_list *l)
{
    tn_test_add(l, every_byte, NULL, "lab/verify: a byte changed, a file cut off: as it was, or refused");
    tn_test_add(l, what_it_means, NULL, "lab/verify: rows that SQLite finds nothing wrong with");
    tn_test_add(l, older_tables, NULL, "lab/verify: tables of version 1");
}
