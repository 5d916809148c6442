/* Whether a weights file fits the model that the settings describe. Checked before memory is allocated: a file of 200
 * bytes may claim dim=65536. */
#ifndef TN_TRAIN_WEIGHTS_CHECK_H
#define TN_TRAIN_WEIGHTS_CHECK_H

#include "train/trainer/inputs.h"

/* path: a run, a checkpoint or a file of weights. length: of a sequence, as short as may be. TN_BAD_FILE names the first
 * parameter that the file lacks, or has in another shape. Builds the model's graph up to there and no store. */
tn_status tn_weights_check(const char *path, const tn_model *model, const tn_settings *st,
                           const tn_input_spec *input_spec, int64_t length);

#endif
