/* Text as bytes. Reading a batch copies from the map; it allocates nothing and opens nothing. */
#include "data/bytes.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/rng.h"

struct tn_bytes {
    tn_map map;
    size_t train; /* bytes before the held-out part */
};

tn_status tn_bytes_open(const char *path, double holdout_frac, int64_t length, tn_bytes **out)
{
    tn_status s = TN_OK;
    tn_bytes *b = tn_alloc(sizeof *b);
    if (!b) return TN_MEMORY;
    TN_TRY(tn_file_map(path, &b->map));
    const size_t window = (size_t)length + 1;
    size_t held = (size_t)((double)b->map.bytes * holdout_frac);
    if (held < window) held = window;
    if (b->map.bytes < 2 * window)
        TN_FAIL(TN_BAD_FILE, "%s has %zu bytes, too few for windows of %lld tokens: use a smaller train.context or more text",
                path, b->map.bytes, (long long)length);
    if (held > b->map.bytes - window) held = b->map.bytes - window;
    b->train = b->map.bytes - held;
    *out = b;
    return TN_OK;
done:
    tn_bytes_close(b);
    return s;
}

void tn_bytes_close(tn_bytes *b)
{
    if (!b) return;
    tn_file_unmap(&b->map);
    tn_free(b);
}

size_t tn_bytes_size(const tn_bytes *b, bool heldout) { return heldout ? b->map.bytes - b->train : b->train; }

static void copy_window(const unsigned char *from, int64_t T, int32_t *tokens, int32_t *labels)
{
    for (int64_t t = 0; t < T; t++) {
        tokens[t] = from[t];
        labels[t] = from[t + 1];
    }
}

void tn_bytes_batch(const tn_bytes *b, uint64_t seed, int64_t step, int64_t B, int64_t T, int32_t *tokens, int32_t *labels)
{
    const tn_rng r = { .seed = seed, .stream = tn_rng_stream("batch") };
    const uint64_t starts = b->train - (uint64_t)T;
    for (int64_t i = 0; i < B; i++) {
        const uint64_t at = tn_rng_below(r, (uint64_t)(step * B + i), starts);
        copy_window(b->map.data + at, T, tokens + i * T, labels + i * T);
    }
}

void tn_bytes_heldout(const tn_bytes *b, int64_t n, int64_t B, int64_t T, int32_t *tokens, int32_t *labels)
{
    const uint64_t windows = (b->map.bytes - b->train - 1) / (uint64_t)T;
    for (int64_t i = 0; i < B; i++) {
        const uint64_t at = b->train + (uint64_t)(n * B + i) % windows * (uint64_t)T;
        copy_window(b->map.data + at, T, tokens + i * T, labels + i * T);
    }
}
