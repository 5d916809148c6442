/* The file, little-endian as the machine is:
 *
 *   "TNKEPT01"  u64 payload bytes  key (33)  7 bytes of 0
 *   payload
 *   hash (33) of all before it
 *
 * The hash is compared when the file is opened. */
#include "tasks/wire/wire_kept.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum { FLUSH = 1 << 20 };
static const char magic[8] = { 'T', 'N', 'K', 'E', 'P', 'T', '0', '1' };

typedef struct header {
    char magic[8];
    uint64_t payload;
    char key[TN_HASH_BYTES], unused[7];
} header;

struct tn_wire_kept_writer {
    tn_atomic_file file;
    tn_hash *hash;
    uint64_t left; /* bytes of the payload */
    unsigned char *buffer;
    size_t bytes, capacity;
};

uint64_t tn_wire_kept_bytes(uint64_t payload) { return sizeof(header) + payload + TN_HASH_BYTES; }

static header header_of(const char *key, uint64_t payload)
{
    header h = { .payload = payload };
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, key, sizeof h.key);
    return h;
}

/* --- writing -------------------------------------------------------------------------------------------------------------------- */

static tn_status flush(tn_wire_kept_writer *w)
{
    if (!w->bytes) return TN_OK;
    tn_hash_add(w->hash, w->buffer, w->bytes);
    TN_RETURN_IF(tn_atomic_write(&w->file, w->buffer, w->bytes));
    w->bytes = 0;
    return TN_OK;
}

tn_status tn_wire_kept_begin(const char *path, const char key[TN_HASH_BYTES], uint64_t payload,
                             tn_wire_kept_writer **out)
{
    tn_status s = TN_OK;
    tn_wire_kept_writer *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    const header h = header_of(key, payload);
    *w = (tn_wire_kept_writer){ .left = payload };
    TN_TRY(tn_hash_begin(&w->hash));
    TN_TRY(tn_atomic_open(path, &w->file));
    tn_hash_add(w->hash, &h, sizeof h);
    TN_TRY(tn_atomic_write(&w->file, &h, sizeof h));
    *out = w;
    w = NULL;
done:
    tn_wire_kept_abort(w);
    return s;
}

tn_status tn_wire_kept_add(tn_wire_kept_writer *w, const void *x, tn_dtype from, tn_dtype to, int64_t n)
{
    const size_t bytes = (size_t)n * tn_dtype_bytes(to), need = w->bytes + bytes + 1;
    void *p = w->buffer;
    if (bytes > w->left) return tn_error(TN_INTERNAL, "more numbers are to be kept than there are");
    if (need > w->capacity) TN_RETURN_IF(tn_grow(&p, &w->capacity, need + FLUSH, 1));
    w->buffer = p;
    tn_convert(w->buffer + w->bytes, to, x, from, n); /* at an even byte, which is enough for halves */
    w->bytes += bytes;
    w->left -= bytes;
    return w->bytes < FLUSH ? TN_OK : flush(w);
}

tn_status tn_wire_kept_finish(tn_wire_kept_writer *w)
{
    char hex[TN_HASH_BYTES];
    if (w->left) return tn_error(TN_INTERNAL, "what is to be kept ends before the last of it");
    TN_RETURN_IF(flush(w));
    tn_hash_text(w->hash, hex);
    TN_RETURN_IF(tn_atomic_write(&w->file, hex, sizeof hex));
    return tn_atomic_finish(&w->file);
}

void tn_wire_kept_abort(tn_wire_kept_writer *w)
{
    if (!w) return;
    tn_atomic_abort(&w->file);
    tn_hash_free(w->hash);
    tn_free(w->buffer);
    tn_free(w);
}

/* --- reading -------------------------------------------------------------------------------------------------------------------- */

tn_status tn_wire_kept_damaged(const char *path, const char *what)
{
    return tn_error(TN_BAD_FILE, "%.640s: %s: remove the file, it is made again", path, what);
}

/* The whole file against the hash at its end. */
static tn_status check_hash(const tn_file *f, const char *path)
{
    tn_status s = TN_OK;
    tn_hash *h = NULL;
    char hex[TN_HASH_BYTES], kept[TN_HASH_BYTES];
    const uint64_t end = f->bytes - sizeof kept;
    unsigned char *part = tn_alloc(FLUSH);
    if (!part) return TN_MEMORY;
    TN_TRY(tn_hash_begin(&h));
    for (uint64_t at = 0; at < end; at += FLUSH) {
        const size_t n = end - at < FLUSH ? (size_t)(end - at) : FLUSH;
        TN_TRY(tn_file_read_at(f, path, at, part, n));
        tn_hash_add(h, part, n);
    }
    tn_hash_text(h, hex);
    TN_TRY(tn_file_read_at(f, path, end, kept, sizeof kept));
    if (memcmp(hex, kept, sizeof hex) != 0) TN_TRY(tn_wire_kept_damaged(path, "its contents are not what was written"));
done:
    tn_hash_free(h);
    tn_free(part);
    return s;
}

static tn_status check_file(const tn_file *f, const char *path, const header *want)
{
    header h;
    if (f->bytes < sizeof h + TN_HASH_BYTES) return tn_wire_kept_damaged(path, "it was cut");
    TN_RETURN_IF(tn_file_read_at(f, path, 0, &h, sizeof h));
    if (memcmp(h.magic, want->magic, sizeof h.magic) != 0)
        return tn_wire_kept_damaged(path, "it is no file of what models gave");
    if (memcmp(h.key, want->key, sizeof h.key) != 0)
        return tn_wire_kept_damaged(path, "it has the answers of other readers, texts or settings");
    if (h.payload != want->payload) return tn_wire_kept_damaged(path, "its header is damaged");
    if (f->bytes != tn_wire_kept_bytes(want->payload))
        return tn_wire_kept_damaged(path, "it was cut, or something was added");
    return check_hash(f, path);
}

tn_status tn_wire_kept_open(const char *path, const char key[TN_HASH_BYTES], uint64_t payload, tn_wire_kept *out)
{
    tn_wire_kept k = { 0 };
    const header want = header_of(key, payload);
    snprintf(k.path, sizeof k.path, "%s", path);
    TN_RETURN_IF(tn_file_open(path, &k.file));
    const tn_status s = check_file(&k.file, path, &want);
    if (s == TN_OK) *out = k;
    else tn_file_close(&k.file);
    return s;
}

void tn_wire_kept_close(tn_wire_kept *k) { tn_file_close(&k->file); }

tn_status tn_wire_kept_read(const tn_wire_kept *k, uint64_t at, tn_dtype type, int64_t n, void *to)
{
    enum { PART = 2048 };
    uint16_t part[PART];
    const size_t item = tn_dtype_bytes(type);
    at += sizeof(header);
    if (item == sizeof(float)) return tn_file_read_at(&k->file, k->path, at, to, (size_t)n * item);
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t count = n - i < PART ? n - i : PART;
        TN_RETURN_IF(tn_file_read_at(&k->file, k->path, at + (uint64_t)i * item, part, (size_t)count * item));
        tn_convert((float *)to + i, TN_F32, part, type, count);
    }
    return TN_OK;
}
