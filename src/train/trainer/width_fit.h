/* Counts a model's parameters from its graph, without allocating them, and finds the width with a given count, for
 * comparisons at equal size. */
#ifndef TN_TRAIN_WIDTH_FIT_H
#define TN_TRAIN_WIDTH_FIT_H

#include "train/trainer/inputs.h"

/* Of the model as the settings stand, fed by `supply` (NULL: nobody; an automatic vocabulary is that of no data). frozen, or NULL: numbers
 * that are never trained, such as a table of positions. */
tn_status tn_tensors_count(const tn_model *model, const tn_settings *st, const tn_input_spec *input_spec,
                           int64_t *parameters, int64_t *frozen);

#define TN_WIDTH_TOLERANCE 0.03 /* part of the wanted number that the result may differ by */

typedef struct tn_width {
    int64_t parameters;
    char text[64]; /* what was chosen: "dim=104", or "dim=104 ffn=280" */
} tn_width;

/* Changes `key` (an integer setting) so that the count comes as near as it can to `parameters`. NULL is dim: the nearest multiple
 * of 8; from 128 on, where ffn is auto, a multiple of 64 (else 32, 16) with the ffn that takes up the rest: a GPU trains
 * dim=384 twice as fast as dim=360. Where no multiple of 8 is near enough, the nearest with another ffn, then any dim. Values
 * that the model refuses (dim no multiple of heads) are left out. TN_USAGE, with the nearest count there is: it is not within the tolerance;
 * the settings are then as they were. */
tn_status tn_width_fit(const tn_model *model, tn_settings *st, const tn_input_spec *input_spec, const char *key,
                       int64_t parameters, tn_width *out);

#endif
