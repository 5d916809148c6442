/* Loading studies: one pass over a study's trials, everything into its arena. */
#include "io/json_read.h"
#include "lab/db/db.h"
#include "lab/study/study.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tn_status tn_lab_studies(tn_lab *lab, tn_arena *arena, const char *const **names, size_t *n)
{
    sqlite3_stmt *q;
    const char **list = NULL;
    size_t count = 0, capacity = 0;
    tn_status s = TN_OK;
    TN_RETURN_IF(tn__db_get(lab, "SELECT name, (SELECT count(*) FROM study) FROM study ORDER BY id", &q));
    while (tn__db_next(lab, q, &s)) {
        if (!list) {
            capacity = (size_t)sqlite3_column_int64(q, 1);
            list = tn_arena_alloc(arena, sizeof *list * (capacity + 1));
        }
        const char *name = list ? tn_arena_strdup(arena, tn__db_text(q, 0)) : NULL;
        if (!name) s = TN_MEMORY;
        else if (count < capacity) list[count++] = name;
    }
    *names = list;
    *n = count;
    return s;
}

/* --- one study ---------------------------------------------------------------------------------------------------- */

static tn_status no_study(tn_lab *lab, const char *study)
{
    tn_arena arena = { 0 };
    const char *const *names = NULL;
    char list[512] = "";
    size_t n = 0, at = 0;
    const tn_status s = tn_lab_studies(lab, &arena, &names, &n);
    for (size_t i = 0; s == TN_OK && i < n && at < sizeof list - 1; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    tn_arena_free(&arena);
    if (s != TN_OK) return s;
    if (n == 0) return tn_error(TN_USAGE, "%.640s has no study yet: `tenon lab run STUDY.yaml` starts one", lab->path);
    if (!study)
        return tn_error(TN_USAGE, "%.640s has %zu studies: choose one with --study=NAME: %s", lab->path, n, list);
    return tn_error(TN_USAGE, "%.640s has no study %.80s: it has %s", lab->path, study, list);
}

static tn_status find_study(tn_lab *lab, const char *name, int64_t *id)
{
    sqlite3_stmt *q;
    bool row;
    int64_t n = 0;
    TN_RETURN_IF(tn__db_query(lab, "SELECT id, (SELECT count(*) FROM study) FROM study WHERE ?1 IS NULL OR name = ?1",
                              &q, TN_DB_VALUES(TN_DB_TEXT(name))));
    TN_RETURN_IF(tn__db_step(lab, q, &row));
    if (row) {
        *id = sqlite3_column_int64(q, 0);
        n = sqlite3_column_int64(q, 1);
    }
    sqlite3_reset(q);
    if (!row || (!name && n > 1)) return no_study(lab, name);
    return TN_OK;
}

/* Splits the overrides, which are one a line. */
static tn_status split_lines(tn_arena *arena, const char *text, const char *const **out, size_t *n)
{
    size_t most = 1;
    for (const char *p = text; *p; p++) most += *p == '\n';
    const char **list = tn_arena_alloc(arena, sizeof *list * most);
    *n = 0;
    for (const char *p = text; list && *p;) {
        const size_t bytes = strcspn(p, "\n");
        if (bytes && !(list[(*n)++] = tn_arena_printf(arena, "%.*s", (int)bytes, p))) return TN_MEMORY;
        p += bytes + (p[bytes] == '\n');
    }
    *out = list;
    return list ? TN_OK : TN_MEMORY;
}

tn_status tn__study_plan_of(const tn_study *s, tn_arena *arena, tn_study_plan *out)
{
    const char *const *overrides;
    size_t n;
    TN_RETURN_IF(split_lines(arena, s->overrides, &overrides, &n));
    return tn_study_parse(s->text, strlen(s->text), s->path, overrides, n, arena, out);
}

/* Ranges that became whole when the study was begun: "ffi,fc", one letter a dimension, sides between commas. */
static void take_kinds(const tn_study_plan *plan, const char *kinds)
{
    for (size_t i = 0; i < plan->n_sides; i++) {
        tn_dim *dims = (tn_dim *)plan->sides[i].space.dims;
        for (size_t k = 0; k < plan->sides[i].space.n && *kinds && *kinds != ','; k++, kinds++)
            if (*kinds == 'i') (void)tn_dim_make_int(&dims[k]);
        kinds += strcspn(kinds, ",");
        if (*kinds == ',') kinds++;
    }
}

/* Which way objectives are better, where models had to be asked: ";+-" behind the kinds, one sign an objective. */
static void take_directions(const tn_study_plan *plan, const char *kinds)
{
    const char *sign = strchr(kinds, ';');
    for (size_t i = 0; sign && i < plan->n_objectives && sign[i + 1]; i++)
        if (plan->objectives[i].by_row) ((tn_objective *)&plan->objectives[i])->maximise = sign[i + 1] == '+';
}

static tn_status fill_study(tn_lab *lab, sqlite3_stmt *q, tn_study *s)
{
    tn_study_plan plan;
    s->id = sqlite3_column_int64(q, 0);
    s->name = tn_arena_strdup(&s->arena, tn__db_text(q, 1));
    s->path = tn_arena_strdup(&s->arena, tn__db_text(q, 2));
    s->text = tn_arena_strdup(&s->arena, tn__db_text(q, 3));
    s->overrides = tn_arena_strdup(&s->arena, tn__db_text(q, 4));
    const char *kinds = tn_arena_strdup(&s->arena, tn__db_text(q, 5));
    s->planned = sqlite3_column_int64(q, 6);
    s->created = tn__db_number(q, 7);
    s->spent = tn__db_number(q, 8);
    if (!s->name || !s->path || !s->text || !s->overrides || !kinds) return TN_MEMORY;
    TN_RETURN_IF(tn__study_plan_of(s, &s->arena, &plan));
    if (strcmp(plan.name, s->name) != 0)
        return tn_error(TN_BAD_FILE, "%.640s is damaged: study %.80s is named %.80s in its file", lab->path, s->name,
                        plan.name);
    take_kinds(&plan, kinds);
    take_directions(&plan, kinds);
    tn_side *sides = tn_arena_alloc(&s->arena, sizeof *sides * plan.n_sides);
    if (!sides) return TN_MEMORY;
    for (size_t i = 0; i < plan.n_sides; i++)
        sides[i] = (tn_side){ .name = plan.sides[i].name, .space = plan.sides[i].space };
    s->sides = sides;
    s->n_sides = plan.n_sides;
    s->objectives = plan.objectives;
    s->n_objectives = plan.n_objectives;
    s->sampler = plan.sampler->name;
    s->pruner = plan.pruner->name;
    s->published = plan.published;
    return TN_OK;
}

static tn_status load_study(tn_lab *lab, int64_t id, tn_study *s)
{
    sqlite3_stmt *q;
    bool row;
    TN_RETURN_IF(
        tn__db_query(lab,
                     "SELECT id, name, path, text, overrides, kinds, planned, created, spent FROM study WHERE id = ?",
                     &q, TN_DB_VALUES(TN_DB_INT(id))));
    TN_RETURN_IF(tn__db_step(lab, q, &row));
    if (!row) return tn_error(TN_BAD_FILE, "a study of %.640s was deleted while it was read: try again", lab->path);
    const tn_status st = fill_study(lab, q, s);
    sqlite3_reset(q);
    return st;
}

/* --- its trials --------------------------------------------------------------------------------------------------- */

static const char *no_error = "";

static tn_status read_trial(const tn_lab *lab, sqlite3_stmt *q, tn_study *s, tn_trial *t)
{
    const int64_t side = sqlite3_column_int64(q, 2), state = sqlite3_column_int64(q, 4),
                  kind = sqlite3_column_int64(q, 3);
    if (side < 0 || side >= (int64_t)s->n_sides || state < 0 || state >= TN_TRIAL_STATES || kind < 0 ||
        kind > TN_TRIAL_COMPARE)
        return tn_error(TN_BAD_FILE, "%.640s: trial %lld has values out of range for study %s", lab->path,
                        (long long)sqlite3_column_int64(q, 0), s->name);
    const size_t dims = s->sides[side].space.n, m = s->n_objectives;
    if ((sqlite3_column_type(q, 7) != SQLITE_NULL && !tn__numbers_whole(tn__db_text(q, 7), dims)) ||
        (sqlite3_column_type(q, 8) != SQLITE_NULL && !tn__numbers_whole(tn__db_text(q, 8), m)))
        return tn_error(
            TN_BAD_FILE,
            "%.640s is damaged (trial %lld does not have the values that its study needs): restore it from a copy",
            lab->path, (long long)sqlite3_column_int64(q, 0));
    double *x = NULL, *y = tn_arena_alloc(&s->arena, sizeof *y * m);
    if (!y) return TN_MEMORY;
    if (sqlite3_column_type(q, 7) != SQLITE_NULL) {
        x = tn_arena_alloc(&s->arena, sizeof *x * (dims + 1));
        if (!x) return TN_MEMORY;
        tn__numbers_read(tn__db_text(q, 7), x, dims);
    }
    tn__numbers_read(tn__db_text(q, 8), y, m);
    const char *error = tn__db_text(q, 14);
    *t = (tn_trial){ .id = sqlite3_column_int64(q, 0),
                     .number = sqlite3_column_int64(q, 1),
                     .side = (int)side,
                     .kind = (tn_trial_kind)kind,
                     .state = (tn_trial_state)state,
                     .config = sqlite3_column_int64(q, 5),
                     .seed = (uint64_t)sqlite3_column_int64(q, 6),
                     .x = x,
                     .y = y,
                     .started = tn__db_number(q, 9),
                     .ended = tn__db_number(q, 10),
                     .seconds = tn__db_number(q, 11),
                     .worker = sqlite3_column_int(q, 12),
                     .attempt = sqlite3_column_int(q, 13),
                     .error = error[0] ? tn_arena_strdup(&s->arena, error) : no_error };
    return t->error ? TN_OK : TN_MEMORY;
}

static int by_order(const void *a, const void *b)
{
    const tn_trial *x = a, *y = b;
    const int cx = x->kind == TN_TRIAL_COMPARE, cy = y->kind == TN_TRIAL_COMPARE;
    if (cx != cy) return cx - cy;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->side > y->side) - (x->side < y->side);
}

static tn_status load_trials(tn_lab *lab, tn_study *s)
{
    sqlite3_stmt *q;
    int64_t count;
    tn_status st = TN_OK;
    TN_RETURN_IF(
        tn__db_first(lab, "SELECT count(*) FROM trial WHERE study = ?", 0, &count, TN_DB_VALUES(TN_DB_INT(s->id))));
    size_t n = 0, most = (size_t)count;
    tn_trial *list = tn_arena_alloc(&s->arena, sizeof *list * (most + 1));
    if (!list) return TN_MEMORY;
    TN_RETURN_IF(tn__db_query(
        lab,
        "SELECT id, number, side, kind, state, config, seed, x, y, started, ended, seconds, worker, attempt, error "
        "FROM trial WHERE study = ?",
        &q, TN_DB_VALUES(TN_DB_INT(s->id))));
    while (n < most && tn__db_next(lab, q, &st)) {
        st = read_trial(lab, q, s, &list[n]);
        n++;
    }
    sqlite3_reset(q);
    TN_RETURN_IF(st);
    qsort(list, n, sizeof *list, by_order);
    s->trials = list;
    s->n = n;
    return TN_OK;
}

tn_status tn_lab_load(tn_lab *lab, const char *study, tn_study **out)
{
    int64_t id = 0;
    tn_study *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    const bool alone = sqlite3_get_autocommit(lab->db) != 0;
    tn_status st = alone ? tn__db_exec(lab, "BEGIN") : TN_OK; /* study and trials of one moment */
    if (st == TN_OK) st = find_study(lab, study, &id);
    if (st == TN_OK) st = load_study(lab, id, s);
    if (st == TN_OK) st = load_trials(lab, s);
    if (alone) st = tn__db_end(lab, st);
    if (st != TN_OK) tn_study_free(s);
    else *out = s;
    return st;
}

void tn_study_free(tn_study *s)
{
    if (!s) return;
    tn_arena arena = s->arena;
    tn_arena_free(&arena);
    tn_free(s);
}

/* --- curves ------------------------------------------------------------------------------------------------------- */

typedef struct curve {
    const char *name[TN_REPORT_METRICS];
    size_t metrics, n, most;
    int64_t *step;
    double *epoch, *seconds;
    double *value; /* (most, TN_REPORT_METRICS) */
} curve;

static tn_status add_row(const tn_lab *lab, sqlite3_stmt *q, tn_arena *arena, curve *c)
{
    const char *key;
    const char *text = tn__db_text(q, 3);
    json_t *v, *all = tn_json_tree(text, strlen(text), 0, NULL);
    if (!json_is_object(all)) {
        json_decref(all);
        return tn_error(TN_BAD_FILE, "%.640s: a report is not a JSON object: another program changed the database",
                        lab->path);
    }
    double *to = c->value + c->n * TN_REPORT_METRICS;
    for (size_t i = 0; i < TN_REPORT_METRICS; i++) to[i] = NAN;
    c->step[c->n] = sqlite3_column_int64(q, 0);
    c->epoch[c->n] = tn__db_number(q, 1);
    c->seconds[c->n] = tn__db_number(q, 2);
    json_object_foreach(all, key, v)
    {
        size_t i = 0;
        while (i < c->metrics && strcmp(c->name[i], key) != 0) i++;
        if (i == TN_REPORT_METRICS) continue;
        if (i == c->metrics && !(c->name[c->metrics++] = tn_arena_strdup(arena, key))) {
            json_decref(all);
            return TN_MEMORY;
        }
        if (json_is_number(v)) to[i] = json_number_value(v);
    }
    json_decref(all);
    c->n++;
    return TN_OK;
}

static tn_status finish_curve(const curve *c, tn_arena *arena, tn_trial_curve *out)
{
    const char **name = tn_arena_alloc(arena, sizeof *name * (c->metrics + 1));
    double *value = tn_arena_alloc(arena, sizeof *value * (c->n * c->metrics + 1));
    if (!name || !value) return TN_MEMORY;
    memcpy(name, c->name, sizeof *name * c->metrics);
    for (size_t i = 0; i < c->n; i++)
        memcpy(value + i * c->metrics, c->value + i * TN_REPORT_METRICS, sizeof *value * c->metrics);
    *out = (tn_trial_curve){ .n = c->n,
                             .metrics = c->metrics,
                             .name = name,
                             .step = c->step,
                             .epoch = c->epoch,
                             .seconds = c->seconds,
                             .value = value };
    return TN_OK;
}

tn_status tn_lab_curve(tn_lab *lab, int64_t trial, tn_arena *arena, tn_trial_curve *out)
{
    sqlite3_stmt *q;
    curve c = { .n = 0 };
    int64_t count;
    TN_RETURN_IF(
        tn__db_first(lab, "SELECT count(*) FROM report WHERE trial = ?", 0, &count, TN_DB_VALUES(TN_DB_INT(trial))));
    c.most = (size_t)count;
    c.step = tn_arena_alloc(arena, sizeof *c.step * (c.most + 1));
    c.epoch = tn_arena_alloc(arena, sizeof *c.epoch * (c.most + 1));
    c.seconds = tn_arena_alloc(arena, sizeof *c.seconds * (c.most + 1));
    if (!c.step || !c.epoch || !c.seconds) return TN_MEMORY;
    TN_RETURN_IF(tn__db_query(lab, "SELECT step, epoch, seconds, value FROM report WHERE trial = ? ORDER BY rung", &q,
                              TN_DB_VALUES(TN_DB_INT(trial))));
    c.value = tn_alloc(sizeof *c.value * TN_REPORT_METRICS * (c.most + 1));
    tn_status s = c.value ? TN_OK : TN_MEMORY;
    while (c.n < c.most && tn__db_next(lab, q, &s)) s = add_row(lab, q, arena, &c);
    sqlite3_reset(q);
    if (s == TN_OK) s = finish_curve(&c, arena, out);
    tn_free(c.value);
    return s;
}
