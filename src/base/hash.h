/* Checksums of files and memory: XXH3 with 128 bits, as text. Finds damage, not attacks: it is no cryptographic hash.
 * The text equals what `xxh128sum` prints, so a manifest can be checked without us. */
#ifndef TN_BASE_HASH_H
#define TN_BASE_HASH_H

#include "base/status.h"

#include <stddef.h>

enum { TN_HASH_BYTES = 33 }; /* 32 hex digits and a NUL */

typedef struct tn_hash tn_hash;

tn_status tn_hash_begin(tn_hash **out);
void tn_hash_add(tn_hash *h, const void *data, size_t bytes);
void tn_hash_text(const tn_hash *h, char hex[TN_HASH_BYTES]); /* of what was added so far; more may follow */
void tn_hash_free(tn_hash *h);                                /* takes NULL */

void tn_hash_memory(const void *data, size_t bytes, char hex[TN_HASH_BYTES]);
tn_status tn_hash_file(const char *path, char hex[TN_HASH_BYTES]);

#endif
