/* Settings files: YAML into a settings table, and a table back to YAML.
 *
 * Nested maps are dotted keys (train: {lr: 1e-3} is train.lr). Types come from the table, never from YAML, so 1e-3,
 * on and 0755 mean what the row says. Lists, anchors, aliases, tags and several documents are refused. */
#ifndef TN_IO_YAML_SETTINGS_H
#define TN_IO_YAML_SETTINGS_H

#include <tenon/settings.h>

#include <stdio.h>

enum { TN_YAML_MAX_BYTES = 1 << 20, TN_YAML_MAX_DEPTH = 8 };

/* Sets what the file says, all or nothing. TN_BAD_FILE: no such file, or not the YAML above; TN_USAGE: a wrong key or
 * value. Messages end in "  (path:line)". */
tn_status tn_settings_read_yaml(tn_settings *st, const char *path);
/* The same for text in memory; `name` stands for the path in messages and sources. */
tn_status tn_settings_read_yaml_text(tn_settings *st, const char *text, size_t bytes, const char *name);

/* The same, passing over keys the table does not have: for a first look at which model a file is for. */
tn_status tn_settings_peek_yaml(tn_settings *st, const char *path);

/* All values as nested YAML in canonical text, each with its source as a comment. Reading it back gives the same
 * values. TN_DISK when a write failed. */
tn_status tn_settings_write_yaml(const tn_settings *st, FILE *f);

#endif
