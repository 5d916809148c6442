/* Checking a database: SQLite's own integrity check, then the schema, checksums of rows, references, and trial
 * numbers without gaps. One read transaction, so a study may run at the same time. */
#include "lab/db/db.h"
#include "lab/db/schema.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static tn_status damaged(const tn_lab *lab, const char *what)
{
    char line[TN_DB_MESSAGE];
    tn__db_message(what, line);
    return tn_error(
        TN_BAD_FILE,
        "%.640s is damaged (%s): restore it from a copy, or save what can be read with `sqlite3 FILE .recover`",
        lab->path, line);
}

/* The first column of the first row as text, "" where there is none. A statement that cannot be prepared names a
 * column that is not there. */
static tn_status first_text(tn_lab *lab, const char *sql, char *out, size_t size)
{
    sqlite3_stmt *q = NULL;
    tn_status s = TN_OK;
    int code = sqlite3_prepare_v2(lab->db, sql, -1, &q, NULL);
    out[0] = 0;
    if (code == SQLITE_OK) code = sqlite3_step(q);
    if (code == SQLITE_ROW) snprintf(out, size, "%s", tn__db_text(q, 0));
    else if ((code & 0xff) == SQLITE_ERROR) s = damaged(lab, sqlite3_errmsg(lab->db));
    else if (code != SQLITE_DONE) s = tn__db_error(lab, code);
    sqlite3_finalize(q);
    return s;
}

/* --- sums of rows ------------------------------------------------------------------------------------------------- */

static void sum(sqlite3_context *to, int n, sqlite3_value **v)
{
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        const int type = sqlite3_value_type(v[i]);
        const uint64_t seed = h * 31 + (uint64_t)type; /* so that 1 and '1', '' and NULL differ */
        if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
            const sqlite3_int64 whole = type == SQLITE_INTEGER ? sqlite3_value_int64(v[i]) : 0;
            const double number =
                type == SQLITE_FLOAT ? sqlite3_value_double(v[i]) + 0.0 : 0; /* -0 is read back as 0 */
            h = XXH3_64bits_withSeed(type == SQLITE_INTEGER ? (const void *)&whole : &number, 8, seed);
        } else {
            const void *bytes = type == SQLITE_NULL ? NULL : sqlite3_value_blob(v[i]);
            h = XXH3_64bits_withSeed(bytes ? bytes : "", bytes ? (size_t)sqlite3_value_bytes(v[i]) : 0, seed);
        }
    }
    sqlite3_result_int64(to, (sqlite3_int64)h);
}

int tn__row_sum_register(sqlite3 *db)
{
    return sqlite3_create_function_v2(db, "tn_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                      sum, NULL, NULL, NULL);
}

/* --- the schema --------------------------------------------------------------------------------------------------- */

/* A column that was added later stands where SQLite put it; spaces and line breaks may be others. */
static bool same_words(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, " \n");
        b += strspn(b, " \n");
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

static tn_status same_tables(tn_lab *lab, sqlite3 *ours)
{
    sqlite3_stmt *mine = NULL, *theirs = NULL;
    tn_status s = TN_OK;
    if (sqlite3_prepare_v2(ours, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL", -1, &mine, NULL) !=
        SQLITE_OK)
        TN_FAIL(TN_MEMORY, "out of memory");
    if (sqlite3_prepare_v2(lab->db, "SELECT sql FROM sqlite_schema WHERE name = ?", -1, &theirs, NULL) != SQLITE_OK)
        TN_TRY(damaged(lab, sqlite3_errmsg(lab->db)));
    while (sqlite3_step(mine) == SQLITE_ROW) {
        const char *name = tn__db_text(mine, 0);
        if (strncmp(name, "sqlite_", 7) == 0) continue;
        sqlite3_bind_text(theirs, 1, name, -1, SQLITE_TRANSIENT);
        const bool there =
            sqlite3_step(theirs) == SQLITE_ROW && same_words(tn__db_text(mine, 1), tn__db_text(theirs, 0));
        sqlite3_reset(theirs);
        if (!there) TN_TRY(damaged(lab, "its tables do not match the schema"));
    }
done:
    sqlite3_finalize(mine);
    sqlite3_finalize(theirs);
    return s;
}

/* Compared with tables that are made in memory. Views and indices of the user's own are let be; triggers would act
 * on what we write. */
static tn_status check_schema(tn_lab *lab)
{
    sqlite3 *ours = NULL;
    char found[128];
    TN_RETURN_IF(first_text(lab, "SELECT name FROM sqlite_schema WHERE type = 'trigger'", found, sizeof found));
    if (found[0])
        return tn_error(TN_BAD_FILE, "%.640s has a trigger (%.60s), which tenon never creates: drop it with `sqlite3`",
                        lab->path, found);
    tn_status s = TN_OK;
    if (sqlite3_open(":memory:", &ours) != SQLITE_OK ||
        sqlite3_exec(ours, tn_lab_schema, NULL, NULL, NULL) != SQLITE_OK ||
        (lab->version == 1 && sqlite3_exec(ours, tn_lab_downgrade, NULL, NULL, NULL) != SQLITE_OK))
        s = tn_error(TN_MEMORY, "out of memory");
    if (s == TN_OK) s = same_tables(lab, ours);
    sqlite3_close(ours);
    return s;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

#define NO_OBJECT "CASE WHEN json_valid(value) THEN json_type(value) <> 'object' ELSE 1 END"

/* Each gives a row where something is wrong; what it says goes into the message. */
static const struct {
    int64_t since, until; /* versions of the tables */
    const char *sql;
} checks[] = {
    { 1, 2, "SELECT 'a row of ' || \"table\" || ' has no parent row' FROM pragma_foreign_key_check LIMIT 1" },
    { 1, 2,
      "SELECT 'trial ' || id || ' repeats a trial that does not exist' FROM trial WHERE config <> 0 AND config NOT IN "
      "(SELECT id FROM trial) LIMIT 1" },
    { 1, 2,
      "SELECT 'trials of study ' || study || ' are missing' FROM trial GROUP BY study, side, kind = 2 HAVING "
      "min(number) <> 0 OR max(number) <> count(*) - 1 LIMIT 1" },
    { 1, 2, "SELECT 'trial ' || id || ' has impossible values' FROM trial WHERE attempt < 0 OR worker < 0 LIMIT 1" },
    { 1, 1, "SELECT 'a report of trial ' || trial || ' is not a JSON object' FROM report WHERE " NO_OBJECT " LIMIT 1" },
    { 2, 2,
      "SELECT 'a report of trial ' || trial || ' is not a JSON object' FROM report WHERE sum IS NULL AND " NO_OBJECT
      " LIMIT 1" },
    { 2, 2,
      "SELECT 'study ' || id || ' has changed since it was written' FROM study WHERE sum <> " TN_STUDY_SUM " LIMIT 1" },
    { 2, 2,
      "SELECT 'trial ' || id || ' has changed since it was written' FROM trial WHERE sum <> " TN_TRIAL_SUM " LIMIT 1" },
    { 2, 2,
      "SELECT 'a report of trial ' || trial || ' has changed since it was written' FROM report WHERE sum "
      "<> " TN_REPORT_SUM " LIMIT 1" },
};

static tn_status check_rows(tn_lab *lab)
{
    char said[256];
    TN_RETURN_IF(first_text(lab, "PRAGMA integrity_check(1)", said, sizeof said));
    if (strcmp(said, "ok") != 0) return damaged(lab, said);
    TN_RETURN_IF(check_schema(lab));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (lab->version < checks[i].since || lab->version > checks[i].until) continue;
        TN_RETURN_IF(first_text(lab, checks[i].sql, said, sizeof said));
        if (said[0]) return damaged(lab, said);
    }
    return TN_OK;
}

tn_status tn_lab_verify(tn_lab *lab)
{
    const bool alone = sqlite3_get_autocommit(lab->db) != 0;
    tn_status s = alone ? tn__db_exec(lab, "BEGIN") : TN_OK;
    if (s == TN_OK) s = check_rows(lab);
    return alone ? tn__db_end(lab, s) : s;
}
