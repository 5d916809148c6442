/* Hashes of parameters: of their names, shapes and numbers, whatever file or type they come from. */
#ifndef TN_TRAIN_WEIGHTS_HASH_H
#define TN_TRAIN_WEIGHTS_HASH_H

#include "base/hash.h"
#include "plan/store.h"

/* Hands out the numbers of e in f32, in order. */
tn_status tn_entry_numbers(const tn_store *store, const tn_entry *e, void (*see)(void *ctx, const float *x, int64_t n),
                           void *ctx);

/* The name under which an entry counts; NULL: it does not. */
typedef const char *tn_weights_name(const void *ctx, const tn_entry *e);
/* Adds all that name_of names, in the order of the store's names. *n (may be NULL): how many. */
tn_status tn_weights_hash_add(const tn_store *store, tn_weights_name *name_of, const void *ctx, tn_hash *h, size_t *n);

#endif
