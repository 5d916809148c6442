/* SQLite for this room: prepared statements, bound values, errors with a remedy. A handle belongs to one thread. */
#ifndef TN_LAB_DB_H
#define TN_LAB_DB_H

#include "base/fs.h"
#include "lab/db/lab.h"

#include <sqlite3.h>

/* A worker is dead when its heartbeat has not changed for a while of our own monotonic clock. Wall clocks alone
 * decide nothing: they are stepped, and databases move between machines. */
enum {
    TN_LAB_STALE_S = 60, /* unchanged for this long: dead */
    TN_LAB_DOUBT_S = 15, /* unchanged for so long, and more than TN_LAB_STALE_S old by the wall clock: dead as well */
    TN_LAB_LOOK_S = 1    /* between looks */
};

typedef struct tn_heartbeat {
    int64_t worker;
    double beat, since; /* as it is in the table; ours when it was first seen so */
} tn_heartbeat;

typedef struct tn_heartbeats {
    tn_heartbeat *seen;
    size_t n, capacity;
    double looked; /* when; valid where `begun` */
    bool begun;
    double (*clock_s)(void); /* monotonic; a test has its own */
} tn_heartbeats;

enum { TN_LAB_STATEMENTS = 64, TN_LAB_BUSY_MS = 30000 };

struct tn_lab {
    sqlite3 *db;
    bool write;
    int busy_ms;
    int64_t version; /* of its tables */
    char path[TN_PATH_BYTES];
    struct {
        const char *sql;
        sqlite3_stmt *stmt;
    } kept[TN_LAB_STATEMENTS];
    size_t n_kept;
    tn_heartbeats heartbeats; /* of the workers, as this handle saw them */
};

/* The prepared statement of this text (a string constant, compared by address), reset and unbound; owned by the
 * handle. */
tn_status tn__db_get(tn_lab *lab, const char *sql, sqlite3_stmt **out);
/* A value of a parameter: an integer, a number (NaN: NULL), a text (NULL: NULL), which is copied. */
typedef struct tn_db_value {
    char kind;
    int64_t whole;
    double number;
    const char *text;
} tn_db_value;
#define TN_DB_INT(x) ((tn_db_value){ .kind = 'i', .whole = (int64_t)(x) })
#define TN_DB_NUM(x) ((tn_db_value){ .kind = 'n', .number = (x) })
#define TN_DB_TEXT(x) ((tn_db_value){ .kind = 't', .text = (x) })
#define TN_DB_VALUES(...)                                                                                              \
    (const tn_db_value[]){ __VA_ARGS__ }, sizeof((const tn_db_value[]){ __VA_ARGS__ }) / sizeof(tn_db_value)
/* The statement with its values (TN_DB_VALUES): to step; run to its end; or the first number of its first row (no
 * row: `none`). */
tn_status tn__db_query(tn_lab *lab, const char *sql, sqlite3_stmt **out, const tn_db_value *v, size_t n);
tn_status tn__db_do(tn_lab *lab, const char *sql, const tn_db_value *v, size_t n);
tn_status tn__db_first(tn_lab *lab, const char *sql, int64_t none, int64_t *out, const tn_db_value *v, size_t n);
/* A row, or no more of them. Errors reset the statement. */
tn_status tn__db_step(tn_lab *lab, sqlite3_stmt *q, bool *row);
/* The same for loops: whether there is a row; *s is the error that ended them. Nothing is read where *s is one
 * already. */
bool tn__db_next(tn_lab *lab, sqlite3_stmt *q, tn_status *s);
/* Runs to the end, rows unread; resets. *changed may be NULL. */
tn_status tn__db_run(tn_lab *lab, sqlite3_stmt *q, int64_t *changed);
/* One text of statements, nothing bound. */
tn_status tn__db_exec(tn_lab *lab, const char *sql);
/* The first line of a message of SQLite, which may quote the file: bounded, without control characters. */
enum { TN_DB_MESSAGE = 160 };
void tn__db_message(const char *said, char out[TN_DB_MESSAGE]);
/* The last error of SQLite, as a status and a message with a remedy. */
tn_status tn__db_error(tn_lab *lab, int code);

/* BEGIN IMMEDIATE; COMMIT, or where s is an error ROLLBACK, which keeps the error's text. */
tn_status tn__db_begin(tn_lab *lab);
tn_status tn__db_end(tn_lab *lab, tn_status s);

double tn__db_number(sqlite3_stmt *q, int i);    /* NULL: NaN */
const char *tn__db_text(sqlite3_stmt *q, int i); /* NULL: "" */

/* "[0.5,null,13]": numbers so that reading gives the same doubles. tn_free it; NULL: out of memory. */
char *tn__numbers_write(const double *x, size_t n);
/* Restores the checksum of a trial or study after a change, which set it to NULL. */
tn_status tn__db_sum_trial(tn_lab *lab, int64_t trial);
tn_status tn__db_sum_study(tn_lab *lab, int64_t study);

/* The first n of such a text; what is not there or not a number is NaN. */
void tn__numbers_read(const char *text, double *x, size_t n);
/* Whether it is such a text of n numbers and nothing else. */
bool tn__numbers_whole(const char *text, size_t n);

double tn__unix_s(void); /* the wall clock */
/* By the filesystem's magic number: whether locks of other machines may not be seen on it. */
bool tn__is_network(unsigned long type);

/* Makes `tn_sum(...)` of schema.h known to a connection: of any values, by their types and bytes. An SQLite code. */
int tn__row_sum_register(sqlite3 *db);

/* Looks at all heartbeats, at most once a second, and marks dead workers as gone. One that beats again is alive
 * again. */
tn_status tn__heartbeats_watch(tn_lab *lab);

#endif
