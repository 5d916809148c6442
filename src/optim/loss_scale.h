/* Dynamic loss scaling for half-precision gradients: the loss is multiplied by `scale` so that small gradients do not
 * vanish; when they overflow the scale is halved, and after many good steps in a row it is doubled. Scales are powers
 * of two, so that they change no digit. Host logic only: the grad plan's scalar "loss_scale" gets `scale`, the
 * optimizer's "scale" gets 1 / (scale * batches accumulated). The trainer does both. */
#ifndef TN_OPTIM_LOSS_SCALE_H
#define TN_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tn_loss_scale_options {
    float first, lowest, highest; /* 0: 65536, 1, the larger of 16777216 and first; rounded down to powers of two */
    int grow_after;               /* good steps in a row; 0: 2000 */
} tn_loss_scale_options;

typedef struct tn_loss_scale {
    float scale, lowest, highest;
    int grow_after;
    int good; /* steps since the last change; saved with the run */
} tn_loss_scale;

/* What a resumed run needs to go on alike. */
typedef struct tn_loss_scale_state {
    double scale; /* 1 where the loss is not scaled */
    int64_t good;
} tn_loss_scale_state;

tn_loss_scale tn_loss_scale_start(const tn_loss_scale_options *o);
/* After each step. Returns true when the step was good, or bad in a way the smaller scale may cure; false when the
 * scale is at its lowest, so that the overflow is the model's own (tell the guard). */
bool tn_loss_scale_update(tn_loss_scale *s, bool ok);

#endif
