/* Studies in the database: creating, finding, adding trials. */
#include "lab/db/db.h"
#include "lab/db/trials.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char *join_lines(tn_arena *arena, const char *const *lines, size_t n)
{
    char *all = tn_arena_strdup(arena, "");
    for (size_t i = 0; all && i < n; i++) all = tn_arena_printf(arena, "%s%s\n", all, lines[i]);
    return all;
}

/* "ffi,fc;+-": see take_kinds and take_ways in load.c. */
static char *kinds_of(tn_arena *arena, const tn_study_plan *p)
{
    char *all = tn_arena_strdup(arena, "");
    for (size_t i = 0; all && i < p->n_sides; i++) {
        if (i) all = tn_arena_printf(arena, "%s,", all);
        for (size_t k = 0; all && k < p->sides[i].space.n; k++)
            all = tn_arena_printf(arena, "%s%c", all, "fic"[p->sides[i].space.dims[k].kind]);
    }
    bool by_row = false;
    for (size_t i = 0; i < p->n_objectives; i++) by_row |= p->objectives[i].by_row;
    for (size_t i = 0; all && by_row && i < p->n_objectives; i++)
        all = tn_arena_printf(arena, "%s%s%c", all, i ? "" : ";", p->objectives[i].maximise ? '+' : '-');
    return all;
}

static tn_status find(tn_lab *lab, const char *name, bool *found)
{
    int64_t n = 0;
    TN_RETURN_IF(tn__db_first(lab, "SELECT 1 FROM study WHERE name = ?", 0, &n, TN_DB_VALUES(TN_DB_TEXT(name))));
    *found = n > 0;
    return TN_OK;
}

/* The one that is there must be the one that is meant: trials of two studies in one table would say nothing of
 * either. */
static tn_status same_study(tn_lab *lab, const tn_study_plan *p, int64_t *id)
{
    tn_study *there = NULL;
    tn_arena arena = { 0 };
    tn_study_plan before;
    TN_RETURN_IF(tn_lab_load(lab, p->name, &there));
    tn_status s = tn__study_plan_of(there, &arena, &before);
    if (s == TN_OK && strcmp(before.fingerprint, p->fingerprint) != 0)
        s = tn_error(TN_USAGE,
                     "study %s in %.640s was started with other settings (%.300s has changed, or other key=value were "
                     "given): rename this one with `study: NAME`, or use another database with --db=FILE",
                     p->name, lab->path, p->file);
    if (s == TN_OK) *id = there->id;
    tn_arena_free(&arena);
    tn_study_free(there);
    return s;
}

static tn_status insert(tn_lab *lab, const tn_study_plan *p, const char *text, const char *overrides, const char *kinds,
                        int64_t *id)
{
    TN_RETURN_IF(
        tn__db_do(lab, "INSERT INTO study(name, path, text, overrides, kinds, planned, created) VALUES(?,?,?,?,?,?,?)",
                  TN_DB_VALUES(TN_DB_TEXT(p->name), TN_DB_TEXT(p->file), TN_DB_TEXT(text), TN_DB_TEXT(overrides),
                               TN_DB_TEXT(kinds), TN_DB_INT(p->trials), TN_DB_NUM(tn__unix_s()))));
    *id = sqlite3_last_insert_rowid(lab->db);
    return tn__db_sum_study(lab, *id);
}

tn_status tn_lab_begin(tn_lab *lab, const tn_study_plan *p, const char *text, const char *const *overrides, size_t n,
                       int64_t *id, bool *found)
{
    tn_arena arena = { 0 };
    const char *lines = join_lines(&arena, overrides, n), *kinds = kinds_of(&arena, p);
    tn_status s = lines && kinds ? tn__db_begin(lab) : TN_MEMORY;
    if (s == TN_OK) {
        s = find(lab, p->name, found);
        if (s == TN_OK) s = *found ? same_study(lab, p, id) : insert(lab, p, text, lines, kinds, id);
        s = tn__db_end(lab, s);
    }
    tn_arena_free(&arena);
    return s;
}

/* --- trials ------------------------------------------------------------------------------------------------------- */

/* Numbers of a series are without gaps: the next one is how many there are. */
static tn_status count_of(tn_lab *lab, int64_t study, size_t side, bool compare, int64_t *n)
{
    return tn__db_first(
        lab, "SELECT coalesce(max(number) + 1, 0) FROM trial WHERE study = ? AND side = ? AND (kind = 2) = ?", 0, n,
        TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(side), TN_DB_INT(compare)));
}

static tn_status add_trial(tn_lab *lab, int64_t study, size_t side, tn_trial_kind kind, int64_t number, int64_t config,
                           uint64_t seed, const char *x)
{
    TN_RETURN_IF(tn__db_do(lab, "INSERT INTO trial(study, side, kind, number, config, seed, x) VALUES(?,?,?,?,?,?,?)",
                           TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(side), TN_DB_INT(kind), TN_DB_INT(number),
                                        TN_DB_INT(config), TN_DB_INT(seed), TN_DB_TEXT(x))));
    return tn__db_sum_trial(lab, sqlite3_last_insert_rowid(lab->db));
}

static tn_status fill_side(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, int64_t n)
{
    const int64_t most = p->sampler->count(&p->sides[side].space);
    int64_t there;
    if (most > 0 && n > most) n = most;
    TN_RETURN_IF(count_of(lab, study, side, false, &there));
    for (int64_t i = there; i < n; i++)
        TN_RETURN_IF(add_trial(lab, study, side, TN_TRIAL_SEARCH, i, 0, p->seed + (uint64_t)i, NULL));
    return TN_OK;
}

tn_status tn_lab_fill(tn_lab *lab, int64_t study, const tn_study_plan *p, int64_t n)
{
    TN_RETURN_IF(tn__db_begin(lab));
    tn_status s = tn__db_do(lab, "UPDATE study SET planned = max(planned, ?2), sum = NULL WHERE id = ?1",
                            TN_DB_VALUES(TN_DB_INT(study), TN_DB_INT(n)));
    if (s == TN_OK) s = tn__db_sum_study(lab, study);
    for (size_t i = 0; s == TN_OK && i < p->n_sides; i++) s = fill_side(lab, study, p, i, n);
    return tn__db_end(lab, s);
}

tn_status tn_lab_enqueue(tn_lab *lab, int64_t study, const tn_study_plan *p, size_t side, tn_trial_kind kind,
                         int64_t config, uint64_t seed, const double *x)
{
    int64_t number;
    char *text = tn__numbers_write(x, p->sides[side].space.n);
    if (!text) return TN_MEMORY;
    tn_status s = tn__db_begin(lab);
    if (s == TN_OK) {
        s = count_of(lab, study, side, kind == TN_TRIAL_COMPARE, &number);
        if (s == TN_OK) s = add_trial(lab, study, side, kind, number, config, seed, text);
        s = tn__db_end(lab, s);
    }
    tn_free(text);
    return s;
}

tn_status tn_lab_spend(tn_lab *lab, int64_t study, double seconds, double *spent)
{
    sqlite3_stmt *q;
    bool row;
    TN_RETURN_IF(tn__db_query(lab, "UPDATE study SET spent = spent + ?2, sum = NULL WHERE id = ?1 RETURNING spent", &q,
                              TN_DB_VALUES(TN_DB_INT(study), TN_DB_NUM(seconds))));
    TN_RETURN_IF(tn__db_step(lab, q, &row));
    if (!row) return TN_OK;
    *spent = tn__db_number(q, 0);
    TN_RETURN_IF(tn__db_run(lab, q, NULL));
    return tn__db_sum_study(lab, study);
}
