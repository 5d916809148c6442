/* Reading a command again that has failed. Every word is either right (it is kept), or near something that is (it is replaced), or
 * neither (it is kept, and somebody else says what is wrong with it). Changes nothing and runs nothing. */
#include "cli/habits.h"

#include "base/fs.h"
#include "base/setting_value.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/settings_view.h"
#include "data/prepare.h"
#include "cli/text_model.h"
#include "tasks/task.h"
#include "train/run/train_settings.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct habit {
    const char *of, *word, *meant; /* of: a verb or a key, or "" */
} habit;

#define TN_HABIT_VERB(word, command) { "", word, command },
#define TN_HABIT_SUB(...)
#define TN_HABIT_KEY(...)
#define TN_HABIT_VALUE(...)
static const habit verb_habits[] = {
#include "cli/habits.def"
};
#undef TN_HABIT_VERB
#undef TN_HABIT_SUB
#define TN_HABIT_VERB(...)
#define TN_HABIT_SUB(verb, word, sub) { verb, word, sub },
static const habit sub_habits[] = {
#include "cli/habits.def"
};
#undef TN_HABIT_SUB
#undef TN_HABIT_KEY
#define TN_HABIT_SUB(...)
#define TN_HABIT_KEY(word, key) { "", word, key },
static const habit key_habits[] = {
#include "cli/habits.def"
};
#undef TN_HABIT_KEY
#undef TN_HABIT_VALUE
#define TN_HABIT_KEY(...)
#define TN_HABIT_VALUE(key, word, value) { key, word, value },
static const habit value_habits[] = {
#include "cli/habits.def"
};

enum {
    VERB_HABITS = sizeof verb_habits / sizeof *verb_habits,
    SUB_HABITS = sizeof sub_habits / sizeof *sub_habits,
    KEY_HABITS = sizeof key_habits / sizeof *key_habits,
    VALUE_HABITS = sizeof value_habits / sizeof *value_habits
};

/* Letters of a file's name that may be wrong (names with the same ending are all near each other), and a flag's beginning. */
enum { MOST_WRONG = 2, SHORTEST = 3 };

typedef struct reading {
    tn_arena *arena;
    const tn_verb *verb;
    const tn_sub *sub;
    const char *usage;
    tn_settings *st;   /* that the command can set, or NULL */
    tn_settings *more; /* of the model and the run, where `st` is the verb's own; or NULL */
    const char **words;
    size_t n, positionals;
    const char *error; /* what was said of the command */
    bool blamed;       /* a word that was replaced is what it speaks of: else it has another reason */
    const char *wrong; /* what is said of the first word that was replaced; NULL: none was */
} reading;

static bool same(const char *a, const char *b) { return strcmp(a, b) == 0; }

static void add(reading *r, const char *word) { r->words[r->n++] = word; }

/* A word is replaced for this reason, if the error holds the sign of it. The first reason is what the message names. */
static void blame(reading *r, const char *sign, const char *reason)
{
    r->blamed |= strstr(r->error, sign) != NULL;
    if (!r->wrong) r->wrong = reason;
}

#define WRONG(r, sign, ...) blame(r, sign, tn_arena_printf((r)->arena, __VA_ARGS__))

static const char *quoted(reading *r, const char *word)
{
    char buf[80];
    return tn_arena_strdup(r->arena, tn_text_quote(word, buf, sizeof buf));
}

static const char *habit_of(const habit *rows, size_t n, const char *of, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (same(rows[i].of, of) && same(rows[i].word, word)) return rows[i].meant;
    return NULL;
}

/* The nearest of those that were tried, as it is called here: a habit's word may be misspelt too. */
static const char *meant_by(const habit *rows, size_t n, const char *of, tn_nearest *near)
{
    for (size_t i = 0; i < n; i++)
        if (same(rows[i].of, of)) tn_nearest_try(near, rows[i].word);
    const char *meant = near->best ? habit_of(rows, n, of, near->best) : NULL;
    return meant ? meant : near->best;
}

/* --- files ------------------------------------------------------------------------------------------------------------- */

static bool is_run(const char *path)
{
    char file[TN_PATH_BYTES];
    struct stat info;
    return tn_path_join(path, "config.yaml", file, sizeof file) == TN_OK && stat(file, &info) == 0;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && same(s + n - m, end);
}

bool tn_is_bare_data(const char *word)
{
    static const char *const others[] = { ".yaml", ".yml", ".so", ".safetensors", ".gguf" };
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    struct stat info;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ends_with(word, others[i])) return false;
    return (!slash || strchr(name, '.')) && stat(word, &info) == 0 && S_ISREG(info.st_mode);
}

/* The entry of a folder that is named so, or nearly so; the first of those that are equally near. */
static const char *near_entry(reading *r, const char *dir, const char *name, bool runs)
{
    char path[TN_PATH_BYTES], best[256] = "";
    size_t nearest = MOST_WRONG + 1;
    DIR *d = opendir(*dir ? dir : ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t distance = tn_text_distance(name, e->d_name);
        if (e->d_name[0] == '.' || distance > nearest || 2 * distance > strcspn(name, ".")) continue;
        if (distance == nearest && strcmp(e->d_name, best) > 0) continue;
        if (tn_path_join(dir, e->d_name, path, sizeof path) != TN_OK || (runs && !is_run(path))) continue;
        snprintf(best, sizeof best, "%s", e->d_name);
        nearest = distance;
    }
    if (d) closedir(d);
    if (nearest > MOST_WRONG || tn_path_join(dir, best, path, sizeof path) != TN_OK) return NULL;
    return tn_arena_strdup(r->arena, path);
}

/* A path that is not there: what lies beside it, or a run of that name below runs/. */
static const char *near_path(reading *r, const char *word)
{
    const char *slash = strrchr(word, '/');
    const char *dir = slash ? tn_arena_printf(r->arena, "%.*s", (int)(slash - word), word) : "";
    const char *near = dir ? near_entry(r, dir, slash ? slash + 1 : word, false) : NULL;
    return near || slash ? near : near_entry(r, "runs", word, true);
}

/* --- words behind the verb ---------------------------------------------------------------------------------------------- */

static bool known_target(const char *word)
{
    const tn_model *m;
    struct stat info;
    return tn_preset_named(word, &m) || tn_model_named(word) || stat(word, &info) == 0;
}

/* `tenon help` names verbs, `tenon config show` sections and keys. */
static bool known_word(const reading *r, const char *word)
{
    const tn_verb *v;
    if (r->verb->run == tn_cmd_help) return tn_verb_find(word, &v) == TN_OK;
    if (!r->sub || r->sub->run != tn_cmd_config_show || !r->st) return false;
    return tn_section_named(word) < tn_sections_n || tn_settings_is_section(r->st, word) ||
           tn_settings_find(r->st, word) < tn_settings_count(r->st);
}

static const char *near_word(const reading *r, const char *word)
{
    tn_nearest near = { .word = word };
    const bool show = r->sub && r->sub->run == tn_cmd_config_show;
    for (size_t i = 0; r->verb->run == tn_cmd_help && i < tn_verbs_n; i++) tn_nearest_try(&near, tn_verbs[i].name);
    for (size_t i = 0; show && i < tn_sections_n; i++) tn_nearest_try(&near, tn_section_name(i));
    for (size_t i = 0; show && r->st && i < tn_settings_count(r->st); i++)
        tn_nearest_try(&near, tn_settings_row_at(r->st, i)->key);
    if (!near.best && (strstr(r->usage, "PRESET") || r->verb->run == tn_cmd_race)) tn_model_names_try(&near);
    return near.best;
}

/* A file that the command makes: there is none yet, and one of a similar name is not meant. */
static bool is_output(const reading *r) { return strstr(r->usage, "ckpt convert") && r->positionals == 2; }

/* What stands behind a comma of a race is left alone. */
static void read_positional(reading *r, const char *word)
{
    struct stat info;
    const size_t n = strcspn(word, ",");
    const char *head = tn_arena_printf(r->arena, "%.*s", (int)n, word);
    const bool path = strchr(word, '/') || strchr(word, '.');
    r->positionals++;
    if (is_output(r) || !head || known_target(head) || known_word(r, head) || stat(word, &info) == 0) {
        add(r, word);
        return;
    }
    const char *near = path ? NULL : near_word(r, head);
    const char *kind = r->verb->run == tn_cmd_help ? "verb" : near && known_target(near) ? "preset" : "section or key";
    if (near) WRONG(r, head, "unknown %s %s", kind, quoted(r, head));
    else if (path || strstr(r->usage, "RUN")) {
        near = near_path(r, head);
        if (near) WRONG(r, head, "there is no %s", quoted(r, head));
    }
    add(r, near ? tn_arena_printf(r->arena, "%s%s", near, word + n) : word);
}

static const tn_setting *row_of(const reading *r, const char *key)
{
    const tn_settings *tables[] = { r->st, r->more };
    char name[72];
    for (size_t k = 0; k < 2; k++) {
        size_t i = tables[k] ? tn_settings_find(tables[k], key) : 0;
        if (tables[k] && i < tn_settings_count(tables[k])) return tn_settings_row_at(tables[k], i);
        snprintf(name, sizeof name, "%s.name", key);
        i = tables[k] ? tn_settings_find(tables[k], name) : 0;
        if (tables[k] && i < tn_settings_count(tables[k])) return tn_settings_row_at(tables[k], i);
    }
    return NULL;
}

static bool names_key(const reading *r, const char *key)
{
    char text[72];
    snprintf(text, sizeof text, "%s=", key);
    const char *at = strstr(r->usage, text);
    return row_of(r, key) || (at && (at == r->usage || at[-1] != '-'));
}

/* The one key whose last word this is (depth: flow.depth); NULL: none, or several. */
static const char *key_ending(const reading *r, const char *word)
{
    const char *found = NULL;
    for (size_t i = 0; r->st && i < tn_settings_count(r->st); i++) {
        const char *key = tn_settings_row_at(r->st, i)->key, *last = strrchr(key, '.');
        if (!last || !same(last + 1, word)) continue;
        if (found) return NULL;
        found = key;
    }
    return found;
}

/* Whether a setting of the model and the run does anything for those who write texts. Training's do not, and sample.* is of texts
 * during training. */
static bool is_of_use(const reading *r, const char *key)
{
    static const char *const used[] = { "run", "plan", "switches", "model" };
    const char *section = tn_section_name(tn_section_of(key));
    if (r->verb->run == tn_cmd_eval || same(key, "train.context")) return true;
    if (same(key, "run") || same(key, "preset")) return false;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (same(section, used[i])) return true;
    return false;
}

/* Whether a hint may name it. */
static bool may_be_meant(const reading *r, const char *key)
{
    if (!row_of(r, key)) return false;
    return !r->more || tn_settings_find(r->st, key) < tn_settings_count(r->st) || is_of_use(r, key);
}

/* What the table calls a key: by its last word (lr), by its habit, or the nearest of all. NULL: nothing is near. */
static const char *near_key(const reading *r, const char *key)
{
    tn_nearest near = { .word = key };
    if (same(key, "seeds")) return NULL; /* several: not what seed= gives */
    const char *meant = key_ending(r, key);
    if (meant) return meant;
    meant = habit_of(key_habits, KEY_HABITS, "", key);
    if (meant && (!*meant || strchr(meant, '=') || may_be_meant(r, meant))) return meant;
    for (size_t k = 0; k < 2; k++) {
        const tn_settings *st = k ? r->more : r->st;
        for (size_t i = 0; st && i < tn_settings_count(st); i++) {
            const char *candidate = tn_settings_row_at(st, i)->key, *last = strrchr(candidate, '.');
            if (k && !is_of_use(r, candidate)) continue;
            if (last && same(last + 1, key)) return candidate;
            tn_nearest_try(&near, candidate);
            const size_t before = near.best ? near.distance : SIZE_MAX;
            if (last) tn_nearest_try(&near, last + 1);
            if (last && near.best == last + 1 && near.distance < before) near.best = candidate;
        }
    }
    meant = meant_by(key_habits, KEY_HABITS, "", &near);
    return meant && (!*meant || strchr(meant, '=') || may_be_meant(r, meant)) ? meant : NULL;
}

/* The nearest of "a|b|c"; NULL: it is one of them, or nothing is near. */
static const char *near_choice(reading *r, const tn_setting *row, const char *value)
{
    char *rest = tn_arena_strdup(r->arena, row->choices);
    tn_nearest near = { .word = value };
    tn_setting_value v;
    const char *meant = habit_of(value_habits, VALUE_HABITS, row->key, value);
    if (tn_setting_parse(row, value, "", &v) == TN_OK) return NULL;
    for (char *word; (word = strsep(&rest, "|"));) tn_nearest_try(&near, word);
    return meant ? meant : near.best;
}

static const char *near_task(const char *value)
{
    tn_nearest near = { .word = value };
    if (!*value || tn_task_named(value)) return NULL;
    for (size_t i = 0; tn_task_at(i); i++) tn_nearest_try(&near, tn_task_at(i)->name);
    return near.best;
}

/* The value that was meant, or the value. */
static const char *read_value(reading *r, const char *key, const char *value)
{
    const tn_setting *row = row_of(r, key);
    struct stat info;
    const char *near = NULL;
    if (!row) return value;
    if (row->type == TN_TYPE_CHOICE) near = near_choice(r, row, value);
    else if (same(row->key, "task.name")) near = near_task(value);
    else if ((same(row->key, "preset") || same(row->key, "model")) && !known_target(value)) near = near_word(r, value);
    else if (same(row->key, "data") && *value && stat(value, &info) != 0) near = near_path(r, value);
    if (!near) return value;
    if (row->type == TN_TYPE_CHOICE)
        WRONG(r, "is not one of", "%s=%s is not one of %s", key, quoted(r, value), row->choices);
    else if (same(row->key, "data")) WRONG(r, value, "there is no %s", quoted(r, value));
    else WRONG(r, value, "unknown %s %s", same(row->key, "task.name") ? "task" : row->key, quoted(r, value));
    return near;
}

static void add_setting(reading *r, const char *key, const char *value)
{
    if (!*key && *value) read_positional(r, value);
    else if (strchr(key, '=')) add(r, key);
    else if (*key) add(r, tn_arena_printf(r->arena, "%s=%s", key, read_value(r, key, value)));
}

/* --- flags -------------------------------------------------------------------------------------------------------------- */

static const tn_flag_row *flag_row(const reading *r, const char *name, tn_flag_kind *kind, const char **nearest)
{
    size_t n;
    const tn_flag_row *rows = tn_verb_flags(r->verb, &n);
    const char *longer = NULL; /* one that begins so: --param */
    char known[32];
    tn_nearest near = { .word = name };
    *nearest = NULL;
    for (size_t i = 0; i < n + TN_GLOBAL_FLAGS; i++) {
        const tn_flag_row *row = i < n ? &rows[i] : &tn_global_flags[i - n];
        *kind = tn_flag_row_read(row, known);
        if (same(known, name)) return row;
        if (strlen(name) >= SHORTEST && strncmp(known, name, strlen(name)) == 0) longer = row->text + 2;
        const size_t before = near.best ? near.distance : SIZE_MAX;
        tn_nearest_try(&near, known);
        if (near.best && near.distance < before) *nearest = row->text + 2; /* up to '=' or '[' */
    }
    if (!*nearest) *nearest = longer;
    return NULL;
}

/* A flag without its dashes (prompt=TEXT), unless a key ends so. */
static bool is_bare_flag(const reading *r, const char *key)
{
    tn_flag_kind kind;
    const char *nearest;
    const tn_flag_row *row = flag_row(r, key, &kind, &nearest);
    return row && kind != TN_FLAG_ALONE && tn_sub_takes(r->sub, row) && !key_ending(r, key);
}

static void read_override(reading *r, const char *word)
{
    const char *eq = strchr(word, '=');
    const char *key = tn_arena_printf(r->arena, "%.*s", (int)(eq - word), word);
    const bool unknown = key && !names_key(r, key);
    const bool flag = unknown && is_bare_flag(r, key);
    const char *near = unknown && !flag && r->st ? near_key(r, key) : NULL;
    if (near || flag) WRONG(r, "unknown key", flag ? "%s is a flag" : "unknown key %s", quoted(r, key));
    if (!key || (!near && !row_of(r, key))) {
        add(r, flag ? tn_arena_printf(r->arena, "--%s", word) : word);
        return;
    }
    add_setting(r, near ? near : key, eq + 1);
}

/* Another verb that has a flag of this name, or NULL. */
static const tn_verb *who_has_flag(const char *name)
{
    char known[32];
    for (size_t v = 0; v < tn_verbs_n; v++) {
        size_t n;
        const tn_flag_row *rows = tn_verb_flags(&tn_verbs[v], &n);
        for (size_t i = 0; i < n; i++) {
            tn_flag_row_read(&rows[i], known);
            if (same(known, name)) return &tn_verbs[v];
        }
    }
    return NULL;
}

/* argv[*i] begins with two dashes; its value may be the word behind it. */
static void read_flag(reading *r, int argc, char *const *argv, int *i)
{
    const char *text = argv[*i] + 2, *eq = strchr(text, '='), *nearest;
    tn_flag_kind kind;
    char *name = tn_arena_printf(r->arena, "%.*s", (int)(eq ? eq - text : (ptrdiff_t)strlen(text)), text);
    if (!name || flag_row(r, name, &kind, &nearest)) {
        add(r, argv[*i]);
        if (name && kind == TN_FLAG_VALUE && !eq && *i + 1 < argc) add(r, argv[++*i]);
        return;
    }
    char *key = tn_arena_strdup(r->arena, name);
    for (char *p = key; p && *p; p++) *p = *p == '-' ? '_' : *p;
    const bool exact = key && r->st && names_key(r, key);
    const char *meant = exact ? key : key && r->st && !nearest ? near_key(r, key) : NULL;
    const char *last = meant ? strrchr(meant, '.') : NULL;
    const bool sure = exact || (last && same(last + 1, key)) || (meant && habit_of(key_habits, KEY_HABITS, "", key));
    const tn_verb *other = sure || nearest ? NULL : who_has_flag(name);
    if (other) meant = NULL; /* a setting that is merely spelt alike */
    const bool takes_value = meant && *meant && !strchr(meant, '=');
    const bool next = takes_value && !eq && *i + 1 < argc && argv[*i + 1][0] != '-';
    if (meant && (!takes_value || eq || next)) {
        if (takes_value) WRONG(r, "unknown flag", "settings are written key=value, not --%s", quoted(r, name));
        else WRONG(r, "unknown flag", "unknown flag --%s", quoted(r, name));
        add_setting(r, meant, eq ? eq + 1 : next ? argv[++*i] : "");
    } else if (other) { /* the command without it */
        WRONG(r, "unknown flag", "%s has no --%s, %s has", r->verb->name, quoted(r, name), other->name);
    } else if (nearest) {
        WRONG(r, "unknown flag", "unknown flag --%s", quoted(r, name));
        add(r, tn_arena_printf(r->arena, "--%.*s%s", (int)strcspn(nearest, "=["), nearest, eq ? eq : ""));
    } else add(r, argv[*i]);
}

/* --- the command -------------------------------------------------------------------------------------------------------- */

/* The verb and its subcommand; false: nothing is near. *at: the first word behind them. */
static bool read_verb(reading *r, char *const *argv, int *at)
{
    tn_nearest near = { .word = argv[1] };
    struct stat info;
    const char *meant = habit_of(verb_habits, VERB_HABITS, "", argv[1]);
    for (size_t i = 0; i < tn_verbs_n; i++) {
        if (same(tn_verbs[i].name, argv[1])) r->verb = &tn_verbs[i];
        tn_nearest_try(&near, tn_verbs[i].name);
    }
    *at = 2;
    if (!r->verb) {
        const bool file = !meant && argv[1][0] != '-' && stat(argv[1], &info) == 0;
        if (file) meant = "train", *at = 1;
        if (!meant) meant = meant_by(verb_habits, VERB_HABITS, "", &near);
        if (!meant) return false;
        WRONG(r, "unknown verb", file ? "%s is a file, not a verb" : "unknown verb %s", quoted(r, argv[1]));
    }
    char *words = tn_arena_strdup(r->arena, r->verb ? argv[1] : meant), *word;
    for (bool first = true; words && (word = strsep(&words, " ")); first = false) {
        if (first && tn_verb_find(word, &r->verb) != TN_OK) return false;
        if (!first && word[0] != '-') (void)tn_sub_find(r->verb, word, &r->sub);
        add(r, word);
    }
    return r->verb != NULL;
}

static void read_sub(reading *r, const char *word, int *at)
{
    tn_nearest near = { .word = word };
    const char *meant = habit_of(sub_habits, SUB_HABITS, r->verb->name, word);
    for (size_t i = 0; i < tn_subs_n; i++) {
        if (!same(tn_subs[i].verb, r->verb->name) || !*tn_subs[i].summary) continue;
        if (same(tn_subs[i].name, word)) r->sub = &tn_subs[i];
        tn_nearest_try(&near, tn_subs[i].name);
    }
    if (!r->sub && !meant && near.distance > (strlen(word) + 1) / 3) near.best = NULL; /* tcsh is not zsh */
    if (!r->sub && !meant) meant = meant_by(sub_habits, SUB_HABITS, r->verb->name, &near);
    if (!r->sub && !meant) return;
    if (!r->sub) {
        WRONG(r, "unknown subcommand", "unknown subcommand %s of %s", quoted(r, word), r->verb->name);
        (void)tn_sub_find(r->verb, meant, &r->sub);
    }
    add(r, r->sub->name);
    ++*at;
}

/* The settings that the command can set: those of the first word that names a model, else of the default one. */
static void find_settings(reading *r, int argc, char *const *argv, int at)
{
    const tn_model *m;
    const bool prepare = same(r->verb->name, "data"), chat = r->verb->run == tn_cmd_chat,
               sample = chat || r->verb->run == tn_cmd_sample;
    if (!strstr(r->usage, "key=value")) return;
    if (prepare) (void)tn_prepare_settings(&r->st);
    else if (sample) (void)(chat ? tn_chat_settings : tn_sample_settings)(&r->st);
    if (prepare) return;
    if (r->verb->run == tn_cmd_eval) (void)tn_eval_text_settings(&r->more);
    tn_settings **to = sample ? &r->more : &r->st;
    for (int i = at; i < argc && !*to; i++) {
        const char *word = argv[i];
        const size_t n = strcspn(word, ",");
        char *target = tn_arena_printf(r->arena, "%.*s", (int)n, word);
        if (!target || strchr(target, '=') || ends_with(target, ".so")) continue;
        if (known_target(target) && tn_settings_resolve(target, NULL, 0, to, &m) != TN_OK) *to = NULL;
    }
    if (!*to && tn_settings_resolve(NULL, NULL, 0, to, &m) != TN_OK) *to = NULL;
}

/* `tenon train book.txt gpt`, `tenon eval model.gguf book.txt`: the file is the data. */
static void name_data(reading *r, size_t from)
{
    const bool train = r->verb->run == tn_cmd_train, eval = r->verb->run == tn_cmd_eval;
    size_t file = 0, others = 0;
    for (size_t i = from; i < r->n; i++) {
        if (r->words[i][0] == '-' || strchr(r->words[i], '=')) continue;
        if (!file && tn_is_bare_data(r->words[i])) file = i;
        else others++;
    }
    if (!file || others != 1 || !(train || eval)) return;
    WRONG(r, "unexpected argument", "%s is the text to %s", quoted(r, r->words[file]), train ? "train on" : "evaluate");
    r->words[file] = tn_arena_printf(r->arena, "data=%s", r->words[file]);
}

/* `tenon sample RUN It was`: what stands behind the run is its prompt, or the rest of it. */
static void read_prompt(reading *r, const char *word)
{
    size_t at = 0;
    for (size_t i = 1; i < r->n; i++)
        if (same(r->words[i], "--prompt")) at = i + 1;
        else if (strncmp(r->words[i], "--prompt=", 9) == 0) at = i;
    WRONG(r, "unexpected argument", "a prompt is given as --prompt=TEXT, blanks in quotes");
    if (at) r->words[at] = tn_arena_printf(r->arena, "%s %s", r->words[at], word);
    else add(r, tn_arena_printf(r->arena, "--prompt=%s", word));
}

/* key = value or key =value: the words that it takes up, 0 where it is none. */
static int read_apart(reading *r, int n, char *const *argv)
{
    const size_t key = strspn(argv[0], "abcdefghijklmnopqrstuvwxyz0123456789_.");
    const bool alone = n > 2 && same(argv[1], "=");
    if (!key || argv[0][key] || n < 2 || argv[1][0] != '=' || (!alone && !argv[1][1])) return 0;
    WRONG(r, "", "a setting is key=value, without blanks");
    char *word = tn_arena_printf(r->arena, "%s%s%s", argv[0], argv[1], alone ? argv[2] : "");
    if (word) read_override(r, word);
    return alone ? 3 : 2;
}

static bool read_words(reading *r, int argc, char *const *argv)
{
    int at;
    if (!read_verb(r, argv, &at)) return false;
    if (at < argc && !r->sub && argv[at][0] != '-' && !strchr(argv[at], '=') && !r->verb->run)
        read_sub(r, argv[at], &at);
    if (at < argc && !r->sub && r->verb->run) (void)tn_sub_find(r->verb, argv[at], &r->sub); /* bench MODEL */
    r->usage = r->sub ? r->sub->usage : r->verb->usage;
    find_settings(r, argc, argv, at);
    const size_t from = r->n;
    for (int i = at, taken; i < argc; i++) {
        const size_t key = strspn(argv[i], "abcdefghijklmnopqrstuvwxyz0123456789_.");
        if ((taken = read_apart(r, argc - i, argv + i))) i += taken - 1;
        else if (argv[i][0] == '-' && argv[i][1] == '-' && argv[i][2]) read_flag(r, argc, argv, &i);
        else if (argv[i][0] == '-') add(r, argv[i]);
        else if (key && argv[i][key] == '=') read_override(r, argv[i]);
        else if (r->verb->run == tn_cmd_sample && r->positionals) read_prompt(r, argv[i]);
        else read_positional(r, argv[i]);
    }
    name_data(r, from);
    return true;
}

const char *tn_command_text(tn_arena *arena, size_t n, const char *const *words)
{
    const char *text = "tenon";
    for (size_t i = 0; i < n && text; i++) {
        const char *w = words[i];
        const bool plain =
            w && *w && !w[strspn(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=,:+-@%^")];
        const bool quotable = w && !strchr(w, '\'');
        text = tn_arena_printf(arena, plain ? "%s %s" : quotable ? "%s '%s'" : "%s \"%s\"", text, w ? w : "");
    }
    return text;
}

const char *tn_habits_hint(tn_arena *arena, const char *error, int argc, char *const *argv)
{
    reading r = { .arena = arena,
                  .error = error,
                  .words = tn_arena_alloc(arena, sizeof *r.words * (size_t)(argc + 4)) };
    char *hint = NULL;
    if (r.words && read_words(&r, argc, argv) && r.blamed)
        hint = tn_arena_printf(arena, "%s: did you mean `%s`?", r.wrong, tn_command_text(arena, r.n, r.words));
    if (hint) tn_text_clean(hint); /* one line, whatever was typed */
    tn_settings_free(r.st);
    tn_settings_free(r.more);
    return hint;
}
