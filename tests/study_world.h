/* A study in a directory of its own, for tests that run it with real trials. Header only. */
#ifndef TN_STUDY_WORLD_H
#define TN_STUDY_WORLD_H

#include "lab/db/db.h"
#include "lab/db/trials.h"
#include "lab/worker/worker.h"
#include "tempdir.h"
#include "testlib.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct tn_study_world {
    tn_tempdir dir;
    tn_arena arena;
    tn_study_plan plan;
    tn_lab *lab;
    int64_t study;
    char path[400];
} tn_study_world;

/* Its directory and path. `where` is a tn_study_world whose directory is used; NULL: a new one. */
static inline void tn_study_world_place(tn_study_world *w, const char *db, const tn_study_world *where)
{
    *w = (tn_study_world){ .study = 0 };
    if (where) w->dir = where->dir;
    else tn_tempdir_make_quick(&w->dir);
    snprintf(w->path, sizeof w->path, "%s/%s", w->dir.path, db);
}

/* The study of this text, with its trials waiting, in a world that has its place. */
static inline void tn_study_world_open(tn_study_world *w, const char *text)
{
    bool found;
    assert_ok(tn_study_parse(text, strlen(text), "s.yaml", NULL, 0, &w->arena, &w->plan));
    assert_ok(tn_study_check(&w->plan));
    assert_ok(tn_lab_open(w->path, true, &w->lab));
    assert_ok(tn_lab_begin(w->lab, &w->plan, text, NULL, 0, &w->study, &found));
    if (w->plan.from_db) assert_ok(tn_lab_transfer(w->lab, w->study, &w->plan));
    assert_ok(tn_lab_fill(w->lab, w->study, &w->plan, w->plan.trials));
}

static inline void tn_study_world_begin(tn_study_world *w, const char *text, const char *db,
                                        const tn_study_world *where)
{
    tn_study_world_place(w, db, where);
    tn_study_world_open(w, text);
}

static inline void tn_study_world_end(tn_study_world *w, bool all)
{
    tn_lab_close(w->lab);
    tn_arena_free(&w->arena);
    if (all) tn_tempdir_remove_all(&w->dir);
}

static inline void tn_study_world_work(tn_study_world *w)
{
    int64_t ran;
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = w->path }, &ran));
}

static inline tn_study *tn_study_world_load(tn_study_world *w)
{
    tn_study *s = NULL;
    assert_ok(tn_lab_load(w->lab, NULL, &s));
    return s;
}

/* Questions before whoever asks is told to stop; lanes may ask at once. */
typedef struct tn_patience {
    atomic_int left;
} tn_patience;

static inline bool tn_impatient(void *ctx) { return atomic_fetch_sub(&((tn_patience *)ctx)->left, 1) <= 0; }

/* Runs a worker that is stopped after `least` questions or less than `spread` more, again and again until all is done: how often it was. */
static inline int tn_study_world_work_stopped(tn_study_world *w, tn_worker_options o, int least, int spread)
{
    int stops = 0;
    tn_status s = TN_INTERRUPTED;
    while (s == TN_INTERRUPTED && stops < 1000) {
        tn_patience p = { least + stops % spread };
        int64_t ran;
        o.db = w->path;
        o.ctx = &p;
        o.interrupted = tn_impatient;
        s = tn_worker_run(&o, &ran);
        stops += s == TN_INTERRUPTED;
    }
    assert_ok(s);
    return stops;
}

static inline void tn_study_world_print(tn_study_world *w, FILE *f, const char *sql)
{
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_prepare_v2(w->lab->db, sql, -1, &q, NULL), SQLITE_OK);
    while (sqlite3_step(q) == SQLITE_ROW) fprintf(f, "%s\n", sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
}

/* All that does not depend on the clock, as text. */
static inline char *tn_study_world_table(tn_study_world *w)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    tn_study_world_print(
        w, f,
        "SELECT side || ' ' || kind || ' ' || number || ' ' || state || ' ' || seed || "
        "' ' || x || ' ' || coalesce(y, '-') || ' ' || error FROM trial ORDER BY side, kind = 2, number");
    tn_study_world_print(
        w, f,
        "SELECT t.side || ' ' || t.number || ' ' || rung || ' ' || step || ' ' || epoch || ' ' || value "
        "FROM report r JOIN trial t ON t.id = r.trial ORDER BY t.side, t.number, rung");
    fclose(f);
    return text;
}

static inline void tn_study_world_same(tn_study_world *a, tn_study_world *b)
{
    char *x = tn_study_world_table(a), *y = tn_study_world_table(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

#endif
