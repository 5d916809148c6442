/* Writes and reads packed files. Every size in a file is untrusted until checked; memory grows with what was really
 * unpacked, never with what a header claims. */
#include "io/packed.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

enum { WIDTH = 4, BLOCK = 1 << 20, LEVEL = 3, HEAD = 16, BLOCK_HEAD = 8 };
static const char magic[8] = { 'T', 'N', 'P', 'A', 'C', 'K', '1', '\n' };

static void store_u32(unsigned char *p, size_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(x >> 8 * i);
}

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* n bytes: those of whole numbers by place, the odd ones behind them. */
static void sort_places(const unsigned char *restrict from, size_t n, unsigned char *restrict to)
{
    const size_t count = n / WIDTH;
    for (size_t place = 0; place < WIDTH; place++)
        for (size_t i = 0; i < count; i++) to[place * count + i] = from[i * WIDTH + place];
    memcpy(to + count * WIDTH, from + count * WIDTH, n - count * WIDTH);
}

static void unsort_places(const unsigned char *restrict from, size_t n, unsigned char *restrict to)
{
    const size_t count = n / WIDTH;
    for (size_t i = 0; i < count; i++)
        for (size_t place = 0; place < WIDTH; place++) to[i * WIDTH + place] = from[place * count + i];
    memcpy(to + count * WIDTH, from + count * WIDTH, n - count * WIDTH);
}

struct tn_packer {
    tn_sink into;
    ZSTD_CCtx *zstd;
    size_t n;              /* bytes waiting in raw */
    unsigned char *raw;    /* (BLOCK) */
    unsigned char *sorted; /* (BLOCK) */
    unsigned char *packed; /* (BLOCK_HEAD + capacity) */
    size_t capacity;
};

static tn_status no_memory(void) { return tn_error(TN_MEMORY, "out of memory for compression; set ckpt.compress=off"); }

tn_status tn_packer_begin(tn_sink into, tn_packer **out)
{
    tn_status s = TN_OK;
    unsigned char head[HEAD];
    tn_packer *p = tn_alloc(sizeof *p);
    if (!p) return TN_MEMORY;
    p->into = into;
    p->capacity = ZSTD_compressBound(BLOCK);
    p->raw = tn_alloc(BLOCK);
    p->sorted = tn_alloc(BLOCK);
    p->packed = tn_alloc(BLOCK_HEAD + p->capacity);
    p->zstd = ZSTD_createCCtx();
    if (!p->raw || !p->sorted || !p->packed || !p->zstd) TN_TRY(no_memory());
    if (ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, 1)))
        TN_FAIL(TN_INTERNAL, "zstd refuses its settings");
    memcpy(head, magic, sizeof magic);
    store_u32(head + 8, WIDTH);
    store_u32(head + 12, BLOCK);
    TN_TRY(into.write(into.ctx, head, sizeof head));
    *out = p;
    p = NULL;
done:
    tn_packer_free(p);
    return s;
}

static tn_status put_block(tn_packer *p)
{
    sort_places(p->raw, p->n, p->sorted);
    const size_t bytes = ZSTD_compress2(p->zstd, p->packed + BLOCK_HEAD, p->capacity, p->sorted, p->n);
    if (ZSTD_isError(bytes)) return no_memory(); /* the room is always enough, so nothing else can be short */
    store_u32(p->packed, p->n);
    store_u32(p->packed + 4, bytes);
    p->n = 0;
    return p->into.write(p->into.ctx, p->packed, BLOCK_HEAD + bytes);
}

tn_status tn_packer_add(tn_packer *p, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    while (bytes) {
        const size_t room = BLOCK - p->n, k = bytes < room ? bytes : room;
        memcpy(p->raw + p->n, from, k);
        p->n += k;
        from += k;
        bytes -= k;
        if (p->n == BLOCK) TN_RETURN_IF(put_block(p));
    }
    return TN_OK;
}

tn_status tn_packer_finish(tn_packer *p)
{
    static const unsigned char end[BLOCK_HEAD];
    if (p->n) TN_RETURN_IF(put_block(p));
    return p->into.write(p->into.ctx, end, sizeof end);
}

void tn_packer_free(tn_packer *p)
{
    if (!p) return;
    ZSTD_freeCCtx(p->zstd);
    tn_free(p->raw);
    tn_free(p->sorted);
    tn_free(p->packed);
    tn_free(p);
}

/* --- reading --------------------------------------------------------------------------------------------------------- */

typedef struct unpacking {
    const char *path;
    tn_map map;
    size_t at, n, capacity; /* read of the map, unpacked, room in data */
    uint64_t most;
    void *data;
    unsigned char *sorted; /* (block) */
    size_t block;          /* most bytes of one */
} unpacking;

static tn_status damaged(const unpacking *u, const char *how)
{
    return tn_error(TN_BAD_FILE, "%.640s is damaged: %s at byte %zu; use another copy", u->path, how, u->at);
}

static tn_status read_head(unpacking *u)
{
    const unsigned char *p = u->map.data;
    if (u->map.bytes < HEAD || memcmp(p, magic, sizeof magic) != 0)
        return tn_error(TN_BAD_FILE, "%.640s is not a packed file of tenon; is it the right one?", u->path);
    u->block = load_u32(p + 12);
    u->at = 8;
    if (load_u32(p + 8) != WIDTH || u->block == 0 || u->block > 64u << 20) return damaged(u, "impossible sizes");
    u->at = HEAD;
    u->sorted = tn_alloc(u->block);
    return u->sorted ? TN_OK : TN_MEMORY;
}

/* One block; *more is false after the last. */
static tn_status read_block(unpacking *u, bool *more)
{
    if (u->map.bytes - u->at < BLOCK_HEAD) return damaged(u, "it ends too early");
    const size_t bytes = load_u32(u->map.data + u->at), packed = load_u32(u->map.data + u->at + 4);
    *more = bytes || packed;
    if (!*more) {
        u->at += BLOCK_HEAD;
        return u->at == u->map.bytes ? TN_OK : damaged(u, "data follows the end");
    }
    if (bytes == 0 || bytes > u->block) return damaged(u, "a block has an impossible size");
    if (packed > u->map.bytes - u->at - BLOCK_HEAD) return damaged(u, "it ends too early");
    if (bytes > u->most - u->n)
        return tn_error(TN_BAD_FILE, "%.640s unpacks to more than %llu bytes; is it the right file?", u->path,
                        (unsigned long long)u->most);
    const size_t got = ZSTD_decompress(u->sorted, u->block, u->map.data + u->at + BLOCK_HEAD, packed);
    if (ZSTD_isError(got) || got != bytes) return damaged(u, "a block does not unpack");
    TN_RETURN_IF(tn_grow(&u->data, &u->capacity, u->n + bytes, 1));
    unsort_places(u->sorted, bytes, (unsigned char *)u->data + u->n);
    u->n += bytes;
    u->at += BLOCK_HEAD + packed;
    return TN_OK;
}

tn_status tn_packed_read(const char *path, uint64_t max_bytes, unsigned char **data, size_t *bytes)
{
    tn_status s = TN_OK;
    unpacking u = { .path = path, .most = max_bytes };
    TN_TRY(tn_file_map(path, &u.map));
    TN_TRY(read_head(&u));
    for (bool more = true; more;) TN_TRY(read_block(&u, &more));
    if (!u.data) TN_TRY(tn_grow(&u.data, &u.capacity, 1, 1)); /* an empty one is still memory */
    *data = u.data;
    *bytes = u.n;
    u.data = NULL;
done:
    tn_free(u.data);
    tn_free(u.sorted);
    tn_file_unmap(&u.map);
    return s;
}

uint64_t tn_packed_most(const char *path)
{
    struct stat st;
    const uint64_t bytes = stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
    return ((uint64_t)8 << 20) + TN_PACKED_RATIO * bytes; /* a file has below 2^63 / 16 bytes anywhere */
}

bool tn_packed_named(const char *path)
{
    const size_t n = strlen(path);
    return n >= 4 && strcmp(path + n - 4, ".zst") == 0;
}
