/* The table of models, and loading one from a shared object. */
#include "models/models.h"

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

tn_status tn_model_error(const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tn_error(TN_USAGE, "%s", text);
}

static tn_status check_row(const char *path, const tn_model *m)
{
    if (!m) return tn_error(TN_BAD_FILE, "%s: tenon_model() returned nothing", path);
    if (m->abi != TENON_MODEL_ABI || m->size != sizeof *m)
        return tn_error(TN_BAD_FILE, "%s was compiled for model interface %d, this is %d: compile it again", path, m->abi,
                        TENON_MODEL_ABI);
    if (!m->name || !m->name[0] || !m->build)
        return tn_error(TN_BAD_FILE, "%s: the model has no name or no build function", path);
    return TN_OK;
}

static tn_status load_object(const char *path, const tn_model **out)
{
    if (access(path, F_OK) != 0) return tn_error(TN_BAD_FILE, "there is no model %s: build it first (`make` in its folder)", path);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return tn_error(TN_BAD_FILE, "cannot load the model %s: %s", path, dlerror());
    tenon_model_fn *get;
    *(void **)&get = dlsym(object, "tenon_model");
    if (!get) {
        dlclose(object);
        return tn_error(TN_BAD_FILE, "%s defines no function tenon_model: `tenon new model NAME` writes one that does", path);
    }
    const tn_model *m = get();
    TN_RETURN_IF(check_row(path, m));
    *out = m;
    return TN_OK;
}

tn_status tn_model_load(const char *name, const tn_model **out)
{
    const size_t n = strlen(name);
    if (strchr(name, '/') || (n > 3 && strcmp(name + n - 3, ".so") == 0)) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "./", name) >= (int)sizeof path)
            return tn_error(TN_USAGE, "the path of the model is too long");
        return load_object(path, out);
    }
    const tn_model *m = tn_model_named(name);
    if (!m) {
        char quoted[80];
        return tn_error(TN_USAGE, "there is no model %s: `tenon presets` lists the models; one of your own is a path to its .so",
                        tn_text_quote(name, quoted, sizeof quoted));
    }
    *out = m;
    return TN_OK;
}
