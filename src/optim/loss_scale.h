/* Dynamic loss scaling for half-precision gradients: the loss is multiplied by `scale` so that small gradients do not
 * vanish; when they overflow the scale is halved, and after many good steps in a row it is doubled. Scales are powers
 * of two, so that they change no digit. Host logic only: the grad plan's scalar "loss_scale" gets `scale`, the
 * optimizer's "scale" gets 1 / (scale * batches accumulated). */
#ifndef TN_OPTIM_LOSS_SCALE_H
#define TN_OPTIM_LOSS_SCALE_H

#include <stdbool.h>

typedef struct tn_loss_scale_options {
    float first, lowest, highest; /* 0: 65536, 1, 16777216; rounded down to powers of two */
    int grow_after;               /* good steps in a row; 0: 2000 */
} tn_loss_scale_options;

typedef struct tn_loss_scale {
    float scale, lowest, highest;
    int grow_after;
    int good; /* steps since the last change; saved with the run */
} tn_loss_scale;

tn_loss_scale tn_loss_scale_start(const tn_loss_scale_options *o);
/* After each step. Returns true when the step was good, or bad in a way the smaller scale may cure; false when the
 * scale is at its lowest, so that the overflow is the model's own (tell the guard). */
bool tn_loss_scale_update(tn_loss_scale *s, bool ok);

#endif
