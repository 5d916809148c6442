/* A model inside another one. Its settings are a table of their own, made from the run's; the graph owns it. */
#include "models/models.h"

#include "base/settings_watch.h"
#include "base/status.h"
#include "base/text.h"
#include "plan/graph.h"

#include <stdio.h>
#include <string.h>

enum { KEY = 128 };

/* Whether some key of the table is this one, lies below it, or above it: the table could not hold both. */
static bool collides(const tn_settings *st, const char *key)
{
    char above[KEY];
    if (tn_settings_find(st, key) < tn_settings_count(st) || tn_settings_is_section(st, key)) return true;
    snprintf(above, sizeof above, "%s", key);
    for (char *dot; (dot = strrchr(above, '.'));) {
        *dot = 0;
        if (tn_settings_find(st, above) < tn_settings_count(st)) return true;
    }
    return false;
}

/* What the run says where the part has no setting of that name: train.context, train.dropout, switches. */
static tn_status add_run(tn_settings *st, const tn_settings *run)
{
    for (size_t i = 0; i < tn_settings_count(run); i++) {
        const tn_setting *row = tn_settings_row_at(run, i);
        if (collides(st, row->key)) continue;
        TN_RETURN_IF(tn_settings_add(st, row, 1, tn_settings_owner_at(run, i)));
        TN_RETURN_IF(
            tn_settings_set(st, row->key, tn_settings_written_at(run, i), "%s", tn_settings_source_at(run, i)));
    }
    return TN_OK;
}

/* "key=value", NULL at the end; or NULL. */
static tn_status set_words(tn_settings *st, const char *const *words, const char *source)
{
    for (; words && *words; words++) {
        char key[KEY], quoted[80];
        const char *eq = strchr(*words, '=');
        if (!eq || (size_t)(eq - *words) >= sizeof key)
            return tn_error(TN_USAGE, "%s: %s is not key=value", source, tn_text_quote(*words, quoted, sizeof quoted));
        snprintf(key, sizeof key, "%.*s", (int)(eq - *words), *words);
        TN_RETURN_IF(tn_settings_set(st, key, eq + 1, "%s", source));
    }
    return TN_OK;
}

/* SCOPE.KEY of the run, where it is not empty, is KEY of the part, but not the setting `but` (or NULL), which may be called as one of the part's is. */
static tn_status set_section(tn_settings *st, const tn_settings *run, const char *scope, const char *but)
{
    const size_t n = strlen(scope);
    for (size_t i = 0; i < tn_settings_count(run); i++) {
        const char *key = tn_settings_row_at(run, i)->key;
        if (strncmp(key, scope, n) != 0 || key[n] != '.' || (but && strcmp(key, but) == 0) ||
            !*tn_settings_written_at(run, i) || tn_settings_find(st, key + n + 1) == tn_settings_count(st))
            continue;
        TN_RETURN_IF(tn_settings_set(st, key + n + 1, tn_settings_written_at(run, i), "%s (%s)", key,
                                     tn_settings_source_at(run, i)));
    }
    return TN_OK;
}

static tn_status find_model(const char *scope, const char *name, const tn_model **model, const tn_preset **preset)
{
    char quoted[80];
    *preset = tn_preset_named(name, model);
    if (!*preset) *model = tn_model_named(name);
    if (!*model)
        return tn_error(TN_USAGE, "part %s: unknown model or preset %s: `tenon presets` lists them", scope,
                        tn_text_quote(name, quoted, sizeof quoted));
    if ((*model)->forward) return TN_OK;
    return tn_error(TN_USAGE, "part %s: model %s has no forward pass that another model can call (tn_model.forward)",
                    scope, (*model)->name);
}

static void release(void *settings) { tn_settings_free(settings); }

static tn_status open_part(tn_graph *g, const tn_settings *run, const char *scope, const char *name,
                           const char *const *words, const char *but, tn_part *out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    const tn_model *model = NULL;
    const tn_preset *preset;
    char source[160];
    TN_TRY(find_model(scope, name, &model, &preset));
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, model->settings, model->n_settings, model->name));
    TN_TRY(add_run(st, run));
    snprintf(source, sizeof source, "preset %s of part %s", name, scope);
    TN_TRY(set_words(st, preset ? preset->values : NULL, source));
    snprintf(source, sizeof source, "part %s", scope);
    TN_TRY(set_words(st, words, source));
    TN_TRY(set_section(st, run, scope, but));
    const char *kept = tn_arena_strdup(&g->memory, scope);
    if (!kept) TN_FAIL(TN_MEMORY, "out of memory");
    TN_TRY(tn_graph_own(g, release, st));
    *out = (tn_part){ .scope = kept, .model = model, .settings = st };
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}

tn_status tn_part_open(tn_graph *g, const tn_settings *run, const char *scope, const char *name,
                       const char *const *words, tn_part *out)
{
    return open_part(g, run, scope, name, words, NULL, out);
}

tn_status tn_words_split(tn_arena *arena, const char *text, const char *const **out)
{
    static const char between[] = " ,\t\r\n"; /* commas where a blank would end a word (saved_model.c) */
    size_t n = 0;
    char quoted[80], *rest = tn_arena_strdup(arena, text);
    const char **words = tn_arena_alloc(arena, (strlen(text) / 2 + 2) * sizeof *words);
    if (!rest || !words) return tn_error(TN_MEMORY, "out of memory");
    for (char *word; (word = strtok_r(rest, between, &rest));) {
        const char *eq = strchr(word, '=');
        if (!eq || eq == word || !eq[1])
            return tn_error(TN_USAGE,
                            "%s is not key=value: a value may not contain blanks, nor may they surround the =",
                            tn_text_quote(word, quoted, sizeof quoted));
        words[n++] = word;
    }
    *out = words;
    return TN_OK;
}

tn_status tn_part_open_file(tn_graph *g, const tn_settings *run, const char *scope, const char *shape_setting,
                            tn_part *out)
{
    const char *const *words, *shape = tn_settings_text(run, shape_setting);
    if (!shape[0])
        return tn_error(TN_USAGE, "part %s has no shape: name its file, or set %s=\"dim=64 layers=2 ...\"", scope,
                        shape_setting);
    tn_status s = tn_words_split(&g->memory, shape, &words);
    if (s == TN_OK) s = open_part(g, run, scope, "gpt", words, shape_setting, out);
    if (s != TN_OK) tn_error_prefix("%s", shape_setting);
    return s;
}

tn_status tn_part_forward(tn_graph *g, const tn_part *p, const tn_batch *b, tn_forward *out)
{
    tn_forward made = { TN_NONE, TN_NONE, TN_NONE };
    TN_RETURN_IF(tn_graph_status(g)); /* what went wrong before is not this part's */
    const tn_region r = tn_region_begin(g, "%s", p->scope);
    tn_settings_watch(p->settings);
    const tn_status built = p->model->forward(g, p->settings, b, &made), mistake = tn_settings_mistake(p->settings);
    tn_region_end(g, r);
    const tn_status s = mistake != TN_OK ? mistake : built;
    if (s == TN_OK) *out = made;
    else tn_error_prefix("part %s", p->scope);
    return s;
}
