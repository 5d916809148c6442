/* Shared by the YAML readers: the next event, or an error with its line; refuses what no reader supports. */
#ifndef TN_IO_YAML_EVENTS_H
#define TN_IO_YAML_EVENTS_H

#include "base/status.h"
#include "base/text.h"

#include <yaml.h>

static inline size_t tn__yaml_line(const yaml_event_t *e) { return e->start_mark.line + 1; }

/* "  (file:7)" is on every message; the name may hold any byte, so it is quoted first. */
#define TN__YAML_FAIL(name, code, line, fmt, ...)                                                                      \
    tn_error(code, fmt "  (%s:%zu)", __VA_ARGS__, tn_text_quote((name), (char[256]){ 0 }, 256), (size_t)(line))

tn_status tn__yaml_next(yaml_parser_t *p, const char *name, yaml_event_t *e);
/* Anchors, aliases, tags: of any event. */
tn_status tn__yaml_plain(const yaml_event_t *e, const char *name);
/* The start of a document: the first one, without directives for tags. */
tn_status tn__yaml_document(const yaml_event_t *e, const char *name, size_t *documents);
/* A file of at most TN_YAML_MAX_BYTES; one byte more where it is larger, for the caller to refuse. tn_free *text. */
tn_status tn__yaml_load(const char *path, char **text, size_t *bytes);
tn_status tn__yaml_too_large(const char *name);

#endif
