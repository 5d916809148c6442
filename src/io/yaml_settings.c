/* Reads settings files from libyaml events. Invariant: the caller's table changes only after the last event was
 * accepted. */
#include "io/yaml_settings.h"

#include "base/alloc.h"
#include "io/yaml_events.h"

#include <string.h>

enum { PATH_BYTES = 160 };

/* Maps and keys met so far. Both must exist in the table, so the list is no longer than the table. */
typedef struct seen {
    const char *path;
    size_t line;
} seen;

typedef struct reader {
    tn_settings *st;
    const char *name; /* of the file */
    yaml_parser_t parser;
    tn_arena arena;
    seen *seen;
    size_t seen_count, seen_capacity;
    char path[PATH_BYTES];           /* dotted path of the innermost open map, "" at the top */
    size_t start[TN_YAML_MAX_DEPTH]; /* length of path before each open map's own key */
    size_t depth;                    /* open maps */
    bool peek;                       /* keys the table does not have are passed over */
} reader;

static size_t line_of(const yaml_event_t *e) { return tn__yaml_line(e); }

#define READER_FAIL(r, code, line, ...) TN__YAML_FAIL((r)->name, code, line, __VA_ARGS__)

static tn_status next_event(reader *r, yaml_event_t *e) { return tn__yaml_next(&r->parser, r->name, e); }

/* What every event may carry that a settings file may not. */
static tn_status check_plain(const reader *r, const yaml_event_t *e)
{
    if (e->type == YAML_SEQUENCE_START_EVENT)
        return READER_FAIL(r, TN_BAD_FILE, line_of(e), "%s%sa list is not a setting: write one value", r->path,
                           *r->path ? ": " : "");
    return tn__yaml_plain(e, r->name);
}

/* Appends ".key" to the path. A key with odd bytes or longer than any row's cannot exist: refused here, so that the
 * path is fit for messages. */
static tn_status path_push(reader *r, const yaml_event_t *e)
{
    const char *key = (const char *)e->data.scalar.value;
    const size_t old = strlen(r->path), n = e->data.scalar.length;
    char quoted[80];
    tn_text_quote(key, quoted, sizeof quoted);
    if (n == 0 || strlen(key) != n || old + n + 2 > sizeof r->path || strcmp(key, quoted) != 0)
        return READER_FAIL(r, TN_USAGE, line_of(e), "unknown key %s%s\"%s\": `tenon config show` lists the keys",
                           r->path, old ? "." : "", quoted);
    snprintf(r->path + old, sizeof r->path - old, "%s%s", old ? "." : "", key);
    return TN_OK;
}

static tn_status check_new(reader *r, size_t line)
{
    for (size_t i = 0; i < r->seen_count; i++)
        if (strcmp(r->seen[i].path, r->path) == 0)
            return READER_FAIL(r, TN_BAD_FILE, line, "%s appears twice: line %zu has it too", r->path, r->seen[i].line);
    TN_RETURN_IF(tn_grow((void **)&r->seen, &r->seen_capacity, r->seen_count + 1, sizeof *r->seen));
    const char *copy = tn_arena_strdup(&r->arena, r->path);
    if (!copy) return TN_MEMORY;
    r->seen[r->seen_count++] = (seen){ copy, line };
    return TN_OK;
}

static tn_status take_scalar(reader *r, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    const bool empty = e->data.scalar.length == 0 && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (strlen(text) != e->data.scalar.length)
        return READER_FAIL(r, TN_USAGE, line_of(e), "%s: the value contains a NUL byte", r->path);
    if (r->peek && tn_settings_find(r->st, r->path) == tn_settings_count(r->st)) return TN_OK;
    if (!(empty && tn_settings_is_section(r->st, r->path))) /* a section whose keys are all commented out */
        TN_RETURN_IF(tn_settings_set(r->st, r->path, text, "%s:%zu", r->name, line_of(e)));
    return check_new(r, line_of(e));
}

static tn_status open_map(reader *r, const yaml_event_t *e, size_t before)
{
    if (r->depth == TN_YAML_MAX_DEPTH)
        return READER_FAIL(r, TN_BAD_FILE, line_of(e), "maps are nested more than %d deep", TN_YAML_MAX_DEPTH);
    if (r->depth > 0 && !r->peek) {
        if (tn_settings_find(r->st, r->path) < tn_settings_count(r->st))
            return READER_FAIL(r, TN_USAGE, line_of(e), "%s takes one value, not a map", r->path);
        if (!tn_settings_is_section(r->st, r->path))
            return tn_settings_set(r->st, r->path, "", "%s:%zu", r->name, line_of(e)); /* says what is near */
        TN_RETURN_IF(check_new(r, line_of(e)));
    }
    r->start[r->depth++] = before;
    return TN_OK;
}

/* One key and the beginning of its value, or the end of a map. The key's event is `e`. */
static tn_status take_entry(reader *r, const yaml_event_t *e)
{
    if (e->type == YAML_MAPPING_END_EVENT) {
        r->path[r->start[--r->depth]] = 0;
        return TN_OK;
    }
    TN_RETURN_IF(check_plain(r, e));
    if (e->type != YAML_SCALAR_EVENT) return READER_FAIL(r, TN_BAD_FILE, line_of(e), "%s", "a map cannot be a key");
    const size_t before = strlen(r->path);
    yaml_event_t v;
    TN_RETURN_IF(path_push(r, e));
    TN_RETURN_IF(next_event(r, &v));
    tn_status s = check_plain(r, &v);
    if (s == TN_OK) s = v.type == YAML_SCALAR_EVENT ? take_scalar(r, &v) : open_map(r, &v, before);
    if (s == TN_OK && v.type == YAML_SCALAR_EVENT) r->path[before] = 0;
    yaml_event_delete(&v);
    return s;
}

/* Events outside maps: the stream, its one document, and the top map. */
static tn_status take_outer(reader *r, const yaml_event_t *e, size_t *documents)
{
    if (e->type == YAML_DOCUMENT_START_EVENT) return tn__yaml_document(e, r->name, documents);
    if (e->type == YAML_STREAM_START_EVENT || e->type == YAML_STREAM_END_EVENT || e->type == YAML_DOCUMENT_END_EVENT)
        return TN_OK;
    TN_RETURN_IF(check_plain(r, e));
    if (e->type == YAML_MAPPING_START_EVENT) return open_map(r, e, 0);
    if (e->type == YAML_SCALAR_EVENT && e->data.scalar.length == 0) return TN_OK; /* "---" and comments alone */
    return READER_FAIL(r, TN_BAD_FILE, line_of(e), "%s", "this is not `key: value`");
}

static tn_status read_events(reader *r)
{
    size_t documents = 0;
    for (bool more = true; more;) {
        yaml_event_t e;
        TN_RETURN_IF(next_event(r, &e));
        const tn_status s = r->depth ? take_entry(r, &e) : take_outer(r, &e, &documents);
        more = e.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
        if (s != TN_OK) return s;
    }
    return TN_OK;
}

static tn_status read_text(tn_settings *st, const char *text, size_t bytes, const char *name, bool peek)
{
    tn_status s = TN_OK;
    reader r = { .name = name, .peek = peek };
    if (bytes > TN_YAML_MAX_BYTES) return tn__yaml_too_large(name);
    if (!yaml_parser_initialize(&r.parser)) return tn_error(TN_MEMORY, "out of memory while reading %s", name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    TN_TRY(tn_settings_clone(st, &r.st));
    TN_TRY(read_events(&r));
    tn_settings_swap(st, r.st);
done:
    tn_settings_free(r.st);
    yaml_parser_delete(&r.parser);
    tn_free(r.seen);
    tn_arena_free(&r.arena);
    return s;
}

tn_status tn_settings_read_yaml_text(tn_settings *st, const char *text, size_t bytes, const char *name)
{
    return read_text(st, text, bytes, name, false);
}

static tn_status read_file(tn_settings *st, const char *path, bool peek)
{
    char *text;
    size_t bytes;
    TN_RETURN_IF(tn__yaml_load(path, &text, &bytes));
    const tn_status s = read_text(st, text, bytes, path, peek);
    tn_free(text);
    return s;
}

tn_status tn_settings_read_yaml(tn_settings *st, const char *path) { return read_file(st, path, false); }

tn_status tn_settings_peek_yaml(tn_settings *st, const char *path) { return read_file(st, path, true); }
