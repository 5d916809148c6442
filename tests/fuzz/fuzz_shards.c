/* Data sets: a shard (first byte even: its header's checksum is made right, so that the fuzzer gets behind it) or a manifest (odd).
 * Refused, or what it promises fits into the file. */
#include "base/hash.h"
#include "data/manifest.h"
#include "data/shard_format.h"
#include "fuzz_file.h"

static void shard(const uint8_t *input, size_t bytes)
{
    tn_shard h = { 0 };
    uint8_t *file = malloc(bytes + 1);
    char hex[TN_HASH_BYTES];
    CHECK(file);
    memcpy(file, input, bytes);
    if (bytes >= TN_SHARD_HEADER_BYTES) {
        const uint64_t size = bytes;
        memcpy(file, TN_SHARD_MAGIC, sizeof TN_SHARD_MAGIC);
        memcpy(file + offsetof(tn_shard_header, file_bytes), &size, sizeof size);
        tn_hash_memory(file + TN_SHARD_HEADER_BYTES, bytes - TN_SHARD_HEADER_BYTES, hex);
        tn_shard_hash_bytes(hex, file + offsetof(tn_shard_header, hash));
        tn_hash_memory(file, TN_SHARD_HASHED_BYTES, hex);
        tn_shard_hash_bytes(hex, file + TN_SHARD_HASHED_BYTES);
    }
    const tn_status s = tn_shard_open(fuzz_put("train-00000.bin", file, bytes), &h);
    if (s != TN_OK) fuzz_refused(s);
    else {
        CHECK(h.info.rank <= TN_SHARD_RANK_MAX && tn_item_bytes(h.info.item) > 0);
        CHECK(h.items_at <= bytes && h.info.tokens <= (bytes - h.items_at) / tn_item_bytes(h.info.item));
        const tn_status whole = tn_shard_verify(&h);
        if (whole != TN_OK) fuzz_refused(whole);
    }
    tn_shard_close(&h);
    free(file);
}

static void manifest(const uint8_t *input, size_t bytes)
{
    tn_manifest m = { 0 };
    (void)fuzz_put(TN_MANIFEST_NAME, input, bytes);
    const tn_status s = tn_manifest_read(fuzz_dir(), &m);
    if (s != TN_OK) fuzz_refused(s);
    for (int i = 0; s == TN_OK && i < TN_SPLITS; i++)
        for (size_t k = 0; k < m.split[i].n; k++) CHECK(!strchr(m.split[i].shards[k].file, '/'));
    tn_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes == 0) return 0;
    if (input[0] % 2 == 0) shard(input + 1, bytes - 1);
    else manifest(input + 1, bytes - 1);
    return 0;
}
