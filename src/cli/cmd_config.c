/* tenon config show: the resolved settings and where each came from, as a table, YAML or JSON Lines.
 * tenon config schema: a JSON Schema of settings files, for editors. Changes nothing. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/settings_json.h"
#include "cli/term.h"
#include "io/yaml_settings.h"
#include "train/run/train_settings.h"

#include <string.h>

typedef struct widths {
    int key, value, source;
} widths;

static int wider(int a, const char *s)
{
    const int n = (int)strlen(s);
    return n > a ? n : a;
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

static void print_row(const tn_settings *st, size_t i, widths w, tn_term term)
{
    char value[256], line[1024];
    const bool set = strcmp(tn_settings_source_at(st, i), "default") != 0;
    snprintf(line, sizeof line, "%-*s  %-*s  %-*s  %s", w.key, tn_settings_row_at(st, i)->key, w.value,
             shown_value(st, i, value, sizeof value), w.source, tn_settings_source_at(st, i),
             tn_settings_row_at(st, i)->help);
    const int bytes = term.tty ? (int)tn_term_fit(line, term.width) : (int)strlen(line);
    fprintf(term.f, "%s%.*s%s\n", set && term.color ? "\033[1m" : "", bytes, line, set && term.color ? "\033[0m" : "");
}

static void print_table(const tn_settings *st, FILE *f)
{
    const tn_term term = tn_term_of(f);
    char value[256];
    widths w = { 0 };
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        w.key = wider(w.key, tn_settings_row_at(st, i)->key);
        w.value = wider(w.value, shown_value(st, i, value, sizeof value));
        w.source = wider(w.source, tn_settings_source_at(st, i));
    }
    if (w.value > 40) w.value = 40; /* one long path must not push all the rest aside */
    for (size_t i = 0; i < tn_settings_count(st); i++) print_row(st, i, w, term);
}

tn_status tn_cmd_config_show(tn_cli *c)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    const tn_model *model;
    TN_TRY(tn_args_expect(&c->args, 1, 2));
    TN_TRY(tn_settings_resolve_asked(&c->asked, tn_args_positional(&c->args, 1), c->args.overrides, c->args.overrides_n,
                                     &st, &model));
    if (c->json)
        for (size_t i = 0; i < tn_settings_count(st); i++) TN_TRY(tn_cli_emit(c, tn_settings_json_at(st, i)));
    else if (tn_args_flag(&c->args, "yaml")) TN_TRY(tn_settings_write_yaml(st, c->out));
    else print_table(st, c->out);
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
    root = tn_settings_schema(st);
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
