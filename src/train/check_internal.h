/* What the checks of check.h share: for check.c, check_gradients.c and check_spectrum.c. */
#ifndef TN_TRAIN_CHECK_INTERNAL_H
#define TN_TRAIN_CHECK_INTERNAL_H

#include "train/check.h"

/* A trainer with a batch in its inputs. threads 0: as the settings say. */
tn_status tn__check_open(const tn_check *c, int64_t batch, int64_t length, int threads, bool logits, bool forward_only, tn_trainer **t);
/* The same, at the length and batch of the check, for evaluations that the model's instruments look at. */
tn_status tn__check_open_looking(const tn_check *c, tn_trainer **t);
tn_status tn__check_spectrum(const tn_check *c, tn_check_row *r);
tn_status tn__check_gradients(const tn_check *c, tn_check_row *r);

#endif
