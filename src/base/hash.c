/* A thin cover over libxxhash. The state is made by that library, whose size for it may change between versions. */
#include "base/hash.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <errno.h>
#include <unistd.h>
#include <xxhash.h>

struct tn_hash {
    XXH3_state_t *state;
};

static void to_text(XXH128_hash_t value, char hex[TN_HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, value);
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = digits[c.digest[i] >> 4];
        hex[2 * i + 1] = digits[c.digest[i] & 15];
    }
    hex[32] = 0;
}

tn_status tn_hash_begin(tn_hash **out)
{
    tn_hash *h = tn_alloc(sizeof *h);
    if (!h) return TN_MEMORY;
    h->state = XXH3_createState();
    if (!h->state || XXH3_128bits_reset(h->state) != XXH_OK) {
        tn_hash_free(h);
        return tn_error(TN_MEMORY, "out of memory for a checksum; free memory and try again");
    }
    *out = h;
    return TN_OK;
}

void tn_hash_add(tn_hash *h, const void *data, size_t bytes)
{
    if (bytes) (void)XXH3_128bits_update(h->state, data, bytes); /* fails only for a NULL pointer */
}

void tn_hash_text(const tn_hash *h, char hex[TN_HASH_BYTES]) { to_text(XXH3_128bits_digest(h->state), hex); }

void tn_hash_free(tn_hash *h)
{
    if (!h) return;
    (void)XXH3_freeState(h->state);
    tn_free(h);
}

void tn_hash_memory(const void *data, size_t bytes, char hex[TN_HASH_BYTES])
{
    to_text(XXH3_128bits(data, bytes), hex);
}

tn_status tn_hash_file(const char *path, char hex[TN_HASH_BYTES])
{
    enum { CHUNK = 1 << 18 };
    tn_status s = TN_OK;
    tn_hash *h = NULL;
    unsigned char *chunk = NULL;
    int fd;
    TN_RETURN_IF(tn_fd_open(path, &fd));
    TN_TRY(tn_hash_begin(&h));
    if (!(chunk = tn_alloc(CHUNK))) TN_TRY(TN_MEMORY);
    for (;;) {
        const ptrdiff_t k = tn_fd_read(fd, chunk, CHUNK);
        if (k < 0) TN_TRY(tn_fs_error(TN_BAD_FILE, errno, "read", path));
        if (k == 0) break;
        tn_hash_add(h, chunk, (size_t)k);
    }
    tn_hash_text(h, hex);
done:
    tn_free(chunk);
    tn_hash_free(h);
    close(fd);
    return s;
}
