/* What a training run does when its disk fails it: it says so in one line and goes on. The order of tries is training.c's; here are
 * the words, the room that is looked for beforehand, and the pauses. */
#ifndef TN_TRAIN_SAVE_FAULTS_H
#define TN_TRAIN_SAVE_FAULTS_H

#include "train/run/training.h"

/* One line to t->warn, which must be there. */
void tn_training_warn(const tn_training *t, const char *fmt, ...) TN_PRINTF(2, 3);
/* A warning where the disk has not room for two checkpoints: the new one is written beside the old one. */
tn_status tn_warn_disk_space(const tn_training *t);
/* Stands still; false: somebody asked for the end meanwhile. */
bool tn_training_pause(const tn_training *t, double seconds);

#endif
