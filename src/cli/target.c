/* Taking a target apart at its commas. Nothing is read here but the table of its settings. */
#include "cli/target.h"

#include "train/run/saved_model.h"
#include "train/run/train_settings.h"

#include <stdio.h>
#include <string.h>

/* A comma ends a piece where a key and '=' follow: hten=1,2,4 stays whole. */
static char *piece_end(char *p)
{
    for (; (p = strchr(p, ',')); p++) {
        const size_t n = strspn(p + 1, "abcdefghijklmnopqrstuvwxyz0123456789_.");
        if (n > 0 && p[1 + n] == '=') return p;
    }
    return NULL;
}

static tn_status full_key(tn_arena *arena, const tn_settings *st, const char *word, const char **out)
{
    char key[128];
    const int n = snprintf(key, sizeof key, "train.%.*s", (int)strcspn(word, "="), word);
    const bool known = n < (int)sizeof key && tn_settings_find(st, key + 6) != tn_settings_count(st);
    const bool short_form = n < (int)sizeof key && !known && tn_settings_find(st, key) != tn_settings_count(st);
    *out = short_form ? tn_arena_printf(arena, "train.%s", word) : word;
    return *out ? TN_OK : tn_error(TN_MEMORY, "out of memory");
}

/* which: "model=NAME", or NULL. A file of weights says its settings itself; a checkpoint's are those of the run it stands in. */
static tn_status resolve(tn_arena *arena, const tn_user_args *user, const char *target, const char *which,
                         tn_settings **out)
{
    const tn_model *model;
    tn_matrices unused;
    const char **said = NULL;
    size_t n = 0;
    if (!tn_is_weights_file(target)) {
        char run[TN_PATH_BYTES];
        TN_RETURN_IF(tn_saved_model_settings(target, run));
        return tn_settings_resolve_user(user, run, &which, which != NULL, out, &model);
    }
    TN_RETURN_IF(tn_weights_words(target, arena, &said, &n, &unused));
    const tn_settings_from from = {
        .user = user, .file = target, .said = said, .n_said = n, .overrides = &which, .n = which != NULL
    };
    return tn_settings_resolve_from(&from, out, &model);
}

static tn_status read_pieces(tn_arena *arena, const tn_user_args *user, char *text, tn_target *x)
{
    tn_settings *st = NULL;
    tn_status s = TN_OK;
    const char *which = NULL;
    const size_t first = x->n;
    x->target = text;
    for (char *comma = piece_end(text); comma; comma = piece_end(comma + 1)) {
        *comma = 0;
        x->overrides[x->n++] = comma + 1;
        if (strncmp(comma + 1, "model=", 6) == 0) which = comma + 1; /* short forms are of its settings */
    }
    if (x->n == first) return TN_OK;
    TN_TRY(resolve(arena, user, x->target, which, &st));
    for (size_t i = first; i < x->n; i++) TN_TRY(full_key(arena, st, x->overrides[i], &x->overrides[i]));
done:
    tn_settings_free(st);
    return s;
}

tn_status tn_target_read(tn_arena *arena, const tn_user_args *user, const char *word, const char *const *common,
                         size_t n_common, tn_target *out)
{
    tn_target x = { .n = 0 };
    size_t commas = 0;
    for (const char *p = word; *p; p++) commas += *p == ',';
    x.overrides = tn_arena_alloc(arena, (n_common + commas + 1) * sizeof *x.overrides);
    char *text = tn_arena_strdup(arena, word);
    if (!x.overrides || !text) return tn_error(TN_MEMORY, "out of memory");
    for (size_t i = 0; i < n_common; i++) x.overrides[x.n++] = common[i];
    TN_RETURN_IF(read_pieces(arena, user, text, &x));
    *out = x;
    return TN_OK;
}
