/* Shared by the files of `tenon check`. */
#ifndef TN_TRAIN_CHECK_INTERNAL_H
#define TN_TRAIN_CHECK_INTERNAL_H

#include "train/check/check.h"

/* A trainer with a batch in its inputs. o: what is special about it; the length and batch are the check's where they are 0. */
tn_status tn__check_open(const tn_check *c, tn_trainer_options o, tn_trainer **t);
tn_status tn__check_spectrum(const tn_check *c, tn_check_row *r);
tn_status tn__check_gradients(const tn_check *c, tn_check_row *r);

#endif
