/* Shared by the files that parse study files. Private to study*.c. */
#ifndef TN_LAB_STUDY_PARSE_H
#define TN_LAB_STUDY_PARSE_H

#include "base/text.h"
#include "io/yaml_tree.h"
#include "lab/study/study.h"

typedef struct tn_study_reader {
    const char *file;
    tn_arena *arena;
    const char *const *overrides; /* (n_overrides) of the command */
    size_t n_overrides;
} tn_study_reader;

/* An error at a line of the file. */
#define TN__STUDY_FAIL(r, at, fmt, ...)                                                                                \
    tn_error(TN_USAGE, fmt "  (%s:%zu)", __VA_ARGS__, tn_text_quote((r)->file, (char[256]){ 0 }, 256), (at)->line)

/* Puts "KEY: " before the last error and its place behind it. */
tn_status tn__study_at(const tn_study_reader *r, tn_status s, const char *key, size_t line);

/* One field of a map: how its value is read, and where it goes (an offset into the struct given to
 * tn__study_fields). */
typedef enum tn_field_kind {
    TN_FIELD_TEXT,
    TN_FIELD_COUNT,
    TN_FIELD_NUMBER,
    TN_FIELD_SEED,
    TN_FIELD_BOOL,
    TN_FIELD_NODE
} tn_field_kind;
typedef struct tn_field {
    const char *key;
    tn_field_kind kind;
    size_t offset;
    double lo, hi; /* of numbers */
} tn_field;

/* Reads a map by its table; a key that is not in it is refused with the nearest. A scalar stands for {name: scalar}
 * where the table's first key is `name`. */
tn_status tn__study_fields(const tn_study_reader *r, const tn_yaml *map, const char *what, const tn_field *fields,
                           size_t n, void *to);
#define TN__STUDY_FIELDS(r, map, what, table, to)                                                                      \
    tn__study_fields(r, map, what, table, sizeof(table) / sizeof *(table), to)

/* A name that is none of those that are offered, one after the other. */
typedef struct tn_unknown {
    tn_nearest near; /* .word: the name */
    char names[512];
} tn_unknown;
void tn__unknown_offer(tn_unknown *u, const char *name);
/* "unknown WHAT NAME: did you mean ...?", or all that were offered. */
tn_status tn__unknown_fail(const tn_study_reader *r, const tn_yaml *at, const char *what, const tn_unknown *u);

/* The sides: settings and spaces of all and of each. */
tn_status tn__study_sides(const tn_study_reader *r, const tn_yaml *set, const tn_yaml *search, const tn_yaml *sides,
                          const char *base, tn_study_plan *out);

/* The figures that the file quotes; after objectives and sides. */
tn_status tn__study_published(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out);

#endif
