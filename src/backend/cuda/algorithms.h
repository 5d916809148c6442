/* Which algorithm was fastest for which shape, kept on disk between runs: measuring takes longer than most first steps.
 * The file belongs to one GPU model and one version of cuBLASLt; anything wrong with it means measuring anew. */
#ifndef TN_BACKEND_CUDA_ALGORITHMS_H
#define TN_BACKEND_CUDA_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tn_algorithms tn_algorithms;

/* key_bytes and value_bytes: of every entry. NULL: no memory, nothing is remembered (all calls take it). */
tn_algorithms *tn_algorithms_open(const char *gpu, size_t version, size_t key_bytes, size_t value_bytes);
bool tn_algorithms_find(const tn_algorithms *a, const void *key, void *value);
void tn_algorithms_add(tn_algorithms *a, const void *key, const void *value);
/* Writes the file where something was added; a disk that does not take it is no error. */
void tn_algorithms_close(tn_algorithms *a);

#endif
