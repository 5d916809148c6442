/* The sides of a study file: what each sets and searches, after the more specific entry has won. */
#include "lab/study/study_parse.h"

#include <stdio.h>
#include <string.h>

enum { MOST_KEYS = 256, KEY_BYTES = 160 };

/* A key with its value as it stands in the file (or of the command, value NULL). */
typedef struct entry {
    const char *key;
    const tn_yaml *value;
    const char *text; /* of the command */
} entry;

typedef struct entries {
    entry w[MOST_KEYS];
    size_t n;
} entries;

static const entry *find(const entries *l, const char *key)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->w[i].key, key) == 0) return &l->w[i];
    return NULL;
}

static void drop(entries *l, const char *key)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->w[i].key, key) != 0) l->w[n++] = l->w[i];
    l->n = n;
}

/* A later word for the same key takes the place of the earlier one. */
static tn_status put(const tn_study_reader *r, entries *l, entry x)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->w[i].key, x.key) == 0) {
            l->w[i] = x;
            return TN_OK;
        }
    if (l->n == MOST_KEYS)
        return tn_error(TN_USAGE, "%s: more than %d keys are set or searched: remove some", r->file, MOST_KEYS);
    l->w[l->n++] = x;
    return TN_OK;
}

static bool is_dimension(const tn_yaml *v) { return v->kind != TN_YAML_MAP || tn_yaml_get(v, "values"); }

/* Keys of a map with dots between levels. `search`: a map with `values` is a dimension. */
static tn_status flatten(const tn_study_reader *r, const tn_yaml *map, const char *lead, bool search, entries *out)
{
    if (map->kind != TN_YAML_MAP)
        return TN__STUDY_FAIL(r, map, "%s takes a map: {dim: %s}", map->key, search ? "log int 4..512" : "64");
    for (const tn_yaml *c = map->first; c; c = c->next) {
        char key[KEY_BYTES];
        if (snprintf(key, sizeof key, "%s%s%s", lead, *lead ? "." : "", c->key) >= (int)sizeof key)
            return TN__STUDY_FAIL(r, c, "%.80s... is not a settings key", c->key);
        if (search ? !is_dimension(c) : c->kind == TN_YAML_MAP) {
            TN_RETURN_IF(flatten(r, c, key, search, out));
            continue;
        }
        if (!search && c->kind == TN_YAML_LIST)
            return TN__STUDY_FAIL(r, c, "%s: a list is not a setting: write one value, or put the list under search",
                                  key);
        if (find(out, key)) return TN__STUDY_FAIL(r, c, "%s is given twice", key);
        const char *kept = tn_arena_strdup(r->arena, key);
        if (!kept) return TN_MEMORY;
        TN_RETURN_IF(put(r, out, (entry){ .key = kept, .value = c }));
    }
    return TN_OK;
}

/* The words of `map` after those of `to`. */
static tn_status add_entries(const tn_study_reader *r, const tn_yaml *map, bool search, entries *to)
{
    entries own = { .n = 0 };
    if (!map || (map->kind == TN_YAML_TEXT && !map->text[0])) return TN_OK;
    TN_RETURN_IF(flatten(r, map, "", search, &own));
    for (size_t i = 0; i < own.n; i++) TN_RETURN_IF(put(r, to, own.w[i]));
    return TN_OK;
}

static tn_status add_overrides(const tn_study_reader *r, entries *to)
{
    for (size_t i = 0; i < r->n_overrides; i++) {
        char key[KEY_BYTES];
        const char *eq = strchr(r->overrides[i], '=');
        if (!eq || eq == r->overrides[i] || (size_t)(eq - r->overrides[i]) >= sizeof key)
            return tn_error(TN_USAGE, "%s is not key=value  (command line)",
                            tn_text_quote(r->overrides[i], (char[80]){ 0 }, 80));
        snprintf(key, sizeof key, "%.*s", (int)(eq - r->overrides[i]), r->overrides[i]);
        const char *kept = tn_arena_strdup(r->arena, key), *text = tn_arena_strdup(r->arena, eq + 1);
        if (!kept || !text) return TN_MEMORY;
        TN_RETURN_IF(put(r, to, (entry){ .key = kept, .text = text }));
    }
    return TN_OK;
}

/* --- dimensions --------------------------------------------------------------------------------------------------- */

static tn_status read_values(const tn_study_reader *r, const tn_yaml *v, tn_dim *d)
{
    const char *items[MOST_KEYS];
    size_t n = 0;
    if (v->kind == TN_YAML_TEXT) return tn_dim_parse(v->text, r->arena, d);
    if (v->kind == TN_YAML_MAP) return tn_error(TN_USAGE, "values takes a range or a list");
    for (const tn_yaml *c = v->first; c; c = c->next) {
        if (c->kind != TN_YAML_TEXT) return tn_error(TN_USAGE, "a list to search takes plain values only");
        if (n == MOST_KEYS) return tn_error(TN_USAGE, "a list to search has at most %d choices", MOST_KEYS);
        items[n++] = c->text;
    }
    return tn_dim_choices(items, n, r->arena, d);
}

/* A `when` on a key that the side sets is constant: 1 the dimension is always on, -1 never; 0: not constant. */
static int constant_when(const entries *set, const char *when)
{
    char key[KEY_BYTES];
    const char *eq = strchr(when, '=');
    if (!eq || (size_t)(eq - when) >= sizeof key) return 0;
    snprintf(key, sizeof key, "%.*s", (int)(eq - when), when);
    const entry *w = find(set, key);
    if (!w) return 0;
    return strcmp(w->value ? w->value->text : w->text, eq + 1) == 0 ? 1 : -1;
}

/* *exists: whether the side has it at all. */
static tn_status read_dimension(const tn_study_reader *r, const entry *w, const entries *set, const tn_dim *before,
                                size_t n, tn_dim *d, bool *exists)
{
    const tn_yaml *v = w->value, *values = v, *when = NULL;
    *d = (tn_dim){ .key = w->key, .when = -1 };
    *exists = true;
    if (v->kind == TN_YAML_MAP) {
        for (const tn_yaml *c = v->first; c; c = c->next)
            if (strcmp(c->key, "values") != 0 && strcmp(c->key, "when") != 0)
                return TN__STUDY_FAIL(r, c, "%s: unknown key %s: a dimension has values and when", w->key, c->key);
        values = tn_yaml_get(v, "values");
        when = tn_yaml_get(v, "when");
    }
    TN_RETURN_IF(tn__study_at(r, read_values(r, values, d), w->key, values->line));
    d->key = w->key;
    if (!when) return TN_OK;
    if (when->kind != TN_YAML_TEXT) return TN__STUDY_FAIL(r, when, "%s: when takes KEY=CHOICE", w->key);
    const int always = constant_when(set, when->text);
    *exists = always >= 0;
    return always ? TN_OK : tn__study_at(r, tn_dim_when(before, n, when->text, d), w->key, when->line);
}

/* --- one side ----------------------------------------------------------------------------------------------------- */

static tn_status write_set(const tn_study_reader *r, const entries *set, tn_study_side *out)
{
    const char **text = tn_arena_alloc(r->arena, sizeof *text * (set->n + 1));
    size_t *line = tn_arena_alloc(r->arena, sizeof *line * (set->n + 1));
    if (!text || !line) return TN_MEMORY;
    for (size_t i = 0; i < set->n; i++) {
        const entry *w = &set->w[i];
        text[i] = tn_arena_printf(r->arena, "%s=%s", w->key, w->value ? w->value->text : w->text);
        line[i] = w->value ? w->value->line : 0;
        if (!text[i]) return TN_MEMORY;
    }
    out->set = text;
    out->set_line = line;
    out->n_set = set->n;
    return TN_OK;
}

static tn_status write_space(const tn_study_reader *r, const entries *search, const entries *set, tn_study_side *out)
{
    tn_dim *dims = tn_arena_alloc(r->arena, sizeof *dims * (search->n + 1));
    size_t *line = tn_arena_alloc(r->arena, sizeof *line * (search->n + 1)), n = 0;
    if (!dims || !line) return TN_MEMORY;
    for (size_t i = 0; i < search->n; i++) {
        bool exists;
        TN_RETURN_IF(read_dimension(r, &search->w[i], set, dims, n, &dims[n], &exists));
        line[n] = search->w[i].value->line;
        n += exists;
    }
    out->space = (tn_space){ dims, n };
    out->search_line = line;
    return TN_OK;
}

typedef struct side_entries {
    entries set, search;
} side_entries;

/* Searched by all and set by the side, or by the command: set. Set by all and searched by the side: searched. */
static tn_status merge(const tn_study_reader *r, const tn_yaml *set, const tn_yaml *search, const tn_yaml *own_set,
                       const tn_yaml *own_search, side_entries *w)
{
    entries own = { .n = 0 };
    TN_RETURN_IF(add_entries(r, set, false, &w->set));
    TN_RETURN_IF(add_entries(r, search, true, &w->search));
    for (size_t i = 0; i < w->search.n; i++)
        if (find(&w->set, w->search.w[i].key))
            return TN__STUDY_FAIL(r, w->search.w[i].value, "%s is both set and searched: remove one of them",
                                  w->search.w[i].key);
    TN_RETURN_IF(add_entries(r, own_search, true, &own));
    for (size_t i = 0; i < own.n; i++) {
        drop(&w->set, own.w[i].key);
        TN_RETURN_IF(put(r, &w->search, own.w[i]));
    }
    entries mine = { .n = 0 };
    TN_RETURN_IF(add_entries(r, own_set, false, &mine));
    for (size_t i = 0; i < mine.n; i++)
        if (find(&own, mine.w[i].key))
            return TN__STUDY_FAIL(r, mine.w[i].value, "%s is both set and searched: remove one of them", mine.w[i].key);
    TN_RETURN_IF(add_overrides(r, &mine));
    for (size_t i = 0; i < mine.n; i++) {
        drop(&w->search, mine.w[i].key);
        TN_RETURN_IF(put(r, &w->set, mine.w[i]));
    }
    return TN_OK;
}

typedef struct side_fields {
    const char *base;
    const tn_yaml *set, *search;
} side_fields;

static const tn_field side_table[] = {
    { "base", TN_FIELD_TEXT, offsetof(side_fields, base), 0, 0 },
    { "set", TN_FIELD_NODE, offsetof(side_fields, set), 0, 0 },
    { "search", TN_FIELD_NODE, offsetof(side_fields, search), 0, 0 },
};

static bool is_name(const char *s)
{
    if (!*s || strlen(s) > 40) return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == strlen(s) && *s != '.' &&
           *s != '-';
}

static tn_status read_side(const tn_study_reader *r, const tn_yaml *set, const tn_yaml *search, const tn_yaml *node,
                           const char *base, tn_study_side *out)
{
    side_fields f = { .base = base };
    if (node && !is_name(node->key))
        return TN__STUDY_FAIL(r, node, "a side is named with letters, digits, _ and -, not \"%s\"", node->key);
    const bool empty = !node || (node->kind == TN_YAML_TEXT && !node->text[0]);
    if (!empty) TN_RETURN_IF(TN__STUDY_FIELDS(r, node, "a side", side_table, &f));
    side_entries *w = tn_alloc(sizeof *w); /* some ten kilobytes: not for the stack of any thread */
    if (!w) return TN_MEMORY;
    *out = (tn_study_side){ .name = node ? node->key : "", .base = f.base };
    tn_status s = merge(r, set, search, f.set, f.search, w);
    if (s == TN_OK) s = write_set(r, &w->set, out);
    if (s == TN_OK) s = write_space(r, &w->search, &w->set, out);
    tn_free(w);
    return s;
}

tn_status tn__study_sides(const tn_study_reader *r, const tn_yaml *set, const tn_yaml *search, const tn_yaml *sides,
                          const char *base, tn_study_plan *out)
{
    if (sides && (sides->kind != TN_YAML_MAP || sides->n == 0))
        return TN__STUDY_FAIL(r, sides, "%s", "sides takes a map: {ep: {set: {...}}, bp: {...}}");
    if (sides && sides->n > TN_STUDY_SIDES) return TN__STUDY_FAIL(r, sides, "at most %d sides", TN_STUDY_SIDES);
    const size_t n = sides ? sides->n : 1;
    tn_study_side *list = tn_arena_alloc(r->arena, sizeof *list * n);
    if (!list) return TN_MEMORY;
    const tn_yaml *c = sides ? sides->first : NULL;
    for (size_t i = 0; i < n; i++, c = c ? c->next : NULL) TN_RETURN_IF(read_side(r, set, search, c, base, &list[i]));
    out->sides = list;
    out->n_sides = n;
    return TN_OK;
}
