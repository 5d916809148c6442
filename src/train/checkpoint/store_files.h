/* Tensors of files into a store, whose memory may be a device's. */
#ifndef TN_TRAIN_STORE_FILES_H
#define TN_TRAIN_STORE_FILES_H

#include "io/safetensors.h"
#include "plan/store.h"

/* Numbers of any float type into the f32 tensor e, whose shape they have. */
tn_status tn_store_take_floats(const tn_store *st, const tn_entry *e, const tn_file_tensor *t);

#endif
