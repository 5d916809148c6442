/* tenon config show: the resolved settings and where each came from, as a table, YAML or JSON Lines.
 * tenon config schema: a JSON Schema of settings files, for editors. Changes nothing. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/settings_view.h"
#include "cli/term.h"
#include "io/yaml_settings.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>

/* --- as JSON: the schema describes the nested form of a settings file, and accepts what the reader accepts: 64k beside integers,
 * every spelling of a switch --- */

static json_t *value_json(const tn_setting *row, const tn_settings *st, const char *key)
{
    switch (row->type) {
    case TN_TYPE_INT: return json_integer(tn_settings_int(st, key));
    case TN_TYPE_AUTO_INT:
        if (tn_settings_is_auto(st, key) || (row->choices && strcmp(tn_settings_text(st, key), row->choices) == 0))
            return json_string(tn_settings_text(st, key));
        return json_integer(tn_settings_int(st, key));
    case TN_TYPE_AUTO_FLOAT:
        if (tn_settings_is_auto(st, key)) return json_string(tn_settings_text(st, key));
        return json_real(tn_settings_float(st, key));
    case TN_TYPE_FLOAT: return json_real(tn_settings_float(st, key));
    case TN_TYPE_BOOL:
    case TN_TYPE_SWITCH: return json_boolean(tn_settings_on(st, key));
    default: return json_string(tn_settings_text(st, key));
    }
}

static json_t *row_json(const tn_settings *st, size_t i)
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
    case TN_TYPE_AUTO_FLOAT:
        o = json_pack("{s:[o, {s:s}]}", "anyOf", number_schema(row, "number"), "const", "auto");
        break;
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

static json_t *schema_json(const tn_settings *st)
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

/* --- which of them --- */

typedef struct words {
    const char *const *at; /* (n): sections, keys, or what several keys begin with */
    size_t n;
} words;

static bool names_settings(const tn_settings *st, const char *word)
{
    return tn_section_named(word) < tn_sections_n || tn_settings_find(st, word) < tn_settings_count(st) ||
           tn_settings_is_section(st, word);
}

static bool shown(const tn_settings *st, size_t i, const words *asked)
{
    const char *key = tn_settings_row_at(st, i)->key, *section = tn_section_name(tn_section_of(key));
    for (size_t k = 0; k < asked->n; k++) {
        const size_t m = strlen(asked->at[k]);
        const bool begins = strncmp(asked->at[k], key, m) == 0 && (!key[m] || key[m] == '.');
        if (begins || strcmp(asked->at[k], section) == 0) return true;
    }
    return asked->n == 0;
}

static tn_status check_words(const tn_settings *st, const words *asked)
{
    char quoted[80];
    for (size_t k = 0; k < asked->n; k++) {
        tn_nearest near = { .word = asked->at[k] };
        if (names_settings(st, asked->at[k])) continue;
        for (size_t i = 0; i < tn_sections_n; i++) tn_nearest_try(&near, tn_section_name(i));
        for (size_t i = 0; i < tn_settings_count(st); i++) tn_nearest_try(&near, tn_settings_row_at(st, i)->key);
        return tn_error(TN_USAGE, "unknown section or key %s: %s%s%s",
                        tn_text_quote(asked->at[k], quoted, sizeof quoted),
                        near.best ? "did you mean " : "`tenon config show` lists them", near.best ? near.best : "",
                        near.best ? "?" : "");
    }
    return TN_OK;
}

/* The first word is the target, unless it names settings of every model. */
static tn_status resolve_words(tn_cli *c, tn_settings **st, words *asked)
{
    tn_settings *common = NULL;
    const tn_model *model;
    const char *first = tn_args_positional(&c->args, 1);
    TN_RETURN_IF(tn_settings_resolve(NULL, NULL, 0, &common, &model));
    const bool target = first && !names_settings(common, first);
    tn_settings_free(common);
    asked->at = c->args.positional + 1 + target;
    asked->n = c->args.positional_n - 1 - target;
    TN_RETURN_IF(
        tn_settings_resolve_user(&c->user, target ? first : NULL, c->args.overrides, c->args.overrides_n, st, &model));
    return check_words(*st, asked);
}

/* --- as text --- */

enum { WIDEST = 24 }; /* column of values and of sources: one long path must not push all the rest aside */

typedef struct widths {
    int key, value, source;
} widths;

static int wider(int a, const char *s)
{
    const int n = (int)strlen(s);
    return n > a && n <= WIDEST ? n : a;
}

/* "512 tokens": the value as it was written, with its unit. */
static const char *shown_value(const tn_settings *st, size_t i, char *buf, size_t bytes)
{
    const tn_setting *row = tn_settings_row_at(st, i);
    char text[128];
    tn_text_quote(tn_settings_written_at(st, i), text, sizeof text);
    const bool unit = *row->unit && strcmp(text, "auto") != 0;
    snprintf(buf, bytes, "%s%s%s", *text ? text : "\"\"", unit ? " " : "", unit ? row->unit : "");
    return buf;
}

static void print_row(const tn_settings *st, size_t i, widths w, const tn_term *term)
{
    const tn_setting *row = tn_settings_row_at(st, i);
    char value[256], line[1024];
    const bool bold = term->color && strcmp(tn_settings_source_at(st, i), "default") != 0;
    snprintf(line, sizeof line, "%-*s  %-*s  %-*s  %s%s%s\n", w.key, row->key, w.value,
             shown_value(st, i, value, sizeof value), w.source, tn_settings_source_at(st, i), row->help,
             row->type == TN_TYPE_CHOICE ? ": " : "", row->type == TN_TYPE_CHOICE ? row->choices : "");
    if (bold) fputs("\033[1m", term->f);
    tn_term_print(term, line);
    if (bold) fputs("\033[0m", term->f);
}

static widths section_widths(const tn_settings *st, size_t section, const words *asked)
{
    char value[256];
    widths w = { 0 };
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const char *key = tn_settings_row_at(st, i)->key;
        if (tn_section_of(key) != section || !shown(st, i, asked)) continue;
        w.key = wider(w.key, key);
        w.value = wider(w.value, shown_value(st, i, value, sizeof value));
        w.source = wider(w.source, tn_settings_source_at(st, i));
    }
    return w;
}

static void print_table(const tn_settings *st, const words *asked, FILE *f)
{
    const tn_term term = tn_term_of(f);
    char name[80];
    bool any = false;
    tn_text_quote(tn_settings_text(st, "model"), name, sizeof name);
    for (size_t k = 0; k < tn_sections_n; k++) {
        const widths w = section_widths(st, k, asked);
        if (w.key == 0) continue;
        fprintf(term.f, "%s%s# %s%s%s\n", any ? "\n" : "", term.color ? "\033[36m" : "", tn_section_name(k),
                k + 1 == tn_sections_n ? " " : "", k + 1 == tn_sections_n ? name : "");
        if (term.color) fputs("\033[0m", term.f);
        any = true;
        for (size_t i = 0; i < tn_settings_count(st); i++)
            if (tn_section_of(tn_settings_row_at(st, i)->key) == k && shown(st, i, asked)) print_row(st, i, w, &term);
    }
}

tn_status tn_cmd_config_show(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    words asked;
    const bool yaml = tn_args_flag(&c->args, "yaml");
    TN_TRY(resolve_words(c, &st, &asked));
    if (yaml && asked.n) TN_FAIL(TN_USAGE, "--yaml writes all settings: leave %s out", asked.at[0]);
    if (c->json) {
        for (size_t i = 0; i < tn_settings_count(st); i++)
            if (shown(st, i, &asked)) TN_TRY(tn_cli_emit(c, row_json(st, i)));
    } else if (yaml) {
        tn_term_fold(c->out, TN_FOLD_NEVER);
        TN_TRY(tn_settings_write_yaml(st, c->out));
    } else print_table(st, &asked, c->out);
done:
    tn_settings_free(st);
    return s;
}

tn_status tn_cmd_config_schema(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    const tn_model *model;
    json_t *root = NULL;
    TN_TRY(tn_args_expect(&c->args, 1, 1));
    if (c->args.overrides_n) TN_FAIL(TN_USAGE, "config schema takes no key=value");
    TN_TRY(tn_settings_resolve(NULL, NULL, 0, &st, &model));
    root = schema_json(st);
    if (c->json) {
        s = tn_cli_emit(c, root);
        root = NULL;
        goto done;
    }
    if (!root) TN_FAIL(TN_MEMORY, "out of memory while writing JSON");
    if (json_dumpf(root, c->out, JSON_INDENT(2)) != 0) TN_FAIL(TN_DISK, "cannot write to standard output");
    fputc('\n', c->out);
done:
    json_decref(root);
    tn_settings_free(st);
    return s;
}
