/* The models: built-in ones by name, others from shared objects. */
#ifndef TN_MODELS_MODELS_H
#define TN_MODELS_MODELS_H

#include "base/alloc.h"
#include "base/text.h"

#include <tenon/model.h>

const tn_model *tn_model_at(size_t i); /* NULL at the end */
const tn_model *tn_model_named(const char *name);

/* What the user typed, or handed to a call of the library: the one thing that lets a shared object run. A name may come from a
 * file (a run's settings, metadata of weights, a study, a database), and code does not: a path is loaded only where one of
 * these words says it too, as "./cell.so" or as "model=PATH", alone or among the commas of a race. NULL: nobody typed anything. */
typedef struct tn_user_args {
    const char *const *word; /* (n) */
    size_t n;
    const char *target;   /* one more, or NULL */
    const char *add, *to; /* what a refusal says to type, before the path, and where; NULL: "model=", "the command" */
} tn_user_args;

/* Whether the word asks for some shared object by its path. */
bool tn_word_asks(const char *word);

/* A name, or the path of a shared object ("./cell.so") that was asked for: checked before anything of it runs. The object
 * stays loaded (its settings are borrowed by tables that may outlive the model). TN_USAGE: there is no such model, or nobody
 * asked for the object. The only place that loads code. */
tn_status tn_model_load(const char *name_or_path, const tn_user_args *user, const tn_model **out);

/* m->build, and what it asked of the settings that is not there: that comes first, since it leads to whatever the graph then says. */
tn_status tn_model_build(const tn_model *m, tn_graph *g, const tn_settings *st, const tn_batch *b);

/* Whether it answers a prompt: it has a step "reply" (sample/sample_decode.h). */
bool tn_model_replies(const tn_model *m);

/* What `tenon eval --spectrum` shows of the model: its first view. NULL: it has none; *known is then that of a model that has one. */
const tn_view_row *tn_model_view(const tn_model *m, const tn_model **known);

/* The words of "dim=64 layers=2", NULL at the end, in `arena`. TN_USAGE: one of them is not key=value, which is what a value with a blank in it
 * looks like. */
tn_status tn_words_split(tn_arena *arena, const char *text, const char *const **out);

/* Tries the names of all models and presets, for those who mistype one. */
void tn_model_names_try(tn_nearest *near);

/* The preset of any model: *model is its owner. NULL when there is none. */
const tn_preset *tn_preset_named(const char *name, const tn_model **model);

#endif
