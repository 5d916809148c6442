/* Builds the tree, event by event. */
#include "io/yaml_tree.h"

#include "io/yaml_events.h"
#include "io/yaml_settings.h"

#include <stdio.h>
#include <string.h>

typedef struct builder {
    const char *name;
    yaml_parser_t parser;
    tn_arena *arena;
    tn_yaml *open[TN_YAML_MAX_DEPTH]; /* maps and lists, the innermost last */
    tn_yaml *last[TN_YAML_MAX_DEPTH]; /* child of each */
    size_t depth, nodes, documents;
    const char *key; /* met in a map, its value not yet; NULL: none */
    tn_yaml *top;
} builder;

static const char *copy_scalar(builder *b, const yaml_event_t *e)
{
    return tn_arena_strdup(b->arena, (const char *)e->data.scalar.value);
}

static tn_status out_of_memory(const builder *b)
{
    return tn_error(TN_MEMORY, "out of memory while reading %s", b->name);
}

static tn_status take_key(builder *b, const yaml_event_t *e)
{
    char quoted[80];
    if (e->type != YAML_SCALAR_EVENT)
        return TN__YAML_FAIL(b->name, TN_BAD_FILE, tn__yaml_line(e), "%s", "a map or list cannot be a key");
    const char *key = (const char *)e->data.scalar.value;
    tn_text_quote(key, quoted, sizeof quoted);
    if (!key[0] || strlen(key) != e->data.scalar.length || strcmp(key, quoted) != 0)
        return TN__YAML_FAIL(b->name, TN_BAD_FILE, tn__yaml_line(e), "\"%s\" is not a key: write a word", quoted);
    for (const tn_yaml *c = b->open[b->depth - 1]->first; c; c = c->next)
        if (strcmp(c->key, key) == 0)
            return TN__YAML_FAIL(b->name, TN_BAD_FILE, tn__yaml_line(e), "%s appears twice: line %zu has it too",
                                 quoted, c->line);
    b->key = copy_scalar(b, e);
    return b->key ? TN_OK : out_of_memory(b);
}

/* One more node at the place where the file is; a map or list is open then. */
static tn_status add(builder *b, const yaml_event_t *e, tn_yaml_kind kind)
{
    if (++b->nodes > TN_YAML_MAX_NODES)
        return TN__YAML_FAIL(b->name, TN_BAD_FILE, tn__yaml_line(e), "more than %d values: that is not a study",
                             TN_YAML_MAX_NODES);
    if (kind != TN_YAML_TEXT && b->depth == TN_YAML_MAX_DEPTH)
        return TN__YAML_FAIL(b->name, TN_BAD_FILE, tn__yaml_line(e), "maps and lists are nested more than %d deep",
                             TN_YAML_MAX_DEPTH);
    tn_yaml *node = tn_arena_alloc(b->arena, sizeof *node);
    if (!node) return out_of_memory(b);
    *node = (tn_yaml){ .kind = kind, .line = tn__yaml_line(e), .key = b->key ? b->key : "", .text = "" };
    if (kind == TN_YAML_TEXT) node->text = copy_scalar(b, e);
    if (!node->text) return out_of_memory(b);
    if (kind == TN_YAML_TEXT && strlen(node->text) != e->data.scalar.length)
        return TN__YAML_FAIL(b->name, TN_BAD_FILE, node->line, "%s: the value contains a NUL byte", node->key);
    b->key = NULL;
    if (b->depth) {
        tn_yaml *last = b->last[b->depth - 1];
        if (last) last->next = node;
        else b->open[b->depth - 1]->first = node;
        b->last[b->depth - 1] = node;
        b->open[b->depth - 1]->n++;
    } else b->top = node;
    if (kind == TN_YAML_TEXT) return TN_OK;
    b->last[b->depth] = NULL;
    b->open[b->depth++] = node;
    return TN_OK;
}

static tn_status take_inside(builder *b, const yaml_event_t *e)
{
    if (e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT) {
        b->depth--;
        return TN_OK;
    }
    TN_RETURN_IF(tn__yaml_plain(e, b->name));
    if (b->open[b->depth - 1]->kind == TN_YAML_MAP && !b->key) return take_key(b, e);
    return add(b, e,
               e->type == YAML_MAPPING_START_EVENT    ? TN_YAML_MAP
               : e->type == YAML_SEQUENCE_START_EVENT ? TN_YAML_LIST
                                                      : TN_YAML_TEXT);
}

static tn_status take_outer(builder *b, const yaml_event_t *e)
{
    if (e->type == YAML_DOCUMENT_START_EVENT) return tn__yaml_document(e, b->name, &b->documents);
    if (e->type == YAML_STREAM_START_EVENT || e->type == YAML_STREAM_END_EVENT || e->type == YAML_DOCUMENT_END_EVENT)
        return TN_OK;
    TN_RETURN_IF(tn__yaml_plain(e, b->name));
    if (e->type == YAML_MAPPING_START_EVENT) return add(b, e, TN_YAML_MAP);
    if (e->type == YAML_SCALAR_EVENT && e->data.scalar.length == 0) return TN_OK; /* "---" and comments alone */
    return TN__YAML_FAIL(b->name, TN_BAD_FILE, tn__yaml_line(e), "%s", "this is not `key: value`");
}

static tn_status build(builder *b)
{
    for (bool more = true; more;) {
        yaml_event_t e;
        TN_RETURN_IF(tn__yaml_next(&b->parser, b->name, &e));
        const tn_status s = b->depth ? take_inside(b, &e) : take_outer(b, &e);
        more = e.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
        if (s != TN_OK) return s;
    }
    if (b->top) return TN_OK;
    b->top = tn_arena_alloc(b->arena, sizeof *b->top);
    if (!b->top) return out_of_memory(b);
    *b->top = (tn_yaml){ .kind = TN_YAML_MAP, .line = 1, .key = "", .text = "" };
    return TN_OK;
}

tn_status tn_yaml_parse(const char *text, size_t bytes, const char *name, tn_arena *arena, const tn_yaml **out)
{
    builder b = { .name = name, .arena = arena };
    if (bytes > TN_YAML_MAX_BYTES) return tn__yaml_too_large(name);
    if (!yaml_parser_initialize(&b.parser)) return out_of_memory(&b);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, bytes);
    const tn_status s = build(&b);
    yaml_parser_delete(&b.parser);
    if (s == TN_OK) *out = b.top;
    return s;
}

tn_status tn_yaml_read(const char *path, tn_arena *arena, const tn_yaml **out)
{
    char *text;
    size_t bytes;
    TN_RETURN_IF(tn__yaml_load(path, &text, &bytes));
    const tn_status s = tn_yaml_parse(text, bytes, path, arena, out);
    tn_free(text);
    return s;
}

const tn_yaml *tn_yaml_get(const tn_yaml *map, const char *key)
{
    if (map->kind != TN_YAML_MAP) return NULL;
    for (const tn_yaml *c = map->first; c; c = c->next)
        if (strcmp(c->key, key) == 0) return c;
    return NULL;
}
