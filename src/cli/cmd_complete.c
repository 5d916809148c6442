/* tenon complete SHELL: a short script that asks `tenon complete query -- WORDS` at every press of Tab, so that verbs,
 * flags, keys and their values always come from the tables of the command that is installed.
 * A candidate is a line: the whole word, and behind a tab what it means. Files are left to the shell. */
#include "cli/cli.h"
#include "data/prepare.h"
#include "cli/text_model.h"
#include "tasks/task.h"
#include "train/run/train_settings.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* bash: '=' splits words, so the line is split again at blanks and the part before '=' taken off the candidates. */
static const char bash_script[] = "# bash completion of tenon: source <(tenon complete bash)\n"
                                  "_tenon() {\n"
                                  "    local line=${COMP_LINE:0:COMP_POINT} words cur drop= c\n"
                                  "    read -ra words <<< \"$line\"\n"
                                  "    [[ $line == *[[:space:]] ]] && words+=('')\n"
                                  "    cur=${words[-1]}\n"
                                  "    [[ $cur == *=* && $COMP_WORDBREAKS == *=* ]] && drop=${cur%\"${cur##*=}\"}\n"
                                  "    COMPREPLY=()\n"
                                  "    while IFS=$'\\t' read -r c _; do\n"
                                  "        COMPREPLY+=(\"${c#\"$drop\"}\")\n"
                                  "    done < <(tenon complete query -- \"${words[@]:1}\" 2>/dev/null)\n"
                                  "    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
                                  "    return 0\n"
                                  "}\n"
                                  "complete -o default -F _tenon tenon\n";

static const char zsh_script[] =
    "#compdef tenon\n"
    "# zsh completion of tenon: source <(tenon complete zsh), or save as _tenon in a folder of $fpath\n"
    "_tenon() {\n"
    "    local -a lines open whole\n"
    "    local l\n"
    "    lines=(\"${(@f)$(tenon complete query -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    for l in $lines; do\n"
    "        l=${l%%$'\\t'*}\n"
    "        if [[ $l == *= ]]; then open+=(\"$l\"); else whole+=(\"$l\"); fi\n"
    "    done\n"
    "    (( $#open )) && compadd -S '' -a open\n"
    "    (( $#whole )) && compadd -a whole\n"
    "    (( $#open + $#whole )) || _files\n"
    "}\n"
    "if [[ $funcstack[1] == _tenon ]]; then _tenon \"$@\"; else compdef _tenon tenon; fi\n";

static const char fish_script[] = "# fish completion of tenon: tenon complete fish | source\n"
                                  "function __tenon_complete\n"
                                  "    set -l words (commandline -opc) (commandline -ct)\n"
                                  "    tenon complete query -- $words[2..-1] 2>/dev/null\n"
                                  "end\n"
                                  "complete -c tenon -a '(__tenon_complete)'\n";

static const struct {
    const char *shell, *script;
} scripts[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };

static bool begins(const char *s, const char *start) { return strncmp(s, start, strlen(start)) == 0; }

/* Each word of "a|b|c" that begins with what follows `lead` in `typed`, printed with the lead. */
static void offer_words(const char *words, const char *lead, const char *typed, FILE *f)
{
    const char *rest = typed + strlen(lead);
    for (const char *p = words; *p; p += *p == '|') {
        const size_t n = strcspn(p, "|");
        if (strncmp(p, rest, strlen(rest)) == 0 && strlen(rest) <= n) fprintf(f, "%s%.*s\n", lead, (int)n, p);
        p += n;
    }
}

/* Flags that begin so, or behind "--flag=" the words its text names: "--equal=steps|tokens". Without a subcommand: those of all. */
static void offer_flags(const tn_flag_row *rows, size_t n, const tn_sub *sub, const char *typed, FILE *f)
{
    char name[32], word[40];
    for (size_t i = 0; i < n; i++) {
        const tn_flag_kind kind = tn_flag_row_read(&rows[i], name);
        if (sub && !tn_sub_takes(sub, &rows[i])) continue;
        snprintf(word, sizeof word, "--%s%s", name, kind == TN_FLAG_VALUE ? "=" : "");
        const bool listed = kind == TN_FLAG_VALUE && strchr(rows[i].text, '|');
        if (begins(word, typed) && !(listed && strcmp(word, typed) == 0)) fprintf(f, "%s\n", word);
        if (listed && begins(typed, word)) offer_words(rows[i].text + strlen(word), word, typed, f);
    }
}

static void offer(const char *lead, const char *word, const char *typed, const char *what, FILE *f)
{
    char whole[TN_PATH_BYTES];
    if (snprintf(whole, sizeof whole, "%s%s", lead, word) >= (int)sizeof whole || !begins(whole, typed)) return;
    fprintf(f, what ? "%s\t%s\n" : "%s\n", whole, what);
}

static void offer_models(const char *lead, const char *typed, FILE *f)
{
    const tn_model *m;
    for (size_t i = 0; (m = tn_model_at(i)); i++) offer(lead, m->name, typed, NULL, f);
}

static void offer_presets(const char *lead, const char *typed, FILE *f)
{
    const tn_model *m;
    for (size_t i = 0; (m = tn_model_at(i)); i++)
        for (size_t k = 0; k < m->n_presets; k++) offer(lead, m->presets[k].name, typed, m->presets[k].help, f);
}

static void offer_tasks(const char *lead, const char *typed, FILE *f)
{
    const tn_task *t;
    for (size_t i = 0; (t = tn_task_at(i)); i++) offer(lead, t->name, typed, t->summary, f);
}

/* Those of runs/; elsewhere they are folders, which the shell completes. */
static void offer_runs(const char *lead, const char *typed, FILE *f)
{
    char path[TN_PATH_BYTES];
    struct dirent **entries = NULL;
    const int n = scandir("runs", &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "runs/%s/config.yaml", entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && access(path, F_OK) == 0) {
            path[strlen(path) - strlen("/config.yaml")] = 0;
            offer(lead, path, typed, NULL, f);
        }
        free(entries[i]);
    }
    free(entries);
}

/* What a word of a usage line, or a setting that is any text, stands for. */
static const struct {
    const char *word;
    void (*offer)(const char *lead, const char *typed, FILE *f);
} kinds[] = { { "MODEL", offer_models },    { "PRESET", offer_presets }, { "RUN", offer_runs },
              { "A", offer_presets },       { "A", offer_models },       { "B", offer_presets },
              { "B", offer_models },        { "model", offer_models },   { "preset", offer_presets },
              { "task.name", offer_tasks }, { "run", offer_runs },       { "train.from", offer_runs } };

static void offer_kind(const char *word, size_t n, const char *lead, const char *typed, FILE *f)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].word) == n && strncmp(kinds[i].word, word, n) == 0) kinds[i].offer(lead, typed, f);
}

static void offer_values(const tn_setting *row, const char *lead, const char *word, FILE *f)
{
    offer_words(row->type == TN_TYPE_CHOICE       ? row->choices
                : row->type == TN_TYPE_SWITCH     ? "on|off"
                : row->type == TN_TYPE_BOOL       ? "true|false"
                : row->type == TN_TYPE_AUTO_INT   ? (row->choices ? "auto|off" : "auto")
                : row->type == TN_TYPE_AUTO_FLOAT ? "auto"
                                                  : "",
                lead, word, f);
    if (row->type == TN_TYPE_TEXT) offer_kind(row->key, strlen(row->key), lead, word, f);
}

/* Whether a key of n bytes is the row's, or short for it: task is task.name. */
static bool names_row(const tn_setting *row, const char *key, size_t n)
{
    return strncmp(row->key, key, n) == 0 && (!row->key[n] || strcmp(row->key + n, ".name") == 0);
}

/* Keys that begin as the word does behind its first `skip` bytes, or behind "key=" the values that can be listed. */
static void offer_settings(const tn_settings *st, const char *word, size_t skip, FILE *f)
{
    const char *typed = word + skip;
    const size_t key_bytes = strcspn(typed, "=");
    char lead[512];
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const tn_setting *row = tn_settings_row_at(st, i);
        if (!typed[key_bytes]) {
            const size_t n = strlen(row->key), cut = n > 5 && strcmp(row->key + n - 5, ".name") == 0 ? n - 5 : n;
            if (key_bytes <= cut && begins(row->key, typed))
                fprintf(f, "%.*s%.*s=\t%s\n", (int)skip, word, (int)cut, row->key, row->help);
            continue;
        }
        if (!names_row(row, typed, key_bytes)) continue;
        if (snprintf(lead, sizeof lead, "%.*s=", (int)(skip + key_bytes), word) < (int)sizeof lead)
            offer_values(row, lead, word, f);
    }
}

/* "gpt,dim=64,la" in a race: keys of gpt, behind the last comma. */
static tn_status offer_own_settings(const char *word, FILE *f)
{
    char target[256];
    tn_settings *st = NULL;
    const tn_model *model;
    snprintf(target, sizeof target, "%.*s", (int)strcspn(word, ","), word);
    if (tn_settings_resolve(target, NULL, 0, &st, &model) != TN_OK) return TN_OK; /* nothing to offer is no error */
    offer_settings(st, word, (size_t)(strrchr(word, ',') + 1 - word), f);
    tn_settings_free(st);
    return TN_OK;
}

static void offer_verbs(const char *typed, FILE *f)
{
    for (size_t i = 0; i < tn_verbs_n; i++)
        if (begins(tn_verbs[i].name, typed)) fprintf(f, "%s\t%s\n", tn_verbs[i].name, tn_verbs[i].summary);
}

static void offer_subs(const tn_verb *v, const char *typed, FILE *f)
{
    for (size_t i = 0; i < tn_subs_n; i++)
        if (strcmp(tn_subs[i].verb, v->name) == 0 && *tn_subs[i].summary && islower(tn_subs[i].name[0]) &&
            begins(tn_subs[i].name, typed))
            fprintf(f, "%s\t%s\n", tn_subs[i].name, tn_subs[i].summary);
}

/* The subcommand among the finished words behind the verb, or NULL. */
static const tn_sub *sub_of(const tn_verb *v, const char *const *words, size_t n)
{
    const tn_sub *sub = NULL;
    size_t i = 0;
    while (i < n && words[i][0] == '-') i++;
    if (i < n) (void)tn_sub_find(v, words[i], &sub);
    return sub;
}

/* The words that are no flag and no setting, of the n finished ones behind the verb and its subcommand. */
static size_t count_places(const char *const *words, size_t n, const char **first)
{
    size_t places = 0;
    for (size_t i = 0; i < n; i++) {
        if (words[i][0] == '-' || strchr(words[i], '=')) continue;
        if (places++ == 0) *first = words[i];
    }
    return places;
}

/* A word of a usage line: "RUN|CHECKPOINT|FILE" as what it stands for, "[history|pareto]" as it is, "[split=valid|test]" as a key. */
static void offer_usage_word(const char *word, size_t n, bool here, const char *typed, FILE *f)
{
    char text[256], lead[64];
    snprintf(text, sizeof text, "%.*s", (int)n, word);
    const char *eq = strchr(text, '=');
    if (eq && !begins(text, "key=")) {
        snprintf(lead, sizeof lead, "%.*s=", (int)(eq - text), text);
        if (!begins(typed, lead)) offer("", lead, typed, NULL, f);
        else if (islower(eq[1])) offer_words(eq + 1, lead, typed, f);
    }
    if (eq || !here) return;
    for (const char *p = text; *p; p += *p == '|') {
        const size_t bytes = strcspn(p, "|");
        char one[64];
        snprintf(one, sizeof one, "%.*s", (int)bytes, p);
        if (islower(*p) && !strchr(one, '.')) offer("", one, typed, NULL, f);
        else offer_kind(p, bytes, "", typed, f);
        p += bytes;
    }
}

/* What the first line of a usage says of the place where the word stands; the last place may repeat ("RUN ..."). */
static void offer_usage(const char *usage, bool sub, size_t place, const char *typed, FILE *f)
{
    size_t at = 0, skip = sub ? 2 : 1;
    for (const char *p = usage; *p && *p != '\n'; p += strspn(p, " ")) {
        const char *word = p + strspn(p, "[");
        const size_t n = strcspn(word, "[] \n");
        p = word + strcspn(word, " \n");
        if (skip) {
            skip--;
            continue;
        }
        if (*word == '-' || *word == '.') continue;
        const bool key = memchr(word, '=', n), repeats = begins(p, " ...");
        offer_usage_word(word, n, at == place || (repeats && place > at), typed, f);
        if (!key) at++;
    }
}

/* Settings of the model that the words before name, where one is named. */
static tn_status offer_keys(const tn_cli *c, const tn_verb *v, const char *target, const char *typed)
{
    tn_settings *st = NULL;
    const tn_model *model;
    if (v->run == tn_cmd_race && strchr(typed, ',')) return offer_own_settings(typed, c->out);
    if (strcmp(v->name, "data") == 0) TN_RETURN_IF(tn_prepare_settings(&st));
    else if (v->run == tn_cmd_sample) TN_RETURN_IF(tn_sample_settings(&st));
    else if (v->run == tn_cmd_chat) TN_RETURN_IF(tn_chat_settings(&st));
    else if (!target || tn_settings_resolve(target, NULL, 0, &st, &model) != TN_OK)
        TN_RETURN_IF(tn_settings_resolve(NULL, NULL, 0, &st, &model));
    offer_settings(st, typed, 0, c->out);
    tn_settings_free(st);
    return TN_OK;
}

/* The words behind "tenon", the last one unfinished. */
tn_status tn_complete_query(tn_cli *c)
{
    const char *const *words = c->args.positional + 1;
    const size_t n = c->args.positional_n - 1;
    const char *typed = n ? words[n - 1] : "", *target = NULL;
    if (n <= 1) {
        offer_verbs(typed, c->out);
        return TN_OK;
    }
    const tn_verb *v = NULL;
    if (tn_verb_find(words[0], &v) != TN_OK) return TN_OK; /* nothing to offer is no error */
    const tn_sub *sub = sub_of(v, words + 1, n - 2);
    if (*typed == '-') {
        size_t flags;
        const tn_flag_row *rows = tn_verb_flags(v, &flags);
        offer_flags(rows, flags, sub, typed, c->out);
        offer_flags(tn_global_flags, TN_GLOBAL_FLAGS, NULL, typed, c->out);
        return TN_OK;
    }
    if (!sub) offer_subs(v, typed, c->out);
    else if (sub->run == tn_data_get) tn_data_sets_offer(typed, c->out);
    if (n == 2 && v->run == tn_cmd_help) offer_verbs(typed, c->out);
    if (n == 3 && v->run == tn_cmd_help && tn_verb_find(words[1], &v) == TN_OK)
        return offer_subs(v, typed, c->out), TN_OK;
    const bool named = sub && islower(sub->name[0]); /* else the subcommand is any argument, as a model of `bench` */
    const char *usage = sub ? sub->usage : v->usage;
    offer_usage(usage, named, count_places(words + 1 + named, n - 2 - named, &target), typed, c->out);
    for (size_t i = 0; !sub && i < tn_subs_n; i++)
        if (strcmp(tn_subs[i].verb, v->name) == 0 && isupper(tn_subs[i].name[0]))
            offer_usage(tn_subs[i].usage, false, 0, typed, c->out);
    return strstr(usage, "key=value") ? offer_keys(c, v, target, typed) : TN_OK;
}

tn_status tn_complete_script(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].shell, c->sub->name) == 0) fputs(scripts[i].script, c->out);
    return TN_OK;
}
