/* Settings as JSON: one object per key for --json, and a JSON Schema for editors. Text output is cmd_config.c's. */
#ifndef TN_CLI_SETTINGS_JSON_H
#define TN_CLI_SETTINGS_JSON_H

#include <jansson.h>
#include <tenon/settings.h>

/* New references, or NULL when out of memory. */
json_t *tn_settings_json_at(const tn_settings *st, size_t i);
json_t *tn_settings_schema(const tn_settings *st);

#endif
