/* The shape of a gpt, for models that contain one and need more of it than its forward pass (tn_part_forward) gives. */
#ifndef TN_MODELS_GPT_H
#define TN_MODELS_GPT_H

#include "models/decoder.h"

/* What the settings say, with all that is auto filled in, checked against the batch's length (b NULL: against nothing). */
tn_status tn_gpt_shape(const tn_graph *g, const tn_settings *st, const tn_batch *b, tn_decoder_shape *out);

#endif
