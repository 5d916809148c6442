/* Opening a lab database, and the few SQLite calls that everything else is written with.
 *
 * WAL with synchronous=NORMAL: a killed process loses nothing; a power cut loses at most the last commits, never the
 * file's integrity. */
#include "lab/db/db.h"

#include "base/clock.h"
#include "lab/db/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

double tn__unix_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *tn_lab_path(const tn_lab *lab) { return lab->path; }

static const char *const states[TN_TRIAL_STATES] = { "waiting", "running", "done", "pruned", "failed", "timeout" };

const char *tn_trial_state_name(tn_trial_state s) { return (unsigned)s < TN_TRIAL_STATES ? states[s] : "?"; }

/* --- errors ------------------------------------------------------------------------------------------------------- */

void tn__db_message(const char *said, char out[TN_DB_MESSAGE])
{
    static const char head[] = "*** in database main ***\n"; /* of integrity_check, and says nothing */
    if (strncmp(said, head, sizeof head - 1) == 0) said += sizeof head - 1;
    snprintf(out, TN_DB_MESSAGE, "%.*s", TN_DB_MESSAGE - 1, said);
    out[strcspn(out, "\n")] = 0;
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
}

tn_status tn__db_error(tn_lab *lab, int code)
{
    char path[300], said[TN_DB_MESSAGE];
    tn__db_message(sqlite3_errmsg(lab->db), said);
    snprintf(path, sizeof path, "%.290s", lab->path);
    switch (code & 0xff) {
    case SQLITE_NOMEM: return tn_error(TN_MEMORY, "out of memory while reading or writing %s", path);
    case SQLITE_FULL:
        return tn_error(TN_DISK,
                        "cannot write %s: the disk is full; what was recorded is safe: free some space, then rerun "
                        "this command to resume",
                        path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return tn_error(TN_DISK,
                        "%s is locked: another process has held the write lock for %d s; stop it (`fuser %s` shows "
                        "which), then rerun this command to resume",
                        path, lab->busy_ms / 1000, path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return tn_error(
            TN_DISK,
            "cannot write %s: it is read-only; make it and its folder writable, or name another one with --db=FILE",
            path);
    case SQLITE_CANTOPEN:
        return tn_error(
            TN_DISK,
            "cannot open %s: %s; check that its folder exists and is writable, or name another one with --db=FILE",
            path, said);
    case SQLITE_NOTADB:
        return tn_error(TN_BAD_FILE, "%s is not a tenon lab database: name another file with --db=FILE", path);
    case SQLITE_ERROR: /* our own statements are right, so it is the file that has not what they ask for */
    case SQLITE_FORMAT:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_CORRUPT:
        return tn_error(
            TN_BAD_FILE,
            "%s is damaged (%s): restore it from a copy, or save what can be read with `sqlite3 %s .recover`", path,
            said, path);
    case SQLITE_IOERR:
        return tn_error(TN_DISK, "reading or writing %s failed (%s): check the disk; what was recorded before is safe",
                        path, said);
    default: return tn_error(TN_INTERNAL, "%s: SQLite says \"%s\" (%d)", path, said, code);
    }
}

/* --- statements --------------------------------------------------------------------------------------------------- */

tn_status tn__db_get(tn_lab *lab, const char *sql, sqlite3_stmt **out)
{
    for (size_t i = 0; i < lab->n_kept; i++)
        if (lab->kept[i].sql == sql) {
            *out = lab->kept[i].stmt;
            sqlite3_reset(*out);
            sqlite3_clear_bindings(*out);
            return TN_OK;
        }
    if (lab->n_kept == TN_LAB_STATEMENTS) return tn_error(TN_INTERNAL, "more than %d statements", TN_LAB_STATEMENTS);
    sqlite3_stmt *q = NULL;
    const int code = sqlite3_prepare_v3(lab->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &q, NULL);
    if (code != SQLITE_OK) return tn__db_error(lab, code);
    lab->kept[lab->n_kept].sql = sql;
    lab->kept[lab->n_kept++].stmt = q;
    *out = q;
    return TN_OK;
}

tn_status tn__db_step(tn_lab *lab, sqlite3_stmt *q, bool *row)
{
    const int code = sqlite3_step(q);
    *row = code == SQLITE_ROW;
    if (code == SQLITE_ROW) return TN_OK;
    const tn_status s = code == SQLITE_DONE ? TN_OK : tn__db_error(lab, code);
    sqlite3_reset(q);
    return s;
}

bool tn__db_next(tn_lab *lab, sqlite3_stmt *q, tn_status *s)
{
    bool row = false;
    if (*s == TN_OK) *s = tn__db_step(lab, q, &row);
    else sqlite3_reset(q);
    return row;
}

tn_status tn__db_run(tn_lab *lab, sqlite3_stmt *q, int64_t *changed)
{
    bool row;
    do TN_RETURN_IF(tn__db_step(lab, q, &row));
    while (row);
    if (changed) *changed = sqlite3_changes64(lab->db);
    return TN_OK;
}

tn_status tn__db_exec(tn_lab *lab, const char *sql)
{
    const int code = sqlite3_exec(lab->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? TN_OK : tn__db_error(lab, code);
}

tn_status tn__db_begin(tn_lab *lab)
{
    sqlite3_stmt *q;
    TN_RETURN_IF(tn__db_get(lab, "BEGIN IMMEDIATE", &q));
    return tn__db_run(lab, q, NULL);
}

tn_status tn__db_end(tn_lab *lab, tn_status s)
{
    if (s == TN_OK) s = tn__db_exec(lab, "COMMIT");
    if (s != TN_OK && !sqlite3_get_autocommit(lab->db)) (void)sqlite3_exec(lab->db, "ROLLBACK", NULL, NULL, NULL);
    return s;
}

tn_status tn__db_query(tn_lab *lab, const char *sql, sqlite3_stmt **out, const tn_db_value *v, size_t n)
{
    TN_RETURN_IF(tn__db_get(lab, sql, out));
    for (size_t i = 0; i < n; i++) { /* unbound is NULL */
        const int at = (int)i + 1;
        if (v[i].kind == 'i') sqlite3_bind_int64(*out, at, v[i].whole);
        else if (v[i].kind == 't' && v[i].text) sqlite3_bind_text(*out, at, v[i].text, -1, SQLITE_TRANSIENT);
        else if (v[i].kind == 'n' && !isnan(v[i].number)) sqlite3_bind_double(*out, at, v[i].number);
    }
    return TN_OK;
}

tn_status tn__db_do(tn_lab *lab, const char *sql, const tn_db_value *v, size_t n)
{
    sqlite3_stmt *q;
    TN_RETURN_IF(tn__db_query(lab, sql, &q, v, n));
    return tn__db_run(lab, q, NULL);
}

tn_status tn__db_first(tn_lab *lab, const char *sql, int64_t none, int64_t *out, const tn_db_value *v, size_t n)
{
    sqlite3_stmt *q;
    bool row;
    TN_RETURN_IF(tn__db_query(lab, sql, &q, v, n));
    TN_RETURN_IF(tn__db_step(lab, q, &row));
    *out = row ? sqlite3_column_int64(q, 0) : none;
    sqlite3_reset(q);
    return TN_OK;
}

double tn__db_number(sqlite3_stmt *q, int i)
{
    return sqlite3_column_type(q, i) == SQLITE_NULL ? NAN : sqlite3_column_double(q, i);
}

const char *tn__db_text(sqlite3_stmt *q, int i)
{
    const char *text = (const char *)sqlite3_column_text(q, i);
    return text ? text : "";
}

/* --- numbers as text ---------------------------------------------------------------------------------------------- */

char *tn__numbers_write(const double *x, size_t n)
{
    enum { EACH = 26 };
    char *text = tn_alloc(EACH * n + 3), *p = text;
    if (!text) return NULL;
    *p++ = '[';
    for (size_t i = 0; i < n; i++) {
        if (i) *p++ = ',';
        if (isnan(x[i])) p += snprintf(p, EACH, "null");
        else if (isinf(x[i]))
            p += snprintf(p, EACH, "%s9e999", x[i] < 0 ? "-" : ""); /* reads as infinity, also for SQLite */
        else p += snprintf(p, EACH, "%.17g", x[i]);
    }
    *p++ = ']';
    *p = 0;
    return text;
}

void tn__numbers_read(const char *text, double *x, size_t n)
{
    const char *p = text ? text : "";
    if (*p == '[') p++;
    for (size_t i = 0; i < n; i++) {
        char *end;
        x[i] = strtod(p, &end);
        if (end == p) x[i] = NAN;
        p += strcspn(p, ",]");
        if (*p == ',') p++;
    }
}

bool tn__numbers_whole(const char *text, size_t n)
{
    const char *p = text;
    if (*p++ != '[') return false;
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (i && *p++ != ',') return false;
        p += strspn(p, " ");
        if (strncmp(p, "null", 4) == 0) end = (char *)p + 4;
        else if (*p == '-' || (*p >= '0' && *p <= '9')) (void)strtod(p, &end);
        else return false;
        p = end;
    }
    return *p == ']' && !p[1];
}

tn_status tn__db_sum_trial(tn_lab *lab, int64_t trial)
{
    return tn__db_do(lab, "UPDATE trial SET sum = " TN_TRIAL_SUM " WHERE id = ?", TN_DB_VALUES(TN_DB_INT(trial)));
}

tn_status tn__db_sum_study(tn_lab *lab, int64_t study)
{
    return tn__db_do(lab, "UPDATE study SET sum = " TN_STUDY_SUM " WHERE id = ?", TN_DB_VALUES(TN_DB_INT(study)));
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

bool tn__is_network(unsigned long type)
{
    static const unsigned long known[] = { 0x6969 /* NFS */,      0x517b /* SMB */,
                                           0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */,
                                           0x5346414f /* AFS */,  0x00c36400 /* Ceph */,
                                           0x01021997 /* 9P */,   0x0bd00bd0 /* Lustre */ };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((type & 0xffffffff) == known[i]) return true;
    return false;
}

static void folder_of(const char *path, char dir[TN_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    if (!slash) snprintf(dir, TN_PATH_BYTES, ".");
    else snprintf(dir, TN_PATH_BYTES, "%.*s", (int)(slash - path) + (slash == path), path);
}

/* SQLite would block on a pipe, also in place of its -wal or -journal; and what it writes must not be a link. */
static tn_status check_files(const char *path)
{
    static const char *const ends[] = { "", "-wal", "-shm", "-journal" };
    char name[TN_PATH_BYTES + 16];
    struct stat st;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        if ((i ? lstat(name, &st) : stat(name, &st)) != 0 || S_ISREG(st.st_mode)) continue;
        return tn_error(TN_BAD_FILE,
                        "%.640s is not a regular file; move it away, or name another database with --db=FILE", name);
    }
    return TN_OK;
}

/* A journal that names a super-journal, which SQLite deletes on rollback: any file. Ours never do. */
static tn_status check_journal(const char *path)
{
    static const unsigned char magic[8] = { 0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7 };
    char name[TN_PATH_BYTES + 16];
    unsigned char end[8] = { 0 };
    snprintf(name, sizeof name, "%s-journal", path);
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return TN_OK; /* none, or one that SQLite refuses */
    const off_t size = lseek(fd, 0, SEEK_END);
    const bool bad = size > 8 && pread(fd, end, sizeof end, size - 8) == 8 && memcmp(end, magic, sizeof end) == 0;
    close(fd);
    if (!bad) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.640s-journal was not written by tenon: rolling it back would delete another file; move it away, "
                    "or name another "
                    "database with --db=FILE",
                    path);
}

static tn_status check_place(const char *path, bool write)
{
    char dir[TN_PATH_BYTES];
    struct statfs fs;
    struct stat st;
    folder_of(path, dir);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return tn_error(TN_USAGE, "%.640s is a folder: a database is a file", path);
    TN_RETURN_IF(check_files(path));
    if (write && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) /* where it leads nobody said */
        return tn_error(TN_USAGE, "%.640s is a link: name the database itself with --db=FILE", path);
    TN_RETURN_IF(check_journal(path));
    if (!write && access(path, F_OK) != 0)
        return tn_error(TN_BAD_FILE, "no database %.640s: `tenon lab run STUDY.yaml` creates one", path);
    if (write && access(path, F_OK) != 0) TN_RETURN_IF(tn_dir_make(dir));
    if (statfs(dir, &fs) == 0 && tn__is_network((unsigned long)fs.f_type))
        return tn_error(TN_USAGE,
                        "%.640s is on a network filesystem, where file locks are unreliable: put the database on a "
                        "local disk with --db=FILE",
                        path);
    return TN_OK;
}

/* Ours, of this version or an earlier one; *empty: nothing is there yet. */
static tn_status check_ours(tn_lab *lab, bool *empty)
{
    int64_t application = 0, version = 0, tables = 0;
    TN_RETURN_IF(tn__db_first(lab, "PRAGMA application_id", 0, &application, NULL, 0));
    TN_RETURN_IF(tn__db_first(lab, "PRAGMA user_version", 0, &version, NULL, 0));
    TN_RETURN_IF(tn__db_first(lab, "SELECT count(*) FROM sqlite_schema", 0, &tables, NULL, 0));
    *empty = tables == 0 && application == 0;
    lab->version = *empty ? TN_LAB_VERSION : version;
    if (*empty) return TN_OK;
    if (application != TN_LAB_APPLICATION)
        return tn_error(TN_BAD_FILE, "%.640s is another program's database: name another file with --db=FILE",
                        lab->path);
    if (version < 1)
        return tn_error(TN_BAD_FILE, "%.640s is damaged (schema version %lld): restore it from a copy", lab->path,
                        (long long)version);
    if (version > TN_LAB_VERSION)
        return tn_error(
            TN_BAD_FILE,
            "%.640s was written by a newer tenon (schema version %lld, this one reads up to %d): use the newer one",
            lab->path, (long long)version, TN_LAB_VERSION);
    return TN_OK;
}

/* Two processes may come here at once: the second finds the first one's tables. */
static tn_status make_tables(tn_lab *lab)
{
    bool empty = false;
    char marks[128];
    TN_RETURN_IF(tn__db_begin(lab));
    tn_status s = check_ours(lab, &empty);
    if (s == TN_OK && empty) {
        snprintf(marks, sizeof marks, "PRAGMA application_id = %d; PRAGMA user_version = %d", TN_LAB_APPLICATION,
                 TN_LAB_VERSION);
        s = tn__db_exec(lab, tn_lab_schema);
        if (s == TN_OK) s = tn__db_exec(lab, marks);
    }
    return tn__db_end(lab, s);
}

/* Another process may have done it in the meantime. */
static tn_status upgrade(tn_lab *lab)
{
    bool empty = false;
    TN_RETURN_IF(tn__db_begin(lab));
    tn_status s = check_ours(lab, &empty);
    if (s == TN_OK && lab->version < TN_LAB_VERSION) s = tn__db_exec(lab, tn_lab_upgrade);
    s = tn__db_end(lab, s);
    if (s == TN_OK) lab->version = TN_LAB_VERSION;
    return s;
}

static tn_status connect(tn_lab *lab, int flags)
{
    const int code = sqlite3_open_v2(lab->path, &lab->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (!lab->db) return tn_error(TN_MEMORY, "out of memory while opening %.640s", lab->path);
    if (code != SQLITE_OK) return tn__db_error(lab, code);
    sqlite3_db_config(lab->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(lab->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_busy_timeout(lab->db, lab->busy_ms);
    return tn__row_sum_register(lab->db) == SQLITE_OK
               ? TN_OK
               : tn_error(TN_MEMORY, "out of memory while opening %.640s", lab->path);
}

static void disconnect(tn_lab *lab)
{
    for (size_t i = 0; i < lab->n_kept; i++) sqlite3_finalize(lab->kept[i].stmt);
    lab->n_kept = 0;
    sqlite3_close_v2(lab->db);
    lab->db = NULL;
}

static tn_status open_to_write(tn_lab *lab)
{
    bool empty = false;
    TN_RETURN_IF(connect(lab, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    TN_RETURN_IF(check_ours(lab, &empty)); /* before anything of it is touched */
    TN_RETURN_IF(tn__db_exec(lab, "PRAGMA journal_mode = WAL"));
    TN_RETURN_IF(tn__db_exec(lab, "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON"));
    if (sqlite3_db_readonly(lab->db, "main") == 1) return tn__db_error(lab, SQLITE_READONLY);
    if (empty) return make_tables(lab);
    return lab->version < TN_LAB_VERSION ? upgrade(lab) : TN_OK;
}

/* A file in a place where nothing can be written has no log beside it that could be waited for: read as it is. */
static tn_status open_to_read(tn_lab *lab)
{
    char dir[TN_PATH_BYTES], wal[TN_PATH_BYTES + 8], path[TN_PATH_BYTES];
    bool empty = false;
    folder_of(lab->path, dir);
    const bool writable = access(lab->path, W_OK) == 0 && access(dir, W_OK) == 0;
    snprintf(wal, sizeof wal, "%s-wal", lab->path);
    snprintf(path, sizeof path, "%s", lab->path);
    if (!writable && access(wal, F_OK) != 0) {
        size_t n = (size_t)snprintf(lab->path, sizeof lab->path, "file:");
        for (const char *p = path; *p && n + 20 < sizeof lab->path; p++)
            n += (size_t)snprintf(lab->path + n, sizeof lab->path - n, strchr("?#%", *p) ? "%%%02x" : "%c",
                                  (unsigned char)*p);
        snprintf(lab->path + n, sizeof lab->path - n, "?immutable=1");
        const tn_status s = connect(lab, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
        snprintf(lab->path, sizeof lab->path, "%s", path);
        TN_RETURN_IF(s);
    } else
        TN_RETURN_IF(connect(lab, writable ? SQLITE_OPEN_READWRITE
                                           : SQLITE_OPEN_READONLY)); /* one that may write tidies up when it closes */
    TN_RETURN_IF(tn__db_exec(lab, "PRAGMA query_only = ON"));
    TN_RETURN_IF(check_ours(lab, &empty));
    return empty ? tn_error(TN_BAD_FILE, "%.640s is empty: `tenon lab run STUDY.yaml` fills it", lab->path) : TN_OK;
}

tn_status tn_lab_open(const char *path, bool write, tn_lab **out)
{
    TN_RETURN_IF(check_place(path, write));
    tn_lab *lab = tn_alloc(sizeof *lab);
    if (!lab) return TN_MEMORY;
    lab->write = write;
    lab->busy_ms = TN_LAB_BUSY_MS;
    lab->heartbeats.clock_s = tn_clock_s;
    tn_status s = tn_path_join("", path, lab->path, sizeof lab->path);
    if (s == TN_OK) s = write ? open_to_write(lab) : open_to_read(lab);
    if (s != TN_OK) tn_lab_close(lab);
    else *out = lab;
    return s;
}

void tn_lab_close(tn_lab *lab)
{
    if (!lab) return;
    disconnect(lab);
    tn_free(lab->heartbeats.seen);
    tn_free(lab);
}
