/* Rows and values of the settings table as JSON. The schema describes the nested form of a settings file, and accepts
 * what the reader accepts: 64k beside integers, every spelling of a switch. */
#include "cli/settings_json.h"

#include <string.h>

static json_t *value_json(const tn_setting *row, const tn_settings *st, const char *key)
{
    switch (row->type) {
    case TN_TYPE_INT: return json_integer(tn_settings_int(st, key));
    case TN_TYPE_AUTO_INT:
        if (tn_settings_is_auto(st, key) || (row->choices && strcmp(tn_settings_text(st, key), row->choices) == 0))
            return json_string(tn_settings_text(st, key));
        return json_integer(tn_settings_int(st, key));
    case TN_TYPE_FLOAT: return json_real(tn_settings_float(st, key));
    case TN_TYPE_BOOL:
    case TN_TYPE_SWITCH: return json_boolean(tn_settings_on(st, key));
    default: return json_string(tn_settings_text(st, key));
    }
}

json_t *tn_settings_json_at(const tn_settings *st, size_t i)
{
    const tn_setting *row = tn_settings_row_at(st, i);
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s}", "name", row->key, "value",
                     value_json(row, st, row->key), "unit", row->unit, "written", tn_settings_written_at(st, i),
                     "source", tn_settings_source_at(st, i), "owner", tn_settings_owner_at(st, i), "type",
                     tn_setting_type_name(row->type), "help", row->help);
}

/* "auto|cpu|cuda" as an array. */
static json_t *choices_json(const char *choices)
{
    json_t *list = json_array();
    for (const char *p = choices; *p; p += *p == '|') {
        const size_t n = strcspn(p, "|");
        json_array_append_new(list, json_stringn(p, n));
        p += n;
    }
    return list;
}

/* Whole numbers are written as such, so that a bound reads 1 and not 1.0. */
static json_t *bound_json(double x)
{
    return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *number_schema(const tn_setting *row, const char *type)
{
    json_t *o = json_pack("{s:s}", "type", type);
    if (!isinf(row->min)) json_object_set_new(o, row->min_open ? "exclusiveMinimum" : "minimum", bound_json(row->min));
    if (!isinf(row->max)) json_object_set_new(o, row->max_open ? "exclusiveMaximum" : "maximum", bound_json(row->max));
    return o;
}

static json_t *row_schema(const tn_setting *row)
{
    json_t *o;
    switch (row->type) {
    case TN_TYPE_INT:
    case TN_TYPE_AUTO_INT:
        o = json_pack("{s:[o, {s:s, s:s}]}", "anyOf", number_schema(row, "integer"), "type", "string", "pattern",
                      row->type == TN_TYPE_INT ? "^[0-9.]+[kMG]$"
                      : row->choices           ? "^(auto|off|[0-9.]+[kMG])$"
                                               : "^(auto|[0-9.]+[kMG])$");
        break;
    case TN_TYPE_FLOAT: o = number_schema(row, "number"); break;
    case TN_TYPE_BOOL: o = json_pack("{s:s}", "type", "boolean"); break;
    case TN_TYPE_SWITCH: o = json_pack("{s:[s, s, b, b]}", "enum", "on", "off", 1, 0); break;
    case TN_TYPE_CHOICE: o = json_pack("{s:o}", "enum", choices_json(row->choices)); break;
    default: o = json_pack("{s:[s, s]}", "type", "string", "number"); break; /* data: 0755 is a text to us */
    }
    return o;
}

static json_t *open_object(void)
{
    return json_pack("{s:s, s:b, s:{}}", "type", "object", "additionalProperties", 0, "properties");
}

/* The "properties" of the section that holds `key`, made where missing; *word is the key's last word. */
static json_t *section_of(json_t *root, const char *key, const char **word)
{
    json_t *properties = json_object_get(root, "properties");
    char name[64];
    for (const char *dot; (dot = strchr(key, '.')); key = dot + 1) {
        const size_t n = (size_t)(dot - key);
        if (n >= sizeof name) return NULL;
        memcpy(name, key, n);
        name[n] = 0;
        json_t *section = json_object_get(properties, name);
        if (!section) {
            section = open_object();
            json_object_set_new(properties, name, section);
        }
        properties = json_object_get(section, "properties");
    }
    *word = key;
    return properties;
}

json_t *tn_settings_schema(const tn_settings *st)
{
    json_t *root = open_object();
    json_object_set_new(root, "$schema", json_string("https://json-schema.org/draft/2020-12/schema"));
    json_object_set_new(root, "title", json_string("Tenon settings"));
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const tn_setting *row = tn_settings_row_at(st, i);
        const char *word = NULL;
        json_t *properties = section_of(root, row->key, &word), *o = row_schema(row);
        json_object_set_new(o, "description",
                            *row->unit ? json_sprintf("%s [%s]", row->help, row->unit) : json_string(row->help));
        json_object_set_new(o, "default", value_json(row, st, row->key));
        if (!properties || json_object_set_new(properties, word, o) != 0) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}
