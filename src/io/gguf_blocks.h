/* The number types of GGUF files. A tensor is a row of blocks; a block has a fixed number of values that share scales, and
 * a fixed number of bytes. One table says which types are read and how: name, sizes, decoder.
 *
 * Bits are those of the format's reference in Python (tests/peers/check_gguf.py). Every product in a decoder is exact in
 * f32 (an f16 scale has 11 bits, a block's own scale 7, a value 5), so that at most the last sum rounds, and contraction
 * to fused operations changes nothing. Which NaN comes out of a NaN or infinite scale is the machine's business. */
#ifndef TN_IO_GGUF_BLOCKS_H
#define TN_IO_GGUF_BLOCKS_H

#include <tenon/tensor.h>

typedef struct tn_gguf_type {
    const char *name;
    uint32_t id;    /* in files */
    tn_dtype dtype; /* TN_DTYPES: no type of ours, only decoded */
    int32_t values; /* of a block, at most TN_GGUF_BLOCK_MAX */
    int32_t bytes;  /* of a block */
    void (*decode)(const unsigned char *src, float *dst,
                   int64_t blocks); /* src (blocks, bytes), dst (blocks, values) */
} tn_gguf_type;

enum { TN_GGUF_BLOCK_MAX = 256 };

const tn_gguf_type *tn_gguf_types(size_t *n);
const tn_gguf_type *tn_gguf_type_of(uint32_t id); /* NULL where it cannot be read */
const char *tn_gguf_type_name(uint32_t id);       /* "?" where nobody knows it */

/* dst (n): the values first .. first+n-1 of the row of blocks at src. Blocks may be cut on both sides. */
void tn_gguf_decode(const tn_gguf_type *t, const unsigned char *src, int64_t first, int64_t n, float *dst);

#endif
