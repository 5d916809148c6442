/* A run is a directory: config.yaml (resolved settings), metrics.jsonl, model.safetensors (the weights at its end). */
#ifndef TN_TRAIN_RUN_H
#define TN_TRAIN_RUN_H

#include "plan/store.h"

#include <tenon/settings.h>

enum { TN_RUN_PATH = 4096 };

/* Makes the directory: the setting `run`, or runs/MODEL-N with the first free N. Writes config.yaml. A directory that
 * holds a run already is refused unless `fresh`, which starts it over. */
tn_status tn_run_create(const tn_settings *st, const char *model, bool fresh, char dir[TN_RUN_PATH]);
/* The parameters as safetensors, whole or not at all. */
tn_status tn_run_save_weights(const char *dir, const tn_store *st);

#endif
