/* A laboratory in a directory of its own, for tests that claim and end trials by hand. Header only. */
#ifndef TN_LAB_WORLD_H
#define TN_LAB_WORLD_H

#include "lab/db/db.h"
#include "lab/db/trials.h"
#include "tempdir.h"
#include "testlib.h"

#include <string.h>

static const char tn_lab_world_text[] =
    "study: s\nbase: xor_tep\ntrials: 40\nsearch: {dim: 4..64, train.lr: log 1e-4..1e-1}\n"
    "sides: {a: {}, b: {}}\nobjectives: [accuracy max 0, seconds min 10]\n";

typedef struct tn_lab_world {
    tn_tempdir dir;
    tn_arena arena;
    tn_study_plan plan;
    tn_lab *lab;
    int64_t study, worker;
    char path[400];
} tn_lab_world;

static inline void tn_lab_world_plan(tn_lab_world *w, const char *study)
{
    assert_ok(tn_study_parse(study, strlen(study), "s.yaml", NULL, 0, &w->arena, &w->plan));
    assert_ok(tn_study_check(&w->plan));
}

static inline void tn_lab_world_open(tn_lab_world *w, const char *study, int64_t trials)
{
    bool found = true;
    *w = (tn_lab_world){ .worker = 0 };
    tn_tempdir_make_quick(&w->dir);
    snprintf(w->path, sizeof w->path, "%s/lab.db", w->dir.path);
    tn_lab_world_plan(w, study);
    assert_ok(tn_lab_open(w->path, true, &w->lab));
    assert_ok(tn_lab_begin(w->lab, &w->plan, study, NULL, 0, &w->study, &found));
    assert_false(found);
    assert_ok(tn_lab_fill(w->lab, w->study, &w->plan, trials));
    assert_ok(tn_lab_join(w->lab, &w->worker));
}

static inline void tn_lab_world_close(tn_lab_world *w)
{
    tn_lab_close(w->lab);
    tn_arena_free(&w->arena);
    tn_tempdir_remove_all(&w->dir);
}

static inline void tn_lab_world_sql(tn_lab_world *w, const char *statement)
{
    assert_ok(tn__db_exec(w->lab, statement));
}

static inline int64_t tn_lab_world_number(tn_lab_world *w, const char *query)
{
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_prepare_v2(w->lab->db, query, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    const int64_t n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return n;
}

static inline tn_claimed tn_lab_world_claim(tn_lab_world *w, tn_claim *c, double *x)
{
    tn_claimed got;
    assert_ok(tn_lab_claim(w->lab, w->study, &w->plan, w->worker, &(tn_trial_filter){ 0 }, c, x, &got));
    return got;
}

#endif
