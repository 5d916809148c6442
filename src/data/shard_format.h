/* The header of a shard as it lies in the file; for shard.c and shard_writer.c only. */
#ifndef TN_DATA_SHARD_FORMAT_H
#define TN_DATA_SHARD_FORMAT_H

#include "data/shard.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shards are little-endian, and so must the machine be"
#endif

#define TN_SHARD_MAGIC "TNSHARD" /* with its NUL: 8 bytes */
enum { TN_SHARD_VERSION = 1, TN_SHARD_HASHED_BYTES = 240 };

typedef struct tn_shard_header {
    char magic[8];
    uint32_t version, kind, item, rank;
    uint64_t vocab, classes;
    uint64_t documents, tokens, text_bytes;
    uint64_t items_at, table_at, file_bytes, zero;
    uint64_t dims[TN_SHARD_RANK_MAX];
    unsigned char hash[16], zeros[64];
    unsigned char header_hash[16];
} tn_shard_header;

_Static_assert(sizeof(tn_shard_header) == TN_SHARD_HEADER_BYTES, "the header has no padding");

/* The 16 bytes that a hash's text stands for. */
static inline void tn_shard_hash_bytes(const char hex[TN_HASH_BYTES], unsigned char out[16])
{
    for (int i = 0; i < 32; i++) {
        const unsigned char c = (unsigned char)hex[i];
        const unsigned char v = (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
        out[i / 2] = (unsigned char)(i % 2 ? out[i / 2] | v : v << 4);
    }
}

#endif
