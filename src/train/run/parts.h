/* Parts of a model that come from files (tn_part_row): their shape when settings are resolved, their weights when a run starts. A checkpoint
 * holds the weights, and config.yaml the shape: a run that goes on reads no such file. */
#ifndef TN_TRAIN_PARTS_H
#define TN_TRAIN_PARTS_H

#include "models/models.h"
#include "plan/store.h"

/* For each part whose file is named and whose shape is empty: writes the settings of the model in the file that differ from gpt's defaults,
 * and train.context. Where the file is gone and the run that `run` names has been made from it, the shape is that run's. TN_USAGE: the file
 * holds another model than gpt, or no weights. */
tn_status tn_parts_resolve(tn_settings *st, const tn_model *m);

/* Fills the parts' parameters from their files, and then what holds the root mean square of their embeddings. All files are checked before
 * the first number moves. Parts without a file keep their first values. */
tn_status tn_parts_load(const tn_settings *st, const tn_model *m, tn_store *store);

/* Sets SCOPE.hash, for parts that have such a setting: of the names, shapes and numbers (f32) of the part's parameters, in the order of
 * their names, whatever the scope. `again`: also where it is set. *changed: one was set to something else. */
tn_status tn_parts_hash(tn_settings *st, const tn_model *m, const tn_store *store, bool again, bool *changed);

#endif
