/* Packed files: numbers of 4 bytes, their bytes sorted by place (all first bytes, all second ones, ...), then zstd.
 * Weights shrink little as they stand and more this way, because signs and exponents repeat. Little-endian:
 *   "TNPACK1\n"   u32 width (4)   u32 most bytes of a block
 *   blocks: u32 bytes, u32 packed bytes, one zstd frame with a checksum;   0, 0 after the last one
 * A file that was cut or changed anywhere is refused. Knows nothing of what the bytes mean. */
#ifndef TN_IO_PACKED_H
#define TN_IO_PACKED_H

#include "io/sink.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tn_packer tn_packer;

/* Packs a stream into `into`. */
tn_status tn_packer_begin(tn_sink into, tn_packer **out);
tn_status tn_packer_add(tn_packer *p, const void *data, size_t bytes);
tn_status tn_packer_finish(tn_packer *p); /* the last block; does not free */
void tn_packer_free(tn_packer *p);        /* takes NULL */

/* Unpacks a whole file, refused beyond max_bytes. Free *data with tn_free. */
tn_status tn_packed_read(const char *path, uint64_t max_bytes, unsigned char **data, size_t *bytes);
/* The most that a packed file of unknown origin may become: TN_PACKED_RATIO times its size, and 8 MiB. Trained weights shrink to
 * no less than a half, zeros to a 30,000th: without a bound 100 kB could claim gigabytes. */
enum { TN_PACKED_RATIO = 16 };
uint64_t tn_packed_most(const char *path);
/* Whether the name ends in ".zst". */
bool tn_packed_named(const char *path);

#endif
