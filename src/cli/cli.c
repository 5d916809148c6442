/* The table of verbs; JSON Lines output. The help texts are in help.c. */
#include "cli/cli.h"

#include "base/output.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TN_VERB(name, usage, summary) { #name, usage, summary, tn_cmd_##name },
#define TN_GROUP(name, summary) { #name, "", summary, NULL },
#define TN_SUB(...)
#define TN_FLAG(...)
const tn_verb tn_verbs[] = {
#include "cli/verbs.def"
};
#undef TN_VERB
#undef TN_GROUP
#undef TN_SUB
#define TN_VERB(...)
#define TN_GROUP(...)
#define TN_SUB(verb, name, run, usage, summary) { #verb, #name, usage, summary, run },
const tn_sub tn_subs[] = {
#include "cli/verbs.def"
};
#undef TN_SUB
#undef TN_FLAG
#define TN_SUB(...)
#define TN_FLAG(verb, subs, text, help) { #verb, subs, text, help },
static const tn_flag_row flag_rows[] = {
#include "cli/verbs.def"
};
#undef TN_VERB
#undef TN_GROUP
#undef TN_SUB
#undef TN_FLAG
const size_t tn_verbs_n = sizeof tn_verbs / sizeof *tn_verbs, tn_subs_n = sizeof tn_subs / sizeof *tn_subs;

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

/* "choose run, ls or show" */
static tn_status choose_sub(const tn_verb *v, const char *word)
{
    char all[256] = "", quoted[80];
    const char *last = NULL;
    size_t n = 0;
    for (size_t i = 0; i < tn_subs_n; i++) {
        if (strcmp(tn_subs[i].verb, v->name) != 0 || !*tn_subs[i].summary) continue;
        if (last) n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", last);
        last = tn_subs[i].name;
    }
    if (!word) return tn_error(TN_USAGE, "%s needs a subcommand: choose %s%s%s", v->name, all, n ? " or " : "", last);
    return tn_error(TN_USAGE, "unknown subcommand %s of %s: choose %s%s%s", tn_text_quote(word, quoted, sizeof quoted),
                    v->name, all, n ? " or " : "", last);
}

tn_status tn_sub_find(const tn_verb *v, const char *word, const tn_sub **out)
{
    const tn_sub *any = NULL;
    bool has = false;
    *out = NULL;
    for (size_t i = 0; i < tn_subs_n; i++) {
        const tn_sub *s = &tn_subs[i];
        if (strcmp(s->verb, v->name) != 0) continue;
        has = true;
        if (word && strcmp(s->name, word) == 0) return *out = s, TN_OK;
        if (s->name[0] >= 'A' && s->name[0] <= 'Z') any = s;
    }
    if (word) *out = any;
    return has && !*out && !v->run ? choose_sub(v, word) : TN_OK;
}

const tn_flag_row *tn_verb_flags(const tn_verb *v, size_t *n)
{
    const tn_flag_row *end = flag_rows + sizeof flag_rows / sizeof *flag_rows, *r = flag_rows;
    while (r < end && strcmp(r->verb, v->name) != 0) r++;
    for (*n = 0; r + *n < end && strcmp(r[*n].verb, v->name) == 0;) ++*n;
    return r;
}

bool tn_sub_takes(const tn_sub *sub, const tn_flag_row *f)
{
    const size_t n = sub ? strlen(sub->name) : 0;
    for (const char *p = f->subs; sub && *p; p += strcspn(p, "|"), p += *p == '|')
        if (strncmp(p, sub->name, n) == 0 && strcspn(p, "|") == n) return true;
    return !*f->subs;
}

/* "run|compare" as "lab run, lab compare". */
static void add_takers(const tn_flag_row *f, char *text, size_t bytes)
{
    for (const char *p = f->subs; *p; p += strcspn(p, "|"), p += *p == '|') {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s %.*s", used ? ", " : "", f->verb, (int)strcspn(p, "|"), p);
    }
}

tn_status tn_cli_check_flags(const tn_cli *c)
{
    size_t n;
    const tn_flag_row *rows = tn_verb_flags(c->verb, &n);
    for (size_t k = 0; k < c->args.flags_n; k++) {
        char name[32], takers[256] = "";
        bool taken = false;
        for (size_t i = 0; i < n && !taken; i++) {
            tn_flag_row_read(&rows[i], name);
            if (strcmp(name, c->args.flags[k].name) != 0) continue;
            taken = tn_sub_takes(c->sub, &rows[i]);
            add_takers(&rows[i], takers, sizeof takers);
        }
        if (!taken && *takers)
            return tn_error(TN_USAGE, "--%s is a flag of %s; %s%s%s does not take it", c->args.flags[k].name, takers,
                            c->verb->name, c->sub ? " " : "", c->sub ? c->sub->name : "");
    }
    if (tn_args_flag(&c->args, "trace-steps") && !tn_args_flag(&c->args, "trace"))
        return tn_error(TN_USAGE,
                        "--trace-steps says how long --trace=FILE traces: add it, or leave out --trace-steps");
    return TN_OK;
}

tn_status tn_cli_check_outputs(const tn_cli *c)
{
    static const char *const files[] = { "svg", "csv", "html", "md", "out", "trace" };
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

tn_status tn_cli_sort_overrides(const tn_cli *c, tn_settings *keys, const char *rest[TN_CLI_SETTINGS], size_t *n)
{
    for (size_t i = 0; i < c->args.overrides_n; i++) {
        char key[64];
        const char *word = c->args.overrides[i];
        snprintf(key, sizeof key, "%.*s", (int)(strchr(word, '=') - word), word);
        if (tn_settings_find(keys, key) < tn_settings_count(keys)) TN_RETURN_IF(tn_settings_override(keys, word));
        else if (*n == TN_CLI_SETTINGS) return tn_error(TN_USAGE, "more than %d settings", TN_CLI_SETTINGS);
        else rest[(*n)++] = word;
    }
    return TN_OK;
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
