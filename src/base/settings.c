/* The settings table: rows from several owners, one checked value each. Does not read files or arguments.
 * Invariant: every entry holds a value that its row's type and range accept, so getters have nothing to refuse. */
#include <tenon/settings.h>

#include "base/alloc.h"
#include "base/setting_value.h"
#include "base/settings_watch.h"
#include "base/status.h"
#include "base/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 64, KEY_DEPTH = 8, SOURCE_BYTES = 512, QUOTE_BYTES = 80 };

typedef struct entry {
    const tn_setting *row; /* borrowed from the owner */
    size_t length;         /* of its key */
    const char *owner, *source;
    const char *text; /* as written */
    tn_setting_value value;
} entry;

/* Apart from the table, which getters do not change. */
typedef struct watch {
    bool on;
    char mistake[400]; /* "": none so far */
} watch;

struct tn_settings {
    entry *entries;
    size_t count, capacity;
    tn_arena arena; /* texts, sources and owners */
    watch *watch;
};

tn_status tn_settings_new(tn_settings **out)
{
    tn_settings *st = tn_alloc(sizeof *st);
    if (!st) return TN_MEMORY;
    st->watch = tn_alloc(sizeof *st->watch);
    if (!st->watch) {
        tn_free(st);
        return TN_MEMORY;
    }
    *out = st;
    return TN_OK;
}

void tn_settings_free(tn_settings *st)
{
    if (!st) return;
    tn_free(st->entries);
    tn_free(st->watch);
    tn_arena_free(&st->arena);
    tn_free(st);
}

void tn_settings_swap(tn_settings *a, tn_settings *b)
{
    const tn_settings t = *a;
    *a = *b;
    *b = t;
}

tn_status tn_settings_clone(const tn_settings *st, tn_settings **out)
{
    tn_status s = TN_OK;
    tn_settings *c = NULL;
    TN_TRY(tn_settings_new(&c));
    TN_TRY(tn_grow((void **)&c->entries, &c->capacity, st->count, sizeof *c->entries));
    for (size_t i = 0; i < st->count; i++) {
        entry e = st->entries[i];
        e.owner = tn_arena_strdup(&c->arena, e.owner);
        e.source = tn_arena_strdup(&c->arena, e.source);
        e.text = tn_arena_strdup(&c->arena, e.text);
        if (!e.owner || !e.source || !e.text) {
            s = TN_MEMORY;
            goto done;
        }
        c->entries[c->count++] = e;
    }
    *out = c;
    c = NULL;
done:
    tn_settings_free(c);
    return s;
}

/* Words of [a-z0-9_] that begin with a letter, joined by dots. */
static bool key_valid(const char *key)
{
    size_t depth = 1;
    bool first = true;
    for (const char *p = key; *p; p++) {
        const bool letter = *p >= 'a' && *p <= 'z';
        if (*p == '.' && !first) {
            first = true;
            depth++;
            continue;
        }
        if (!letter && (first || !((*p >= '0' && *p <= '9') || *p == '_'))) return false;
        first = false;
    }
    return !first && depth <= KEY_DEPTH && strlen(key) < KEY_BYTES;
}

/* Where two keys part; what is there in each says how they are related. */
static size_t common_length(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

static tn_status add_one(tn_settings *st, const tn_setting *row, const char *owner, const char *source)
{
    if (!key_valid(row->key))
        return tn_error(TN_USAGE, "%s: \"%s\" is not a key: write lower case words joined by dots", owner, row->key);
    for (size_t i = 0; i < st->count; i++) {
        const char *other = st->entries[i].row->key, *who = st->entries[i].owner;
        const size_t n = common_length(other, row->key);
        const char a = other[n], b = row->key[n];
        if (!a && !b)
            return tn_error(TN_USAGE, "%s: the key %s already belongs to %s; choose another", owner, row->key, who);
        if ((!a && b == '.') || (!b && a == '.'))
            return tn_error(TN_USAGE, "%s: the key %s collides with %s of %s: one would be a section of the other",
                            owner, row->key, other, who);
    }
    entry e = { .row = row, .length = strlen(row->key), .owner = owner, .source = "default", .text = row->value };
    TN_RETURN_IF(tn_setting_parse(row, row->value, source, &e.value));
    st->entries[st->count++] = e;
    return TN_OK;
}

tn_status tn_settings_add(tn_settings *st, const tn_setting *rows, size_t n, const char *owner)
{
    const size_t before = st->count;
    const char *name = tn_arena_strdup(&st->arena, owner);
    char source[SOURCE_BYTES];
    if (!name) return TN_MEMORY;
    TN_RETURN_IF(tn_grow((void **)&st->entries, &st->capacity, before + n, sizeof *st->entries));
    snprintf(source, sizeof source, "default of %s", owner);
    for (size_t i = 0; i < n; i++) {
        const tn_status s = add_one(st, &rows[i], name, source);
        if (s == TN_OK) continue;
        st->count = before;
        return s;
    }
    return TN_OK;
}

size_t tn_settings_find(const tn_settings *st, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = 0; i < st->count; i++) /* the lengths tell most apart: this is asked at every step of a training */
        if (st->entries[i].length == n && memcmp(st->entries[i].row->key, key, n) == 0) return i;
    return st->count;
}

/* The entry a key means: its own, or that of KEY.name where KEY is a section that has a name (task, task.name). */
static size_t find_meant(const tn_settings *st, const char *key)
{
    const size_t i = tn_settings_find(st, key);
    char name[KEY_BYTES];
    if (i < st->count || snprintf(name, sizeof name, "%s.name", key) >= (int)sizeof name) return i;
    return tn_settings_find(st, name);
}

bool tn_settings_is_section(const tn_settings *st, const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < st->count; i++)
        if (st->entries[i].length > n && st->entries[i].row->key[n] == '.' &&
            memcmp(st->entries[i].row->key, path, n) == 0)
            return true;
    return false;
}

/* What another tool's name for a setting is called here, where these settings have it; else NULL. */
static const char *foreign_key(const tn_settings *st, const char *key)
{
#define TN_HABIT_KEY(word, ours) { word, ours },
    static const char *const names[][2] = {
#include "base/foreign_keys.def"
    };
#undef TN_HABIT_KEY
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], key) == 0 && find_meant(st, names[i][1]) < st->count) return names[i][1];
    return NULL;
}

static tn_status unknown_key(const tn_settings *st, const char *key, const char *source)
{
    char quoted[QUOTE_BYTES];
    tn_nearest near = { .word = key };
    tn_text_quote(key, quoted, sizeof quoted);
    if (tn_settings_is_section(st, key))
        return tn_error(TN_USAGE, "%s is a section, not a key: `tenon config show` lists its keys  (%s)", quoted,
                        source);
    const char *ours = foreign_key(st, key);
    near.best = ours;
    for (size_t i = 0; i < st->count && !ours; i++) {
        const char *candidate = st->entries[i].row->key, *last = strrchr(candidate, '.');
        if (last && strcmp(last + 1, key) == 0) { /* lr for train.lr */
            near.best = candidate;
            break;
        }
        tn_nearest_try(&near, candidate);
    }
    if (near.best) return tn_error(TN_USAGE, "unknown key %s: did you mean %s?  (%s)", quoted, near.best, source);
    return tn_error(TN_USAGE, "unknown key %s: `tenon config show` lists the keys  (%s)", quoted, source);
}

tn_status tn_settings_set(tn_settings *st, const char *key, const char *text, const char *source_fmt, ...)
{
    char source[SOURCE_BYTES], quoted[SOURCE_BYTES];
    va_list ap;
    va_start(ap, source_fmt);
    vsnprintf(source, sizeof source, source_fmt, ap);
    va_end(ap);
    tn_text_quote(source, quoted, sizeof quoted); /* a file's name may hold anything */

    const size_t i = find_meant(st, key);
    if (i == st->count) return unknown_key(st, key, quoted);
    entry e = st->entries[i];
    TN_RETURN_IF(tn_setting_parse(e.row, text, quoted, &e.value));
    e.text = tn_arena_strdup(&st->arena, text);
    e.source = tn_arena_strdup(&st->arena, quoted);
    if (!e.text || !e.source) return TN_MEMORY;
    st->entries[i] = e;
    return TN_OK;
}

tn_status tn_settings_override(tn_settings *st, const char *key_value)
{
    char key[QUOTE_BYTES];
    const char *eq = strchr(key_value, '=');
    if (!eq || eq == key_value)
        return tn_error(TN_USAGE, "%s is not key=value  (command line)", tn_text_quote(key_value, key, sizeof key));
    if ((size_t)(eq - key_value) >= sizeof key)
        return tn_error(TN_USAGE, "unknown key %s: `tenon config show` lists the keys  (command line)",
                        tn_text_quote(key_value, key, sizeof key));
    snprintf(key, sizeof key, "%.*s", (int)(eq - key_value), key_value);
    return tn_settings_set(st, key, eq + 1, "command line");
}

/* --- getters ---------------------------------------------------------------------------------------------------------- */

typedef struct asked {
    const char *file;
    int line;
    const char *key;
} asked;

void tn_settings_watch(const tn_settings *st) { *st->watch = (watch){ .on = true }; }

tn_status tn_settings_mistake(const tn_settings *st)
{
    st->watch->on = false;
    return st->watch->mistake[0] ? tn_error(TN_USAGE, "%s", st->watch->mistake) : TN_OK;
}

static void keep_unknown(const tn_settings *st, const asked *a)
{
    char quoted[QUOTE_BYTES];
    const char *key = a->key ? a->key : "NULL";
    tn_nearest near = { .word = key };
    if (st->watch->mistake[0]) return;
    for (size_t i = 0; i < st->count; i++) tn_nearest_try(&near, st->entries[i].row->key);
    snprintf(st->watch->mistake, sizeof st->watch->mistake,
             "the model asks for a setting %s that is not declared: %s%s%s  (%s:%d)",
             tn_text_quote(key, quoted, sizeof quoted), near.best ? "did you mean " : "add it to the model's settings",
             near.best ? near.best : "", near.best ? "?" : "", a->file, a->line);
}

static const entry *entry_of(const tn_settings *st, const asked *a)
{
    const size_t i = a->key ? find_meant(st, a->key) : st->count;
    if (i == st->count && st->watch->on) keep_unknown(st, a);
    else assert(i < st->count && "a getter was asked for a key that no table has");
    return i < st->count ? &st->entries[i] : NULL;
}

enum {
    INTS = 1 << TN_TYPE_INT | 1 << TN_TYPE_AUTO_INT,
    FLOATS = 1 << TN_TYPE_FLOAT | 1 << TN_TYPE_AUTO_FLOAT,
    SWITCHES = 1 << TN_TYPE_SWITCH | 1 << TN_TYPE_BOOL
};

/* An entry of one of several types, for getters of numbers and switches. `one` stands for all of them in the message. */
static const entry *entry_typed(const tn_settings *st, const asked *a, tn_setting_type one, unsigned types)
{
    const entry *e = entry_of(st, a);
    const bool fits = e && (types >> e->row->type & 1);
    if (e && !fits && st->watch->on && !st->watch->mistake[0])
        snprintf(st->watch->mistake, sizeof st->watch->mistake,
                 "the model asks for the setting %s as %s, and it is declared as %s  (%s:%d)", e->row->key,
                 tn_setting_type_name(one), tn_setting_type_name(e->row->type), a->file, a->line);
    else assert((fits || st->watch->on) && "a getter was asked for a key of another type");
    return fits ? e : NULL;
}

int64_t tn_settings_int_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_typed(st, &(asked){ file, line, key }, TN_TYPE_INT, INTS);
    return e ? e->value.i : 0;
}

bool tn_settings_is_auto_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_typed(st, &(asked){ file, line, key }, TN_TYPE_AUTO_INT, INTS | FLOATS);
    return e && e->value.is_auto;
}

double tn_settings_float_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_typed(st, &(asked){ file, line, key }, TN_TYPE_FLOAT, FLOATS);
    return e ? e->value.f : 0;
}

bool tn_settings_on_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_typed(st, &(asked){ file, line, key }, TN_TYPE_SWITCH, SWITCHES);
    return e && e->value.on;
}

static const char *entry_text(const entry *e) { return *e->value.canonical ? e->value.canonical : e->text; }

int tn_settings_choice_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_typed(st, &(asked){ file, line, key }, TN_TYPE_CHOICE, 1u << TN_TYPE_CHOICE);
    const char *text = e ? entry_text(e) : "", *p = e ? e->row->choices : NULL;
    const size_t n = strlen(text);
    for (int i = 0; p; i++) {
        if (strncmp(p, text, n) == 0 && (p[n] == 0 || p[n] == '|')) return i;
        p = strchr(p, '|');
        if (p) p++;
    }
    return 0;
}

const char *tn_settings_text_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_of(st, &(asked){ file, line, key });
    return e ? entry_text(e) : "";
}

const char *tn_settings_source_(const tn_settings *st, const char *file, int line, const char *key)
{
    const entry *e = entry_of(st, &(asked){ file, line, key });
    return e ? e->source : "";
}

size_t tn_settings_count(const tn_settings *st) { return st->count; }

const tn_setting *tn_settings_row_at(const tn_settings *st, size_t i) { return st->entries[i].row; }

const char *tn_settings_owner_at(const tn_settings *st, size_t i) { return st->entries[i].owner; }

const char *tn_settings_source_at(const tn_settings *st, size_t i) { return st->entries[i].source; }

const char *tn_settings_written_at(const tn_settings *st, size_t i) { return st->entries[i].text; }

const char *tn_settings_text_at(const tn_settings *st, size_t i) { return entry_text(&st->entries[i]); }
