/* tenon presets: the models and their presets, or one of them. tenon tasks: what models can be trained on besides text. */
#include "base/text.h"
#include "cli/view.h"
#include "models/models.h"
#include "tasks/task.h"
#include "train/run/train_settings.h"
#include "train/source/task_setup.h"
#include "train/trainer/width_fit.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_WIDTH = 21 };

/* A model (preset is NULL) or one of its presets. */
typedef struct thing {
    const tn_model *model;
    const tn_preset *preset;
    const char *name, *help;
} thing;

static thing of_model(const tn_model *m) { return (thing){ .model = m, .name = m->name, .help = m->summary }; }

static thing of_preset(const tn_model *m, const tn_preset *p)
{
    return (thing){ .model = m, .preset = p, .name = p->name, .help = p->help };
}

static tn_status print_line(tn_cli *c, const thing *t)
{
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s}", "kind", t->preset ? "preset" : "model", "name", t->name,
                                        "model", t->model->name, "help", t->help));
    fprintf(c->out, "%s%-*s  %s\n", t->preset ? "  " : "", t->preset ? NAME_WIDTH - 2 : NAME_WIDTH, t->name, t->help);
    return TN_OK;
}

static tn_status print_model(tn_cli *c, const tn_model *m)
{
    const thing model = of_model(m);
    TN_RETURN_IF(print_line(c, &model));
    for (size_t k = 0; k < m->n_presets; k++) {
        const thing preset = of_preset(m, &m->presets[k]);
        TN_RETURN_IF(print_line(c, &preset));
    }
    return TN_OK;
}

/* --- one of them ---------------------------------------------------------------------------------------------------------- */

static tn_status find(const char *name, thing *out)
{
    char quoted[80];
    const tn_model *m;
    const tn_preset *p = tn_preset_named(name, &m);
    tn_nearest near = { .word = name };
    if (p) return *out = of_preset(m, p), TN_OK;
    for (size_t i = 0; (m = tn_model_at(i)); i++) {
        if (strcmp(m->name, name) == 0) return *out = of_model(m), TN_OK;
        tn_nearest_try(&near, m->name);
        for (size_t k = 0; k < m->n_presets; k++) tn_nearest_try(&near, m->presets[k].name);
    }
    tn_text_quote(name, quoted, sizeof quoted);
    if (near.best) return tn_error(TN_USAGE, "unknown preset %s: did you mean %s?", quoted, near.best);
    return tn_error(TN_USAGE, "unknown preset %s: `tenon presets` lists them", quoted);
}

/* From its graph; a vocabulary that the data decide is that of bytes (*bytes). -1 where the task must be known first. */
static int64_t count_parameters(const thing *t, bool *bytes)
{
    tn_settings *st = NULL;
    const tn_model *m;
    int64_t n = -1;
    if (tn_settings_resolve(t->name, NULL, 0, &st, &m) != TN_OK) return -1;
    *bytes = tn_settings_find(st, "vocab") < tn_settings_count(st) && tn_settings_is_auto(st, "vocab");
    if (*bytes && tn_settings_set(st, "vocab", "256", "bytes") != TN_OK) n = -1;
    else if (tn_tensors_count(m, st, NULL, &n, NULL) != TN_OK) n = -1;
    tn_settings_free(st);
    return n;
}

static bool sets(const thing *t, const char *key)
{
    for (const char *const *v = t->preset ? t->preset->values : NULL; v && *v; v++)
        if (strncmp(*v, key, strlen(key)) == 0 && (*v)[strlen(key)] == '=') return true;
    return false;
}

/* What "tenon train NAME" needs beside the name. */
static const char *what_is_missing(const thing *t)
{
    if (sets(t, "task")) return "";
    if (!tn_model_reads(t->model, "features")) return tn_task_words(t->model);
    return tn_model_reads(t->model, "target") ? " task=strokes" : " task=xor";
}

/* Its settings, one after the other; a later value of a key replaces an earlier one. */
static const char *const *next_value(const thing *t, const char *const *v)
{
    for (v = v ? v + 1 : t->preset ? t->preset->values : NULL; v && *v; v++) {
        const size_t n = strcspn(*v, "=") + 1;
        const char *const *later = v + 1;
        while (*later && strncmp(*later, *v, n) != 0) later++;
        if (!*later) return v;
    }
    return NULL;
}

static tn_status emit_detail(tn_cli *c, const thing *t, int64_t parameters)
{
    char *settings = NULL;
    size_t bytes;
    FILE *f = open_memstream(&settings, &bytes);
    if (!f) return tn_error(TN_MEMORY, "out of memory");
    const char *lead = "";
    for (const char *const *v = next_value(t, NULL); v; v = next_value(t, v), lead = " ") fprintf(f, "%s%s", lead, *v);
    fclose(f);
    json_t *row = settings ? json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", t->preset ? "preset" : "model", "name",
                                       t->name, "model", t->model->name, "help", t->help, "settings", settings)
                           : NULL;
    if (row && parameters >= 0) json_object_set_new(row, "parameters", json_integer(parameters));
    free(settings);
    return tn_cli_emit(c, row);
}

static tn_status print_detail(tn_cli *c, const thing *t)
{
    char count[16];
    bool bytes = false;
    const int64_t parameters = count_parameters(t, &bytes);
    if (c->json) return emit_detail(c, t, parameters);
    fprintf(c->out, "%s: %s\n", t->name, t->help);
    if (t->preset) fprintf(c->out, "  model       %s: %s\n", t->model->name, t->model->summary);
    if (parameters >= 0)
        fprintf(c->out, "  parameters  %s%s\n", tn_count_text((double)parameters, count),
                bytes ? " (with bytes as tokens)" : "");
    const char *lead = "settings";
    for (const char *const *v = next_value(t, NULL); v; v = next_value(t, v), lead = "")
        fprintf(c->out, "  %-10s  %s\n", lead, *v);
    for (size_t k = 0; !t->preset && k < t->model->n_presets; k++)
        fprintf(c->out, "  %-10s  %s\n", k ? "" : "presets", t->model->presets[k].name);
    if (sets(t, "inputs")) fprintf(c->out, "  try         tenon check %s\n", t->name); /* few data have that size */
    else fprintf(c->out, "  try         tenon train %s%s\n", t->name, what_is_missing(t));
    fprintf(c->out, "              tenon config show %s\n", t->name);
    return TN_OK;
}

tn_status tn_cmd_presets(tn_cli *c)
{
    const char *name = tn_args_positional(&c->args, 0);
    thing t = { 0 };
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 1));
    if (name) {
        TN_RETURN_IF(find(name, &t));
        return print_detail(c, &t);
    }
    for (size_t i = 0; tn_model_at(i); i++) TN_RETURN_IF(print_model(c, tn_model_at(i)));
    return TN_OK;
}

tn_status tn_cmd_tasks(tn_cli *c)
{
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 0));
    for (size_t i = 0; tn_task_at(i); i++) {
        const tn_task *t = tn_task_at(i);
        const char *kind = t->open    ? "samples"
                           : t->env   ? "environment"
                           : t->pairs ? "pairs"
                           : t->texts ? "texts"
                                      : "sequences";
        if (c->json)
            TN_RETURN_IF(
                tn_cli_emit(c, json_pack("{s:s, s:s, s:s}", "name", t->name, "kind", kind, "help", t->summary)));
        else fprintf(c->out, "%-14s %s\n", t->name, t->summary);
    }
    return TN_OK;
}
