/* The tables of a lab database. x and y are JSON arrays of numbers (null: off, or unknown) in the order of the
 * study's dimensions and objectives; value is a JSON object. States and kinds are the numbers of records.h. */
#ifndef TN_LAB_SCHEMA_H
#define TN_LAB_SCHEMA_H

/* Checksums of rows find a changed byte that SQLite itself would not notice. Our statements compute them, not the
 * schema, so other programs can still read the database. They find damage, not attacks.
 *
 * A statement that changes a row sets its checksum to NULL, and the next one restores it: a process killed in
 * between leaves no wrong one. */
#define TN_STUDY_SUM "tn_sum(id, name, path, text, overrides, kinds, planned, created, spent)"
#define TN_TRIAL_SUM                                                                                                   \
    "tn_sum(id, study, side, kind, number, state, config, seed, x, y, parameters, started, begun, ended, seconds, "    \
    "worker, attempt, error)"
#define TN_REPORT_SUM "tn_sum(trial, rung, step, epoch, seconds, score, value)"

#define TN_LAB_APPLICATION 0x546e4c62 /* "TnLb" */
enum { TN_LAB_VERSION = 2 };          /* 1: without sums */

/* Comparisons (kind = 2) are numbered separately. Open trials are few, and claiming reads only those. */
static const char tn_lab_schema[] =
    "CREATE TABLE study(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, path TEXT NOT NULL, text TEXT NOT NULL,\n"
    "  overrides TEXT NOT NULL, kinds TEXT NOT NULL, planned INTEGER NOT NULL, created REAL NOT NULL,\n"
    "  spent REAL NOT NULL DEFAULT 0, sum INTEGER) STRICT;\n"
    "CREATE TABLE worker(id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, host TEXT NOT NULL, started REAL "
    "NOT NULL,\n"
    "  beat REAL NOT NULL, gone INTEGER NOT NULL DEFAULT 0) STRICT;\n"
    "CREATE TABLE trial(id INTEGER PRIMARY KEY, study INTEGER NOT NULL REFERENCES study(id) ON DELETE CASCADE,\n"
    "  side INTEGER NOT NULL, kind INTEGER NOT NULL CHECK(kind BETWEEN 0 AND 2), number INTEGER NOT NULL,\n"
    "  state INTEGER NOT NULL DEFAULT 0 CHECK(state BETWEEN 0 AND 5), config INTEGER NOT NULL DEFAULT 0, seed INTEGER "
    "NOT NULL,\n"
    "  x TEXT, y TEXT, parameters REAL, started REAL, begun REAL, ended REAL, seconds REAL,\n"
    "  worker INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', sum "
    "INTEGER) STRICT;\n"
    "CREATE UNIQUE INDEX trial_number ON trial(study, side, kind = 2, number);\n"
    "CREATE INDEX trial_open ON trial(study, kind = 2, side, number) WHERE state < 2;\n"
    "CREATE TABLE report(trial INTEGER NOT NULL REFERENCES trial(id) ON DELETE CASCADE, rung INTEGER NOT NULL, step "
    "INTEGER NOT NULL,\n"
    "  epoch REAL, seconds REAL, score REAL, value TEXT NOT NULL, sum INTEGER, PRIMARY KEY(trial, rung)) STRICT, "
    "WITHOUT ROWID;\n";

/* The tables as version 1 had them: what a database that says so is compared with. */
static const char tn_lab_downgrade[] =
    "ALTER TABLE study DROP COLUMN sum; ALTER TABLE trial DROP COLUMN sum; ALTER TABLE report DROP COLUMN sum;\n";

/* A database of version 1 becomes one of version 2. */
static const char tn_lab_upgrade[] = "ALTER TABLE study ADD COLUMN sum INTEGER; ALTER TABLE trial ADD COLUMN sum "
                                     "INTEGER; ALTER TABLE report ADD COLUMN sum INTEGER;\n"
                                     "UPDATE study SET sum = " TN_STUDY_SUM "; UPDATE trial SET sum = " TN_TRIAL_SUM
                                     "; UPDATE report SET sum = " TN_REPORT_SUM ";\n"
                                     "PRAGMA user_version = 2;\n";

#endif
