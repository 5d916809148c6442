/* tenon complete SHELL: a short script that asks `tenon complete query -- WORDS` at every press of Tab, so that verbs,
 * flags, keys and their values always come from the tables of the command that is installed.
 * A candidate is a line: the whole word, and behind a tab what it means. Files are left to the shell. */
#include "cli/cli.h"
#include "data/prepare.h"
#include "sample/sample.h"
#include "train/run/train_settings.h"

#include <ctype.h>
#include <string.h>

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
        if (begins(word, typed)) fprintf(f, "%s\n", word);
        if (kind == TN_FLAG_VALUE && begins(typed, word) && strchr(rows[i].text, '|'))
            offer_words(rows[i].text + strlen(word), word, typed, f);
    }
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
            if (begins(row->key, typed)) fprintf(f, "%.*s%s=\t%s\n", (int)skip, word, row->key, row->help);
            continue;
        }
        if (strlen(row->key) != key_bytes || !begins(typed, row->key)) continue;
        if (snprintf(lead, sizeof lead, "%.*s%s=", (int)skip, word, row->key) >= (int)sizeof lead) return;
        const char *words = row->type == TN_TYPE_CHOICE     ? row->choices
                            : row->type == TN_TYPE_SWITCH   ? "on|off"
                            : row->type == TN_TYPE_BOOL     ? "true|false"
                            : row->type == TN_TYPE_AUTO_INT ? (row->choices ? "auto|off" : "auto")
                                                            : "";
        offer_words(words, lead, word, f);
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

/* The words behind "tenon", the last one unfinished. */
tn_status tn_complete_query(tn_cli *c)
{
    const char *const *words = c->args.positional + 1;
    const size_t n = c->args.positional_n - 1;
    const char *typed = n ? words[n - 1] : "";
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
    if (!strstr(sub ? sub->usage : v->usage, "key=value")) return TN_OK;
    if (v->run == tn_cmd_race && strchr(typed, ',')) return offer_own_settings(typed, c->out);
    tn_settings *st = NULL;
    const tn_model *model;
    if (strcmp(v->name, "data") == 0) TN_RETURN_IF(tn_prepare_settings(&st));
    else if (v->run == tn_cmd_sample) TN_RETURN_IF(tn_sample_settings(&st));
    else TN_RETURN_IF(tn_settings_resolve(NULL, NULL, 0, &st, &model));
    offer_settings(st, typed, 0, c->out);
    tn_settings_free(st);
    return TN_OK;
}

tn_status tn_complete_script(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 1, 1));
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].shell, c->sub->name) == 0) fputs(scripts[i].script, c->out);
    return TN_OK;
}
