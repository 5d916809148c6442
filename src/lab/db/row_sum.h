/* Sums of rows: a byte that has changed on the disk is found, though SQLite itself would read on. They are computed by our own statements, never by
 * the file's schema, so other programs read the database as ever. Finds damage, not attacks.
 *
 * A statement that changes a row takes its sum away (NULL: not known), another one after it gives it back: whoever is killed in between, no sum is
 * wrong. */
#ifndef TN_LAB_ROW_SUM_H
#define TN_LAB_ROW_SUM_H

#include <sqlite3.h>

#define TN_STUDY_SUM "tn_sum(id, name, path, text, overrides, kinds, planned, created, spent)"
#define TN_TRIAL_SUM                                                                                                   \
    "tn_sum(id, study, side, kind, number, state, config, seed, x, y, parameters, started, begun, ended, seconds, "    \
    "worker, attempt, error)"
#define TN_REPORT_SUM "tn_sum(trial, rung, step, epoch, seconds, score, value)"

/* Makes `tn_sum(...)` known to a connection: of any values, by their types and bytes. An SQLite code. */
int tn__row_sum_register(sqlite3 *db);

#endif
