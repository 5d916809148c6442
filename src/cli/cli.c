/* The table of verbs and its help texts; JSON Lines output. */
#include "cli/cli.h"

#include "base/output.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const tn_verb tn_verbs[] = {
#define TN_VERB(name, words, flags, usage, summary) { #name, words, flags, usage, summary, tn_cmd_##name },
#include "cli/verbs.def"
#undef TN_VERB
};
const size_t tn_verbs_n = sizeof tn_verbs / sizeof *tn_verbs;

tn_status tn_verb_find(const char *name, const tn_verb **out)
{
    char quoted[80];
    tn_nearest near = { .word = name };
    for (size_t i = 0; i < tn_verbs_n; i++) {
        if (strcmp(tn_verbs[i].name, name) == 0) {
            *out = &tn_verbs[i];
            return TN_OK;
        }
        tn_nearest_try(&near, tn_verbs[i].name);
    }
    tn_text_quote(name, quoted, sizeof quoted);
    if (near.best) return tn_error(TN_USAGE, "unknown verb %s: did you mean `tenon %s`?", quoted, near.best);
    return tn_error(TN_USAGE, "unknown verb %s: `tenon help` lists the verbs", quoted);
}

tn_status tn_cli_check_outputs(const tn_cli *c)
{
    static const char *const files[] = { "svg", "csv", "html", "out" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = tn_args_value(&c->args, files[i]);
        const tn_status s = path ? tn_output_file_check(path) : TN_OK;
        if (s != TN_OK) tn_error_prefix("--%s", files[i]);
        TN_RETURN_IF(s);
    }
    return TN_OK;
}

const char *tn_cli_override(const tn_cli *c, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = c->args.overrides_n; i-- > 0;)
        if (strncmp(c->args.overrides[i], key, n) == 0 && c->args.overrides[i][n] == '=')
            return c->args.overrides[i] + n + 1;
    return NULL;
}

/* The longest flag of a verb, with its value: where the help of all begins. */
static int flags_width(const char *flags)
{
    size_t most = 18;
    while (*flags) {
        const size_t line = strcspn(flags, "\n"), name = strcspn(flags, " \n");
        if (name > most) most = name;
        flags += line + (flags[line] == '\n');
    }
    return (int)most;
}

/* Lines "--name[=VALUE]  help" with the help in one column. */
static void print_flags(const char *flags, int width, FILE *f)
{
    while (*flags) {
        const size_t line = strcspn(flags, "\n"), name = strcspn(flags, " \n");
        const char *help = flags + name + strspn(flags + name, " ");
        fprintf(f, "  %-*.*s  %.*s\n", width, (int)name, flags, (int)(flags + line - help), help);
        flags += line + (flags[line] == '\n');
    }
}

static void print_usage(const char *usage, FILE *f)
{
    for (const char *lead = "usage: "; *usage; lead = "       ") {
        const size_t line = strcspn(usage, "\n");
        fprintf(f, "%stenon %.*s\n", lead, (int)line, usage);
        usage += line + (usage[line] == '\n');
    }
}

void tn_verb_help(const tn_verb *v, FILE *f)
{
    if (v) {
        print_usage(v->usage, f);
        fprintf(f, "\n%s: %s\n\n", v->name, v->summary);
        print_flags(v->flags, flags_width(v->flags), f);
        print_flags(tn_global_flags, flags_width(v->flags), f);
        if (v->run == tn_cmd_data) tn_data_keys(f);
        if (v->run == tn_cmd_sample) tn_sample_keys(f);
        return;
    }
    print_usage("VERB [--json] ...\nhelp VERB", f);
    fputc('\n', f);
    for (size_t i = 0; i < tn_verbs_n; i++) fprintf(f, "  %-10s  %s\n", tn_verbs[i].name, tn_verbs[i].summary);
}

json_t *tn_number_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* JSON escapes what is below a space; the controls from 0x7f to 0x9f reach a terminal as well. */
static bool put_plain(const char *text, FILE *f)
{
    for (const char *p = text; *p; p++) {
        const unsigned char a = (unsigned char)p[0], b = (unsigned char)p[1];
        const bool c1 = a == 0xc2 && b >= 0x80 && b < 0xa0;
        if (c1 || a == 0x7f) {
            if (fprintf(f, "\\u%04x", c1 ? b : a) < 0) return true;
            p += c1;
        } else if (fputc(a, f) == EOF) return true;
    }
    return false;
}

tn_status tn_cli_emit(tn_cli *c, json_t *row)
{
    if (!row) return tn_error(TN_MEMORY, "out of memory while writing JSON");
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    if (!text) return tn_error(TN_MEMORY, "out of memory while writing JSON");
    const bool bad = put_plain(text, c->out);
    free(text);
    if (bad || fputc('\n', c->out) == EOF) return tn_error(TN_DISK, "cannot write to standard output");
    return TN_OK;
}

tn_status tn_cli_number(tn_cli *c, const char *name, double value, const char *unit)
{
    return tn_cli_emit(c, json_pack("{s:s, s:o, s:s}", "name", name, "value", tn_number_or_null(value), "unit", unit));
}

tn_status tn_cli_warn(tn_cli *c, const char *text)
{
    if (!text[0]) return TN_OK;
    fprintf(c->err, "warning: %s\n", text);
    return c->json ? tn_cli_emit(c, json_pack("{s:s, s:s}", "name", "warning", "text", text)) : TN_OK;
}
