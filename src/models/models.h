/* The models there are: those of the tree by name, others from shared objects. */
#ifndef TN_MODELS_MODELS_H
#define TN_MODELS_MODELS_H

#include <tenon/model.h>

const tn_model *tn_model_at(size_t i); /* NULL at the end */
const tn_model *tn_model_named(const char *name);

/* A name, or the path of a shared object ("./cell.so"): checked before anything of it runs. The object stays loaded
 * (its settings are borrowed by tables that may outlive the model). TN_USAGE names the nearest model. */
tn_status tn_model_load(const char *name_or_path, const tn_model **out);

/* The preset of any model: *model is its owner. NULL when there is none. */
const tn_preset *tn_preset_named(const char *name, const tn_model **model);

#endif
