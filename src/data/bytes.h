/* Text as bytes: a file mapped into memory, its end held out, batches of windows. A token is a byte. */
#ifndef TN_DATA_BYTES_H
#define TN_DATA_BYTES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_bytes tn_bytes;

/* Refuses a file too short for one window of `length` tokens in each part. */
tn_status tn_bytes_open(const char *path, double holdout_frac, int64_t length, tn_bytes **out);
void tn_bytes_close(tn_bytes *b); /* takes NULL */
size_t tn_bytes_size(const tn_bytes *b, bool heldout);

/* Windows for training: start positions are a function of (seed, step), whatever came before.
 * tokens, labels: (B,T); labels are the next bytes. */
void tn_bytes_batch(const tn_bytes *b, uint64_t seed, int64_t step, int64_t B, int64_t T, int32_t *tokens, int32_t *labels);
/* Batch i of the held-out part: windows side by side from its start, around again at its end. */
void tn_bytes_heldout(const tn_bytes *b, int64_t i, int64_t B, int64_t T, int32_t *tokens, int32_t *labels);

#endif
