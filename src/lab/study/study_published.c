/* Published figures that a study file quotes: results, settings, hours. They are shown next to the study's own and
 * decide nothing. */
#include "lab/study/study.h"
#include "lab/study/study_parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct quoted {
    const char *source, *note, *winner;
    double hours;
    const tn_yaml *sides;
} quoted;

typedef struct quoted_side {
    int64_t front;
    double hours;
    const tn_yaml *best, *points;
} quoted_side;

static const tn_field top_table[] = {
    { "source", TN_FIELD_TEXT, offsetof(quoted, source), 0, 0 },
    { "note", TN_FIELD_TEXT, offsetof(quoted, note), 0, 0 },
    { "winner", TN_FIELD_TEXT, offsetof(quoted, winner), 0, 0 },
    { "hours", TN_FIELD_NUMBER, offsetof(quoted, hours), 0, 1e9 },
    { "sides", TN_FIELD_NODE, offsetof(quoted, sides), 0, 0 },
};
static const tn_field side_table[] = {
    { "front", TN_FIELD_COUNT, offsetof(quoted_side, front), 1, 1e9 },
    { "hours", TN_FIELD_NUMBER, offsetof(quoted_side, hours), 0, 1e9 },
    { "best", TN_FIELD_NODE, offsetof(quoted_side, best), 0, 0 },
    { "points", TN_FIELD_NODE, offsetof(quoted_side, points), 0, 0 },
};

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static tn_status no_objective(const tn_study_reader *r, const tn_yaml *v, const tn_study_plan *p)
{
    tn_unknown u = { .near = { .word = v->key } };
    for (size_t k = 0; k < p->n_objectives; k++) tn__unknown_offer(&u, p->objectives[k].name);
    return tn__unknown_fail(r, v, "published objective", &u);
}

static tn_status read_value(const tn_study_reader *r, const tn_yaml *v, const tn_objective *o, double *out)
{
    char *end;
    errno = 0;
    const double x = v->kind == TN_YAML_TEXT ? strtod(v->text, &end) : NAN;
    if (v->kind != TN_YAML_TEXT || !v->text[0] || *end || !isfinite(x))
        return TN__STUDY_FAIL(r, v, "published: %s: \"%.60s\" is not a number", v->key, v->text);
    const tn_metric_row *row = tn_study_metric(o->name);
    if (row && tn_metric_is_fraction(row) && (x < 0 || x > 1))
        return TN__STUDY_FAIL(r, v, "published: %s: %s is outside 0..1: write 0.9667, not 96.67", o->name, v->text);
    *out = x;
    return TN_OK;
}

/* Objectives by name into y; `set` is passed by where the caller takes it. */
static tn_status read_values(const tn_study_reader *r, const tn_yaml *map, const tn_study_plan *p, bool with_set,
                             const double **out)
{
    double *y = tn_arena_alloc(r->arena, sizeof *y * (p->n_objectives + 1));
    if (!y) return TN_MEMORY;
    for (size_t k = 0; k < p->n_objectives; k++) y[k] = NAN;
    if (map && map->kind != TN_YAML_MAP)
        return TN__STUDY_FAIL(r, map, "%s", "published: points and best take a map of objectives: { loss: 0.9 }");
    for (const tn_yaml *c = map ? map->first : NULL; c; c = c->next) {
        size_t k = 0;
        if (with_set && strcmp(c->key, "set") == 0) continue;
        while (k < p->n_objectives && strcmp(p->objectives[k].name, c->key) != 0) k++;
        if (k == p->n_objectives) return no_objective(r, c, p);
        TN_RETURN_IF(read_value(r, c, &p->objectives[k], &y[k]));
    }
    *out = y;
    return TN_OK;
}

/* --- points ------------------------------------------------------------------------------------------------------- */

static tn_status read_set(const tn_study_reader *r, const tn_yaml *map, tn_published_point *out)
{
    if (map->kind != TN_YAML_MAP) return TN__STUDY_FAIL(r, map, "%s", "published: set takes a map: { dim: 13 }");
    const char **text = tn_arena_alloc(r->arena, sizeof *text * (map->n + 1));
    size_t *line = tn_arena_alloc(r->arena, sizeof *line * (map->n + 1)), n = 0;
    if (!text || !line) return TN_MEMORY;
    for (const tn_yaml *c = map->first; c; c = c->next) {
        if (c->kind != TN_YAML_TEXT || !c->text[0] || strlen(c->key) >= 160)
            return TN__STUDY_FAIL(r, c, "published: set: %.60s takes one value", c->key);
        line[n] = c->line;
        if (!(text[n++] = tn_arena_printf(r->arena, "%s=%s", c->key, c->text))) return TN_MEMORY;
    }
    *out = (tn_published_point){ .y = out->y, .set = text, .set_line = line, .n_set = n };
    return TN_OK;
}

static tn_status read_points(const tn_study_reader *r, const tn_yaml *list, const tn_study_plan *p,
                             tn_published_side *out)
{
    size_t n = 0;
    if (!list) return TN_OK;
    if (list->kind != TN_YAML_LIST)
        return TN__STUDY_FAIL(r, list, "%s", "published: points takes a list of { loss: 0.9, set: { dim: 13 } }");
    tn_published_point *v = tn_arena_alloc(r->arena, sizeof *v * (list->n + 1));
    if (!v) return TN_MEMORY;
    for (const tn_yaml *c = list->first; c; c = c->next, n++) {
        TN_RETURN_IF(read_values(r, c, p, true, &v[n].y));
        const tn_yaml *set = tn_yaml_get(c, "set");
        if (set) TN_RETURN_IF(read_set(r, set, &v[n]));
    }
    out->points = v;
    out->n_points = n;
    return TN_OK;
}

/* Where the file has no best, that of its points bounds it. */
static void fill_best(const tn_study_plan *p, const tn_published_side *side, double *best, bool *bound)
{
    for (size_t k = 0; k < p->n_objectives; k++) {
        if (!isnan(best[k])) continue;
        for (size_t i = 0; i < side->n_points; i++) {
            const double y = side->points[i].y[k];
            if (isnan(best[k]) || (p->objectives[k].maximise ? y > best[k] : y < best[k])) best[k] = y;
        }
        bound[k] = !isnan(best[k]);
    }
}

/* --- sides -------------------------------------------------------------------------------------------------------- */

/* A study without sides has one that is called `all` here. */
static int side_of(const tn_study_plan *p, const char *name)
{
    for (size_t i = 0; i < p->n_sides; i++)
        if (strcmp(p->sides[i].name[0] ? p->sides[i].name : "all", name) == 0) return (int)i;
    return -1;
}

static tn_status no_side(const tn_study_reader *r, const tn_yaml *v, const tn_study_plan *p, const char *name)
{
    tn_unknown u = { .near = { .word = name } };
    for (size_t i = 0; i < p->n_sides; i++) tn__unknown_offer(&u, p->sides[i].name[0] ? p->sides[i].name : "all");
    return tn__unknown_fail(r, v, "published side", &u);
}

static tn_status read_side(const tn_study_reader *r, const tn_yaml *v, const tn_study_plan *p, tn_published_side *out)
{
    quoted_side q = { .front = 0 };
    const double *best;
    TN_RETURN_IF(TN__STUDY_FIELDS(r, v, "a published side", side_table, &q));
    TN_RETURN_IF(read_values(r, q.best, p, false, &best));
    bool *bound = tn_arena_alloc(r->arena, p->n_objectives + 1);
    if (!bound) return TN_MEMORY;
    *out = (tn_published_side){ .best = best, .bound = bound, .front = q.front, .hours = q.hours };
    TN_RETURN_IF(read_points(r, q.points, p, out));
    fill_best(p, out, (double *)best, bound);
    return TN_OK;
}

tn_status tn__study_published(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    quoted q = { .note = "" };
    if (!v) return TN_OK;
    TN_RETURN_IF(TN__STUDY_FIELDS(r, v, "published", top_table, &q));
    if (!q.source) return TN__STUDY_FAIL(r, v, "%s", "published: add the source of the figures: source: \"...\"");
    if (!q.sides || q.sides->kind != TN_YAML_MAP)
        return TN__STUDY_FAIL(r, v, "%s",
                              "published: sides takes a map of figures: { ep: { front: 24, points: [...] } }");
    tn_published *p = tn_arena_alloc(r->arena, sizeof *p);
    tn_published_side *sides = tn_arena_alloc(r->arena, sizeof *sides * (out->n_sides + 1));
    if (!p || !sides) return TN_MEMORY;
    for (size_t i = 0; i < out->n_sides; i++) { /* nothing is said of a side */
        TN_RETURN_IF(read_values(r, NULL, out, false, &sides[i].best));
        if (!(sides[i].bound = tn_arena_alloc(r->arena, out->n_objectives + 1))) return TN_MEMORY;
    }
    for (const tn_yaml *c = q.sides->first; c; c = c->next) {
        const int at = side_of(out, c->key);
        if (at < 0) return no_side(r, c, out, c->key);
        TN_RETURN_IF(read_side(r, c, out, &sides[at]));
    }
    *p = (tn_published){ .source = q.source, .note = q.note, .hours = q.hours, .sides = sides, .winner = -1 };
    if (q.winner && (p->winner = side_of(out, q.winner)) < 0) return no_side(r, v, out, q.winner);
    out->published = p;
    return TN_OK;
}
