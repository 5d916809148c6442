/* A shard: one file of a prepared data set. A header of 256 bytes, then either tokens and the table of where documents begin,
 * or samples (features and labels). Little-endian; every part begins at a multiple of 8 bytes.
 *
 *   0  "TNSHARD\0"         40  documents (tokens) or samples (arrays)      96  dims[8], of one sample
 *   8  version, u32        48  tokens; features of all samples            160  hash of all that follows the header, 16 bytes
 *  12  kind, u32           56  bytes of text the tokens stand for         240  hash of the 240 bytes before it, 16 bytes
 *  16  item type, u32      64  offset of tokens or features
 *  20  rank, u32           72  offset of the table (documents + 1 numbers, u64) or of the labels (i32)
 *  24  vocab, u64          80  bytes of the file
 *  32  classes, u64        88  0 (and 176..240)
 *
 * The reader reads what it is asked for; all of the header is checked before anything is handed out, the rest when it is used. */
#ifndef TN_DATA_SHARD_H
#define TN_DATA_SHARD_H

#include "base/fs.h"
#include "base/hash.h"
#include "base/status.h"

enum {
    TN_SHARD_HEADER_BYTES = 256,
    TN_SHARD_RANK_MAX = 8,
    TN_SHARD_DOCUMENTS_MAX = 8 << 20 /* the writer ends a shard there, so that its table stays small in memory */
};

typedef enum tn_shard_kind { TN_SHARD_TOKENS = 1, TN_SHARD_ARRAYS = 2 } tn_shard_kind;
typedef enum tn_item { TN_ITEM_U8 = 1, TN_ITEM_U16 = 2, TN_ITEM_U32 = 4, TN_ITEM_F32 = 5 } tn_item;

size_t tn_item_bytes(tn_item i); /* 0: no such type */
const char *tn_item_name(tn_item i);

typedef struct tn_shard_info {
    tn_shard_kind kind;
    tn_item item; /* tokens: U16 or U32; arrays: U8 or F32 */
    int rank;
    int64_t dims[TN_SHARD_RANK_MAX]; /* of one sample */
    uint64_t vocab, classes;
    uint64_t documents, tokens, text_bytes; /* arrays: samples, features of all samples, 0 */
    char hash[TN_HASH_BYTES];               /* of all that follows the header */
} tn_shard_info;

typedef struct tn_shard {
    tn_shard_info info;
    tn_file file;
    uint64_t items_at; /* (tokens) of info.item */
    uint64_t
        table_at; /* tokens: (documents + 1) u64, where documents begin, and the number of tokens; arrays: (documents) i32, labels */
    char path[TN_PATH_BYTES];
} tn_shard;

tn_status tn_shard_open(const char *path, tn_shard *out);
void tn_shard_close(tn_shard *s); /* takes a zeroed one */
/* Reads all of it: the hash, the table, ids below the vocabulary, labels below the classes. */
tn_status tn_shard_verify(const tn_shard *s);
bool tn_shard_is(const char *path); /* begins like one */

/* Writes a shard that appears whole or not at all. Tokens: begin a document, put its tokens, ...; the table is kept in
 * memory until the end, a byte or two for a short document. Arrays: put samples; labels are kept until the end. */
typedef struct tn_shard_writer tn_shard_writer;

/* Of `info`: kind, item, rank, dims, vocab, classes (0 for arrays: found from the labels). */
tn_status tn_shard_writer_open(const char *path, const tn_shard_info *info, tn_shard_writer **out);
tn_status tn_shard_writer_document(tn_shard_writer *w, uint64_t text_bytes); /* more text of it: tn_shard_writer_text */
void tn_shard_writer_text(tn_shard_writer *w, uint64_t text_bytes);
tn_status tn_shard_writer_tokens(tn_shard_writer *w, const int32_t *ids,
                                 size_t n); /* TN_INTERNAL beyond the vocabulary */
tn_status tn_shard_writer_sample(tn_shard_writer *w, const void *features, int32_t label);
uint64_t tn_shard_writer_count(const tn_shard_writer *w, uint64_t *documents); /* tokens so far */
/* Both free the writer; *info (may be NULL) is what was written. */
tn_status tn_shard_writer_finish(tn_shard_writer *w, tn_shard_info *info);
void tn_shard_writer_abort(tn_shard_writer *w); /* takes NULL */

#endif
