/* A YAML file as a tree of maps, lists and texts, each with its line, for files that are no settings table. Refused, as
 * in settings files: anchors, aliases, tags, several documents, deep nesting, duplicate keys. Texts have no type: the
 * reader decides. */
#ifndef TN_IO_YAML_TREE_H
#define TN_IO_YAML_TREE_H

#include "base/alloc.h"

enum { TN_YAML_MAX_NODES = 1 << 14 };

typedef enum tn_yaml_kind { TN_YAML_TEXT = 0, TN_YAML_LIST = 1, TN_YAML_MAP = 2 } tn_yaml_kind;

typedef struct tn_yaml {
    tn_yaml_kind kind;
    size_t line;
    const char *key;              /* in a map; else "" */
    const char *text;             /* TEXT: UTF-8 without NUL; else "" */
    struct tn_yaml *first, *next; /* of a map or list, in the file's order; beside it */
    size_t n;                     /* children */
} tn_yaml;

/* The top is a map; an empty file is an empty one. All of it goes into `arena`. TN_BAD_FILE ends in "  (name:line)". */
tn_status tn_yaml_parse(const char *text, size_t bytes, const char *name, tn_arena *arena, const tn_yaml **out);
tn_status tn_yaml_read(const char *path, tn_arena *arena, const tn_yaml **out);

/* A map's value; NULL where it has none. */
const tn_yaml *tn_yaml_get(const tn_yaml *map, const char *key);

#endif
