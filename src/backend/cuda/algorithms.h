/* Which algorithm was fastest for which shape, kept on disk between runs: measuring takes longer than most first steps.
 * A file belongs to one purpose, one GPU model and one version of a library; anything wrong with it means measuring anew. */
#ifndef TN_BACKEND_CUDA_ALGORITHMS_H
#define TN_BACKEND_CUDA_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tn_algorithms tn_algorithms;

/* The path of a file in the cache of what was measured, whose folder is made; false: there is no place for one. path has
 * TN_PATH_BYTES. */
bool tn_cache_path(const char *name, char *path);

/* key_bytes and value_bytes: of every entry. NULL: no memory, nothing is remembered (all calls take it). */
tn_algorithms *tn_algorithms_open(const char *purpose, const char *gpu, size_t version, size_t key_bytes,
                                  size_t value_bytes);
bool tn_algorithms_find(const tn_algorithms *a, const void *key, void *value);
void tn_algorithms_add(tn_algorithms *a, const void *key, const void *value);
/* Writes the file where something was added; a disk that does not take it is no error. */
void tn_algorithms_close(tn_algorithms *a);

#endif
