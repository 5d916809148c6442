/* The help texts of verbs: usage, flags, settings and examples, from the table of verbs and the tables of settings. */
#include "cli/cli.h"
#include "cli/settings_view.h"
#include "data/prepare.h"
#include "models/models.h"
#include "cli/text_model.h"
#include "train/run/train_settings.h"

#include <string.h>

enum { NARROWEST = 21, WIDEST = 30 }; /* column of flags and settings: a longer one pushes its own help aside */

typedef struct help_row {
    const char *verb, *sub, *text, *what;
} help_row;

#define TN_VERB(...)
#define TN_GROUP(...)
#define TN_SUB(...)
#define TN_FLAG(...)
#define TN_KEYS(verb, sub, keys) { #verb, sub, keys, "" },
static const help_row key_rows[] = {
#include "cli/verbs.def"
};
#define TN_EXAMPLE(verb, sub, command, what) { #verb, sub, command, what },
static const help_row examples[] = {
#include "cli/verbs.def"
};
#undef TN_VERB
#undef TN_GROUP
#undef TN_SUB
#undef TN_FLAG

/* What is of the verb itself is also of its subcommands; the help of a verb shows what its subcommands have. */
static bool belongs(const help_row *r, const tn_verb *v, const tn_sub *sub)
{
    return strcmp(r->verb, v->name) == 0 && (!*r->sub || !sub || strcmp(r->sub, sub->name) == 0);
}

/* Rows that are shown: all of a verb, or those that one of its subcommands takes. The widest gives the column where help begins. */
static int print_flags(const tn_flag_row *rows, size_t n, const tn_sub *sub, int width, FILE *f)
{
    for (size_t i = 0; i < n; i++) {
        const int long_text = (int)strlen(rows[i].text);
        if (sub && !tn_sub_takes(sub, &rows[i])) continue;
        if (!f) {
            if (long_text > width && long_text <= WIDEST) width = long_text;
            continue;
        }
        fprintf(f, "  %-*s  ", width, rows[i].text);
        for (const char *p = sub ? "" : rows[i].subs; *p; p += strcspn(p, "|"), p += *p == '|')
            fprintf(f, "%.*s%s", (int)strcspn(p, "|"), p, p[strcspn(p, "|")] ? ", " : ": ");
        fprintf(f, "%s\n", rows[i].help);
    }
    return width;
}

static void print_lines(const char *usage, const char **lead, const char *next, FILE *f)
{
    for (; *usage; *lead = next) {
        const size_t line = strcspn(usage, "\n");
        fprintf(f, "%s%.*s", *lead, (int)line, usage);
        usage += line + (usage[line] == '\n');
    }
}

void tn_usage_print(const tn_verb *v, const tn_sub *sub, const char *lead, const char *next, FILE *f)
{
    if (!sub) print_lines(v->usage, &lead, next, f);
    for (size_t i = 0; i < tn_subs_n; i++)
        if (sub ? sub == &tn_subs[i] : strcmp(tn_subs[i].verb, v->name) == 0 && *tn_subs[i].summary)
            print_lines(tn_subs[i].usage, &lead, next, f);
}

static void print_subs(const tn_verb *v, FILE *f)
{
    bool any = false;
    for (size_t i = 0; i < tn_subs_n; i++)
        if (strcmp(tn_subs[i].verb, v->name) == 0 && *tn_subs[i].summary)
            any = fprintf(f, "  %-10s  %s\n", tn_subs[i].name, tn_subs[i].summary) > 0;
    if (any) fputc('\n', f);
}

/* "  train.lr=3e-3         peak learning rate: above 0 to 1", "length of a sequence [tokens]". A section's name is short for SECTION.name. */
static void print_key(const tn_settings *st, size_t i, int width, FILE *f)
{
    const tn_setting *row = tn_settings_row_at(st, i);
    const size_t n = strlen(row->key), cut = n > 5 && strcmp(row->key + n - 5, ".name") == 0 ? 5 : 0;
    char key[128], allowed[160];
    snprintf(key, sizeof key, "%.*s=%s", (int)(n - cut), row->key, tn_settings_written_at(st, i));
    tn_setting_allowed(row, allowed, sizeof allowed);
    fprintf(f, "  %-*s  %s", width, key, row->help);
    if (*row->unit) fprintf(f, " [%s]", row->unit);
    fprintf(f, "%s%s\n", *allowed ? ": " : "", allowed);
}

/* Settings that only this verb has. */
static void print_own_keys(const char *lead, tn_status (*make)(tn_settings **), int width, FILE *f)
{
    tn_settings *st = NULL;
    if (make(&st) != TN_OK) return; /* help without them is better than none */
    fputs(lead, f);
    for (size_t i = 0; i < tn_settings_count(st); i++) print_key(st, i, width, f);
    tn_settings_free(st);
}

static bool of_model(const char *key) { return tn_section_of(key) == tn_sections_n - 1; }

/* With the defaults of the model or preset `named`, and all of its own settings; another word, or NULL: of the default model. Files are
 * not opened for help. */
static void print_main_keys(const help_row *r, const char *named, int width, FILE *f)
{
    tn_settings *st = NULL;
    const tn_model *model;
    if (named && !tn_model_named(named) && !tn_preset_named(named, &model)) named = NULL;
    if (tn_settings_resolve(named, NULL, 0, &st, &model) != TN_OK) return;
    fprintf(f, "\nmain settings, with defaults of %s (all%s: `tenon config show %s`):\n", named ? named : model->name,
            named ? "" : " of a model", named ? named : "MODEL");
    for (const char *p = r->text; *p; p += strcspn(p, " "), p += *p == ' ') {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(p, " "), p);
        if (!named || !of_model(key)) print_key(st, tn_settings_find(st, key), width, f);
    }
    if (named) fprintf(f, "\nsettings of model %s:\n", model->name);
    for (size_t i = 0; named && i < tn_settings_count(st); i++)
        if (of_model(tn_settings_row_at(st, i)->key)) print_key(st, i, width, f);
    tn_settings_free(st);
}

static void print_examples(const tn_verb *v, const tn_sub *sub, FILE *f)
{
    const char *lead = "\nexamples:\n";
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        if (!belongs(&examples[i], v, sub)) continue;
        fprintf(f, "%s  tenon %s\n      %s\n", lead, examples[i].text, examples[i].what);
        lead = "";
    }
}

static void print_all(FILE *f)
{
    fputs("usage: tenon VERB [--json] ...\n       tenon help VERB [SUBCOMMAND]\n\n", f);
    for (size_t i = 0; i < tn_verbs_n; i++) fprintf(f, "  %-10s  %s\n", tn_verbs[i].name, tn_verbs[i].summary);
}

void tn_verb_help(const tn_verb *v, const tn_sub *sub, const char *named, FILE *f)
{
    size_t n;
    if (!v) {
        print_all(f);
        return;
    }
    const tn_flag_row *rows = tn_verb_flags(v, &n);
    const int width = print_flags(rows, n, sub, NARROWEST, NULL);
    tn_usage_print(v, sub, "usage: tenon ", "\n       tenon ", f);
    fprintf(f, "\n\n%s%s%s: %s\n\n", v->name, sub ? " " : "", sub ? sub->name : "", sub ? sub->summary : v->summary);
    if (!sub) print_subs(v, f);
    print_flags(rows, n, sub, width, f);
    print_flags(tn_global_flags, TN_GLOBAL_FLAGS, NULL, width, f);
    if (strcmp(v->name, "data") == 0)
        print_own_keys("\nsettings of prepare (inspect takes format, doc_sep and text_key):\n", tn_prepare_settings,
                       width, f);
    if (v->run == tn_cmd_chat)
        print_own_keys("\nsettings of the chat (those of the model and the run work too: threads=1, compute=bf16):\n",
                       tn_chat_settings, width, f);
    if (v->run == tn_cmd_sample)
        print_own_keys("\nsettings of sampling (those of the model and the run work too: threads=1, compute=bf16):\n",
                       tn_sample_settings, width, f);
    if (v->run == tn_cmd_eval)
        print_own_keys("\nsettings of a whole text (data=TEXT.txt without split=):\n", tn_eval_text_settings, width, f);
    for (size_t i = 0; i < sizeof key_rows / sizeof *key_rows; i++)
        if (belongs(&key_rows[i], v, sub)) print_main_keys(&key_rows[i], named, width, f);
    print_examples(v, sub, f);
}
