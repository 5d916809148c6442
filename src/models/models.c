/* The table of models, and loading one from a shared object: only if the user named it, whatever files say. */
#include "models/models.h"

#include "base/settings_watch.h"
#include "base/status.h"
#include "base/text.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TN_MODEL(name) extern const tn_model tn_model_##name;
#include "models/models.def"
#undef TN_MODEL

static const tn_model *const table[] = {
#define TN_MODEL(name) &tn_model_##name,
#include "models/models.def"
#undef TN_MODEL
};

const tn_model *tn_model_at(size_t i) { return i < sizeof table / sizeof *table ? table[i] : NULL; }

const tn_model *tn_model_named(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

const tn_preset *tn_preset_named(const char *name, const tn_model **model)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (size_t k = 0; k < table[i]->n_presets; k++)
            if (strcmp(table[i]->presets[k].name, name) == 0) {
                *model = table[i];
                return &table[i]->presets[k];
            }
    return NULL;
}

void tn_model_names_try(tn_nearest *near)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        tn_nearest_try(near, table[i]->name);
        for (size_t k = 0; k < table[i]->n_presets; k++) tn_nearest_try(near, table[i]->presets[k].name);
    }
}

tn_status tn_model_error(const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tn_error(TN_USAGE, "%s", text);
}

typedef tn_status build_fn(tn_graph *g, const tn_settings *st, const tn_batch *b);

/* Of the step that is asked for: its row's, or the model's; where there is neither, that of the first with gradients. */
static build_fn *build_of(const tn_model *m, const char *step)
{
    build_fn *first = m->build;
    for (size_t i = 0; i < m->n_steps; i++) {
        if (step && strcmp(m->steps[i].name, step) == 0) return m->steps[i].build;
        if (!first && m->steps[i].gradients) first = m->steps[i].build;
    }
    return first ? first : m->steps[0].build;
}

tn_status tn_model_build(const tn_model *m, tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_settings_watch(st);
    const tn_status built = build_of(m, b->step)(g, st, b), mistake = tn_settings_mistake(st);
    return mistake != TN_OK ? mistake : built;
}

bool tn_model_replies(const tn_model *m)
{
    for (size_t i = 0; i < m->n_steps; i++)
        if (strcmp(m->steps[i].name, "reply") == 0) return true;
    return false;
}

const tn_view_row *tn_model_view(const tn_model *m, const tn_model **known)
{
    *known = m;
    for (size_t i = 0; !(*known)->n_views && i < sizeof table / sizeof *table; i++)
        if (table[i]->n_views) *known = table[i];
    return m->n_views ? m->views : NULL;
}

/* `size` and `abi` stand first in every version; of another one nothing else may be looked at, for the struct is smaller or ordered otherwise. */
static tn_status check_row(const char *path, const tn_model *m)
{
    if (!m) return tn_error(TN_BAD_FILE, "%s: tenon_model() returned nothing", path);
    if (m->abi < 6)
        return tn_error(TN_BAD_FILE,
                        "%.600s was compiled for model interface %d, this is %d: add TN_LANGUAGE_ROWS to its tn_model, "
                        "write tn_in(b, \"tokens\") for "
                        "b->tokens, tn_wants(b, \"logits\") for b->logits and tn_segment_begin for a layer's "
                        "tn_region_begin, then compile it again "
                        "(docs/models.md#from-interface-5)",
                        path, m->abi, TENON_MODEL_ABI);
    if (m->abi != TENON_MODEL_ABI || m->size != sizeof *m)
        return tn_error(TN_BAD_FILE,
                        "%.600s was compiled with the headers of another Tenon (model interface %d, this is %d): "
                        "compile it again with these",
                        path, m->abi, TENON_MODEL_ABI);
    if (!m->name || !m->name[0]) return tn_error(TN_BAD_FILE, "%.600s: the model has no name: set .name", path);
    if (!m->build && !m->n_steps)
        return tn_error(TN_BAD_FILE, "%.600s: model %s has no build function: set .build, or TN_STEPS(rows)", path,
                        m->name);
    return TN_OK;
}

static tn_status load_object(const char *path, const tn_model **out)
{
    if (access(path, F_OK) != 0)
        return tn_error(TN_BAD_FILE, "there is no model %s: build it first (`make` in its folder)", path);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return tn_error(TN_BAD_FILE,
                        "cannot load the model %s: %s (made for another version of Tenon? compile it again)", path,
                        dlerror());
    tenon_model_fn *get;
    *(void **)&get = dlsym(object, "tenon_model");
    if (!get) {
        dlclose(object);
        return tn_error(TN_BAD_FILE, "%s defines no function tenon_model: `tenon new model NAME` writes one that does",
                        path);
    }
    const tn_model *m = get();
    TN_RETURN_IF(check_row(path, m));
    *out = m;
    return TN_OK;
}

/* --- who may load one ------------------------------------------------------------------------------------------------- */

static bool is_object(const char *name, size_t n)
{
    return memchr(name, '/', n) || (n > 3 && memcmp(name + n - 3, ".so", 3) == 0);
}

/* Where the path begins in a word, or in a piece of one: behind "model=", or at once where its ending says what it is (another
 * path is a file to read). NULL: it asks for none. */
static const char *asked_path(const char *piece, size_t n)
{
    if (n > 6 && memcmp(piece, "model=", 6) == 0) return is_object(piece + 6, n - 6) ? piece + 6 : NULL;
    return n > 3 && memcmp(piece + n - 3, ".so", 3) == 0 ? piece : NULL;
}

static const char *without_dot(const char *path)
{
    return strncmp(path, "./", 2) == 0 ? path + 2 : path;
} /* cell.so is ./cell.so */

/* path NULL: any will do. */
static bool piece_asks(const char *piece, size_t n, const char *path)
{
    const char *at = asked_path(piece, n);
    if (!at || !path) return at != NULL;
    const char *end = piece + n, *wanted = without_dot(path);
    if (end - at > 2 && memcmp(at, "./", 2) == 0) at += 2;
    return strlen(wanted) == (size_t)(end - at) && memcmp(wanted, at, (size_t)(end - at)) == 0;
}

/* The whole word, for a path may hold commas, and then its pieces: "./cell.so,dim=64". */
static bool word_asks(const char *word, const char *path)
{
    if (piece_asks(word, strlen(word), path)) return true;
    for (const char *p = word; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] != 0))
        if (piece_asks(p, strcspn(p, ","), path)) return true;
    return false;
}

bool tn_word_asks(const char *word) { return word_asks(word, NULL); }

static bool named_by_user(const tn_user_args *user, const char *path)
{
    if (!user) return false;
    for (size_t i = 0; i < user->n; i++)
        if (word_asks(user->word[i], path)) return true;
    return user->target && word_asks(user->target, path);
}

static tn_status refuse(const char *name, const tn_user_args *user)
{
    char path[320];
    const bool alone =
        user && user->add && piece_asks(name, strlen(name), NULL); /* no other path is taken for one by itself */
    tn_text_quote(name, path, sizeof path);
    return tn_error(TN_USAGE,
                    "it names the shared object %s, and Tenon does not run code that a file asks for: add %s%s to %s "
                    "if you trust it",
                    path, alone ? user->add : "model=", path, user && user->to ? user->to : "the command");
}

tn_status tn_model_load(const char *name, const tn_user_args *user, const tn_model **out)
{
    if (is_object(name, strlen(name))) {
        char path[4096];
        if (!named_by_user(user, name)) return refuse(name, user);
        if (snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "./", name) >= (int)sizeof path)
            return tn_error(TN_USAGE, "the path of the model is too long");
        return load_object(path, out);
    }
    const tn_model *m = tn_model_named(name);
    if (!m) {
        char quoted[80];
        return tn_error(TN_USAGE,
                        "unknown model %s: `tenon presets` lists the models; one of your own is a path to its .so",
                        tn_text_quote(name, quoted, sizeof quoted));
    }
    *out = m;
    return TN_OK;
}
